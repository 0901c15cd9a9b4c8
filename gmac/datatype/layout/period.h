// SPDX-License-Identifier: Apache-2.0
//
// The smallest period of a finite sequence, among those that divide its length.
#ifndef GMAC_DATATYPE_LAYOUT_PERIOD_H_
#define GMAC_DATATYPE_LAYOUT_PERIOD_H_

#include <cstddef>

namespace gmac::datatype {

// The smallest p that divides `length` and is a period; `length` when no smaller one is.
// `isPeriod(p, known)` says whether p is one, `known` being a multiple of p that is (or the
// length): it need look no further than the first known + p entries. Periods that divide the length
// are closed under the greatest common divisor (Fine and Wilf), so trying one prime factor after
// the other finds the smallest; what is compared shrinks with every success.
template <typename IsPeriod>
std::size_t smallestPeriod(std::size_t length, const IsPeriod& isPeriod) {
  std::size_t period = length;
  const auto tryFactor = [&](std::size_t prime) {
    while (period % prime == 0 && isPeriod(period / prime, period)) {
      period /= prime;
    }
  };
  std::size_t rest = length;
  for (std::size_t prime = 2; prime * prime <= rest; ++prime) {
    if (rest % prime != 0) {
      continue;
    }
    tryFactor(prime);
    while (rest % prime == 0) {
      rest /= prime;
    }
  }
  if (rest > 1) {
    tryFactor(rest);
  }
  return period;
}

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_LAYOUT_PERIOD_H_
