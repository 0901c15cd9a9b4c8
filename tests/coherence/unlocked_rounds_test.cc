// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/unlocked_rounds.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

namespace gmac {
namespace {

using accel::NativeStream;
using coherence::DeviceWait;
constexpr std::uint64_t kUs = 1000;
constexpr NativeStream kFirst{1};
constexpr NativeStream kSecond{2};
constexpr NativeStream kIdle{3};
constexpr NativeStream kUnknown{9};
constexpr std::uint64_t kThread = 5;
constexpr std::uint64_t kOtherThread = 6;

// With two copies rounds took 25 us: more than 70 are slow.
class RoundsWithoutTheLock : public ::testing::Test {
 protected:
  RoundsWithoutTheLock() { use_.joins(25 * kUs, 0); }
  static ConcurrentUse::Queue queueOf(NativeStream stream) {
    return static_cast<ConcurrentUse::Queue>(stream);
  }
  bool start(UnlockedRounds::Mode mode = {.measures = true, .skipsWaits = true}) {
    rounds_.clear();
    for (const NativeStream stream : {kFirst, kSecond, kIdle}) {
      rounds_.add(stream, queueOf(stream), stream == kSecond ? kOtherThread : kThread);
    }
    return rounds_.start(mode, use_);
  }
  void launch(NativeStream stream, std::uint64_t thread = kThread) {
    UnlockedRounds::Stream* const found = rounds_.find(stream);
    ASSERT_NE(found, nullptr);
    rounds_.launches(*found, now_, thread);
    any_ = true;
  }
  DeviceWait begin(std::optional<NativeStream> stream, std::uint64_t thread = kThread) {
    DeviceWait wait;
    rounds_.waitBegins(stream, thread, any_, wait);
    return wait;
  }
  bool end(const DeviceWait& wait, std::uint64_t took, std::uint64_t thread = kThread) {
    return rounds_.waitEnded(wait, thread, now_ += took);
  }
  bool wait(std::optional<NativeStream> stream, std::uint64_t took,
            std::uint64_t thread = kThread) {
    return end(begin(stream, thread), took, thread);
  }
  std::uint64_t roundsOf(NativeStream stream) { return rounds_.find(stream)->rounds.load(); }
  std::uint64_t tookOf(NativeStream stream) { return rounds_.find(stream)->took.load(); }

