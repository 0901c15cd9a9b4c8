// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/plain_copy.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gmac::datatype {
namespace {

// Every size around those where the way of copying changes, at every alignment.
TEST(PlainCopy, CopiesWhatItIsGivenAndNoMore) {
  constexpr std::size_t kMax = 2100;
  constexpr std::size_t kRoom = 64;
  constexpr std::byte kAround{0xee};
  std::vector<std::byte> source(kMax + 2 * kRoom);
  for (std::size_t i = 0; i < source.size(); ++i) {
    source[i] = static_cast<std::byte>(i * 131 + (i >> 7) + 1);
  }
  for (std::size_t bytes = 0; bytes <= kMax; bytes += bytes < 300 ? 1 : 7) {
    for (const std::size_t shift : {0, 1, 3, 8, 31, 63}) {
      std::vector<std::byte> target(kMax + 2 * kRoom, kAround);
      const std::byte* const from = source.data() + (shift * 5) % kRoom;
      std::byte* const to = target.data() + shift;
      ASSERT_EQ(plainCopy(to, from, bytes), to);
      for (std::size_t i = 0; i < target.size(); ++i) {
        const bool inside = i >= shift && i < shift + bytes;
        ASSERT_EQ(target[i], inside ? from[i - shift] : kAround)
            << bytes << " bytes, shifted by " << shift << ", byte " << i;
      }
    }
  }
}

}  // namespace
}  // namespace gmac::datatype
