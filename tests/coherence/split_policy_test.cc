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

// `blocks` of a group are opened, one by one. How many alone.
int touch(SplitPolicy& policy, int blocks, std::size_t group = 0) {
  int alone = 0;
  for (int i = 0; i < blocks; ++i) {
    alone += policy.opensAlone(group, i == 0) ? 1 : 0;
  }
  return alone;
}
// After its probes.
SplitPolicy splitForGood() {
  SplitPolicy policy(kLeast);
  policy.split(kBefore);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(touch(policy, 1), 1);
  }
  return policy;
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
    policy.costs(1);
    ASSERT_EQ(policy.advice(), Advice::kStay) << round;
  }
}

TEST(SplitPolicy, WhereAllAreUsedAFewGroupsTell) {
  SplitPolicy policy(kLeast);
  policy.split(kBefore);
  int alone = 0;
  for (std::size_t group = 0; group < 100; ++group) {
    alone += touch(policy, 1, group);
  }
  EXPECT_EQ(alone, static_cast<int>(SplitPolicy::kProbes)) << "the others are opened whole";
  for (int i = 0; i < 100; ++i) {
    alone += policy.opensAlone(i % 2, false) ? 1 : 0;
  }
  EXPECT_EQ(policy.advice(), Advice::kJoin);
  EXPECT_LE(alone, 24);
  EXPECT_EQ(touch(policy, 1), 0) << "until then accesses open whole groups";
  EXPECT_EQ(policy.advice(), Advice::kJoin) << "whatever comes";
  policy.joined();
  EXPECT_FALSE(policy.isSplit());
  EXPECT_EQ(policy.advice(), Advice::kStay);
}

TEST(SplitPolicy, OnceAProbeHasARoundBehindItAllGroupsAreOpenedBlockByBlock) {
  SplitPolicy policy(kLeast);
  policy.split(kBefore);
  EXPECT_EQ(touch(policy, 2, 0), 2);
  EXPECT_EQ(touch(policy, 2, 1), 2);
  EXPECT_EQ(touch(policy, 2, 2), 0);
  EXPECT_EQ(touch(policy, 2, 1), 2);
  EXPECT_EQ(touch(policy, 2, 2), 2);
}

TEST(SplitPolicy, AFlushThatIsSavedCountsToo) {
  SplitPolicy policy(kLeast);
  policy.split(kBefore);
  for (int round = 0; round < 10000; ++round) {
    for (const bool first : {true, false, false, false, false, false}) {
      EXPECT_TRUE(policy.opensAlone(3, first));
      policy.dirties(3, first);
    }
    ASSERT_EQ(policy.advice(), Advice::kStay) << round;
  }
}

// Those have one mapping, and are flushed whole.
TEST(SplitPolicy, StoresToGroupsThatAreOpenedWholeCostNothing) {
  SplitPolicy policy(kLeast);
  policy.split(kBefore);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t group = 0; group < 100; ++group) {
      for (const bool first : {true, false}) {
        (void)policy.opensAlone(group, first);
        policy.dirties(group, first);
      }
    }
    ASSERT_EQ(policy.advice(), Advice::kStay) << round;
  }
  EXPECT_TRUE(policy.opensAlone(200, true));
}

TEST(SplitPolicy, WhatIsOpenedAheadTakesNoFault) {
  SplitPolicy policy = splitForGood();
  for (int round = 0; round < 10000; ++round) {
    for (int block = 0; block < 8; ++block) {
      policy.opensAhead(0, block == 0);
    }
    (void)policy.opensAlone(0, false);
    (void)policy.opensAlone(0, false);
    ASSERT_EQ(policy.advice(), Advice::kStay) << round;
  }
}

// The probes are not touched again: what they have told so far decides.
TEST(SplitPolicy, AProgramThatGoesOnThroughItsDataIsJudgedInTheEnd) {
  SplitPolicy policy(kLeast);
  policy.split(kBefore);
  std::size_t whole = 0;
  for (std::size_t group = 0; group < 10000; ++group) {
    whole += 2 - static_cast<std::size_t>(touch(policy, 2, group));
  }
  EXPECT_LE(whole, SplitPolicy::kPatience);
  EXPECT_EQ(policy.advice(), Advice::kStay);
}

// What was saved long ago counts for little.
TEST(SplitPolicy, AProgramThatChangesIsNoticed) {
  SplitPolicy policy = splitForGood();
  for (int round = 0; round < 1000000; ++round) {
    touch(policy, 1, 5);
  }
  int groups = 0;
  for (; policy.advice() == Advice::kStay; ++groups) {
    touch(policy, 16, 5);
    policy.costs(SplitPolicy::kSaved);
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
        policy.costs(1);
      }
      policy.joined();
    }
  }
  EXPECT_GE(splits, 2u);
  EXPECT_LE(splits, static_cast<std::size_t>(std::bit_width(evidence)));
}

// Joined for want of mappings, say: it would come to that again.
TEST(SplitPolicy, BlocksThatWereJoinedForAnotherReasonNeedMoreEvidence) {
  SplitPolicy policy(kLeast);
  for (std::uint32_t i = 0; i < 10; ++i) {
    bringEvidence(policy, kLeast << i);
    EXPECT_EQ(policy.advice(), Advice::kSplit);
    policy.split(kBefore);
    policy.joined();
  }
}

// However many faults come at once.
TEST(SplitPolicy, ALargeCostIsNoGain) {
  SplitPolicy policy(kLeast);
  policy.split(kBefore);
  for (int i = 0; i < 25'000'000; ++i) {
    policy.costs(SIZE_MAX);
  }
  EXPECT_EQ(policy.advice(), Advice::kJoin);
}

}  // namespace
}  // namespace gmac
