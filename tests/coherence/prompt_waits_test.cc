// SPDX-License-Identifier: Apache-2.0
//
// When a call may wait for its kernel; and a program that does other things meanwhile pays for few.
#include "gmac/coherence/prompt_waits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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
    const bool waits = policy_.mayWait();
    awaited_ += waits ? 1 : 0;
    policy_.returns(now_ += 10 * kUs, {.thread = kThread, .awaited = waits});
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
    policy_.returns(now_ += 200 * kUs, {.awaited = waited, .sliced = waited});
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
      policy_.returns(now_ += 200 * kUs, {});
      policy_.waits(now_ += kUs);
      for (int i = 0; i < 7; ++i) {
        round();
      }
    }
    EXPECT_GE(inVain, 1);
    EXPECT_LE(inVain, 7) << "in " << 8 * kTurns << " rounds";
  }

  static constexpr std::uint64_t kThread = 7;
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
    const bool right = sliced && turn % 10 != 0;
    policy_.returns(now_ += 200 * kUs, {.awaited = right, .sliced = right});
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

// ---- Accesses that wait for the call

// A call, and an access, which is seen where the call does not wait; the program waits much later.
class Accesses : public Program {
 protected:
  void accessRound(std::uint64_t pause = 3 * kUs) {
    const int before = awaited_;
    call();
    seen_ += awaited_ == before ? 1 : 0;
    if (awaited_ == before) {
      policy_.accesses(now_ += pause, kThread);
    }
    policy_.waits(now_ += 100 * kUs);
  }
  void accessRoundsUntilTheyMay() {
    for (int i = 0; i < 1000 && !policy_.mayWait(); ++i) {
      accessRound();
    }
    ASSERT_TRUE(policy_.mayWait());
    seen_ = awaited_ = 0;
  }
  int seen_ = 0;
};

TEST_F(Accesses, PromptOnesLetCallsWait) {
  for (int i = 0; i < 32; ++i) {
    ASSERT_FALSE(policy_.mayWait()) << i;
    accessRound();
  }
  EXPECT_TRUE(policy_.mayWait());
}

TEST_F(Accesses, OnesOfAnotherThreadDoNot) {
  for (int i = 0; i < 1000; ++i) {
    call();
    policy_.accesses(now_ += kUs, kThread + 1);
    policy_.waits(now_ += 100 * kUs);
  }
  EXPECT_EQ(awaited_, 0);
}

TEST_F(Accesses, LateOnesDoNot) {
  for (int i = 0; i < 1000; ++i) {
    accessRound(i % 32 == 31 ? 17 * kUs : 15 * kUs);
  }
  EXPECT_EQ(awaited_, 0);
}

// Such a wait has needed no lock, and is told of by the access that comes after it.
TEST_F(Accesses, OnesAfterAWaitCountForNothing) {
  for (int i = 0; i < 100; ++i) {
    call();
    policy_.found(now_ += kUs);
    policy_.accesses(now_ += 100 * kUs, kThread);
  }
  EXPECT_GE(awaited_, 60);
}

TEST_F(Accesses, TheyAreLookedAtEverMoreRarely) {
  ASSERT_NO_FATAL_FAILURE(accessRoundsUntilTheyMay());
  std::vector<int> distances;
  for (int unseen = 0; distances.size() < 20; ++unseen) {
    accessRound();
    if (std::exchange(seen_, 0) != 0) {
      distances.push_back(std::exchange(unseen, 0));
    }
  }
  EXPECT_LE(distances.front(), 33);
  EXPECT_LE(std::ranges::max(distances), 513);
  EXPECT_GE(std::ranges::min(distances), 16);
  EXPECT_GE(*std::min_element(distances.begin() + 10, distances.end()), 256);
  EXPECT_TRUE(std::ranges::any_of(distances, [](int distance) { return distance % 2 == 0; }) &&
              std::ranges::any_of(distances, [](int distance) { return distance % 2 != 0; }))
      << "so that no period of the program's escapes";
}

