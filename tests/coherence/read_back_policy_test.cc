// SPDX-License-Identifier: Apache-2.0
//
// Which bytes are copied ahead of the CPU's next look at them; and a program that looks elsewhere
// pays for few.
#include "gmac/coherence/read_back_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <optional>
#include <random>
#include <string>
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
  // The policy's guess at the wait.
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

// Rounds until the first guess that opens.
void learn(Program& program, bool write = false) {
  for (int round = 0; round < 3; ++round) {
    const auto guess = program.round(Program::Look{3, write});
    EXPECT_EQ(guess.has_value(), round == 2);
    EXPECT_FALSE(guess && guess->open);
  }
}

TEST(ReadBackPolicy, TwoEqualRoundsMakeAGuessAndAThirdConfirmsIt) {
  Program program;
  learn(program);
  const auto guess = program.round(Program::Look{3});
  ASSERT_TRUE(guess);
  EXPECT_EQ(guess->block, BlockIndex{3});
  EXPECT_EQ(guess->bytes, (ByteRange{3 * kBlock, 4 * kBlock}));
  EXPECT_TRUE(guess->open);
  EXPECT_FALSE(guess->write);
}

TEST(ReadBackPolicy, WhatIsWrittenIsOpenedForWriting) {
  Program program;
  learn(program, true);
  for (int round = 0; round < 30; ++round) {
    const auto guess = program.round(Program::Look{3, true});
    ASSERT_TRUE(guess);
    EXPECT_TRUE(guess->write);
  }
}

TEST(ReadBackPolicy, AWriteThatEndsIsNoticedAtTheNextCheck) {
  Program program;
  learn(program, true);
  bool write = true;
  for (std::uint32_t round = 0; round < ReadBackPolicy::kMostUnchecked; ++round) {
    write = program.round(Program::Look{3, false})->write;
  }
  EXPECT_FALSE(write);
}

TEST(ReadBackPolicy, ChecksGetRarerUntilEveryEighthGuess) {
  Program program;
  learn(program);
  std::string guesses;
  for (int round = 0; round < 30; ++round) {
    guesses += program.round(Program::Look{3})->open ? 'o' : 'c';
  }
  EXPECT_EQ(guesses, "ocooocooooooocooooooocoooooooc");
  EXPECT_EQ(program.fetches,
            3u + static_cast<std::size_t>(std::count(guesses.begin(), guesses.end(), 'c')));
}

TEST(ReadBackPolicy, AnotherPlaceEachTimeIsNeverGuessed) {
  Program program;
  for (std::size_t round = 0; round < 1000; ++round) {
    EXPECT_FALSE(program.round(Program::Look{round % 7}));
  }
}

// One of many objects in turn: the same bytes of it, and long nothing.
TEST(ReadBackPolicy, ALookNowAndThenCostsOneCopyForEachWrongGuess) {
  Program program;
  for (int look = 0; look < 1000; ++look) {
    (void)program.round(Program::Look{3});
    for (int round = 0; round < 50; ++round) {
      (void)program.round(std::nullopt);
    }
  }
  EXPECT_GT(program.copies, 0u);
  EXPECT_LE(program.copies, std::bit_width(std::size_t{1000}));
}

TEST(ReadBackPolicy, LargeBlocksAreLeftToTheirFaults) {
  ReadBackPolicy policy;
  for (int round = 0; round < 10; ++round) {
    policy.fetched(BlockIndex{0}, {0, ReadBackPolicy::kMostBytes + 1});
    policy.closed(BlockIndex{0});
    EXPECT_FALSE(policy.guesses());
  }
  EXPECT_TRUE(policy.repeats()) << "which says that one copy would be better";
  ReadBackPolicy oneCopy = ReadBackPolicy::ofOneCopy();
  for (int round = 0; round < 10; ++round) {
    oneCopy.fetched(BlockIndex{0}, {0, 8 * ReadBackPolicy::kMostBytes});
    oneCopy.closed(BlockIndex{0});
  }
  EXPECT_TRUE(oneCopy.guesses()) << "nothing is copied";
  ReadBackPolicy small;
  for (int round = 0; round < 10; ++round) {
    small.fetched(BlockIndex{0}, {0, ReadBackPolicy::kMostBytes});
    small.closed(BlockIndex{0});
  }
  EXPECT_TRUE(small.guesses());
}

// A call after the wait writes the bytes: a copy at that wait is good for nothing.
TEST(ReadBackPolicy, ACopyThatIsGoodNoMoreIsAWrongGuess) {
  ReadBackPolicy policy;
  std::size_t copies = 0;
  for (int round = 0; round < 1000; ++round) {
    if (policy.guess()) {
      ++copies;
    }
    policy.fetched(BlockIndex{0}, {0, 8}, false);
    policy.closed(BlockIndex{0});
  }
  EXPECT_GT(copies, 0u);
  EXPECT_LE(copies, std::bit_width(std::size_t{1000}));
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
  // A check that is right, a wait without one, and a check that is wrong.
  EXPECT_LE(program.copies, 3 * (std::bit_width(program.fetches) + 1));
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
    // A guess that is right is a copy that a fault would have made.
    EXPECT_LE(one.copies, (ReadBackPolicy::kMostUnchecked + 1) * (one.fetches + 1));
    EXPECT_LE(unread, one.copies);
  }
}

}  // namespace
}  // namespace gmac
