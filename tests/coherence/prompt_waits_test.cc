// SPDX-License-Identifier: Apache-2.0
//
// When a call may wait for its kernel; and a program that does other things meanwhile pays for few.
#include "gmac/coherence/prompt_waits.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gmac {
namespace {

constexpr std::uint64_t kUs = 1000;

class Program : public ::testing::Test {
 protected:
  // A call and a wait; the program does something else for `pause` between them.
  void round(std::uint64_t pause = kUs) {
    call();
    policy_.waits(now_ += pause);
  }
  void call() {
    awaited_ += policy_.mayWait() ? 1 : 0;
    policy_.returns(now_ += 10 * kUs);
  }
  // How many rounds it takes until calls may wait; at most `most`.
  int roundsUntilTheyMay(int most = 100'000) {
    for (int i = 0; i < most; ++i) {
      if (policy_.mayWait()) {
        return i;
      }
      round();
    }
    return most;
  }

  // How many until they may wait for a slice.
  int roundsUntilSlice(int most = 100'000) {
    int rounds = 0;
    while (!policy_.hasSlice() && rounds < most) {
      round();
      ++rounds;
    }
    return rounds;
  }
  // A call whose kernel ends in a slice, if the call waits for that; whether it does.
  bool longCall() {
    (void)policy_.mayWait();
    const bool waited = policy_.takeSlice() != 0;
    policy_.returns(now_ += 200 * kUs, waited);
    return waited;
  }

  // Every eighth call's kernel does not end in a slice. `meanwhile()` comes while the call waits.
  template <typename Meanwhile>
  void expectFewSlicesInVain(Meanwhile meanwhile) {
    roundsUntilTheyMay();
    int inVain = 0;
    constexpr int kTurns = 4000;
    for (int turn = 0; turn < kTurns; ++turn) {
      (void)policy_.mayWait();
      const bool sliced = policy_.takeSlice() != 0;
      inVain += sliced ? 1 : 0;
      meanwhile();
      policy_.inVain(sliced);
      policy_.returns(now_ += 200 * kUs);
      policy_.waits(now_ += kUs);
      for (int i = 0; i < 7; ++i) {
        round();
      }
    }
    EXPECT_GE(inVain, 1);
    EXPECT_LE(inVain, 7) << "in " << 8 * kTurns << " rounds";
  }

  PromptWaits policy_{PromptWaits::Limits{}};
  std::uint64_t now_ = 1;
  int awaited_ = 0;
};

TEST_F(Program, PromptRoundsLetCallsWait) { EXPECT_EQ(roundsUntilTheyMay(), 32); }

// Another process's kernels may have the device for a while.
TEST_F(Program, CallsMayWaitLongerAfterATrialWithoutAMiss) {
  roundsUntilTheyMay();
  EXPECT_EQ(roundsUntilSlice(), 32);
  // The wait follows at once: so it was right.
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(longCall()) << i;
    policy_.waits(now_ += kUs);
  }
}

// A long kernel now and then, beside which the program works.
TEST_F(Program, CallsThatWaitedLongerForNothingDoSoEverMoreRarely) {
  roundsUntilTheyMay();
  int lost = 0;
  constexpr int kPeriods = 200;
  for (int period = 0; period < kPeriods; ++period) {
    for (int i = 0; i < 63; ++i) {
      round();
    }
    lost += longCall() ? 1 : 0;
    policy_.waits(now_ += 190 * kUs);
  }
  EXPECT_GE(lost, 1);
  EXPECT_LE(lost, 6) << "in " << 64 * kPeriods << " rounds";
}

TEST_F(Program, WhereTheyWereRightAgainTheyDoSoSooner) {
  roundsUntilTheyMay();
  for (const int rounds : {32, 512, 1024}) {
    EXPECT_EQ(roundsUntilSlice(), rounds);
    ASSERT_TRUE(longCall());
    policy_.waits(now_ += 190 * kUs);
  }
  EXPECT_EQ(roundsUntilSlice(), 2048);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(longCall());
    policy_.waits(now_ += kUs);
  }
  call();
  policy_.waits(now_ += 190 * kUs);  // a miss, but not of a call that waited longer
  EXPECT_TRUE(policy_.hasSlice());
  ASSERT_TRUE(longCall());
  policy_.waits(now_ += 190 * kUs);
  EXPECT_EQ(roundsUntilSlice(), 512);
}

// A call may wait for a slice in vain, whatever the program waits for next: that may be other work.
TEST_F(Program, ThoseWhoseKernelsDoNotEndInASliceDoSoEverMoreRarely) {
  expectFewSlicesInVain([] {});
}

