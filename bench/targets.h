// SPDX-License-Identifier: Apache-2.0
//
// What the project promises about its cost: figures measured side by side, each with its target.
#ifndef GMAC_BENCH_TARGETS_H_
#define GMAC_BENCH_TARGETS_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gmac::bench {

enum class Sense { kAtMost, kAtLeast };

struct Target {
  Sense sense;
  double value;
};

// One line of the table.
struct Row {
  std::string name;  // constant across versions: the baseline's key
  double value = 0;
  std::string unit;  // "" for a ratio
  std::optional<Target> target;
  nlohmann::json details;

  bool met() const {
    return !target ||
           (target->sense == Sense::kAtMost ? value <= target->value : value >= target->value);
  }
};

// What a committed baseline says of a row: its value then, and by which factor a run may be worse.
struct Baseline {
  double value;
  double tolerance;
};

// Measures the rows whose name contains `only`, telling standard error which one is next. Rows that
// this machine cannot measure are named in `skipped`, with the reason.
std::vector<Row> measureRows(const std::string& only, std::vector<std::string>& skipped);

// The rows as a table for people.
std::string table(const std::vector<Row>& rows, const std::vector<std::string>& skipped);
// The rows as JSON: {"rows": [{"name", "value", "unit", "atMost" or "atLeast", "met", "details"},
// ...], "skipped": [...]}.
nlohmann::json rowsJson(const std::vector<Row>& rows, const std::vector<std::string>& skipped);

// One sentence for each row that misses its target, or that is worse than `baseline` ({"rows":
// {name: {"value", "tolerance"}}}) allows. Throws nlohmann::json::exception when that is something
// else.
std::vector<std::string> misses(const std::vector<Row>& rows, const nlohmann::json& baseline);

// Tries block sizes, chunks and read-ahead for the vector addition and returns a table of them.
std::string sweep();

}  // namespace gmac::bench

#endif  // GMAC_BENCH_TARGETS_H_