  ZeroCopyLimits limits_{.slack = 20 * kUs};
  ConcurrentUse use_{limits_};
  UnlockedRounds rounds_;
  std::uint64_t now_ = 1000 * kUs;
  bool any_ = false;
};

TEST_F(RoundsWithoutTheLock, EachStreamHasItsOwn) {
  ASSERT_TRUE(start());
  launch(kFirst);
  now_ += kUs;
  launch(kSecond);
  EXPECT_TRUE(wait(kSecond, 10 * kUs));
  EXPECT_TRUE(wait(kFirst, 10 * kUs));
  EXPECT_EQ(roundsOf(kFirst), 1u);
  EXPECT_EQ(tookOf(kFirst), 21 * kUs);
  EXPECT_EQ(roundsOf(kSecond), 1u);
  EXPECT_EQ(tookOf(kSecond), 10 * kUs);
  EXPECT_EQ(rounds_.streamsWaitedFor(), 2u);
}

// Rounds of the second stream are known to take 100 us, and are compared with that where rounds
// overlap; else with the least that any took, 25.
TEST_F(RoundsWithoutTheLock, WhetherTheyOverlapIsTold) {
  use_.joins(100 * kUs, 1, queueOf(kSecond));
  const auto overlapping = [&] {
    ASSERT_TRUE(start());
    for (int i = 0; i < 300; ++i) {
      launch(kFirst);
      launch(kSecond);
      ASSERT_TRUE(wait(kFirst, kUs));
      ASSERT_TRUE(wait(kSecond, kUs));
    }
  };
  const auto inTurns = [&] {
    ASSERT_TRUE(start());
    for (int i = 0; i < 300; ++i) {
      launch(kFirst);
      ASSERT_TRUE(wait(kFirst, kUs));
      launch(kSecond);
      ASSERT_TRUE(wait(kSecond, kUs));
    }
  };
  ASSERT_NO_FATAL_FAILURE(overlapping());
  (void)rounds_.stop(use_);
  EXPECT_EQ(use_.patienceOf(queueOf(kSecond), false), 220 * kUs);
  ASSERT_NO_FATAL_FAILURE(inTurns());
  (void)rounds_.stop(use_);
  EXPECT_EQ(use_.patienceOf(queueOf(kSecond), false), 70 * kUs);
  // One that has begun before, and goes on, overlaps those that begin meanwhile.
  ASSERT_TRUE(start());
  launch(kSecond);
  (void)rounds_.stop(use_);
  ASSERT_TRUE(start());
  for (int i = 0; i < 300; ++i) {
    launch(kFirst);
    ASSERT_TRUE(wait(kFirst, kUs));
  }
  (void)rounds_.stop(use_);
  EXPECT_EQ(use_.patienceOf(queueOf(kSecond), false), 220 * kUs);
}

TEST_F(RoundsWithoutTheLock, WorkThatNamesWhatItUsesIsNone) {
  ASSERT_TRUE(start());
  UnlockedRounds::submits(*rounds_.find(kFirst), kThread);
  any_ = true;
  EXPECT_TRUE(rounds_.onlyLaunchedOn(kFirst));
  EXPECT_FALSE(rounds_.onlyLaunchedOn(kSecond));
  EXPECT_TRUE(wait(kFirst, 100 * kUs));
  EXPECT_EQ(roundsOf(kFirst), 0u);
  EXPECT_FALSE(rounds_.stop(use_).bad);
  EXPECT_FALSE(use_.begunOn(queueOf(kFirst)));
}

TEST_F(RoundsWithoutTheLock, ASlowOneEndsUnderTheLock) {
  ASSERT_TRUE(start());
  launch(kFirst);
  EXPECT_FALSE(wait(kFirst, 71 * kUs));
  EXPECT_EQ(roundsOf(kFirst), 0u);
  EXPECT_FALSE(rounds_.stop(use_).bad);
  ASSERT_TRUE(use_.begunOn(queueOf(kFirst)));
  EXPECT_EQ(use_.roundEnds(now_, queueOf(kFirst)), 71 * kUs);
}

TEST_F(RoundsWithoutTheLock, WhatHasBegunUnderTheLockGoesOn) {
  use_.begins(now_, queueOf(kFirst));
  now_ += 30 * kUs;
  ASSERT_TRUE(start());
  EXPECT_FALSE(use_.begunOn(queueOf(kFirst)));
  launch(kFirst);
  EXPECT_TRUE(wait(kFirst, 30 * kUs));
  EXPECT_EQ(tookOf(kFirst), 60 * kUs);
}

TEST_F(RoundsWithoutTheLock, WaitsAreNotSkippedWhileAnotherQueuesHasBegun) {
  use_.begins(now_, queueOf(kUnknown));
  EXPECT_FALSE(start());
  launch(kFirst);
  EXPECT_FALSE(begin(kFirst).skipped);
  rounds_.stop(use_);
  EXPECT_TRUE(use_.begunOn(queueOf(kFirst))) << "what launches have begun is seen all the same";
}

TEST_F(RoundsWithoutTheLock, WaitsForStreamsWithoutWorkAreSkippedToo) {
  ASSERT_TRUE(start());
  EXPECT_FALSE(begin(kIdle).skipped) << "nothing was launched at all";
  launch(kFirst);
  for (const NativeStream stream : {kIdle, kUnknown}) {
    const DeviceWait idle = begin(stream);
    EXPECT_TRUE(idle.skipped);
    EXPECT_TRUE(end(idle, 100 * kUs));
  }
  EXPECT_EQ(roundsOf(kIdle), 0u);
  EXPECT_FALSE(wait(kFirst, 10 * kUs)) << "its round goes on";
}

TEST_F(RoundsWithoutTheLock, AWaitForAllEndsThoseThatHadBegun) {
  ASSERT_TRUE(start());
  launch(kFirst);
  now_ += kUs;
  const DeviceWait all = begin(std::nullopt);
  now_ += kUs;
  launch(kSecond, kOtherThread);
  const DeviceWait second = begin(kSecond, kOtherThread);
  EXPECT_TRUE(end(all, 10 * kUs));
  EXPECT_EQ(roundsOf(kFirst), 0u) << "it counts with those of all";
  EXPECT_FALSE(end(second, 71 * kUs, kOtherThread)) << "the other one goes on, and is slow";
}

// Two threads wait for the same round.
TEST_F(RoundsWithoutTheLock, ARoundCountsOnce) {
  ASSERT_TRUE(start());
  launch(kFirst);
  const DeviceWait one = begin(kFirst);
  const DeviceWait other = begin(kFirst, kOtherThread);
  EXPECT_TRUE(end(one, 10 * kUs));
  EXPECT_TRUE(end(other, 100 * kUs, kOtherThread));
  EXPECT_EQ(roundsOf(kFirst), 1u);
}

// ---- Events

TEST_F(RoundsWithoutTheLock, AnEventsWaitIsForWhatItsThreadHasLaunched) {
  ASSERT_TRUE(start());
  launch(kFirst);
  launch(kSecond, kOtherThread);
  EXPECT_TRUE(wait(accel::kForeignStream, 10 * kUs));
  EXPECT_TRUE(wait(accel::kForeignStream, 20 * kUs, kOtherThread));
  EXPECT_EQ(roundsOf(kFirst), 0u) << "it may have been an older event";
  launch(kFirst);
  launch(kSecond, kOtherThread);
  EXPECT_EQ(roundsOf(kFirst), 1u);
  EXPECT_EQ(tookOf(kFirst), 10 * kUs);
  EXPECT_EQ(tookOf(kSecond), 30 * kUs);
  EXPECT_FALSE(wait(accel::kForeignStream, 71 * kUs, kOtherThread)) << "a slow one";
}

TEST_F(RoundsWithoutTheLock, ThatIsKnownOfLaunchesUnderTheLockToo) {
  use_.begins(now_, queueOf(kFirst));
  use_.begins(now_, queueOf(kSecond));
  ASSERT_TRUE(start());
  any_ = true;
  EXPECT_TRUE(wait(accel::kForeignStream, 10 * kUs, kOtherThread));
  launch(kFirst);
  launch(kSecond, kOtherThread);
  EXPECT_EQ(roundsOf(kFirst), 0u);
  EXPECT_EQ(roundsOf(kSecond), 1u);
}

// One thread launches, and another one waits.
TEST_F(RoundsWithoutTheLock, AThreadThatLaunchesNothingWaitsForTheOthersEvents) {
  ASSERT_TRUE(start());
  for (int i = 0; i < 20; ++i) {
    launch(kFirst);
    ASSERT_TRUE(wait(accel::kForeignStream, 20 * kUs, kOtherThread)) << i;
  }
  EXPECT_EQ(roundsOf(kFirst), 19u);
  EXPECT_EQ(tookOf(kFirst), 19 * 20 * kUs);
  launch(kFirst);
  EXPECT_FALSE(wait(accel::kForeignStream, 71 * kUs, kOtherThread)) << "a slow one";
}

// It is not known for which of them; what takes long by that says nothing.
TEST_F(RoundsWithoutTheLock, AnEventOfOneOfSeveralStreamsMakesNoneSlow) {
  ASSERT_TRUE(start());
  launch(kFirst);
  launch(kSecond);
  EXPECT_TRUE(wait(accel::kForeignStream, 1000 * kUs));
  launch(kFirst);
  launch(kSecond);
  EXPECT_EQ(roundsOf(kFirst) + roundsOf(kSecond), 0u);
  EXPECT_TRUE(wait(accel::kForeignStream, 20 * kUs));
  EXPECT_FALSE(rounds_.stop(use_).bad);
  EXPECT_EQ(roundsOf(kFirst), 0u);
  EXPECT_EQ(use_.roundsBegun(), 0u);
}

TEST_F(RoundsWithoutTheLock, AnOlderEventDoesNotHideASlowRound) {
  ASSERT_TRUE(start());
  launch(kFirst);
  EXPECT_TRUE(wait(accel::kForeignStream, kUs));
  EXPECT_FALSE(wait(kFirst, 70 * kUs));
}

TEST_F(RoundsWithoutTheLock, StreamsInTurnsWithEventsEachHaveTheirOwn) {
  ASSERT_TRUE(start());
  for (int i = 0; i < 20; ++i) {
    launch(kFirst);
    ASSERT_TRUE(wait(accel::kForeignStream, 20 * kUs)) << i;
    launch(kSecond);
    ASSERT_TRUE(wait(accel::kForeignStream, 15 * kUs)) << i;
  }
  EXPECT_FALSE(rounds_.stop(use_).bad);
  EXPECT_EQ(roundsOf(kFirst), 19u);
  EXPECT_EQ(tookOf(kFirst), 19 * 20 * kUs);
  EXPECT_EQ(tookOf(kSecond), 19 * 15 * kUs);
  EXPECT_EQ(use_.roundsBegun(), 0u) << "the newest ones have ended with their events";
}

// ---- A crowded device

TEST_F(RoundsWithoutTheLock, OneLaunchAtATimeWhereItIsCrowded) {
  ASSERT_FALSE(start({.crowded = true}));
  UnlockedRounds::Stream& first = *rounds_.find(kFirst);
  ASSERT_TRUE(rounds_.mayLaunch(first));
  launch(kFirst);
  EXPECT_FALSE(rounds_.mayLaunch(first));
  EXPECT_TRUE(rounds_.mayLaunch(*rounds_.find(kSecond)));
  (void)wait(kFirst, kUs, kOtherThread);
  EXPECT_FALSE(rounds_.mayLaunch(first)) << "another thread's wait may have begun before";
  (void)wait(kSecond, kUs);
  (void)wait(accel::kForeignStream, kUs);
  EXPECT_FALSE(rounds_.mayLaunch(first));
  EXPECT_FALSE(begin(kFirst).skipped);
  (void)wait(kFirst, kUs);
  EXPECT_TRUE(rounds_.mayLaunch(first));
  launch(kFirst);
  (void)wait(std::nullopt, kUs);
  EXPECT_TRUE(rounds_.mayLaunch(first));
}

// ---- What they tell

TEST_F(RoundsWithoutTheLock, ManyThatGainNothingAreBad) {
  ASSERT_TRUE(start());
  UnlockedRounds::Judged judged;
  int rounds = 0;
  for (; rounds < 64 && !judged.bad; ++rounds) {
    launch(kFirst);
    ASSERT_TRUE(wait(kFirst, 26 * kUs));
    if (rounds % 8 == 7) {
      judged = rounds_.stop(use_);
      start();
    }
  }
  EXPECT_EQ(rounds, 32);
  EXPECT_FALSE(judged.queue.has_value()) << "one thread waits";
}

// Where several threads wait, a stream is judged for itself, and by its cycle.
TEST_F(RoundsWithoutTheLock, OfSeveralThreadsEachStreamIsJudged) {
  const UnlockedRounds::Mode contended{.measures = true, .skipsWaits = true, .contended = true};
  use_.joins(25 * kUs, 1, queueOf(kFirst));
  ASSERT_TRUE(start(contended));
  for (int i = 0; i < 31; ++i) {
    launch(kFirst);
    ASSERT_TRUE(wait(kFirst, 60 * kUs)) << i;
  }
  EXPECT_FALSE(rounds_.stop(use_).bad) << "none was slow";
  for (int i = 0; i < 32; ++i) {
    ASSERT_EQ(use_.took(now_ += 200 * kUs, 200 * kUs, queueOf(kFirst), true),
              i == 0 ? ConcurrentUse::Verdict::kGood : ConcurrentUse::Verdict::kOpen);
  }
  ASSERT_TRUE(start(contended));
  launch(kFirst);
  ASSERT_TRUE(wait(kFirst, 60 * kUs));
  const UnlockedRounds::Judged judged = rounds_.stop(use_);
  EXPECT_TRUE(judged.bad) << "those under the lock were";
  EXPECT_EQ(judged.queue, queueOf(kFirst));
}

}  // namespace
}  // namespace gmac
