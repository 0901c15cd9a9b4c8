// SPDX-License-Identifier: Apache-2.0
//
// Which accesses open neighbours; and a program whose touches are far apart moves no more than it
// asks for.
#include "gmac/coherence/dense_use.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

namespace gmac {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

// A program's accesses to one object, and what they opened.
class Program {
 public:
  explicit Program(std::size_t blockBytes, std::size_t bytes = 64 * kMiB)
      : blocks(bytes / blockBytes), use_(bytes, blockBytes), open_(blocks), touched_(blocks) {}

  void touch(std::size_t block, bool write = true) {
    touched += touched_[block] ? 0 : 1;
    touched_[block] = true;
    if (open_[block]) {
      return;
    }
    ++faults;
    const BlockRange range = use_.around(
        BlockIndex{block}, write, [&](BlockIndex i) { return open_[static_cast<std::size_t>(i)]; });
    EXPECT_LE(range.begin, BlockIndex{block});
    EXPECT_GT(range.end, BlockIndex{block});
    EXPECT_LE(range.end, BlockIndex{blocks});
    for (auto i = static_cast<std::size_t>(range.begin); i < static_cast<std::size_t>(range.end);
         ++i) {
      opened += open_[i] ? 0 : 1;
      open_[i] = true;
    }
  }
  void call() {
    open_.assign(blocks, false);
    touched_.assign(blocks, false);
  }
  void touchAnywhere(std::size_t times) {
    for (std::size_t i = 0; i < times; ++i) {
      touch(random_() % blocks);
    }
  }
  void forget() { faults = opened = touched = 0; }

  const std::size_t blocks;
  std::size_t faults = 0;
  std::size_t opened = 0;   // blocks that moved
  std::size_t touched = 0;  // blocks that had to

 private:
  DenseUse use_;
  std::vector<bool> open_;
  std::vector<bool> touched_;
  std::mt19937_64 random_{1};
};

TEST(DenseUse, AnObjectThatIsTouchedEverywhereTakesFewFaults) {
  for (const std::size_t blockBytes : {4 * kKiB, 8 * kKiB, 16 * kKiB, 32 * kKiB, 64 * kKiB}) {
    Program program(blockBytes);
    program.touchAnywhere(65536);
    program.call();
    EXPECT_LT(program.faults, program.touched * 3 / 4) << blockBytes;
    program.forget();
    for (int call = 0; call < 4; ++call) {
      program.touchAnywhere(65536);
      program.call();
    }
    EXPECT_LT(program.faults, program.touched / 5) << blockBytes;
    EXPECT_LE(program.opened, 4 * program.blocks) << blockBytes;
  }
}

TEST(DenseUse, TouchesThatAreFarApartOpenNothingElse) {
  for (const std::size_t blockBytes : {4 * kKiB, 8 * kKiB, 16 * kKiB, 32 * kKiB, 64 * kKiB}) {
    for (std::size_t stride = 128 * kKiB; stride <= 4 * kMiB; stride *= 2) {
      for (const bool write : {false, true}) {
        Program program(blockBytes);
        for (int call = 0; call < 10; ++call) {
          for (std::size_t at = 0; at < 64 * kMiB; at += stride) {
            program.touch(at / blockBytes, write);
          }
          program.call();
        }
        EXPECT_EQ(program.opened, program.touched) << blockBytes << " " << stride;
      }
    }
  }
}

TEST(DenseUse, SparseTouchesAnywhereMoveLittleMore) {
  for (const std::size_t blockBytes : {4 * kKiB, 8 * kKiB, 16 * kKiB, 32 * kKiB, 64 * kKiB}) {
    Program program(blockBytes);
    for (int call = 0; call < 50; ++call) {
      program.touchAnywhere(program.blocks / 16);
      program.call();
    }
    EXPECT_LE(program.opened, program.touched * 5 / 4) << blockBytes;
  }
}

TEST(DenseUse, NoPlacesMoveMoreThanEightTimesWhatIsTouched) {
  for (const std::size_t blockBytes : {4 * kKiB, 8 * kKiB, 16 * kKiB, 32 * kKiB, 64 * kKiB}) {
    const std::size_t piece = 64 * kKiB / blockBytes;
    const std::size_t quarter = std::min(piece, std::max<std::size_t>(3, piece / 4));
    Program program(blockBytes);
    // The least that shows dense use of all groups.
    for (std::size_t group = 0; group < 32; ++group) {
      for (std::size_t i = 0; i < 17; ++i) {
        for (std::size_t block = 0; block < quarter; ++block) {
          program.touch((group * 32 + i) * piece + block);
        }
      }
    }
    EXPECT_EQ(program.opened, program.blocks) << blockBytes;
    EXPECT_LE(program.opened, 8 * program.touched) << blockBytes;
  }
}

TEST(DenseUse, AProgramThatChangesHasPaidOnceForEachGroup) {
  Program program(4 * kKiB);
  for (std::size_t block = 0; block < program.blocks; ++block) {
    program.touch(block);
  }
  program.forget();
  for (std::size_t call = 0; call < 10; ++call) {
    program.call();
    for (std::size_t block = 0; block < program.blocks; block += 512) {
      program.touch(block);
    }
  }
  EXPECT_EQ(program.opened,
            DenseUse::kCredit * program.blocks + (10 - DenseUse::kCredit) * program.blocks / 512);
}

TEST(DenseUse, ReadsGiveNoCreditToWrites) {
  Program program(4 * kKiB);
  for (std::size_t block = 0; block < program.blocks; ++block) {
    program.touch(block, false);
  }
  program.call();
  program.forget();
  program.touch(0, true);
  EXPECT_EQ(program.opened, 1u);
}

TEST(DenseUse, BlocksOverAPieceAndShortObjectsStayWhole) {
  Program large(128 * kKiB);
  for (std::size_t block = 0; block < large.blocks; ++block) {
    large.touch(block);
  }
  EXPECT_EQ(large.faults, large.blocks);
  Program small(4 * kKiB, 7 * 4 * kKiB);
  small.touch(6);
  EXPECT_EQ(small.opened, 1u);
  small.touch(3);
  EXPECT_EQ(small.opened, 2u);
  small.touch(0);
  EXPECT_EQ(small.opened, 7u);
}

}  // namespace
}  // namespace gmac
