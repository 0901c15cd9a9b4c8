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
    const std::size_t left = use_.callsToCheck(count);
    int calls = 1;
    while (!submits(count)) {
      ++calls;
    }
    EXPECT_EQ(std::max<std::size_t>(left, 1), static_cast<std::size_t>(calls));
    return calls;
  }

  static constexpr ConcurrentUse::Queue kStream = 3;
  static constexpr ConcurrentUse::Queue kOther = 4;

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
  int between = 64;
  for (int interval = 64; interval <= 4096; interval *= 2) {
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(callsUntilCheck(kCount), std::max(between, interval / static_cast<int>(kCount)));
      use_.checked(true, kCount);
      between = std::min(2 * between, 512);
    }
  }
  EXPECT_EQ(callsUntilCheck(kCount), 2048) << "no further";
  use_.checked(false, kCount);
  use_.checked(true, kCount);
  EXPECT_EQ(callsUntilCheck(kCount), 64) << "it starts anew";
}

// Of many objects one is checked in 64 calls at first: a check takes as long as a few short rounds.
TEST_F(Concurrently, ChecksOfManyBecomeRareWhereTheCpuComes) {
  for (const int between : {64, 128, 256, 512, 512}) {
    ASSERT_EQ(callsUntilCheck(64), between);
    use_.checked(true, 64);
  }
  EXPECT_EQ(callsUntilCheck(64), 512);
  use_.checked(false, 63);
  EXPECT_EQ(callsUntilCheck(64), 1);
  use_.checked(true, 64);
  EXPECT_EQ(callsUntilCheck(64), 64) << "it starts anew";
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

// Accesses have waited in the program's place: 30 us a call.
class Unwaited : public Concurrently {
 protected:
  Unwaited() { use_.joins(30 * kUs, 0, {}, false, 1); }
  // What so many rounds of so many calls, which take `each`, tell.
  Verdict rounds(int count, std::uint64_t calls, std::uint64_t each) {
    Verdict verdict = Verdict::kOpen;
    for (int i = 0; i < count && verdict != Verdict::kBad; ++i) {
      (void)use_.submits(now_ += kUs, kStream, 1, calls);
      verdict = use_.took(now_ += calls * each, calls * each, kStream, false, calls);
    }
    return verdict;
  }
  // Checks find that the CPU comes after so many calls.
  void comesAfter(std::size_t calls) {
    for (int check = 0; check < 20; ++check) {
      callsUntilCheck(1);
      (void)use_.submits(now_ += kUs, kStream, 1000, calls - 1);
      use_.checked(true, 1);
    }
  }
};

TEST_F(Unwaited, RoundsOfAnyLengthAreJudgedByTheirCalls) {
  for (const std::uint64_t calls : {1, 10, 100, 10'000}) {
    EXPECT_NE(rounds(100, calls, 5 * kUs), Verdict::kBad) << calls;
    EXPECT_EQ(rounds(32, calls, 44 * kUs), Verdict::kBad) << calls;
    EXPECT_EQ(rounds(3, calls, 300 * kUs), Verdict::kBad) << calls;
  }
}

TEST_F(Unwaited, WhereTheCpuComesMoreRarelyCallsMayTakeLess) {
  EXPECT_NE(rounds(100, 20, 20 * kUs), Verdict::kBad);
  comesAfter(20);
  EXPECT_EQ(rounds(64, 20, 20 * kUs), Verdict::kBad);
  EXPECT_NE(rounds(100, 20, 5 * kUs), Verdict::kBad);
  comesAfter(1);
  EXPECT_NE(rounds(100, 20, 20 * kUs), Verdict::kBad);
}

TEST_F(Unwaited, ChecksAreNotVeryRare) {
  comesAfter(1);
  EXPECT_LE(callsUntilCheck(1), 512);
}

TEST_F(Unwaited, RoundsAreJudgedAsEverOnceThereIsNone) {
  use_.joins(500 * kUs, 1, kStream);
  EXPECT_TRUE(use_.unwaited());
  use_.noneUnwaited(500 * kUs);
  EXPECT_FALSE(use_.unwaited());
  EXPECT_NE(rounds(100, 10, 44 * kUs), Verdict::kBad) << "440 us";
  EXPECT_EQ(rounds(100, 10, 60 * kUs), Verdict::kBad) << "600 us";
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

// As where launches repeat, of which the average is told: each counts.
TEST_F(Concurrently, RoundsThatAreToldTogetherCountEach) {
  use_.joins(100 * kUs, 0);
  const auto together = [&](ConcurrentUse::Nanoseconds each, std::uint64_t rounds) {
    return use_.comesBack(std::nullopt, {.rounds = rounds, .took = each * rounds}, false);
  };
  EXPECT_EQ(together(120 * kUs, 15), Verdict::kOpen);
  EXPECT_EQ(together(120 * kUs, 15), Verdict::kOpen);
  EXPECT_EQ(together(120 * kUs, 15), Verdict::kBad);
  EXPECT_EQ(together(90 * kUs, 1000), Verdict::kGood);
  EXPECT_EQ(together(90 * kUs, 0), Verdict::kOpen) << "of none";
}

// Of several streams, each is compared with what its own rounds took, until they no longer overlap.
TEST_F(Concurrently, RoundsThatAreToldTogetherLeaveSeveralStreamsSeveral) {
  use_.joins(25 * kUs, 0, kStream);
  use_.joins(100 * kUs, 1, kOther);
  (void)submits(2);
  (void)use_.submits(now_, kOther, 2);
  (void)use_.ended(now_ += kUs, std::nullopt);
  const auto together = [&](bool several) {
    (void)use_.comesBack(kOther, {.rounds = 1000, .took = 1000 * kUs, .several = several}, false);
    return use_.patienceOf(kOther, false);
  };
  EXPECT_EQ(together(true), 220 * kUs);
  EXPECT_EQ(together(false), 70 * kUs);
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
  use_.joins(25 * kUs, 0);
  for (int i = 0; i < 100; ++i) {
    (void)submits(1);
    ASSERT_EQ(use_.ended(now_ += 71 * kUs, kOther), Verdict::kOpen);
  }
  EXPECT_EQ(use_.ended(now_ += kUs, kStream), Verdict::kOpen);
  EXPECT_EQ(round(12 * kUs), Verdict::kOpen);
}

// As where threads have a stream each.
TEST_F(Concurrently, EachStreamHasRoundsOfItsOwn) {
  use_.joins(25 * kUs, 0);
  (void)use_.submits(now_ += kUs, kOther, 1);
  for (int i = 0; i < 100; ++i) {
    (void)submits(1);
    ASSERT_NE(use_.ended(now_ += 20 * kUs, kStream), Verdict::kBad) << i;
  }
  EXPECT_NE(use_.roundsBegun(), 0u);
  EXPECT_EQ(use_.ended(now_, kOther), Verdict::kOpen) << "slow, once";
  EXPECT_EQ(use_.roundsBegun(), 0u);
}

TEST_F(Concurrently, OfSeveralStreamsThoseOfItsObjectsCount) {
  use_.joins(25 * kUs, 0, kStream);
  const auto rounds = [&](std::uint64_t took, ConcurrentUse::Queue waited) {
    Verdict verdict = Verdict::kOpen;
    for (int i = 0; i < 3 && verdict == Verdict::kOpen; ++i) {
      (void)submits(1);
      (void)use_.submits(now_, kOther, 1);
      now_ += took;
      verdict = use_.ended(now_, waited);
      use_.forgetRounds();
    }
    return verdict;
  };
  EXPECT_EQ(rounds(1000 * kUs, kOther), Verdict::kOpen) << "none of them";
  EXPECT_EQ(rounds(71 * kUs, kStream), Verdict::kBad);
  use_.joins(200 * kUs, 1, kOther);
  EXPECT_EQ(rounds(420 * kUs, kOther), Verdict::kOpen) << "its own rounds took as long";
  EXPECT_EQ(rounds(421 * kUs, kOther), Verdict::kBad);
}

TEST_F(Concurrently, WhatAStreamsRoundsTookBeforeIsTheLongestLately) {
  use_.tookBefore(now_, kOther, 800 * kUs);
  use_.tookBefore(now_, kOther, 100 * kUs);  // which leaves seven eighths of the one before
  use_.joins(25 * kUs, 0, kStream);
  Verdict verdict = Verdict::kOpen;
  for (const std::uint64_t took : {1420 * kUs, 1421 * kUs, 1421 * kUs, 1421 * kUs}) {
    ASSERT_EQ(verdict, Verdict::kOpen);
    (void)submits(1);
    (void)use_.submits(now_, kOther, 1);
    verdict = use_.ended(now_ += took, kOther);
    use_.forgetRounds();
  }
  EXPECT_EQ(verdict, Verdict::kBad);
}

TEST_F(Concurrently, AnswersHowLongWorkHasBeenUnderWay) {
  EXPECT_EQ(use_.longestUnderWay(now_), 0u);
  use_.begins(now_, kStream);
  use_.begins(now_ += kUs, kOther);
  EXPECT_EQ(use_.longestUnderWay(now_ += kUs), 2 * kUs);
  (void)use_.roundEnds(now_, kStream);
  EXPECT_EQ(use_.longestUnderWay(now_), kUs);
}

TEST_F(Concurrently, ManyShortCallsAreNoLongOne) {
  for (int i = 0; i < 10; ++i) {
    use_.begins(now_ += kUs, kStream);
    use_.begins(now_, kStream);  // another attempt
    use_.submitted(kStream);
  }
  EXPECT_EQ(use_.longestUnderWay(now_ += 11 * kUs), 2 * kUs);
  EXPECT_EQ(use_.longestRound(now_), 20 * kUs);
  use_.begins(now_, kOther);
  use_.submitted(kOther);
  EXPECT_EQ(use_.longestUnderWay(now_ += 5 * kUs), 5 * kUs);
}

// Where several threads wait, one's rounds become longer as another keeps the runtime busy.
class Contended : public Concurrently {
 protected:
  static constexpr std::uint64_t kCycle = 300 * kUs;
  Contended() {
    for (int i = 0; i < 16; ++i) {
      use_.tookBefore(now_ += kCycle, kStream, 25 * kUs);
    }
    use_.joins(25 * kUs, 0, kStream);
    use_.forgetRounds();
  }
  // After how many of them, which are `cycle` apart, the trial fails; 0: it does not.
  int roundsUntilBad(std::uint64_t took, std::uint64_t cycle) {
    for (int i = 1; i <= 1000; ++i) {
      if (use_.took(now_ += cycle, took, kStream, true) == Verdict::kBad) {
        return i;
      }
    }
    return 0;
  }
};

TEST_F(Contended, RoundsThatComeSoonerAreNotSlow) {
  EXPECT_EQ(roundsUntilBad(200 * kUs, kCycle * 7 / 10), 0);
}

TEST_F(Contended, ThoseThatDoNotAreSlowOnAverage) {
  EXPECT_EQ(roundsUntilBad(70 * kUs, kCycle), 0) << "twice as long, and the slack";
  EXPECT_EQ(roundsUntilBad(71 * kUs, kCycle), 24) << "at the end of the trial";
  EXPECT_EQ(roundsUntilBad(71 * kUs, kCycle * 8 / 10), 32);
}

TEST_F(Contended, AFewMayTakeLong) {
  for (int i = 0; i < 320; ++i) {
    ASSERT_NE(use_.took(now_ += kCycle, (i % 8 < 3 ? 130 : 20) * kUs, kStream, true),
              Verdict::kBad);
  }
}

TEST_F(Contended, APauseOfTheProgramIsNoLongRound) {
  EXPECT_EQ(roundsUntilBad(200 * kUs, kCycle / 2), 0);
  (void)use_.took(now_ += 1000 * kCycle, 200 * kUs, kStream, true);
  EXPECT_EQ(roundsUntilBad(200 * kUs, kCycle / 2), 0);
}

TEST_F(Contended, AMoveIsNoLongRound) {
  use_.forgetRounds();
  EXPECT_EQ(use_.took(now_ += 1000 * kCycle, 20 * kUs, kStream, true), Verdict::kOpen);
  EXPECT_EQ(roundsUntilBad(200 * kUs, kCycle / 2), 0);
}

// As where threads end and others begin, with streams of their own.
TEST_F(Contended, ANewStreamIsSlowWhereItsRoundsComeNoSoonerThanThoseOfOthersDid) {
  constexpr ConcurrentUse::Queue kNew = 77;
  for (int i = 0; i < 320; ++i) {
    ASSERT_NE(use_.took(now_ += kCycle / 2, 200 * kUs, kNew, true), Verdict::kBad) << i;
  }
  int bad = 0;
  for (int i = 0; i < 160 && !use_.failsLong(kNew); ++i) {
    bad += use_.took(now_ += 2 * kCycle, 200 * kUs, kNew, true) == Verdict::kBad ? 1 : 0;
  }
  EXPECT_EQ(bad, 4);
  for (int i = 0; i < 32; ++i) {
    (void)use_.took(now_ += kCycle, 20 * kUs, kNew, true);
  }
  EXPECT_FALSE(use_.failsLong(kNew));
}

// The first round of a stream tells no cycle, and one with long pauses tells nothing of others.
TEST_F(Contended, ANewStreamIsComparedWithTheOneWhoseRoundsCameSoonest) {
  constexpr std::uint64_t kSecond = 1'000'000 * kUs;
  for (int i = 0; i < 3; ++i) {
    use_.tookBefore(now_ += kSecond, 78, 25 * kUs);
    for (int k = 0; k < 320; ++k) {
      ASSERT_NE(use_.took(now_ += kCycle / 2, 200 * kUs, 79, true), Verdict::kBad) << i << ' ' << k;
    }
    use_.forget(79);
  }
  int bad = 0;
  for (int i = 0; i < 4 * 32; ++i) {
    bad += use_.took(now_ += 2 * kCycle, 200 * kUs, 79, true) == Verdict::kBad ? 1 : 0;
  }
  EXPECT_EQ(bad, 4);
}

TEST_F(Contended, WhereAllMovedBackTrialsAreCountedAnew) {
  constexpr ConcurrentUse::Queue kNew = 77;
  const auto trialsUntilAll = [&] {
    int bad = 0;
    do {
      bad += use_.took(now_ += 2 * kCycle, 200 * kUs, kNew, true) == Verdict::kBad ? 1 : 0;
    } while (!use_.failsLong(kNew));
    return bad;
  };
  EXPECT_EQ(trialsUntilAll(), 4);
  use_.forgetRounds();
  EXPECT_EQ(trialsUntilAll(), 4);
}

// Threads with a stream each, whose rounds come in turns.
TEST_F(Contended, EachOfManyStreamsHasATrial) {
  constexpr ConcurrentUse::Queue kStreams = 64;
  for (ConcurrentUse::Queue stream = 100; stream < 100 + kStreams; ++stream) {
    use_.joins(25 * kUs, 1, stream);
  }
  int bad = 0;
  for (int i = 0; i < 32; ++i) {
    for (ConcurrentUse::Queue stream = 100; stream < 100 + kStreams; ++stream) {
      now_ += 5 * kUs;
      bad += use_.took(now_, 200 * kUs, stream, true) == Verdict::kBad ? 1 : 0;
    }
  }
  EXPECT_GE(bad, static_cast<int>(kStreams));
}

TEST_F(Concurrently, ManyStreamsMayComeAndGo) {
  use_.joins(25 * kUs, 0, kStream);
  for (ConcurrentUse::Queue queue = 100; queue < 200; ++queue) {
    use_.tookBefore(now_, queue, 25 * kUs);
  }
  Verdict verdict = Verdict::kOpen;
  for (int i = 0; i < 3; ++i) {
    (void)submits(1);
    (void)use_.submits(now_, 199, 1);
    verdict = use_.ended(now_ += 71 * kUs, 199);
    use_.forgetRounds();
  }
  EXPECT_EQ(verdict, Verdict::kBad) << "the newest are known";
}

TEST_F(Concurrently, AWaitForAllEndsThemFromTheFirstOn) {
  use_.joins(25 * kUs, 0);
  for (int i = 0; i < 3; ++i) {
    (void)use_.submits(now_ += kUs, kOther, 1);
    now_ += 60 * kUs;
    (void)submits(1);
    ASSERT_EQ(use_.ended(now_ += 15 * kUs, std::nullopt), i == 2 ? Verdict::kBad : Verdict::kOpen);
    ASSERT_EQ(use_.roundsBegun(), 0u);
  }
}

TEST_F(Concurrently, ThoseOfManyStreamsAreNotMeasured) {
  use_.joins(25 * kUs, 0);
  for (ConcurrentUse::Queue queue = 100; queue < 200; ++queue) {
    (void)use_.submits(now_ += kUs, queue, 1);
  }
  for (ConcurrentUse::Queue queue = 199; queue >= 164; --queue) {
    ASSERT_EQ(use_.ended(now_ += 1000 * kUs, queue), Verdict::kOpen);
  }
  EXPECT_NE(use_.roundsBegun(), 0u);
}

TEST_F(Concurrently, RoundsBeforeTheFirstObjectJoinedAreNotJudged) {
  for (int i = 0; i < 3; ++i) {
    use_.begins(now_ += kUs, kStream);
    use_.begins(now_ += kUs, kStream);
    ASSERT_EQ(use_.roundEnds(now_ += 1000 * kUs, kStream), 1001 * kUs);
    ASSERT_EQ(use_.roundEnds(now_ += kUs, kStream), std::nullopt);
  }
  use_.begins(now_ += kUs, kStream);
  use_.joins(25 * kUs, 0);
  EXPECT_EQ(use_.roundEnds(now_ += 1000 * kUs, kStream), std::nullopt);
  EXPECT_EQ(round(71 * kUs), Verdict::kOpen);
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
