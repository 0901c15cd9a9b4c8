// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/stay_awake.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace gmac {
namespace {

TEST(ComesSoon, AsksOnceWhereItIsThereAlready) {
  int asked = 0;
  EXPECT_TRUE(comesSoon([&] { return ++asked == 1; }));
  EXPECT_EQ(asked, 1);
}

TEST(ComesSoon, EndsWhereItDoesNotCome) {
  int asked = 0;
  EXPECT_FALSE(comesSoon([&] { return ++asked < 0; }));
  EXPECT_GT(asked, 1);
}

// On any number of cores: the one that waits gives way.
TEST(ComesSoon, SeesWhatAnotherThreadDoes) {
  constexpr int kTurns = 1000;
  std::atomic<int> turn{0};
  const auto play = [&](int own) {
    for (int i = 0; i < kTurns; ++i) {
      while (!comesSoon([&] { return turn % 2 == own; })) {
      }
      ++turn;
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(turn, 2 * kTurns);
}

}  // namespace
}  // namespace gmac
