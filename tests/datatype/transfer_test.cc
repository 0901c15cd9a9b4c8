// SPDX-License-Identifier: Apache-2.0
//
// Copies between layouts, against a copy byte by byte.
#include "gmac/datatype/cpu/transfer.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/exchange/random_layout.h"
#include "tests/support/seed.h"

namespace gmac::testing {
namespace {

using std::int64_t;

TEST(Transfer, CopiesAnyPartBetweenAnyLayouts) {
  std::mt19937_64 random(seedOr(1));
  std::vector<std::byte> source(1 << 20);
  for (std::byte& byte : source) {
    byte = static_cast<std::byte>(random());
  }
  for (int round = 0; round < 10000; ++round) {
    const int64_t about = 1 + static_cast<int64_t>(random() % (round % 20 == 0 ? 60000 : 2000));
    const RandomLayout from = randomLayout(random, about);
    // As in most messages, and then all pieces are alike; or of any other form.
    const RandomLayout to = round % 4 == 1 ? from : randomLayout(random, about);
    if (from.span > 1000000) {
      continue;
    }
    const int64_t most = std::min(from.layout.bytes(), to.layout.bytes());
    const int64_t offset = static_cast<int64_t>(random() % static_cast<std::uint64_t>(most));
    const int64_t bytes =
        round % 3 == 0
            ? most - offset
            : static_cast<int64_t>(random() % static_cast<std::uint64_t>(most - offset + 1));
    std::vector<std::byte> target(static_cast<std::size_t>(to.span) + 128, std::byte{0xa5});
    std::vector<std::byte> expected = target;
    const std::size_t shift = random() % 64;
    for (int64_t at = offset; at < offset + bytes; ++at) {
      const auto i = static_cast<std::size_t>(at);
      expected[shift + static_cast<std::size_t>(to.offsets[i])] =
          source[static_cast<std::size_t>(from.offsets[i])];
    }
    datatype::transfer(to.layout, target.data() + shift, from.layout, source.data(), offset, bytes);
    ASSERT_EQ(target, expected) << "seed " << seedOr(1) << ", round " << round << ": "
                                << from.layout.describe() << " to " << to.layout.describe() << ", ["
                                << offset << ", " << offset + bytes << ")";
  }
}

}  // namespace
}  // namespace gmac::testing
