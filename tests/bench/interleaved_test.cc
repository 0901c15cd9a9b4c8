// SPDX-License-Identifier: Apache-2.0
#include "bench/interleaved.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace gmac::bench {
namespace {

// Turns of alternatives that take what is given, the same each time.
Interleaved turnsOf(const std::vector<double>& seconds) {
  return Interleaved(seconds.size(), 3, [&](std::size_t i) { return seconds[i]; });
}

TEST(LeastOfSets, TakesEachAlternativeFromTheSetInWhichItTookLeast) {
  LeastOfSets least;
  least.add(turnsOf({20, 8, 9}));
  EXPECT_EQ(least.sets(), 1u);
  EXPECT_DOUBLE_EQ(least.ratio(0, 1), 2.5);
  least.add(turnsOf({8, 16, 18}));
  EXPECT_EQ(least.sets(), 2u);
  EXPECT_DOUBLE_EQ(least.seconds(0), 8);
  EXPECT_DOUBLE_EQ(least.seconds(2), 9);
  EXPECT_DOUBLE_EQ(least.ratio(0, 1), 1);
}

// More sets do not hide it.
TEST(LeastOfSets, WhatIsSlowerInEverySetIsSlower) {
  LeastOfSets least;
  for (const double noise : {3.0, 1.0, 2.0}) {
    least.add(turnsOf({14 * noise, 7 * noise}));
  }
  EXPECT_DOUBLE_EQ(least.ratio(0, 1), 2);
}

}  // namespace
}  // namespace gmac::bench
