// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_MANAGED_COMPARE_REPORT_H_
#define GMAC_MANAGED_COMPARE_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "managed/compare/comparison.h"

namespace managed::compare {

// The table, then a line for every problem, note and program left out.
std::string toTable(const Comparison& comparison);

// {"size": ..., "repeats": ..., "rows": [...], "skipped": [...]}, with the time of every run.
nlohmann::ordered_json toJson(const Comparison& comparison, const Options& options);

}  // namespace managed::compare

#endif  // GMAC_MANAGED_COMPARE_REPORT_H_
