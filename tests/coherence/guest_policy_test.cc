// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/guest_policy.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gmac {
namespace {

constexpr std::uint64_t kBytes = 1000;

class Guests : public ::testing::Test {
 protected:
  bool use(std::uint64_t bytes = kBytes) { return policy_.used(bytes, kBytes, true); }
  // How many uses until the next look; at most `most`.
  int usesUntilDue(int most = 10'000) {
    for (int i = 1; i <= most; ++i) {
      if (use()) {
        return i;
      }
    }
    return 0;
  }
  // How many uses until an exchange pays with an object of the same size, of which so many bytes
  // count, if that is looked at whenever it is time to.
  int usesUntilItPays(std::uint64_t others) {
    int uses = 0;
    do {
      uses += usesUntilDue();
      if (policy_.pays(others, 2 * kBytes)) {
        return uses;
      }
      policy_.stays();
    } while (uses < 10'000);
    return 0;
  }
  // It comes, is used so often there, and leaves.
  void comesAndLeaves(int uses) {
    policy_.comes();
    for (int i = 0; i < uses; ++i) {
      EXPECT_FALSE(policy_.used(kBytes, kBytes, false)) << "no guest";
    }
    policy_.leaves();
  }

  GuestPolicy policy_;
};

TEST_F(Guests, ComeWhenTheyWereUsedThreeTimesMore) {
  EXPECT_EQ(usesUntilDue(), 3);
  EXPECT_EQ(policy_.bytesUsed(), 3 * kBytes);
  EXPECT_TRUE(policy_.pays(0, 2 * kBytes)) << "one of the same size for it";
  EXPECT_FALSE(policy_.pays(0, 2 * kBytes + 1));
  EXPECT_FALSE(policy_.pays(1, 2 * kBytes)) << "regret is what others have less";
}

TEST_F(Guests, PartsCountAsMuchAsTheyAre) {
  for (int i = 0; i < 29; ++i) {
    EXPECT_FALSE(use(kBytes / 10));
  }
  EXPECT_TRUE(use(kBytes / 10));
}

TEST_F(Guests, LooksThatFindNothingBecomeRarer) {
  for (const int uses : {3, 6, 12, 12}) {
    EXPECT_EQ(usesUntilDue(), uses);
    policy_.stays();
  }
  policy_.comes();
  policy_.leaves();
  EXPECT_LE(usesUntilDue(), 6);
}

TEST_F(Guests, WhatBeganLaterHasNoRegretForWhatWasBefore) {
  policy_.begins(9 * kBytes);
  EXPECT_EQ(usesUntilItPays(9 * kBytes), 3);
}

TEST_F(Guests, WhatWasLongAgoCountsLittle) {
  for (std::uint64_t i = 0; i < GuestPolicy::kMostUses; ++i) {
    EXPECT_FALSE(policy_.isFull(kBytes));
    use();
  }
  EXPECT_TRUE(policy_.isFull(kBytes));
  use();
  EXPECT_EQ(policy_.bytesUsed(), GuestPolicy::kMostUses * kBytes);
  policy_.halve();
  EXPECT_EQ(policy_.bytesUsed(), GuestPolicy::kMostUses * kBytes / 2);
}

// Two objects in turn, each just as often as it takes it to come.
TEST_F(Guests, WhatLeavesBeforeItHasPaidNeedsMore) {
  const auto needs = [&] {
    policy_.begins(0);
    return usesUntilItPays(0);
  };
  for (const int uses : {3, 6, 12, 12}) {
    EXPECT_EQ(needs(), uses);
    comesAndLeaves(uses - 1);
  }
  // As often as it took, each time: half as many again.
  for (const int uses : {12, 6, 3, 3}) {
    EXPECT_EQ(needs(), uses);
    comesAndLeaves(uses);
  }
}

}  // namespace
}  // namespace gmac
