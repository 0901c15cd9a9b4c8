// SPDX-License-Identifier: Apache-2.0
//
// Objects in which nearly every byte tells where it was.
#ifndef GMAC_TESTS_SUPPORT_PATTERN_H_
#define GMAC_TESTS_SUPPORT_PATTERN_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "tests/support/machine_fixture.h"

namespace gmac::testing {

inline std::byte pattern(std::size_t i) { return static_cast<std::byte>(i * 7 + (i >> 9) + 1); }
void fillWithPattern(std::byte* object, std::size_t bytes);
// Expects that a kernel, and the CPU after it, find the pattern in an object, but for these bytes:
// pairs of place and value, of which a later one counts.
void expectPattern(Machine& machine, const std::byte* object, std::size_t bytes,
                   const std::vector<std::pair<std::size_t, std::byte>>& changed);

}  // namespace gmac::testing

#endif  // GMAC_TESTS_SUPPORT_PATTERN_H_
