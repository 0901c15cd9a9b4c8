// SPDX-License-Identifier: Apache-2.0
#include "datatypes/results.h"

#include <fmt/core.h>

#include <algorithm>

namespace datatypes {
namespace {

std::string number(double value) {
  if (value >= 1000) return fmt::format("{:.0f}", value);
  if (value >= 10) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

std::string timeOf(const Row& row, const std::string& way) {
  const auto found = row.us.find(way);
  return found == row.us.end() ? "-" : number(found->second);
}

std::string ratioTo(const Row& row, std::optional<double> base) {
  const auto engine = row.us.find("engine");
  return base && engine != row.us.end() ? fmt::format("{:.2f}", engine->second / *base) : "-";
}

std::optional<double> usOf(const Row& row, const std::string& way) {
  const auto found = row.us.find(way);
  return found == row.us.end() ? std::nullopt : std::optional(found->second);
}

constexpr const char* kLine =
    "{:<30} {:<12} {:<7} {:<7} {:>9} {:>9} {:>9} {:>9} {:>11} {:>12}  {:<24} {:<8} {}\n";

}  // namespace

void Panel::set(double x, const std::string& name, double y) {
  if (std::find(series.begin(), series.end(), name) == series.end()) series.push_back(name);
  points[x][name] = y;
}

bool Results::right() const {
  return std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.error.empty(); }) &&
         std::all_of(figures.begin(), figures.end(),
                     [](const Figure& figure) { return figure.error.empty(); });
}

bool Results::allMet() const {
  return std::all_of(rows.begin(), rows.end(), [](const Row& row) {
    return std::all_of(row.verdicts.begin(), row.verdicts.end(),
                       [](const Verdict& verdict) { return verdict.met(); });
  });
}

std::string toTable(const std::vector<Row>& rows) {
  std::string table =
      fmt::format(kLine, "work", "size", "into", "method", "engine us", "hand us", "copy2d us",
                  "bound us", "engine/hand", "engine/bound", "target", "reached", "");
  for (const Row& row : rows) {
    const std::size_t lines = std::max<std::size_t>(row.verdicts.size(), 1);
    for (std::size_t i = 0; i < lines; ++i) {
      const Verdict* const verdict = i < row.verdicts.size() ? &row.verdicts[i] : nullptr;
      const std::string target = verdict != nullptr ? verdict->target : "";
      const std::string reached = verdict != nullptr ? number(verdict->value) + verdict->unit : "";
      const char* const word = verdict == nullptr ? "" : verdict->met() ? "met" : "MISSED";
      if (i > 0) {
        table += fmt::format(kLine, "", "", "", "", "", "", "", "", "", "", target, reached, word);
        continue;
      }
      table += fmt::format(kLine, row.work, row.size, row.into, row.method, timeOf(row, "engine"),
                           timeOf(row, "hand"), timeOf(row, "copy2d"),
                           row.boundUs ? number(*row.boundUs) : "-",
                           ratioTo(row, usOf(row, "hand")), ratioTo(row, row.boundUs), target,
                           reached, row.error.empty() ? word : "FAILED");
    }
    for (const std::string& way : row.beside) {
      const std::optional<double> copy = usOf(row, "copy");
      const std::optional<double> us = usOf(row, way);
      if (!us) continue;
      table += fmt::format(kLine, "  " + way, "", "", "", number(*us), "", "", "", "", "",
                           copy ? number(100 * *copy / *us) + " % of a copy" : "", "", "");
    }
  }
  for (const Row& row : rows) {
    if (!row.error.empty()) {
      table += fmt::format("failed: {}, {}: {}\n", row.work, row.size, row.error);
    }
  }
  return table;
}

std::string toText(const Figure& figure) {
  std::string text = fmt::format("{}: {}\n", figure.name, figure.title);
  for (const Panel& panel : figure.panels) {
    text += fmt::format("  {} ({})\n", panel.title, panel.yLabel);
    text += fmt::format("    {:>24}", panel.xLabel);
    for (const std::string& name : panel.series) text += fmt::format(" {:>18}", name);
    text += '\n';
    for (const auto& [x, values] : panel.points) {
      const auto line = static_cast<std::size_t>(x);
      text += fmt::format("    {:>24}",
                          panel.lines.empty() ? fmt::format("{:.0f}", x) : panel.lines.at(line));
      for (const std::string& name : panel.series) {
        const auto found = values.find(name);
        text += fmt::format(" {:>18}", found == values.end() ? "-" : number(found->second));
      }
      text += '\n';
    }
  }
  for (const std::string& note : figure.notes) text += fmt::format("  note: {}\n", note);
  if (!figure.error.empty()) text += fmt::format("  failed: {}\n", figure.error);
  return text;
}

nlohmann::ordered_json toJson(const Results& results) {
  using Json = nlohmann::ordered_json;
  Json all = {{"device", results.device}, {"accelerator", results.accelerator}};
  all["rows"] = Json::array();
  for (const Row& row : results.rows) {
    Json entry = {{"group", row.group},
                  {"work", row.work},
                  {"size", row.size},
                  {"into", row.into},
                  {"method", row.method}};
    entry["us"] = row.us;
    if (row.boundUs) entry["us"]["bound"] = *row.boundUs;
    entry["targets"] = Json::array();
    for (const Verdict& verdict : row.verdicts) {
      entry["targets"].push_back({{"target", verdict.target},
                                  {verdict.atLeast ? "atLeast" : "atMost", verdict.limit},
                                  {"value", verdict.value},
                                  {"met", verdict.met()}});
    }
    if (!row.details.is_null()) entry["details"] = row.details;
    if (!row.error.empty()) entry["error"] = row.error;
    all["rows"].push_back(std::move(entry));
  }
  all["figures"] = Json::array();
  for (const Figure& figure : results.figures) {
    Json entry = {{"name", figure.name}, {"title", figure.title}, {"panels", Json::array()}};
    for (const Panel& panel : figure.panels) {
      Json points = Json::array();
      for (const auto& [x, values] : panel.points) {
        Json point = {{"x", x}};
        if (!panel.lines.empty()) point["line"] = panel.lines.at(static_cast<std::size_t>(x));
        for (const auto& [name, y] : values) point["y"][name] = y;
        points.push_back(std::move(point));
      }
      entry["panels"].push_back({{"name", panel.name},
                                 {"title", panel.title},
                                 {"xLabel", panel.xLabel},
                                 {"yLabel", panel.yLabel},
                                 {"series", panel.series},
                                 {"points", std::move(points)}});
    }
    entry["notes"] = figure.notes;
    if (!figure.error.empty()) entry["error"] = figure.error;
    all["figures"].push_back(std::move(entry));
  }
  all["leftOut"] = results.leftOut;
  return all;
}

}  // namespace datatypes
