// SPDX-License-Identifier: Apache-2.0
#include "bench/median.h"

#include <algorithm>
#include <stdexcept>

namespace gmac::bench {

double median(std::vector<double> values) {
  if (values.empty()) {
    throw std::runtime_error("a median of no values");
  }
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace gmac::bench
