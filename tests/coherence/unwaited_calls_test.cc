// SPDX-License-Identifier: Apache-2.0
//
// Calls for which the program does not wait: how soon what has one copy gets two, and what that
// costs at most where it was in vain.
#include "gmac/coherence/unwaited_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <utility>

namespace gmac {
namespace {

using Verdict = UnwaitedCalls::Verdict;

constexpr std::uint64_t kUs = 1000;
constexpr std::uint64_t kMove = 1000 * kUs;  // there and back take twice as long

class Run : public ::testing::Test {
 protected:
  // Calls that take `each`, but for looks; what these have told.
  void calls(std::uint64_t count, std::uint64_t each) {
    for (std::uint64_t i = 0; i < count; ++i) {
      if (policy_.isDue()) {
        look();
      }
      const std::uint64_t took = oneCopy_ ? each : withTwo_;
      newest_ = took;
      now_ += took;
      lost_ += oneCopy_ && each > withTwo_ ? each - withTwo_ : 0;
      policy_.called(now_, 1);
    }
  }
  void look() {
    ++looks_;
    lost_ += kLook;
    (void)policy_.patience(now_);
    now_ += lags_ ? 20 * newest_ : std::exchange(lag_, 0);
    tells(policy_.looks(now_, oneCopy_ ? things_ : 0));
  }
  void wait() {
    policy_.waited();
    if (policy_.takeUnjudged(true)) {
      tells(Verdict::kInVain);
    }
  }
  void tells(Verdict verdict) {
    const std::uint64_t move = things_ * kMove;
    switch (verdict) {
      case Verdict::kMove:
        oneCopy_ = false;
        ++moves_;
        lost_ += move;
        policy_.moved(now_ += move, true);
        break;
      case Verdict::kInVain:
        ++inVain_;
        oneCopy_ = true;
        lost_ += move;
        break;
      case Verdict::kRight:
        ++right_;
        break;
      case Verdict::kNothing:
        break;
    }
  }

