// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_BASE_ROUND_UP_H_
#define GMAC_BASE_ROUND_UP_H_

#include <concepts>
#include <type_traits>

namespace gmac {

// The least multiple of `unit` (more than 0) that is not less than `value` (0 or more). The sum of
// both must fit.
template <std::integral Number>
constexpr Number roundUp(Number value, std::type_identity_t<Number> unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace gmac

#endif  // GMAC_BASE_ROUND_UP_H_
