// SPDX-License-Identifier: Apache-2.0
//
// Which launches are held up for accesses, and for how much of the time.
#include "gmac/coherence/access_turns.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

namespace gmac {
namespace {

constexpr AccessTurns::Nanoseconds kShort = 1000;

class Turns : public ::testing::Test {
 protected:
  bool waits(bool newer, AccessTurns::Nanoseconds waited) {
    return turns_->waits(now_, newer, waited);
  }
  bool holdsUp() { return turns_->holdsUntil(now_) > now_; }
  // An access that has waited for newer work for long.
  void claim() { ASSERT_TRUE(waits(true, AccessTurns::kLong)); }

  std::unique_ptr<AccessTurns> turns_ = std::make_unique<AccessTurns>();
  std::uint64_t now_ = 1;
};

TEST_F(Turns, NothingIsHeldUpForAccessesThatWaitShortly) {
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(waits(false, 0));
    EXPECT_FALSE(waits(true, 0));
    EXPECT_FALSE(waits(true, AccessTurns::kLong - 1));
    EXPECT_FALSE(turns_->any());
    EXPECT_FALSE(holdsUp());
  }
}

TEST_F(Turns, LaunchesAreHeldUpForOneThatHasToWaitAgain) {
  claim();
  EXPECT_TRUE(holdsUp());
  EXPECT_GT(turns_->queueUntil(now_ + AccessTurns::kCrowded), now_ + AccessTurns::kCrowded);
  EXPECT_LE(turns_->queueUntil(now_ + AccessTurns::kCrowded, false), now_ + AccessTurns::kCrowded);
  turns_->ended();
  EXPECT_FALSE(holdsUp());
  EXPECT_FALSE(waits(false, 0));
  EXPECT_FALSE(turns_->claimed());
}

TEST_F(Turns, AClaimHoldsThemUpWhileThereIsAnother) {
  claim();
  claim();
  turns_->ended();
  EXPECT_TRUE(holdsUp());
  turns_->ended();
  EXPECT_FALSE(holdsUp());
}

TEST_F(Turns, TheDeviceIsCrowdedForAWhileAfterALongWait) {
  ASSERT_TRUE(waits(true, AccessTurns::kLong));
  turns_->ended();
  now_ += AccessTurns::kCrowded - 1;
  EXPECT_TRUE(turns_->crowded(now_));
  EXPECT_GT(turns_->queueUntil(now_), now_);
  EXPECT_FALSE(holdsUp());
  EXPECT_FALSE(waits(false, 0)) << "for work that was there before";
  ++now_;
  EXPECT_FALSE(turns_->crowded(now_));
  EXPECT_LE(turns_->queueUntil(now_), now_);
  EXPECT_FALSE(waits(true, kShort));
  EXPECT_FALSE(turns_->crowded(now_));
}

TEST_F(Turns, ItIsForAsLongAsAccessesHaveToWaitForNewerWork) {
  ASSERT_TRUE(waits(true, AccessTurns::kLong));
  turns_->ended();
  for (int i = 0; i < 10; ++i) {
    now_ += AccessTurns::kCrowded - 1;
    EXPECT_TRUE(waits(true, kShort)) << "it has a claim at once";
    EXPECT_TRUE(holdsUp());
    turns_->ended();
    EXPECT_FALSE(holdsUp());
    EXPECT_TRUE(turns_->crowded(now_ + 1));
  }
}

TEST_F(Turns, OneThatHasAClaimCrowdsTheDeviceFurther) {
  claim();
  now_ += AccessTurns::kCrowded;
  EXPECT_FALSE(turns_->crowded(now_));
  turns_->noteWait(now_, true, AccessTurns::kCrowded);
  EXPECT_TRUE(turns_->crowded(now_));
}

// An access that never ends: the time for which launches are held up, of all.
TEST_F(Turns, LaunchesAreHeldUpForLittleOfTheTimeInVain) {
  claim();
  constexpr std::uint64_t kStep = AccessTurns::kLeast / 4;
  std::uint64_t held = 0;
  for (; now_ < 1000 * AccessTurns::kMost; now_ += kStep) {
    held += holdsUp() ? kStep : 0;
    ASSERT_LE(held, now_ / 2 + 2 * AccessTurns::kLeast);
  }
  EXPECT_LE(held, now_ / 8);
  EXPECT_GE(held, now_ / 16);
}

// A device that has been given a lot is done with it within the limit, at last.
TEST_F(Turns, LaunchesAreHeldUpForAsLongAsTheDeviceTakes) {
  for (std::uint64_t takes = 1000; takes < AccessTurns::kMost; takes *= 3) {
    turns_ = std::make_unique<AccessTurns>();
    now_ = 1;
    claim();
    std::uint64_t heldSince = 0;
    for (; heldSince == 0 || now_ - heldSince < takes; now_ += 1 + takes / 64) {
      if (!holdsUp()) {
        heldSince = 0;  // and the device gets more
      } else if (heldSince == 0) {
        heldSince = now_;
      }
      ASSERT_LE(now_, AccessTurns::kLeast + 32 * takes) << takes;
    }
  }
}

}  // namespace
}  // namespace gmac
