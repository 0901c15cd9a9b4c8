// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/concurrent_use.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace gmac {
namespace {

using Verdict = ConcurrentUse::Verdict;
constexpr std::uint64_t kUs = 1000;

class Concurrently : public ::testing::Test {
 protected:
  // Whether the call of a round asked for a check, and what its wait found.
  bool submits(std::size_t count) { return use_.submits(now_ += kUs, kStream, count); }
  Verdict round(std::uint64_t took) {
    (void)submits(1);
    return use_.ended(now_ += took, std::nullopt);
  }
  // How many calls there are from one check to the next.
  int callsUntilCheck(std::size_t count) {
    int calls = 1;
    while (!submits(count)) {
      ++calls;
    }
    return calls;
  }

  static constexpr ConcurrentUse::Queue kStream = 3;

  ZeroCopyLimits limits_{.slack = 20 * kUs};
  ConcurrentUse use_{limits_};
  std::uint64_t now_ = 1;
};

TEST_F(Concurrently, EachIsCheckedOnceInAnInterval) {
  use_.joins(25 * kUs, 0);
  EXPECT_EQ(callsUntilCheck(1), 64);
  EXPECT_EQ(callsUntilCheck(1), 64);
  EXPECT_EQ(callsUntilCheck(2), 64) << "one in 64 calls at most";
  EXPECT_EQ(callsUntilCheck(1000), 64);
}

TEST_F(Concurrently, TheIntervalDoublesOnceTheCpuHasComeForAll) {
  constexpr std::size_t kCount = 2;
  for (int interval = 64; interval <= 4096; interval *= 2) {
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(callsUntilCheck(kCount), std::max(64, interval / static_cast<int>(kCount)));
      use_.checked(true, kCount);
    }
  }
  EXPECT_EQ(callsUntilCheck(kCount), 2048) << "no further";
  use_.checked(false, kCount);
  use_.checked(true, kCount);
  EXPECT_EQ(callsUntilCheck(kCount), 64) << "it starts anew";
}

TEST_F(Concurrently, WhereTheCpuDoesNotComeTheNextAreCheckedSoon) {
  use_.joins(25 * kUs, 0);
  EXPECT_EQ(callsUntilCheck(1000), 64);
  use_.checked(false, 999);
  EXPECT_EQ(callsUntilCheck(999), 1);
  EXPECT_EQ(callsUntilCheck(999), 1);
  use_.checked(true, 999);
  EXPECT_EQ(callsUntilCheck(999), 64);
}

TEST_F(Concurrently, SlowRoundsEndIt) {
  use_.joins(25 * kUs, 0);
  EXPECT_EQ(use_.patience(), 70 * kUs);
  EXPECT_EQ(round(71 * kUs), Verdict::kOpen);
  EXPECT_EQ(round(71 * kUs), Verdict::kOpen);
  EXPECT_EQ(round(12 * kUs), Verdict::kOpen);
  EXPECT_EQ(round(71 * kUs), Verdict::kOpen);
  EXPECT_EQ(round(71 * kUs), Verdict::kOpen);
  EXPECT_EQ(round(71 * kUs), Verdict::kBad);
}

TEST_F(Concurrently, SoDoRoundsThatGainNothing) {
  use_.joins(25 * kUs, 0);
  for (int i = 1; i < 32; ++i) {
    ASSERT_EQ(round(26 * kUs), Verdict::kOpen) << i;
  }
  EXPECT_EQ(round(26 * kUs), Verdict::kBad);
}

TEST_F(Concurrently, TheObjectWithTheShortestRoundsCounts) {
  use_.joins(25 * kUs, 0);
  use_.joins(900 * kUs, 1);
  EXPECT_EQ(use_.patience(), 70 * kUs);
  use_.joins(5 * kUs, 2);
  EXPECT_EQ(use_.patience(), 30 * kUs);
  use_.joins(900 * kUs, 0);  // all others have left
  EXPECT_EQ(use_.patience(), 1820 * kUs);
}

TEST_F(Concurrently, ARoundIsFromTheFirstCallToTheEndOfTheWait) {
  use_.joins(25 * kUs, 0);
  EXPECT_EQ(use_.ended(now_ += 1000 * kUs, std::nullopt), Verdict::kOpen) << "nothing was called";
  for (int i = 0; i < 100; ++i) {
    (void)submits(1);
    now_ += 30 * kUs;
    (void)submits(1);
    ASSERT_EQ(use_.ended(now_ += 30 * kUs, std::nullopt),
              i % 32 == 31 ? Verdict::kBad : Verdict::kOpen)
        << i;
    now_ += 5000 * kUs;  // a pause of the program's
  }
}

// Three rounds that are slow, if each is one.
TEST_F(Concurrently, AWaitForAnotherStreamEndsNoRound) {
  constexpr ConcurrentUse::Queue kOther = 4;
  use_.joins(25 * kUs, 0);
  for (int i = 0; i < 100; ++i) {
    (void)submits(1);
    ASSERT_EQ(use_.ended(now_ += 71 * kUs, kOther), Verdict::kOpen);
  }
  EXPECT_EQ(use_.ended(now_ += kUs, kStream), Verdict::kOpen);
  for (int i = 0; i < 100; ++i) {
    (void)submits(1);
    (void)use_.submits(now_ += kUs, kOther, 1);
    ASSERT_EQ(use_.ended(now_ += 71 * kUs, kStream), Verdict::kOpen) << "the other may still run";
  }
  EXPECT_EQ(use_.ended(now_ += kUs, std::nullopt), Verdict::kOpen);
  EXPECT_EQ(round(71 * kUs), Verdict::kBad);
}

TEST_F(Concurrently, CallsThatAreWaitedForInVainAreSlow) {
  use_.joins(25 * kUs, 0);
  for (int i = 0; i < 2; ++i) {
    (void)submits(1);
    ASSERT_EQ(use_.tookTooLong(), Verdict::kOpen);
    ASSERT_EQ(use_.ended(now_ += 1000 * kUs, std::nullopt), Verdict::kOpen) << "counted already";
  }
  (void)submits(1);
  EXPECT_EQ(use_.tookTooLong(), Verdict::kBad);
}

}  // namespace
}  // namespace gmac