// Another thread's call returns, and waits, while this one waits for a slice.
TEST_F(Program, WhatAnotherThreadDoesMeanwhilePaysForNone) {
  expectFewSlicesInVain([this] { round(); });
}

// Turns of 50 calls beside another process, of which the first waits for a time slice: now and then
// that is too long.
TEST_F(Program, ASliceInVainNowAndThenIsMadeUpFor) {
  roundsUntilTheyMay();
  (void)roundsUntilSlice();
  int waited = 0;
  constexpr int kTurns = 1000;
  for (int turn = 0; turn < kTurns; ++turn) {
    (void)policy_.mayWait();
    const bool sliced = policy_.takeSlice() != 0;
    waited += sliced ? 1 : 0;
    if (turn % 10 == 0) {
      policy_.inVain(sliced);
    }
    policy_.returns(now_ += 200 * kUs, sliced && turn % 10 != 0);
    policy_.waits(now_ += kUs);
    for (int i = 0; i < 50; ++i) {
      round();
    }
  }
  EXPECT_GE(waited, kTurns / 3);
}

TEST_F(Program, ALateWaitStartsOver) {
  for (int i = 0; i < 1000; ++i) {
    round(i % 32 == 31 ? 5 * kUs : kUs);
  }
  EXPECT_EQ(awaited_, 0);
}

TEST_F(Program, TwoCallsForEachWaitDoNot) {
  for (int i = 0; i < 1000; ++i) {
    call();
    round();
  }
  EXPECT_EQ(awaited_, 0);
}

TEST_F(Program, TheSecondOfTwoCallsDoesNotWait) {
  roundsUntilTheyMay();
  call();
  EXPECT_FALSE(policy_.mayWait());
}

TEST_F(Program, AWaitWithoutACallCountsForNothing) {
  for (int i = 0; i < 31; ++i) {
    round();
    policy_.waits(now_ += 1000 * kUs);
  }
  EXPECT_FALSE(policy_.mayWait());
  round();
  EXPECT_TRUE(policy_.mayWait());
}

TEST_F(Program, AMissNowAndThenIsForgiven) {
  roundsUntilTheyMay();
  for (int i = 0; i < 10'000; ++i) {
    round(i % 8 == 0 ? 100 * kUs : kUs);
    ASSERT_TRUE(policy_.mayWait()) << i;
  }
}

TEST_F(Program, FiveInARowAreNot) {
  roundsUntilTheyMay();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(policy_.mayWait()) << i;
    round(100 * kUs);
  }
  EXPECT_FALSE(policy_.mayWait());
}

TEST_F(Program, KernelsThatAreWaitedForInVainCountAlike) {
  roundsUntilTheyMay();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(policy_.mayWait()) << i;
    policy_.inVain(false);
    round();
  }
  EXPECT_FALSE(policy_.mayWait());
}

TEST_F(Program, EachEndDoublesTheEvidence) {
  for (const int wanted : {32, 64, 128, 256}) {
    ASSERT_EQ(roundsUntilTheyMay(), wanted);
    while (policy_.mayWait()) {
      round(100 * kUs);
    }
  }
}

TEST_F(Program, LongSuccessHalvesItAgain) {
  for (int ends = 0; ends < 3; ++ends) {
    roundsUntilTheyMay();
    while (policy_.mayWait()) {
      round(100 * kUs);
    }
  }
  roundsUntilTheyMay();
  for (int i = 0; i < 32 * 32; ++i) {
    round();
  }
  while (policy_.mayWait()) {
    round(100 * kUs);
  }
  EXPECT_EQ(roundsUntilTheyMay(), 256) << "three ends, one of them forgiven, and one more";
}

// The worst program does something else as soon as calls wait.
TEST_F(Program, TheWorstProgramPaysForFew) {
  constexpr int kRounds = 100'000;
  for (int i = 0; i < kRounds; ++i) {
    round(policy_.mayWait() ? 100 * kUs : kUs);
  }
  EXPECT_LE(awaited_, 5 * 12) << "of " << kRounds;
}

TEST_F(Program, WhereItDoesNotWatchNothingIsRemembered) {
  policy_.watch(true);
  EXPECT_TRUE(policy_.on());
  call();
  policy_.watch(false);
  EXPECT_FALSE(policy_.on());
  policy_.watch(true);
  policy_.waits(now_ += 1000 * kUs);  // not for that call
  EXPECT_EQ(roundsUntilTheyMay(), 32);
}

}  // namespace
}  // namespace gmac
