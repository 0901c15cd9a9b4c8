// SPDX-License-Identifier: Apache-2.0
//
// When the blocks of an object are split, and joined again.
#include "gmac/coherence/split_policy.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace gmac {
namespace {

using Advice = SplitPolicy::Advice;

constexpr std::uint32_t kLeast = 4;
constexpr std::size_t kBefore = std::size_t{2} << 20;

void bringEvidence(SplitPolicy& policy, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    ASSERT_EQ(policy.advice(), Advice::kStay) << i;
    policy.outgrown();
  }
}

TEST(SplitPolicy, WithoutALeastNothingIsSplit) {
  SplitPolicy policy;
  bringEvidence(policy, 1000);
}

// `blocks` of a group are opened, one by one.
void touch(SplitPolicy& policy, int blocks) {
  for (int i = 0; i < blocks; ++i) {
    policy.opens(i == 0);
  }
}

TEST(SplitPolicy, AFewPlacesOfABlockAreTheEvidence) {
  SplitPolicy policy(kLeast);
  bringEvidence(policy, kLeast);
  EXPECT_EQ(policy.advice(), Advice::kSplit);
  EXPECT_FALSE(policy.isSplit());
  policy.split(kBefore);
  EXPECT_TRUE(policy.isSplit());
  EXPECT_EQ(policy.before(), kBefore);
  EXPECT_EQ(policy.advice(), Advice::kStay);
}

TEST(SplitPolicy, WhereFewBlocksOfAGroupAreUsedTheyStaySplit) {
  SplitPolicy policy(kLeast);
  policy.split(kBefore);
  for (int round = 0; round < 10000; ++round) {
    touch(policy, 6);
    policy.dirties();
    ASSERT_EQ(policy.advice(), Advice::kStay) << round;
  }
}

TEST(SplitPolicy, WhereAllAreUsedTheyAreJoinedSoon) {
  SplitPolicy policy(kLeast);
  policy.split(kBefore);
  int faults = 0;
  while (policy.advice() == Advice::kStay) {
    touch(policy, 16);
    policy.opensGroup();
    faults += 17;
    ASSERT_LT(faults, 200);
  }
  EXPECT_EQ(policy.advice(), Advice::kJoin);
  EXPECT_TRUE(policy.isDense()) << "until then accesses open whole groups";
  policy.opens(true);
  EXPECT_TRUE(policy.isDense()) << "whatever comes";
  policy.joined();
  EXPECT_FALSE(policy.isSplit());
  EXPECT_FALSE(policy.isDense());
  EXPECT_EQ(policy.advice(), Advice::kStay);
}

// What was saved long ago counts for little.
TEST(SplitPolicy, AProgramThatChangesIsNoticed) {
  SplitPolicy policy(kLeast);
  policy.split(kBefore);
  for (int round = 0; round < 1000000; ++round) {
    policy.opens(true);
  }
  int groups = 0;
  for (; policy.advice() == Advice::kStay; ++groups) {
    touch(policy, 16);
    policy.opensGroup();
  }
  EXPECT_LE(groups, 1 + (SplitPolicy::kMostSaved + SplitPolicy::kMostLost) / 15);
}

TEST(SplitPolicy, OneThatIsAlwaysWrongIsSplitEverMoreRarely) {
  SplitPolicy policy(kLeast);
  std::size_t evidence = 0;
  std::size_t splits = 0;
  for (; evidence < 100000; ++evidence) {
    policy.outgrown();
    if (policy.advice() == Advice::kSplit) {
      ++splits;
      policy.split(kBefore);
      while (policy.advice() != Advice::kJoin) {
        policy.opens(false);
      }
      policy.joined();
    }
  }
  EXPECT_GE(splits, 2u);
  EXPECT_LE(splits, static_cast<std::size_t>(std::bit_width(evidence)));
}

// For want of mappings, say.
TEST(SplitPolicy, BlocksThatAreJoinedForOthersSakeWereNoMistake) {
  SplitPolicy policy(kLeast);
  for (int i = 0; i < 10; ++i) {
    bringEvidence(policy, kLeast);
    policy.split(kBefore);
    policy.joined();
  }
}

}  // namespace
}  // namespace gmac
