// SPDX-License-Identifier: Apache-2.0
#include "bench/rows.h"

#include <fmt/core.h>

namespace gmac::bench {
namespace {

using nlohmann::json;

std::string valueText(const Row& row) {
  if (row.value >= 1e6) {
    return fmt::format("{:.2f} M {}", row.value / 1e6, row.unit);
  }
  return fmt::format("{:.3f}{}{}", row.value, row.unit.empty() ? "" : " ", row.unit);
}

std::string targetText(const Row& row) {
  if (!row.target) {
    return "";
  }
  return fmt::format("{} {:g}",
                     row.target->sense == Sense::kAtMost ? "<=" : ">=", row.target->value);
}

std::string vecaddTable(const json& details) {
  std::string text = fmt::format("\n{:<18} {:>9} {:>7} {:>7} {:>7} {:>7} {:>7} {:>10}\n", "seconds",
                                 "allocate", "fill", "add", "sum", "free", "whole", "sparse ms");
  for (const auto& [way, run] : details.items()) {
    if (!run.is_object()) {
      continue;
    }
    text +=
        fmt::format("{:<18} {:>9.3f} {:>7.3f} {:>7.3f} {:>7.3f} {:>7.3f} {:>7.3f} {:>10.3f}\n", way,
                    run["allocate"].get<double>(), run["fill"].get<double>(),
                    run["add"].get<double>(), run["sum"].get<double>(), run["free"].get<double>(),
                    run["whole"].get<double>(), 1e3 * run["sparse"].get<double>());
  }
  return text;
}

std::string verdict(const Row& row) {
  if (!row.notMeasured.empty()) {
    return "  NOT MEASURED: " + row.notMeasured;
  }
  return !row.target ? "" : row.met() ? "  met" : "  MISSED";
}

}  // namespace

std::string whyNotMeasured(const json& result, const std::vector<Plausible>& figures) {
  for (const Plausible& one : figures) {
    const auto found = result.find(one.figure);
    if (found == result.end() || !found->is_number()) {
      return fmt::format("{} is no number", one.figure);
    }
    const double value = *found;
    if (!one.range.has(value)) {
      const std::string most = one.range.most == Range{}.most ? std::string("more")
                                                              : fmt::format("{:g}", one.range.most);
      return fmt::format("{} is {:.3f}; plausible is {:g} to {}", one.figure, value,
                         one.range.least, most);
    }
  }
  return {};
}

std::string whyNoRows(const std::string& only, const std::vector<Row>& rows,
                      const std::vector<std::string>& skipped) {
  return rows.empty() && skipped.empty() ? fmt::format("no row's name contains '{}'", only)
                                         : std::string();
}

std::string table(const std::vector<Row>& rows, const std::vector<std::string>& skipped) {
  std::string text = fmt::format("{:<48} {:>14} {:>10}\n", "cost", "measured", "target");
  for (const Row& row : rows) {
    text += fmt::format("{:<48} {:>14} {:>10}{}\n", row.name, valueText(row), targetText(row),
                        verdict(row));
  }
  for (const std::string& line : skipped) {
    text += fmt::format("not measured: {}\n", line);
  }
  for (const Row& row : rows) {
    if (row.details.contains("gmac")) {
      text += vecaddTable(row.details);
      break;
    }
  }
  return text;
}

json rowsJson(const std::vector<Row>& rows, const std::vector<std::string>& skipped) {
  json list = json::array();
  for (const Row& row : rows) {
    json one = {{"name", row.name},
                {"value", row.value},
                {"unit", row.unit},
                {"met", row.met()},
                {"details", row.details}};
    if (!row.notMeasured.empty()) {
      one["notMeasured"] = row.notMeasured;
    }
    if (row.target) {
      one[row.target->sense == Sense::kAtMost ? "atMost" : "atLeast"] = row.target->value;
    }
    list.push_back(std::move(one));
  }
  return {{"rows", std::move(list)}, {"skipped", skipped}};
}

std::vector<std::string> misses(const std::vector<Row>& rows, const json& baseline) {
  std::vector<std::string> sentences;
  for (const Row& row : rows) {
    if (!row.notMeasured.empty()) {
      sentences.push_back(fmt::format("{}: not measured: {}", row.name, row.notMeasured));
      continue;
    }
    if (!row.met()) {
      sentences.push_back(
          fmt::format("{}: {}, target {}", row.name, valueText(row), targetText(row)));
    }
    if (!row.target || !baseline.contains("rows") || !baseline["rows"].contains(row.name)) {
      continue;
    }
    const json& before = baseline["rows"][row.name];
    const double value = before.at("value");
    const double tolerance = before.at("tolerance");
    const bool worse = row.target->sense == Sense::kAtMost ? row.value > value * tolerance
                                                           : row.value < value / tolerance;
    if (worse) {
      sentences.push_back(fmt::format("{}: {}, worse than the baseline's {:.3f} by more than {:g}",
                                      row.name, valueText(row), value, tolerance));
    }
  }
  return sentences;
}

}  // namespace gmac::bench
