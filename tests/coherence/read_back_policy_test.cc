// SPDX-License-Identifier: Apache-2.0
//
// Which bytes are copied ahead of the CPU's next look at them; and a program that looks elsewhere
// pays for few.
#include "gmac/coherence/read_back_policy.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstddef>
#include <optional>
#include <random>
#include <utility>

namespace gmac {
namespace {

constexpr std::size_t kBlock = 65536;

// A program's rounds on one object: a call, a wait, and what the CPU does then.
class Program {
 public:
  struct Look {
    std::size_t block = 0;
    bool write = false;
  };
  // What the policy guessed at the wait.
  std::optional<ReadBackPolicy::Guess> round(const std::optional<Look>& look) {
    for (std::size_t block = 0; block < open_.size(); ++block) {
      if (std::exchange(open_[block], false)) {
        policy_.closed(BlockIndex{block});
      }
    }
    const auto guess = policy_.guesses() ? policy_.guess() : std::nullopt;
    if (guess) {
      ++copies;
      if (guess->open) {
        policy_.opened();
        open_[static_cast<std::size_t>(guess->block)] = true;
      }
    }
    if (look) {
      const BlockIndex block{look->block};
      if (!open_[look->block]) {
        policy_.fetched(block, {look->block * kBlock, (look->block + 1) * kBlock});
        open_[look->block] = true;
        ++fetches;
      }
      if (look->write) {
        policy_.wrote(block);
      }
    }
    return guess;
  }

  std::size_t copies = 0;
  std::size_t fetches = 0;

 private:
  ReadBackPolicy policy_;
  std::array<bool, 64> open_{};
};

TEST(ReadBackPolicy, TwoEqualRoundsMakeAGuess) {
  Program program;
  EXPECT_FALSE(program.round(Program::Look{3}));
  EXPECT_FALSE(program.round(Program::Look{3}));
  const auto guess = program.round(Program::Look{3});
  ASSERT_TRUE(guess);
  EXPECT_EQ(guess->block, BlockIndex{3});
  EXPECT_EQ(guess->bytes, (ByteRange{3 * kBlock, 4 * kBlock}));
  EXPECT_TRUE(guess->open);
  EXPECT_FALSE(guess->write);
}

TEST(ReadBackPolicy, WhatIsWrittenIsOpenedForWriting) {
  Program program;
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(program.round(Program::Look{3, true}));
  }
  for (int round = 0; round < 30; ++round) {
    const auto guess = program.round(Program::Look{3, true});
    ASSERT_TRUE(guess);
    EXPECT_TRUE(guess->write);
  }
}

TEST(ReadBackPolicy, AWriteThatEndsIsNoticedAtTheNextCheck) {
  Program program;
  for (int round = 0; round < 3; ++round) {
    (void)program.round(Program::Look{3, true});
  }
  bool write = true;
  for (std::uint32_t round = 0; round <= ReadBackPolicy::kCheckEvery; ++round) {
    write = program.round(Program::Look{3, false})->write;
  }
  EXPECT_FALSE(write);
}

TEST(ReadBackPolicy, EveryEighthGuessIsLeftClosed) {
  Program program;
  for (int round = 0; round < 2; ++round) {
    (void)program.round(Program::Look{3});
  }
  int closed = 0;
  for (std::uint32_t round = 0; round < 10 * ReadBackPolicy::kCheckEvery; ++round) {
    const auto guess = program.round(Program::Look{3});
    ASSERT_TRUE(guess);
    closed += guess->open ? 0 : 1;
  }
  EXPECT_EQ(closed, 10);
  EXPECT_EQ(program.fetches, 12u);
}

TEST(ReadBackPolicy, AnotherPlaceEachTimeIsNeverGuessed) {
  Program program;
  for (std::size_t round = 0; round < 1000; ++round) {
    EXPECT_FALSE(program.round(Program::Look{round % 7}));
  }
}

TEST(ReadBackPolicy, LargeBlocksAreLeftToTheirFaults) {
  ReadBackPolicy policy;
  for (int round = 0; round < 10; ++round) {
    policy.fetched(BlockIndex{0}, {0, ReadBackPolicy::kMostBytes + 1});
    policy.closed(BlockIndex{0});
    EXPECT_FALSE(policy.guesses());
  }
  ReadBackPolicy small;
  for (int round = 0; round < 10; ++round) {
    small.fetched(BlockIndex{0}, {0, ReadBackPolicy::kMostBytes});
    small.closed(BlockIndex{0});
  }
  EXPECT_TRUE(small.guesses());
}

// The worst program stops looking whenever the policy begins to guess.
TEST(ReadBackPolicy, WrongGuessesGetRarer) {
  Program program;
  for (int round = 0; round < 100000; ++round) {
    const std::size_t before = program.copies;
    (void)program.round(Program::Look{3});
    while (program.copies > before && program.round(std::nullopt)) {
    }
  }
  // Each era of guesses ends at its first check.
  EXPECT_LE(program.copies, ReadBackPolicy::kCheckEvery * (std::bit_width(program.fetches) + 1));
  EXPECT_GT(program.copies, 0u);
}

TEST(ReadBackPolicy, NoProgramHasManyWrongGuesses) {
  std::mt19937_64 random(7);
  for (int program = 0; program < 200; ++program) {
    Program one;
    std::size_t unread = 0;
    const std::uint64_t odds = 2 + random() % 12;
    const std::size_t blocks = 1 + random() % 3;
    for (int round = 0; round < 2000; ++round) {
      const bool looks = random() % odds != 0;
      const auto guess =
          one.round(looks ? std::optional(Program::Look{random() % blocks, random() % 2 == 0})
                          : std::nullopt);
      unread += guess && !looks ? 1 : 0;
    }
    // A guess costs a copy that a fault would have made where it is right.
    EXPECT_LE(one.copies, 2 * ReadBackPolicy::kCheckEvery * (one.fetches + 1));
    EXPECT_LE(unread, 2000 / odds * 2 + 100);
  }
}

}  // namespace
}  // namespace gmac