TEST_F(Accesses, WhereTheyCeaseToBePromptFewMoreAreUnseen) {
  for (const int rounds : {0, 100, 10'000}) {
    policy_.watch(true);
    ASSERT_NO_FATAL_FAILURE(accessRoundsUntilTheyMay());
    for (int i = 0; i < rounds; ++i) {
      accessRound();
    }
    awaited_ = 0;
    for (int i = 0; i < 10'000; ++i) {
      accessRound(50 * kUs);
    }
    EXPECT_LE(awaited_, rounds == 0 ? 33 : rounds == 100 ? 100 : 513) << rounds;
    EXPECT_FALSE(policy_.mayWait());
  }
}

TEST_F(Accesses, AfterALateOneTheNextCallLooksAgain) {
  ASSERT_NO_FATAL_FAILURE(accessRoundsUntilTheyMay());
  while (seen_ == 0) {
    accessRound(50 * kUs);
  }
  EXPECT_FALSE(policy_.mayWait());
  accessRound();
  EXPECT_TRUE(policy_.mayWait());
}

// Prompt waits are seen whether calls wait or not.
TEST_F(Accesses, WhereWaitsBecomePromptFewCallsLook) {
  ASSERT_NO_FATAL_FAILURE(accessRoundsUntilTheyMay());
  while (policy_.mayWait()) {
    accessRound();
  }
  awaited_ = 0;
  for (int i = 0; i < 1000; ++i) {
    round();
  }
  EXPECT_EQ(awaited_, 1000 - 32) << "which ends the look";
  for (int i = 0; i < 5; ++i) {
    round(100 * kUs);
  }
  EXPECT_FALSE(policy_.mayWait()) << "late waits are misses again";
}

TEST_F(Accesses, SomeRoundsMayEndInAPromptWaitAndOthersInAnAccess) {
  ASSERT_NO_FATAL_FAILURE(accessRoundsUntilTheyMay());
  for (int i = 0; i < 10'000; ++i) {
    i % 3 == 0 ? round() : accessRound();
  }
  EXPECT_GE(awaited_, 9'900);
}

// Turns of 200 calls beside other processes, of which the first waits for a time slice.
TEST_F(Accesses, RoundsThatAreNotSeenPayForSlices) {
  ASSERT_NO_FATAL_FAILURE(accessRoundsUntilTheyMay());
  int waited = 0;
  constexpr int kTurns = 200;
  for (int turn = 0; turn < kTurns; ++turn) {
    const bool waits = policy_.mayWait();
    const bool sliced = waits && policy_.takeSlice() != 0;
    waited += sliced ? 1 : 0;
    if (waits && !sliced) {
      policy_.inVain(false);
    }
    policy_.returns(now_ += 200 * kUs, {.thread = kThread, .awaited = sliced, .sliced = sliced});
    if (!sliced) {
      policy_.accesses(now_ += 3 * kUs, kThread);
    }
    policy_.waits(now_ += 100 * kUs);
    for (int i = 0; i < 200; ++i) {
      accessRound();
    }
  }
  EXPECT_GE(waited, kTurns / 4);
  EXPECT_GE(awaited_, kTurns * 190) << "no turn's first call makes calls cease to wait";
}

// Of calls that do not look, late ones alone are seen: they say little of the others.
TEST_F(Accesses, RareMissesAreForgivenAsWhereTheProgramWaits) {
  for (const int every : {33, 100, 500}) {
    ASSERT_NO_FATAL_FAILURE(accessRoundsUntilTheyMay());
    constexpr int kRounds = 100'000;
    for (int i = 1; i <= kRounds; ++i) {
      if (i % every == 0) {
        call();  // and no wait before the next one
      }
      accessRound();
    }
    EXPECT_GE(awaited_, kRounds * 9 / 10) << every;
  }
}

// A prompt wait after it, or an access much later, does not make a slice one that was right.
TEST_F(Accesses, SlicesThatNobodyHasSeenToBeRightArePaidFor) {
  ASSERT_NO_FATAL_FAILURE(accessRoundsUntilTheyMay());
  constexpr int kTurns = 10'000;
  int slices = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (int i = 0; i < 54; ++i) {
      accessRound();
    }
    const bool sliced = policy_.mayWait() && policy_.takeSlice() != 0;
    slices += sliced ? 1 : 0;
    policy_.returns(now_ += 200 * kUs, {.thread = kThread, .awaited = sliced, .sliced = sliced});
    policy_.waits(now_ += 200 * kUs);
    for (int i = 0; i < 11; ++i) {
      round();
    }
  }
  EXPECT_LE(slices, kTurns * 66 / 256 + 1);
}

// What a call has waited for in vain is not open.
TEST_F(Accesses, AfterACallThatHasNotSeenItsKernelsEndALateWaitIsAMiss) {
  ASSERT_NO_FATAL_FAILURE(accessRoundsUntilTheyMay());
  for (int i = 0; i < 5; ++i) {
    (void)policy_.mayWait();
    policy_.returns(now_ += 10 * kUs, {.thread = kThread});
    policy_.waits(now_ += 100 * kUs);
  }
  EXPECT_FALSE(policy_.mayWait());
}

// Whatever pattern its rounds have, and wherever in it the program begins: P is a prompt wait, A a
// prompt access, L neither, and C another call.
TEST_F(Accesses, NoShortPatternMakesManyCallsWaitInVain) {
  constexpr int kCalls = 12'000;
  constexpr std::size_t kLongest = 4;
  const std::string kinds = "PALC";
  for (std::size_t length = 1; length <= kLongest; ++length) {
    for (std::size_t number = 0; number < std::size_t{1} << (2 * length); ++number) {
      std::string pattern;
      for (std::size_t i = 0; i < length; ++i) {
        pattern += kinds[number >> (2 * i) & 3];
      }
      PromptWaits policy{PromptWaits::Limits{}};
      int inVain = 0;
      const auto step = [&](char kind) {
        const bool waits = policy.mayWait();
        inVain += waits && (kind == 'L' || kind == 'C') ? 1 : 0;
        policy.returns(now_ += 10 * kUs, {.thread = kThread, .awaited = waits});
        if (kind == 'A' && !waits) {
          policy.accesses(now_ += 3 * kUs, kThread);
        }
        if (kind != 'C') {
          policy.waits(now_ += kind == 'P' ? kUs : 100 * kUs);
        }
      };
      for (int i = 0; i < 40; ++i) {
        step('A');
      }
      inVain = 0;
      for (std::size_t i = 0; i < kCalls; ++i) {
        step(pattern[i % length]);
      }
      ASSERT_LE(inVain, kCalls / 6) << pattern;
    }
  }
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

TEST_F(Accesses, NorAreThey) {
  ASSERT_NO_FATAL_FAILURE(accessRoundsUntilTheyMay());
  policy_.watch(false);
  policy_.watch(true);
  for (int i = 0; i < 5; ++i) {
    accessRound(50 * kUs);
  }
  EXPECT_FALSE(policy_.mayWait());
}

}  // namespace
}  // namespace gmac
