// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/range_allocator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>

namespace gmac {
namespace {

TEST(RangeAllocator, TakesTheFirstThatFitsAndJoinsWhatComesBack) {
  RangeAllocator ranges(1000, 100);
  EXPECT_EQ(ranges.largest(), 100U);
  EXPECT_EQ(ranges.take(10, 1), 1000U);
  EXPECT_EQ(ranges.take(20, 64), 1024U);
  EXPECT_EQ(ranges.take(14, 1), 1010U) << "before the aligned one";
  EXPECT_EQ(ranges.take(57, 1), std::nullopt);
  EXPECT_EQ(ranges.take(56, 1), 1044U);
  EXPECT_EQ(ranges.largest(), 0U);
  ranges.giveBack(1000, 10);
  ranges.giveBack(1024, 20);
  EXPECT_EQ(ranges.largest(), 20U);
  ranges.giveBack(1010, 14);
  EXPECT_EQ(ranges.largest(), 44U) << "joined on both sides";
  ranges.giveBack(1044, 56);
  EXPECT_EQ(ranges.take(100, 1), 1000U);
}

TEST(RangeAllocator, NeverGivesAByteTwice) {
  std::mt19937 random(5);
  constexpr std::uintptr_t kBase = 1 << 20;
  constexpr std::size_t kBytes = 1 << 16;
  RangeAllocator ranges(kBase, kBytes);
  std::map<std::uintptr_t, std::size_t> taken;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0 && !taken.empty()) {
      auto one = taken.lower_bound(kBase + random() % kBytes);
      if (one == taken.end()) one = taken.begin();
      ranges.giveBack(one->first, one->second);
      taken.erase(one);
      continue;
    }
    const std::size_t bytes = 1 + random() % 3000;
    const std::size_t alignment = std::size_t{1} << random() % 10;
    const auto address = ranges.take(bytes, alignment);
    if (!address) continue;
    ASSERT_EQ(*address % alignment, 0U);
    ASSERT_GE(*address, kBase);
    ASSERT_LE(*address + bytes, kBase + kBytes);
    const auto next = taken.lower_bound(*address);
    ASSERT_TRUE(next == taken.end() || *address + bytes <= next->first);
    ASSERT_TRUE(next == taken.begin() ||
                std::prev(next)->first + std::prev(next)->second <= *address);
    taken[*address] = bytes;
  }
  for (const auto& [address, bytes] : taken) ranges.giveBack(address, bytes);
  EXPECT_EQ(ranges.largest(), kBytes) << "all of it, in one";
}

}  // namespace
}  // namespace gmac
