// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/rounds.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

namespace gmac::datatype {
namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr std::chrono::milliseconds kLong{30};

// Whatever else the machine does: of three rounds the least is a third of all at most, and the one
// in the middle a half.
TEST(TimeRounds, GivesTheLeastAndTheMedianOfAllRounds) {
  int calls = 0;
  const auto begin = Clock::now();
  const auto times = timeRounds(3, [&] {
    if (++calls == 2) {
      std::this_thread::sleep_for(kLong);
    }
    return Status();
  });
  const Microseconds all = Clock::now() - begin;
  ASSERT_TRUE(times.ok());
  EXPECT_EQ(calls, 3);
  EXPECT_LE(times->least, all.count() / 3);
  EXPECT_LE(times->least, times->median);
  EXPECT_LE(times->median, all.count() / 2);
}

TEST(TimeRounds, CountsAllOfARound) {
  int calls = 0;
  const auto times = timeRounds(2, [&] {
    ++calls;
    std::this_thread::sleep_for(kLong);
    return Status();
  });
  ASSERT_TRUE(times.ok());
  EXPECT_EQ(calls, 2);
  EXPECT_GE(times->least, Microseconds(kLong).count());
}

TEST(TimeRounds, TakesTheMiddleOfWhatIsLongAndShort) {
  int calls = 0;
  const auto times = timeRounds(4, [&] {
    if (++calls % 2 == 0) {
      std::this_thread::sleep_for(kLong);
    }
    return Status();
  });
  ASSERT_TRUE(times.ok());
  EXPECT_GE(times->median, Microseconds(kLong).count()) << "the longer one of two in the middle";
}

TEST(TimeRounds, EndsWithTheFirstRoundThatFails) {
  int calls = 0;
  const auto times = timeRounds(5, [&]() -> Status {
    return ++calls == 3 ? fail(adsmErrorSystem, "round {}", calls) : Status();
  });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(times.status().code(), adsmErrorSystem);
  EXPECT_EQ(std::string(lastErrorText()), "round 3");
}

}  // namespace
}  // namespace gmac::datatype
