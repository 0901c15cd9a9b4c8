// SPDX-License-Identifier: Apache-2.0
//
// Which launches are held up for accesses, and that they are for at most half of the time.
#include "gmac/coherence/access_turns.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gmac {
namespace {

constexpr AccessTurns::Nanoseconds kShort = 1000;

class Turns : public ::testing::Test {
 protected:
  bool waits(std::uint32_t times, AccessTurns::Nanoseconds waited) {
    return turns_.waits(now_, times, waited);
  }
  // An access that has had to wait for newer work often.
  void claim() { ASSERT_TRUE(waits(AccessTurns::kFew, kShort)); }

  AccessTurns turns_;
  std::uint64_t now_ = 1;
};

TEST_F(Turns, NothingIsHeldUpForAccessesThatWaitAFewTimes) {
  for (int i = 0; i < 1000; ++i) {
    for (std::uint32_t times = 0; times < AccessTurns::kFew; ++times) {
      EXPECT_FALSE(waits(times, times * kShort));
      EXPECT_FALSE(turns_.holdsUp(now_));
    }
  }
}

TEST_F(Turns, LaunchesAreHeldUpForOneThatHasToWaitAgain) {
  claim();
  EXPECT_TRUE(turns_.holdsUp(now_));
  turns_.ended();
  EXPECT_FALSE(turns_.holdsUp(now_));
  EXPECT_FALSE(waits(0, 0));
  EXPECT_FALSE(turns_.crowded(now_));
}

TEST_F(Turns, AClaimHoldsThemUpWhileThereIsAnother) {
  claim();
  claim();
  turns_.ended();
  EXPECT_TRUE(turns_.holdsUp(now_));
  turns_.ended();
  EXPECT_FALSE(turns_.holdsUp(now_));
}

TEST_F(Turns, TheDeviceIsCrowdedForAWhileAfterALongWait) {
  constexpr AccessTurns::Nanoseconds kLong = 3 * AccessTurns::kLeast;
  ASSERT_TRUE(waits(1, kLong));
  turns_.ended();
  now_ += AccessTurns::kShare * kLong - 1;
  EXPECT_TRUE(turns_.crowded(now_));
  EXPECT_TRUE(waits(0, 0)) << "accesses have a claim from the first wait on";
  turns_.ended();
  ++now_;
  EXPECT_FALSE(turns_.crowded(now_));
  EXPECT_FALSE(waits(0, 0));
}

TEST_F(Turns, WhereQueuesDoNotEndNobodyWaitsForThem) {
  ASSERT_TRUE(waits(1, AccessTurns::kMost));
  ASSERT_TRUE(turns_.crowded(now_));
  turns_.queueGoesOn(now_);
  EXPECT_FALSE(turns_.crowded(now_));
  now_ += AccessTurns::kShare * AccessTurns::kMostInQueue - 1;
  ASSERT_TRUE(waits(1, AccessTurns::kMost)) << "its own claim";
  EXPECT_FALSE(turns_.crowded(now_));
  ++now_;
  ASSERT_TRUE(waits(1, AccessTurns::kMost));
  EXPECT_TRUE(turns_.crowded(now_));
}

// An access that never ends: the time for which launches are held up, of all.
TEST_F(Turns, LaunchesAreHeldUpForHalfOfTheTimeAtMost) {
  claim();
  constexpr std::uint64_t kStep = AccessTurns::kLeast / 4;
  std::uint64_t held = 0;
  for (; now_ < 100 * AccessTurns::kMost; now_ += kStep) {
    held += turns_.holdsUp(now_) ? kStep : 0;
    ASSERT_LE(held, now_ / 2 + AccessTurns::kMost);
  }
  EXPECT_GE(held, now_ / 3);
}

// A device that has been given a lot is done with it within the limit, at last.
TEST_F(Turns, LaunchesAreHeldUpForAsLongAsTheDeviceTakes) {
  for (std::uint64_t takes = 1000; takes < AccessTurns::kMost; takes *= 3) {
    turns_ = {};
    now_ = 1;
    claim();
    std::uint64_t heldSince = 0;
    for (; heldSince == 0 || now_ - heldSince < takes; now_ += 1 + takes / 64) {
      if (!turns_.holdsUp(now_)) {
        heldSince = 0;  // and the device gets more
      } else if (heldSince == 0) {
        heldSince = now_;
      }
      ASSERT_LE(now_, AccessTurns::kLeast + 8 * takes) << takes;
    }
  }
}

}  // namespace
}  // namespace gmac
