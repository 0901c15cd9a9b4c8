// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_BENCH_MEDIAN_H_
#define GMAC_BENCH_MEDIAN_H_

#include <vector>

namespace gmac::bench {

// Throws std::runtime_error when there are no values.
double median(std::vector<double> values);

}  // namespace gmac::bench

#endif  // GMAC_BENCH_MEDIAN_H_
