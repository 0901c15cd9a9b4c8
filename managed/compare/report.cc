// SPDX-License-Identifier: Apache-2.0
#include "managed/compare/report.h"

#include <fmt/format.h>

namespace managed::compare {
namespace {

using nlohmann::ordered_json;

std::string secondsText(const Measured& measured) {
  return measured.seconds.empty() ? "-" : fmt::format("{:.4f}", measured.median());
}

double ratio(const Row& row) {
  return row.managed.median() > 0 ? row.gmac.median() / row.managed.median() : 0;
}

ordered_json toJson(const Measured& measured) {
  return {{"seconds", measured.seconds},
          {"median", measured.median()},
          {"checksum", measured.checksum},
          {"note", measured.note},
          {"problem", measured.problem}};
}

}  // namespace

std::string toTable(const Comparison& comparison) {
  constexpr const char* kLine = "{:<17} {:<8} {:<8} {:<9} {:>10} {:>10} {:>7}  {}\n";
  std::string text = fmt::format(fmt::runtime(kLine), "program", "runtime", "accel", "protocol",
                                 "managed s", "gmac s", "ratio", "equal");
  std::string below;
  for (const Row& row : comparison.rows) {
    const bool both = !row.managed.seconds.empty() && !row.gmac.seconds.empty();
    text += fmt::format(fmt::runtime(kLine), row.program, row.runtime, row.accelerator,
                        row.protocol, secondsText(row.managed), secondsText(row.gmac),
                        both ? fmt::format("{:.2f}", ratio(row)) : "-", row.equal ? "yes" : "NO");
    const auto say = [&](const char* kind, const char* way, const std::string& words) {
      if (!words.empty()) {
        below += fmt::format("{}: {} {} {} {}, {}: {}\n", kind, row.program, row.runtime,
                             row.accelerator, row.protocol, way, words);
      }
    };
    say("failed", "managed", row.managed.problem);
    say("failed", "gmac", row.gmac.problem);
    say("note", "managed", row.managed.note);
    say("note", "gmac", row.gmac.note);
  }
  if (comparison.rows.empty()) text = "nothing was compared\n";
  for (const Skipped& skipped : comparison.skipped) {
    below += fmt::format("skipped: {} {}: {}\n", skipped.program, skipped.runtime, skipped.reason);
  }
  return text + below;
}

ordered_json toJson(const Comparison& comparison, const Options& options) {
  ordered_json rows = ordered_json::array();
  for (const Row& row : comparison.rows) {
    rows.push_back({{"program", row.program},
                    {"runtime", row.runtime},
                    {"accelerator", row.accelerator},
                    {"protocol", row.protocol},
                    {"managed", toJson(row.managed)},
                    {"gmac", toJson(row.gmac)},
                    {"ratio", ratio(row)},
                    {"equal", row.equal}});
  }
  ordered_json skipped = ordered_json::array();
  for (const Skipped& one : comparison.skipped) {
    skipped.push_back({{"program", one.program}, {"runtime", one.runtime}, {"reason", one.reason}});
  }
  return {
      {"size", options.size}, {"repeats", options.repeats}, {"rows", rows}, {"skipped", skipped}};
}

}  // namespace managed::compare
