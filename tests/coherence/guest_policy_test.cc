// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/guest_policy.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gmac {
namespace {

constexpr std::uint64_t kBytes = 1000;

class Guests : public ::testing::Test {
 protected:
  bool use(std::uint64_t bytes = kBytes) { return policy_.used(++work_, bytes, kBytes, true); }
  // How many uses until the next look; at most `most`.
  int usesUntilDue(int most = 10'000) {
    for (int i = 1; i <= most; ++i) {
      if (use()) {
        return i;
      }
    }
    return 0;
  }
  // It comes, is used so often there, and leaves.
  void comesAndLeaves(int uses) {
    policy_.comes();
    for (int i = 0; i < uses; ++i) {
      policy_.used(++work_, kBytes, kBytes, false);
    }
    policy_.leaves();
  }

  GuestPolicy policy_;
  std::uint64_t work_ = 0;
};

TEST_F(Guests, AreLookedAtAfterThreeUses) {
  policy_.leaves();
  work_ = 10;
  EXPECT_EQ(usesUntilDue(), 3);
  EXPECT_EQ(policy_.since(), 11u) << "the first of them";
  EXPECT_TRUE(policy_.pays(2 * kBytes)) << "one of the same size for it";
  EXPECT_FALSE(policy_.pays(2 * kBytes + 1));
}

TEST_F(Guests, PartsCountAsMuchAsTheyAre) {
  policy_.leaves();
  for (int i = 0; i < 29; ++i) {
    EXPECT_FALSE(use(kBytes / 10));
  }
  EXPECT_TRUE(use(kBytes / 10));
}

TEST_F(Guests, OnlyGuestsAreLookedAt) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(policy_.used(++work_, kBytes, kBytes, false));
  }
}

TEST_F(Guests, WhereNothingIsColderCountingBeginsAnewAndLooksBecomeRare) {
  policy_.leaves();
  for (const int uses : {3, 6, 12, 24}) {
    EXPECT_EQ(usesUntilDue(), uses);
    policy_.stays(true);
  }
  work_ = 1000;
  use();
  EXPECT_EQ(policy_.since(), 1001u);
}

TEST_F(Guests, WhereItDoesNotPayCountingGoesOn) {
  policy_.leaves();
  EXPECT_EQ(usesUntilDue(), 3);
  EXPECT_FALSE(policy_.pays(7 * kBytes));
  policy_.stays(false);
  EXPECT_EQ(usesUntilDue(), 3) << "six in all";
  policy_.stays(false);
  EXPECT_EQ(usesUntilDue(), 6) << "twelve in all";
  EXPECT_TRUE(policy_.pays(8 * kBytes));
  EXPECT_EQ(policy_.since(), 1u);
}

// Two objects in turn, each just as often as it takes it to come.
TEST_F(Guests, WhatLeavesBeforeItHasPaidComesLater) {
  policy_.leaves();
  for (const int uses : {3, 6, 12, 24}) {
    EXPECT_EQ(usesUntilDue(), uses);
    EXPECT_TRUE(policy_.pays(2 * kBytes));
    comesAndLeaves(uses - 1);
  }
  // As often as it took, each time: half as many again.
  for (const int uses : {48, 24, 12, 6, 3, 3}) {
    EXPECT_EQ(usesUntilDue(), uses);
    comesAndLeaves(uses);
  }
}

// One that room brings back has taken nothing from another.
TEST_F(Guests, WhatRoomBringsBackCountsForNothing) {
  policy_.leaves();
  use();
  policy_.leaves();
  EXPECT_EQ(usesUntilDue(), 3);
}

}  // namespace
}  // namespace gmac
