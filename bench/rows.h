// SPDX-License-Identifier: Apache-2.0
//
// Figures beside what is promised of them: which are met, missed, worse than before, or not
// measured at all because they cannot be true.
#ifndef GMAC_BENCH_ROWS_H_
#define GMAC_BENCH_ROWS_H_

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gmac::bench {

enum class Sense { kAtMost, kAtLeast };

struct Target {
  Sense sense;
  double value;
  bool isMetBy(double figure) const {
    return sense == Sense::kAtMost ? figure <= value : figure >= value;
  }
};

// The values of a figure that are possible on such machines. Outside, the measurement is wrong.
struct Range {
  double least = 0;
  double most = std::numeric_limits<double>::max();
  // No for what is no number.
  bool has(double value) const { return value >= least && value <= most; }
};

// A figure of a measurement, by its name there, and its range.
struct Plausible {
  std::string figure;
  Range range;
};

// One line of the table.
struct Row {
  std::string name;  // constant across versions: the baseline's key
  double value = 0;
  std::string unit;  // "" for a ratio
  std::optional<Target> target;
  nlohmann::json details;
  std::string notMeasured;  // why; empty: it was

  bool met() const { return notMeasured.empty() && (!target || target->isMetBy(value)); }
};

// Why `result`, what a measurement has returned, is none: the first of these figures that is
// missing, no number, or outside its range. Empty: all are plausible.
std::string whyNotMeasured(const nlohmann::json& result, const std::vector<Plausible>& figures);

// An error message where `only` is part of no row's name, measured or skipped: otherwise a gate
// over no rows would pass. Empty: there is such a row.
std::string whyNoRows(const std::string& only, const std::vector<Row>& rows,
                      const std::vector<std::string>& skipped);

// The rows as a table for people.
std::string table(const std::vector<Row>& rows, const std::vector<std::string>& skipped);
// The rows as JSON: {"rows": [{"name", "value", "unit", "atMost" or "atLeast", "met", "details",
// "notMeasured" where it was not}, ...], "skipped": [...]}.
nlohmann::json rowsJson(const std::vector<Row>& rows, const std::vector<std::string>& skipped);

// One sentence for each row that was not measured, that misses its target, or that is worse than
// `baseline` ({"rows": {name: {"value", "tolerance"}}}) allows. Throws nlohmann::json::exception
// when that is something else.
std::vector<std::string> misses(const std::vector<Row>& rows, const nlohmann::json& baseline);

}  // namespace gmac::bench

#endif  // GMAC_BENCH_ROWS_H_
