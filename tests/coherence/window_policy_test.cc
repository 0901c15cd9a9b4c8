// SPDX-License-Identifier: Apache-2.0
//
// Which accesses open a window; and a program that needs whole blocks pays for few.
#include "gmac/coherence/window_policy.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <random>
#include <set>

namespace gmac {
namespace {

// A program's accesses to one object, and the windows that they got.
class Program {
 public:
  // Touches a few bytes of a block, or all of it, if nothing is open there.
  void touch(std::size_t block, bool whole) {
    const BlockIndex index{block};
    if (whole_.contains(block)) {
      return;
    }
    if (!windows_.contains(block)) {
      if (!policy_.wants(index)) {
        policy_.openedWhole({index, index + 1}, index);
        whole_.insert(block);
        ++openedWhole;
        return;
      }
      policy_.opened(index);
      windows_.insert(block);
    }
    if (whole) {
      policy_.outgrown(index);
      windows_.erase(block);
      whole_.insert(block);
      ++outgrown;
    }
  }
  void call() {
    for (const std::size_t block : windows_) {
      policy_.wasEnough(BlockIndex{block});
      ++enough;
    }
    windows_.clear();
    whole_.clear();
    policy_.closed();
  }
  void expectBound() const {
    EXPECT_LE(outgrown, 2 * enough + std::bit_width(openedWhole) + 1)
        << enough << " enough, " << openedWhole << " whole";
  }

  std::size_t enough = 0;
  std::size_t outgrown = 0;
  std::size_t openedWhole = 0;

 private:
  WindowPolicy policy_;
  std::set<std::size_t> windows_;
  std::set<std::size_t> whole_;
};

TEST(WindowPolicy, ASmallTouchAfterEachCallGetsAWindowEachTime) {
  Program program;
  for (int call = 0; call < 100; ++call) {
    program.touch(7, false);
    program.call();
  }
  EXPECT_EQ(program.enough, 100u);
  EXPECT_EQ(program.openedWhole, 0u);
}

TEST(WindowPolicy, ManySmallTouchesGetTwiceAsManyWindowsAfterEachCall) {
  Program program;
  for (std::size_t call = 0, windows = 0; call < 8; ++call) {
    const std::size_t before = program.enough;
    for (std::size_t block = 0; block < 1000; block += 2) {
      program.touch(block, false);
    }
    program.call();
    EXPECT_GE(program.enough - before, std::min<std::size_t>(2 * windows, 256)) << call;
    windows = program.enough - before;
  }
}

TEST(WindowPolicy, AReaderInOrderPaysForFewWindows) {
  Program program;
  for (int call = 0; call < 1000; ++call) {
    for (std::size_t block = 0; block < 32; ++block) {
      program.touch(block, true);
    }
    program.call();
  }
  EXPECT_EQ(program.enough, 0u);
  EXPECT_LE(program.outgrown, 11u);
}

TEST(WindowPolicy, WholeBlocksInAnyOrderPayForFewWindows) {
  Program program;
  std::mt19937 random(5);
  for (int call = 0; call < 1000; ++call) {
    for (int touch = 0; touch < 32; ++touch) {
      program.touch(random() % 1000, true);
    }
    program.call();
  }
  EXPECT_LE(program.outgrown, 16u);
  program.expectBound();
}

// All blocks are touched a little first, and then as a whole.
TEST(WindowPolicy, WindowsThatAreOutgrownTogetherHaveBeenEarned) {
  Program program;
  for (int round = 0; round < 50; ++round) {
    for (std::size_t block = 0; block < 500; block += 2) {
      program.touch(block, false);
    }
    for (std::size_t block = 0; round % 2 == 1 && block < 500; block += 2) {
      program.touch(block, true);
    }
    program.call();
    program.expectBound();
  }
  EXPECT_GT(program.outgrown, 10u);
}

TEST(WindowPolicy, TheBoundHoldsWhateverAProgramDoes) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const unsigned blocks = 1 + random() % 64;
    const unsigned wholeIn = 1 + random() % 8;
    Program program;
    for (int step = 0; step < 3000; ++step) {
      if (random() % 16 == 0) {
        program.call();
      } else {
        program.touch(random() % blocks, random() % wholeIn == 0);
      }
      program.expectBound();
    }
  }
}

TEST(WindowPolicy, ShortLivedObjectsPayForFewWindowsAltogether) {
  WindowTrials first;
  std::size_t outgrown = 0;
  for (int object = 0; object < 1000; ++object) {
    WindowPolicy policy(&first);
    const BlockIndex block{0};
    if (policy.wants(block)) {
      policy.opened(block);
      policy.outgrown(block);
      ++outgrown;
    } else {
      policy.openedWhole({block, block + 1}, block);
    }
  }
  EXPECT_LE(outgrown, 11u);
  // One that is known goes by what is known of it.
  WindowPolicy known(&first);
  for (int i = 0; i < 3000 && !known.wants(BlockIndex{9}); ++i) {
    known.openedWhole({BlockIndex{0}, BlockIndex{1}}, BlockIndex{0});
    known.closed();
  }
  known.opened(BlockIndex{9});
  known.wasEnough(BlockIndex{9});
  EXPECT_TRUE(known.wants(BlockIndex{9}));
}

TEST(WindowPolicy, APauseFollowsARefusal) {
  WindowPolicy policy;
  policy.opened(BlockIndex{3});
  policy.wasEnough(BlockIndex{3});
  ASSERT_TRUE(policy.wants(BlockIndex{3}));
  policy.refused();
  EXPECT_FALSE(policy.wants(BlockIndex{3}));
}

}  // namespace
}  // namespace gmac