  static constexpr std::uint64_t kLook = 20 * kUs;
  UnwaitedCalls policy_{kMove};
  std::uint64_t now_ = 1;
  bool oneCopy_ = true;
  std::size_t things_ = 1;
  std::uint64_t withTwo_ = 4 * kUs;  // what a call takes where nothing has one copy
  std::uint64_t lost_ = 0;           // nanoseconds
  bool lags_ = true;                 // the device, at a look
  std::uint64_t newest_ = 0;         // what the newest call took
  std::uint64_t lag_ = 0;            // where it does not: so much, at the next look
  int looks_ = 0;
  int moves_ = 0;
  int inVain_ = 0;
  int right_ = 0;
};

TEST_F(Run, OfManyTurnsIsARound) {
  std::uint64_t calls = 1000;
  for (std::uint64_t i = 0; i <= UnwaitedCalls::kTurns; ++i) {
    EXPECT_FALSE(policy_.turnsAreDue());
    EXPECT_EQ(policy_.turned(now_ += 30 * kUs, calls += 3), i + 1);
  }
  ASSERT_TRUE(policy_.turnsAreDue());
  policy_.turnsGoOn();
  ASSERT_TRUE(policy_.turnsAreDue()) << "the next call may begin when nothing is in flight";
  const UnwaitedCalls::Turns turns = policy_.takeTurns(now_, calls);
  EXPECT_EQ(turns.count, UnwaitedCalls::kTurns) << "from the first one on";
  EXPECT_EQ(turns.took, turns.count * 30 * kUs);
  EXPECT_EQ(turns.calls, turns.count * 3);
  EXPECT_FALSE(policy_.turnsAreDue());
  EXPECT_EQ(policy_.turned(now_, calls), 1U);
}

TEST_F(Run, WhereSomethingIsAlwaysInFlightTriesToEndARoundNowAndThen) {
  std::uint64_t tries = 0;
  for (std::uint64_t i = 0; i < 100 * UnwaitedCalls::kTurns; ++i) {
    (void)policy_.turned(now_ += 30 * kUs, i);
    if (policy_.turnsAreDue()) {
      ++tries;
      policy_.turnsGoOn();
    }
  }
  EXPECT_GT(tries, UnwaitedCalls::kMostTries);
  EXPECT_LE(tries, 100 * UnwaitedCalls::kMostTries);
}

TEST_F(Run, WhoseTurnsTheProgramWaitsForIsNone) {
  for (std::uint64_t i = 0; i < 10 * UnwaitedCalls::kTurns; ++i) {
    (void)policy_.turned(now_ += 30 * kUs, i);
    EXPECT_FALSE(policy_.turnsAreDue());
    if (i % UnwaitedCalls::kTurns == UnwaitedCalls::kTurns - 1) {
      policy_.waited();
    }
  }
  for (std::uint64_t i = 0; i < 2 * UnwaitedCalls::kTurns; ++i) {
    (void)policy_.turned(now_ += 30 * kUs, i);
  }
  policy_.waited();
  EXPECT_EQ(policy_.takeTurns(now_, 1000).count, 0U);
}

TEST_F(Run, WhoseTurnsTakeLongerTwiceEndsOneCopy) {
  EXPECT_FALSE(policy_.judgeTurns(true));
  EXPECT_FALSE(policy_.judgeTurns(false));
  EXPECT_FALSE(policy_.judgeTurns(true));
  EXPECT_TRUE(policy_.judgeTurns(true));
  EXPECT_FALSE(policy_.judgeTurns(true)) << "each time anew";
}

// The CPU is ahead of kernels all the time: it would have waited for them anyhow.
TEST_F(Run, IsPaidBackWhatItsLooksHaveNotCostIt) {
  const auto looksIn = [](std::uint64_t between) {
    UnwaitedCalls policy(kMove);
    std::uint64_t now = 1;
    std::uint64_t looks = 0;
    for (int run = 0; run < 100; ++run) {
      for (std::uint64_t i = 0; i < 200; ++i) {
        if (policy.isDue()) {
          ++looks;
          (void)policy.patience(now);
          now += 5000 * kUs;
          (void)policy.looks(now, 0);
        }
        policy.called(now += kUs, 1);
      }
      now += between;
      if (policy.owes()) {
        policy.payBack(now);
      }
      policy.waited();
    }
    return looks;
  };
  EXPECT_GE(looksIn(kUs), 190U);
  EXPECT_LE(looksIn(6000 * kUs), 20U) << "the program does something else before it waits";
}

TEST_F(Run, OfSlowCallsGivesTwoCopiesSoon) {
  calls(5000, 44 * kUs);
  EXPECT_EQ(moves_, 1);
  EXPECT_EQ(right_, 1);
  EXPECT_FALSE(oneCopy_);
  EXPECT_LE(lost_, 64 * 44 * kUs + kMove + 3 * kLook) << "of " << 5000 * 40 * kUs;
}

TEST_F(Run, OfQuickCallsLooksEverMoreRarely) {
  lags_ = false;
  calls(1'000'000, 5 * kUs);
  EXPECT_EQ(moves_, 0);
  EXPECT_LE(looks_, 15);
  EXPECT_GE(looks_, 13);
}

TEST_F(Run, ThatEndsWithAWaitPaysForFewLooks) {
  lags_ = false;
  withTwo_ = 5 * kUs;
  for (int i = 0; i < 10'000; ++i) {
    calls(100, 5 * kUs);
    wait();
  }
  EXPECT_EQ(moves_, 0);
  EXPECT_GE(looks_, 1000);
  EXPECT_LE(lost_, now_ / 20);
}

// The program is slow between its calls, and no kernel.
TEST_F(Run, WithoutALagMovesNothing) {
  lags_ = false;
  calls(100'000, 44 * kUs);
  EXPECT_EQ(moves_, 0);
}

// What overlaps with the kernels waits for them at a look.
TEST_F(Run, PaysForAllThatALookWaits) {
  std::uint64_t waited = 0;
  for (int i = 0; i < 10'000; ++i) {
    for (int call = 0; call < 100; ++call) {
      if (policy_.isDue()) {
        const std::uint64_t took = std::min<std::uint64_t>(policy_.patience(now_), 7000 * kUs);
        waited += took;
        now_ += took;
        took < 7000 * kUs ? policy_.gaveUp(now_) : (void)policy_.looks(now_, 0);
      }
      policy_.called(now_ += 4 * kUs, 1);
    }
    now_ += 7000 * kUs;
    policy_.waited();
  }
  EXPECT_LE(waited, 64'000 * kUs + now_ / 32 + 8000 * kUs);
}

TEST_F(Run, OfFewCallsIsNot) {
  for (int i = 0; i < 1000; ++i) {
    calls(31, 44 * kUs);
    wait();
  }
  EXPECT_EQ(looks_, 0);
}

// Kernels take long by themselves.
TEST_F(Run, WhoseMovesAreInVainPaysForFew) {
  withTwo_ = 44 * kUs;
  calls(1'000'000, 44 * kUs);
  EXPECT_EQ(inVain_, moves_);
  EXPECT_GE(moves_, 2);
  EXPECT_LE(lost_, now_ / 16);
}

// One run after another, of which some are slow by one copy and the others by themselves.
TEST_F(Run, OfWhichSomeAreSlowByThemselvesPaysForFew) {
  for (const std::uint64_t length : {100, 300, 1000, 5000, 30'000}) {
    for (const int others : {0, 1, 3, 9}) {
      SCOPED_TRACE(std::to_string(length) + " calls, " + std::to_string(others));
      policy_.~UnwaitedCalls();
      new (&policy_) UnwaitedCalls(kMove);
      lost_ = 0;
      right_ = 0;
      const std::uint64_t before = now_;
      int slow = 0;
      for (int phase = 0; phase < 400; ++phase) {
        const bool bySelf = phase % (others + 1) != 0;
        slow += bySelf ? 0 : 1;
        withTwo_ = bySelf ? 44 * kUs : 4 * kUs;
        calls(length, 44 * kUs);
        wait();
        // (Each time that it moves back, rounds have to give more evidence.)
        oneCopy_ = oneCopy_ || (right_ < 8 && phase % (1 << right_) == 0);
      }
      const std::uint64_t could = slow * length * 40 * kUs;
      // (What shorter runs save pays for few moves. They are rounds as well, which judge, too.)
      const std::uint64_t most = length < 5000 ? could : std::min(could / 2, 200'000 * kUs);
      EXPECT_LE(lost_, most + (now_ - before) / 8 + 64'000 * kUs) << could;
    }
  }
}

TEST_F(Run, ManyThingsNeedMoreTime) {
  things_ = 16;
  calls(64 + 2, 44 * kUs);
  EXPECT_EQ(looks_, 2);
  EXPECT_EQ(moves_, 0) << "16 moves take longer than these calls";
  calls(40'000, 44 * kUs);
  EXPECT_EQ(moves_, 1);
  EXPECT_EQ(right_, 1);
}

TEST_F(Run, ThatEndsDuringATrialWasMovedInVain) {
  calls(66, 44 * kUs);
  ASSERT_EQ(moves_, 1);
  EXPECT_TRUE(policy_.tries());
  wait();
  EXPECT_FALSE(policy_.tries());
  EXPECT_EQ(right_, 0);
  EXPECT_EQ(inVain_, 1);
}

// Nobody was told of the wait.
TEST_F(Run, ThatHasEndedDuringATrialIsAskedFor) {
  calls(66, 44 * kUs);
  ASSERT_EQ(moves_, 1);
  policy_.waited();
  calls(1, 44 * kUs);
  EXPECT_FALSE(policy_.tries());
  EXPECT_TRUE(policy_.isOpen());
  EXPECT_TRUE(policy_.takeUnjudged(false));
  EXPECT_FALSE(policy_.isOpen());
}

// As a factorisation before small kernels: the first look finds it, and no other one.
TEST_F(Run, AfterOneLongKernelMovesNothing) {
  lags_ = false;
  for (int i = 0; i < 1000; ++i) {
    lag_ = 1200 * kUs;
    calls(200, 4 * kUs);
    wait();
  }
  EXPECT_EQ(moves_, 0);
}

// Two threads look, one behind the other.
TEST_F(Run, IsNotJudgedByALookWithoutCalls) {
  calls(65, 44 * kUs);
  (void)policy_.patience(now_);
  (void)policy_.patience(now_);
  now_ += 1000 * kUs;
  ASSERT_EQ(policy_.looks(now_, 1), Verdict::kMove);
  policy_.moved(now_, true);
  EXPECT_EQ(policy_.looks(now_, 0), Verdict::kNothing);
  EXPECT_TRUE(policy_.tries());
}

TEST_F(Run, IsNotLookedAtAgainAsOthersCallDuringALook) {
  calls(33, 44 * kUs);
  ASSERT_TRUE(policy_.isDue());
  (void)policy_.patience(now_);
  policy_.called(now_, 1);
  ASSERT_TRUE(policy_.isDue());
  (void)policy_.looks(now_, 1);
  EXPECT_FALSE(policy_.isDue());
}

TEST_F(Run, PaysForNoMovesThatCouldNotBeMade) {
  lags_ = false;
  for (int i = 0; i < 100; ++i) {
    calls(32, 44 * kUs);
    (void)policy_.patience(now_);
    (void)policy_.looks(now_ += kLook, 0);
    calls(32, 44 * kUs);
    (void)policy_.patience(now_);
    ASSERT_EQ(policy_.looks(now_ += 500 * kUs, 1), Verdict::kMove) << i;
    policy_.moved(now_, false);
    ASSERT_FALSE(policy_.tries());
    policy_.waited();
    now_ += 100'000 * kUs;
    calls(4000, 5 * kUs);  // which pays for the waits of looks
    policy_.waited();
  }
}

TEST_F(Run, WithAThousandThingsEndsOneCopyAsWell) {
  things_ = 1000;
  calls(2'000'000, 44 * kUs);
  EXPECT_EQ(moves_, 1);
}

TEST_F(Run, WhereKernelsDoNotEndItTriesRarely) {
  int tries = 0;
  std::uint64_t waited = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    if (policy_.isDue()) {
      ++tries;
      const std::uint64_t patience = policy_.patience(now_);
      policy_.gaveUp(now_ += patience);
      waited += patience;
    }
    policy_.called(now_ += 5 * kUs, 1);
  }
  EXPECT_LE(tries, 20);
  EXPECT_LE(waited, now_ / 20 + 100'000 * kUs);
}

// Something is on trial, as accesses have waited in the program's place.
class Trial : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kBefore = 40 * kUs;

  void begin(std::uint64_t every = 1) { policy_.trialBegins(now_ += kUs, kBefore, every); }
  // A call that takes so long, and the next one comes: what that tells, if it waits.
  Verdict call(std::uint64_t took) {
    now_ += took;
    if (!policy_.trialWaits()) {
      return Verdict::kNothing;
    }
    ++waits_;
    return policy_.tried(now_);
  }
  // The first verdict of so many, and after how many.
  std::pair<Verdict, int> calls(int count, std::uint64_t took) {
    for (int i = 1; i <= count; ++i) {
      if (const Verdict verdict = call(took); verdict != Verdict::kNothing) {
        return {verdict, i};
      }
    }
    return {Verdict::kNothing, count};
  }

  UnwaitedCalls policy_{kMove};
  std::uint64_t now_ = 1;
  int waits_ = 0;
};

using Outcome = std::pair<Verdict, int>;
constexpr int kTrial = UnwaitedCalls::kTrial;

TEST_F(Trial, OfQuickCallsIsPassed) {
  begin();
  EXPECT_TRUE(policy_.onTrial());
  EXPECT_EQ(calls(100, kBefore), Outcome(Verdict::kRight, kTrial));
  EXPECT_FALSE(policy_.onTrial());
  EXPECT_EQ(waits_, kTrial);
}

TEST_F(Trial, OfCallsThatAreATimeLongerFailsBeforeItsEnd) {
  begin();
  EXPECT_EQ(calls(100, 2 * kBefore), Outcome(Verdict::kMove, kTrial * 9 / 8 / 2 + 1));
  EXPECT_FALSE(policy_.onTrial());
}

TEST_F(Trial, OfOneCallThatIsFarLongerFailsAtOnce) {
  begin();
  EXPECT_EQ(calls(3, kBefore).first, Verdict::kNothing);
  EXPECT_EQ(call(600 * kBefore), Verdict::kMove);
}

// The thread did not run for a while.
TEST_F(Trial, IsNotFailedByOnePause) {
  begin();
  EXPECT_EQ(calls(3, kBefore / 2).first, Verdict::kNothing);
  EXPECT_EQ(call(50 * kBefore), Verdict::kNothing);
  EXPECT_EQ(calls(100, kBefore / 2), Outcome(Verdict::kRight, kTrial - 4));
  begin();
  EXPECT_EQ(call(50 * kBefore), Verdict::kNothing);
  EXPECT_EQ(call(50 * kBefore), Verdict::kMove);
}

// What has been told of calls was of eight for each turn, which were not waited for one by one.
TEST_F(Trial, WaitsOnceForEachTurn) {
  begin(8);
  EXPECT_EQ(calls(100, kBefore), Outcome(Verdict::kRight, kTrial));
  EXPECT_EQ(waits_, 2);
  begin(50);
  EXPECT_EQ(calls(200, kBefore), Outcome(Verdict::kRight, 104));
  EXPECT_EQ(waits_, 2 + 13);
}

TEST_F(Trial, WaitsOfTheProgramAreNoPartOfIt) {
  begin();
  for (int i = 0; i < 10; ++i) {
    policy_.waited();
    ASSERT_EQ(call(1000 * kBefore), Verdict::kNothing) << i;
  }
  EXPECT_TRUE(policy_.onTrial());
  EXPECT_EQ(calls(100, kBefore).first, Verdict::kRight);
}

TEST_F(Trial, EndsWhereNothingCanBeToldForLong) {
  begin();
  for (std::uint32_t i = 1; i < UnwaitedCalls::kMostTries; ++i) {
    policy_.trialGoesOn();
    ASSERT_TRUE(policy_.onTrial());
  }
  policy_.trialGoesOn();
  EXPECT_FALSE(policy_.onTrial());
}

// A call runs for longer than launches are held up: the next ones wait for it as well.
TEST_F(Trial, GoesOnAfterATimeout) {
  begin();
  for (std::uint32_t i = 1; i < UnwaitedCalls::kMostTimeouts; ++i) {
    ASSERT_TRUE(policy_.trialWaits());
    policy_.trialTimesOut();
    now_ += UnwaitedCalls::kTrialPatience;
    ASSERT_TRUE(policy_.onTrial());
  }
  EXPECT_EQ(call(kUs), Verdict::kMove);
  begin();
  for (std::uint32_t i = 0; i < UnwaitedCalls::kMostTimeouts; ++i) {
    policy_.trialTimesOut();
  }
  EXPECT_FALSE(policy_.onTrial());
}

TEST_F(Trial, ThoseThatFailedLetMoreAndMoreRoundsPass) {
  const auto rests = [this] {
    int count = 0;
    while (!policy_.mayTry()) ++count;
    return count;
  };
  EXPECT_EQ(rests(), 0);
  for (const int most : {1, 2, 4, 8}) {
    begin();
    ASSERT_EQ(call(600 * kBefore), Verdict::kMove);
    EXPECT_EQ(rests(), most);
  }
  begin();
  ASSERT_EQ(calls(100, kBefore).first, Verdict::kRight);
  EXPECT_EQ(rests(), 0);
  begin();
  ASSERT_EQ(call(600 * kBefore), Verdict::kMove);
  EXPECT_EQ(rests(), 1);
}

}  // namespace
}  // namespace gmac
