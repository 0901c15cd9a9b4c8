// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/call_times.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace gmac {
namespace {

constexpr std::size_t kDevices = 3;

// Kernels are their addresses.
const adsmKernel_t kA = reinterpret_cast<adsmKernel_t>(0x1000);
const adsmKernel_t kB = reinterpret_cast<adsmKernel_t>(0x2000);

class CallTimesTest : public ::testing::Test {
 protected:
  CallTimesTest()
      : times_([this](accel::Ticket ticket) { return done_.contains(ticket.value); },
               [this] { return now_; }) {
    times_.start(kDevices);
  }

  std::uint64_t submit(adsmKernel_t kernel, std::size_t device) {
    times_.submitted(kernel, device, {++tickets_});
    return tickets_;
  }
  void wait(std::uint64_t ticket) {
    done_.insert(ticket);
    times_.ended({ticket}, now_);
  }
  std::optional<std::uint64_t> of(adsmKernel_t kernel, std::size_t device) const {
    return times_.of(kernel, device);
  }

  std::uint64_t now_ = 1000;
  std::set<std::uint64_t> done_;
  std::uint64_t tickets_ = 0;
  CallTimes times_;
};

TEST_F(CallTimesTest, AWaitTellsATimeExactly) {
  EXPECT_EQ(of(kA, 1), std::nullopt);
  const auto call = submit(kA, 1);
  now_ += 300;
  wait(call);
  EXPECT_EQ(of(kA, 1), 300u);
  EXPECT_EQ(of(kA, 0), std::nullopt);
  EXPECT_EQ(of(kB, 1), std::nullopt);
}

TEST_F(CallTimesTest, ANewTimeCountsHalf) {
  for (const std::uint64_t took : {400, 200, 100}) {
    const auto call = submit(kA, 0);
    now_ += took;
    wait(call);
    now_ += 5000;  // nothing runs
  }
  EXPECT_EQ(of(kA, 0), 200u);
}

TEST_F(CallTimesTest, ACallBeginsWhenTheOneBeforeItEnds) {
  const auto first = submit(kA, 0);
  now_ += 50;
  const auto second = submit(kB, 0);
  now_ += 50;
  wait(first);
  now_ += 700;
  wait(second);
  EXPECT_EQ(of(kA, 0), 100u);
  EXPECT_EQ(of(kB, 0), 700u);
}

TEST_F(CallTimesTest, DevicesRunAtOnce) {
  const auto first = submit(kA, 0);
  const auto second = submit(kA, 2);
  now_ += 100;
  wait(second);
  now_ += 100;
  wait(first);
  EXPECT_EQ(of(kA, 0), 200u);
  EXPECT_EQ(of(kA, 2), 100u);
}

// Only the ratio of the calls' times is known.
TEST_F(CallTimesTest, CallsThatAreWaitedForTogetherShareTheTime) {
  auto call = submit(kA, 0);
  now_ += 300;
  wait(call);
  call = submit(kB, 0);
  now_ += 100;
  wait(call);
  const auto first = submit(kA, 0);
  call = submit(kB, 0);
  done_.insert(first);
  now_ += 800;  // twice of what is known
  wait(call);
  EXPECT_EQ(of(kA, 0), 450u);
  EXPECT_EQ(of(kB, 0), 150u);
}

TEST_F(CallTimesTest, AKernelThatRunsManyTimesInARowCountsOnce) {
  auto call = submit(kA, 0);
  now_ += 100;
  wait(call);
  for (int i = 0; i < 10; ++i) {
    call = submit(kA, 0);
  }
  now_ += 2000;
  for (std::uint64_t i = 0; i < 10; ++i) {
    done_.insert(call - i);
  }
  wait(call);
  EXPECT_EQ(of(kA, 0), 150u);
}

TEST_F(CallTimesTest, UnknownCallsShareATimeEqually) {
  (void)submit(kA, 0);
  const auto call = submit(kB, 0);
  now_ += 500;
  done_.insert(call - 1);
  wait(call);
  EXPECT_EQ(of(kA, 0), 250u);
  EXPECT_EQ(of(kB, 0), 250u);
}

// A program that does other things meanwhile: its next call sees that the one before has ended.
TEST_F(CallTimesTest, ALateLookIsAnUpperBound) {
  auto call = submit(kA, 0);
  done_.insert(call);
  now_ += 9000;
  call = submit(kA, 0);
  EXPECT_EQ(of(kA, 0), 9000u);
  done_.insert(call);
  now_ += 500;
  call = submit(kA, 0);
  EXPECT_EQ(of(kA, 0), 500u) << "at most so much";
  done_.insert(call);
  now_ += 70000;
  call = submit(kA, 0);
  EXPECT_EQ(of(kA, 0), 500u) << "a later look says nothing new";
  now_ += 100;
  wait(call);
  EXPECT_EQ(of(kA, 0), 100u) << "what is exact takes the place of a bound";
}

TEST_F(CallTimesTest, ALookAtARunningCallIsALowerBound) {
  auto call = submit(kA, 0);
  now_ += 100;
  wait(call);
  call = submit(kA, 0);
  now_ += 600;
  EXPECT_EQ(times_.inFlight(0), 1u);
  now_ += 400;
  done_.insert(call);
  EXPECT_EQ(times_.inFlight(0), 0u);
  EXPECT_EQ(of(kA, 0), 600u);
}

// Nobody knows when the second one began.
TEST_F(CallTimesTest, ALateLookAtTheFirstOfSeveralSaysNothing) {
  const auto first = submit(kA, 0);
  const auto second = submit(kB, 0);
  done_.insert(first);
  now_ += 1000;
  EXPECT_EQ(times_.inFlight(0), 1u);
  EXPECT_EQ(of(kA, 0), std::nullopt);
  now_ += 10;
  wait(second);
  EXPECT_EQ(of(kA, 0), 505u);
  EXPECT_EQ(of(kB, 0), 505u);
}

TEST_F(CallTimesTest, TheEndOfADeviceIsPredicted) {
  EXPECT_EQ(times_.endOf(0, now_), now_);
  auto call = submit(kA, 0);
  now_ += 300;
  wait(call);
  const auto first = submit(kA, 0);
  const auto second = submit(kA, 0);
  now_ += 100;
  EXPECT_EQ(times_.endOf(0, now_), now_ + 500);
  EXPECT_EQ(times_.endOf(accel::Ticket{first}, now_), now_ + 200);
  EXPECT_EQ(times_.endOf(accel::Ticket{second}, now_), now_ + 500);
  EXPECT_EQ(times_.endOf(1, now_), now_);
  now_ += 1000;
  EXPECT_EQ(times_.endOf(0, now_), now_) << "never before now";
  wait(first);
  EXPECT_EQ(times_.endOf(accel::Ticket{first}, now_), now_);
  EXPECT_EQ(times_.inFlight(0), 1u);
}

TEST_F(CallTimesTest, InFlightAKernelCountsAsElsewhere) {
  for (const std::size_t device : {0, 1}) {
    const auto call = submit(kA, device);
    now_ += device == 0 ? 100 : 300;
    wait(call);
  }
  (void)submit(kA, 2);
  EXPECT_EQ(of(kA, 2), std::nullopt);
  EXPECT_EQ(times_.endOf(2, now_), now_ + 200);
  (void)submit(kB, 2);  // not known at all
  EXPECT_EQ(times_.endOf(2, now_), now_ + 200);
}

TEST_F(CallTimesTest, OnTheWayToACallAreThoseBeforeItAsTheyEnd) {
  const auto known = [&](adsmKernel_t kernel, std::size_t device, std::uint64_t took) {
    const auto call = submit(kernel, device);
    now_ += took;
    wait(call);
  };
  known(kA, 0, 100);
  known(kB, 0, 250);
  known(kA, 2, 150);
  const auto a = submit(kA, 0);  // ends after 100
  const auto b = submit(kB, 0);  // 350
  const auto c = submit(kA, 2);  // 150
  const auto d = submit(kA, 2);  // 300
  const auto e = submit(kA, 2);  // 450
  const auto f = submit(kB, 1);  // not known there: 250
  const auto upTo = [&](const std::vector<std::uint64_t>& work) {
    std::vector<accel::Ticket> tickets;
    for (const std::uint64_t ticket : work) tickets.push_back({ticket});
    std::vector<std::uint64_t> calls;
    for (const accel::Ticket call : times_.upTo(tickets)) calls.push_back(call.value);
    return calls;
  };
  using Calls = std::vector<std::uint64_t>;
  EXPECT_EQ(upTo({b}), (Calls{a, b}));
  EXPECT_EQ(upTo({b, f, d}), (Calls{a, c, f, d, b}));
  EXPECT_EQ(upTo({e, c, a}), (Calls{a, c, d, e}));
  EXPECT_EQ(upTo({}), Calls());
  EXPECT_EQ(upTo({12345}), Calls());
  wait(a);
  EXPECT_EQ(upTo({b}), (Calls{b}));
}

// The first ones of very many.
TEST_F(CallTimesTest, OnTheWayToACallAreSoMany) {
  constexpr std::size_t kMax = CallTimes::Sequence::kMax;
  std::vector<std::uint64_t> calls;
  for (std::size_t i = 0; i < 3 * kMax; ++i) {
    calls.push_back(submit(kA, 0));
  }
  const accel::Ticket last{calls.back()};
  const auto sequence = times_.upTo({&last, 1});
  ASSERT_EQ(sequence.size(), kMax);
  for (std::size_t i = 0; i < kMax; ++i) {
    EXPECT_EQ(sequence.begin()[i].value, calls[i]);
  }
}

TEST_F(CallTimesTest, MovesHaveARateOfTheirOwn) {
  EXPECT_EQ(times_.ofMove(4000), 1000u);
  times_.moved(1000, 500);
  EXPECT_EQ(times_.ofMove(4000), 2000u);
  for (int i = 0; i < 20; ++i) {
    times_.moved(1000, 100);
  }
  EXPECT_EQ(times_.ofMove(4000), 400u);
}

TEST_F(CallTimesTest, WhatIsGoneIsForgotten) {
  auto call = submit(kA, 0);
  now_ += 300;
  wait(call);
  (void)submit(kA, 0);
  (void)submit(kA, 1);
  times_.forget(kA);
  EXPECT_EQ(of(kA, 0), std::nullopt);
  EXPECT_EQ(times_.inFlight(0), 1u);
  times_.lost(0);
  EXPECT_EQ(times_.inFlight(0), 0u);
  EXPECT_EQ(times_.inFlight(1), 1u);
  times_.forget(kA);
  times_.forget(kB);
}

// A queue that never runs dry keeps no calls that have ended.
TEST_F(CallTimesTest, ALongQueueOfCalls) {
  std::uint64_t waited = 0;
  for (int i = 0; i < 1000; ++i) {
    (void)submit(kA, 0);
    (void)submit(kA, 0);
    now_ += 20;
    wait(++waited);
    now_ += 20;
    wait(++waited);
    (void)submit(kB, 0);
    ++waited;
    now_ += 10;
    wait(waited);
  }
  EXPECT_EQ(of(kA, 0), 20u);
  EXPECT_EQ(of(kB, 0), 10u);
  EXPECT_EQ(times_.inFlight(0), 0u);
}

TEST(CallTimes, NotesNothingUnlessItIsStarted) {
  CallTimes times([](accel::Ticket) -> bool { throw 1; });
  times.submitted(kA, 0, {1});
  times.ended({1}, 5);
  times.lost(0);
  times.forget(kA);
  EXPECT_FALSE(times.on());
  EXPECT_EQ(times.inFlight(0), 0u);
  EXPECT_EQ(times.of(kA, 0), std::nullopt);
}

}  // namespace
}  // namespace gmac
