// SPDX-License-Identifier: Apache-2.0
//
// Lists for tests of what needs a table.
#ifndef GMAC_TESTS_DATATYPE_IRREGULAR_H_
#define GMAC_TESTS_DATATYPE_IRREGULAR_H_

#include <cstdint>
#include <vector>

#include "gmac/datatype/layout/layout.h"

namespace gmac::testing {

// Pieces at no regular distance, multiples of `unit`; `lengths` different lengths.
inline std::vector<datatype::Block> irregular(std::int64_t count, std::int64_t unit,
                                              std::int64_t lengths) {
  std::vector<datatype::Block> blocks;
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t bytes = (1 + i * i % 251 % lengths) * unit;
    blocks.push_back({at, bytes});
    at += bytes + (1 + i * i % 509 % 3) * unit;
  }
  return blocks;
}

}  // namespace gmac::testing

#endif  // GMAC_TESTS_DATATYPE_IRREGULAR_H_
