// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/listing_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace gmac {
namespace {

constexpr std::uint64_t kWorth = 5'000'000;
constexpr std::uint64_t kInterval = ListingPolicy::kLeastInterval;

class Listing : public ::testing::Test {
 protected:
  // Launches, a round of the program for each so many, of which each takes so long; until launches
  // begin or cease to list, or so many. How many there were.
  std::uint64_t launch(std::uint64_t took, std::uint64_t most, std::uint64_t inRound = 4) {
    const bool lists = policy_.on();
    for (std::uint64_t count = 1; count <= most; ++count) {
      moment_.now += took;
      ++moment_.launches;
      if (count % inRound == 0) policy_.waited();
      policy_.tick(moment_);
      if (policy_.on() != lists) return count;
    }
    return most;
  }
  void access(std::uint64_t took, bool beside = true) { policy_.accessed(took, beside, moment_); }
  // Launches that do not list have taken so long, for many rounds; then accesses make them list.
  void begin(std::uint64_t took) {
    settle(took);
    access(kWorth << 10);
    ASSERT_TRUE(policy_.on());
  }

  void settle(std::uint64_t took) {
    for (std::uint64_t i = 0; i < 3 * std::max(kInterval, ListingPolicy::kSettling); ++i) {
      launch(took, 1, 1);
      access(0);
    }
  }

  ListingPolicy policy_{true, kWorth};
  ListingPolicy::Moment moment_{1, 0};
  std::uint64_t work_ = 0;
};

TEST_F(Listing, BeginsOnceAccessesHaveTakenLongEnough) {
  EXPECT_FALSE(policy_.watches());
  access(kWorth - 1);
  EXPECT_FALSE(policy_.on());
  access(1);
  EXPECT_TRUE(policy_.on());
}

// Other policies learn to save such accesses.
TEST_F(Listing, CountsAccessesBesideNoKernelOnceOthersHaveLearnt) {
  for (std::uint64_t i = 1; i < ListingPolicy::kSettling; ++i) {
    launch(5'000, 1, 1);
    EXPECT_FALSE(policy_.settled());
    access(kWorth, false);
    ASSERT_FALSE(policy_.on()) << i;
  }
  launch(5'000, 1, 1);
  access(kWorth - 1, false);
  EXPECT_TRUE(policy_.settled());
  EXPECT_FALSE(policy_.on());
  access(1, false);
  EXPECT_TRUE(policy_.on());
}

TEST_F(Listing, CountsThoseBesideKernelsFromTheStart) {
  for (std::uint64_t i = 0; i < 9; ++i) {
    launch(5'000, 1, 1);
    access(kWorth / 10);
    ASSERT_FALSE(policy_.on()) << i;
  }
  access(kWorth / 10);
  EXPECT_TRUE(policy_.on());
}

TEST_F(Listing, CountsAPartOfOthersBesideThem) {
  launch(5'000, 1, 1);
  access(kWorth - kWorth / 10 - 1);
  access(kWorth / 10 * ListingPolicy::kLater, false);
  EXPECT_FALSE(policy_.on()) << "no kernel was running";
  launch(5'000, 1, 1);
  access(1);
  EXPECT_TRUE(policy_.on());
}

TEST(ListingThatMayNotBe, NeverBegins) {
  ListingPolicy none(false, 0);
  none.accessed(UINT64_MAX, true, {1, 1});
  EXPECT_FALSE(none.watches());
}

TEST_F(Listing, WhatGainsNothingCostsAnInterval) {
  begin(5'000);
  EXPECT_EQ(launch(7'000, 10 * kInterval), kInterval);
  EXPECT_FALSE(policy_.watches());
}

TEST_F(Listing, WhatGainsTooLittleIsNotWorthIt) {
  begin(5'000);
  EXPECT_EQ(launch(4'900, 10 * kInterval), kInterval);
  EXPECT_FALSE(policy_.watches());
}

TEST_F(Listing, EachTimeInVainTheNextIsWorthMore) {
  begin(5'000);
  launch(7'000, 10 * kInterval);
  for (std::uint64_t worth = 2 * kWorth; worth <= 16 * kWorth; worth *= 2) {
    settle(5'000);
    access(worth - 1);
    EXPECT_FALSE(policy_.on()) << worth;
    access(1);
    ASSERT_TRUE(policy_.on()) << worth;
    launch(7'000, 10 * kInterval);
    ASSERT_FALSE(policy_.watches());
  }
}

// Trials come ever more rarely.
TEST_F(Listing, GoesOnWhileLaunchesAreSlowerWithout) {
  begin(5'000);
  EXPECT_EQ(launch(3'000, kInterval), kInterval);
  for (std::uint64_t interval = 2 * kInterval; interval <= ListingPolicy::kMostInterval;
       interval *= 2) {
    EXPECT_EQ(launch(3'000, 10 * interval), interval);
    EXPECT_TRUE(policy_.watches());
    EXPECT_EQ(launch(5'000, 10 * interval), std::max(ListingPolicy::kLeastTrial, interval / 8));
    ASSERT_TRUE(policy_.on()) << interval;
  }
}

// The policies that launches without lists stand on learn meanwhile.
TEST_F(Listing, DoesNotCountTheFirstHalfOfATrial) {
  begin(5'000);
  launch(3'000, kInterval);
  launch(3'000, 10 * kInterval);
  EXPECT_EQ(launch(50'000, ListingPolicy::kLeastTrial / 2), ListingPolicy::kLeastTrial / 2);
  launch(2'000, 10 * kInterval);
  EXPECT_FALSE(policy_.watches());
}

TEST_F(Listing, NeedsNoTrialWhileAccessesPassKernels) {
  begin(100'000);
  for (std::uint64_t i = 0; i < 10 * ListingPolicy::kMostInterval; ++i) {
    launch(100'000, 1, 1);
    ASSERT_TRUE(policy_.on()) << i;
    if (i % 8 == 0) policy_.passed(++work_);
  }
}

// One launch keeps one access waiting: the next ones find it over.
TEST_F(Listing, CountsOnePassForEachLaunch) {
  begin(100'000);
  for (int i = 0; i < 1'000; ++i) policy_.passed(1);
  EXPECT_EQ(launch(110'000, 10 * kInterval), kInterval);
  EXPECT_FALSE(policy_.watches());
}

// What the program does between may come once in a round of many launches.
TEST_F(Listing, MeasuresWholeRounds) {
  begin(5'000);
  EXPECT_EQ(launch(7'000, 10'000, 500), 1'000U);
  EXPECT_FALSE(policy_.watches());
}

TEST_F(Listing, MeasuresForSoLongAndNoLonger) {
  begin(5'000);
  EXPECT_EQ(launch(7'000, 10'000, 1'000'000), ListingPolicy::kMostLonger * kInterval);
  EXPECT_FALSE(policy_.watches());
}

// Where nothing was launched before, a trial tells.
TEST_F(Listing, TriesWhereNothingIsKnown) {
  access(kWorth);
  EXPECT_EQ(launch(7'000, 10 * kInterval), kInterval);
  EXPECT_TRUE(policy_.watches());
  EXPECT_EQ(launch(5'000, 10 * kInterval), 10 * kInterval);
  EXPECT_FALSE(policy_.watches());
}

}  // namespace
}  // namespace gmac
