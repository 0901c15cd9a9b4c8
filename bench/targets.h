// SPDX-License-Identifier: Apache-2.0
//
// The project's promises about its cost: figures measured side by side, each with its target.
#ifndef GMAC_BENCH_TARGETS_H_
#define GMAC_BENCH_TARGETS_H_

#include <string>
#include <vector>

#include "bench/rows.h"

namespace gmac::bench {

// Measures the rows whose name contains `only`, telling standard error which one is next. Rows that
// this machine cannot measure are named in `skipped`, with the reason.
std::vector<Row> measureRows(const std::string& only, std::vector<std::string>& skipped);

// Tries block sizes for the vector addition and returns a table of them.
std::string sweep();

}  // namespace gmac::bench

#endif  // GMAC_BENCH_TARGETS_H_
