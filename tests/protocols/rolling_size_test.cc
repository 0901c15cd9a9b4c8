// SPDX-License-Identifier: Apache-2.0
//
// The adaptive rolling size, compared with lazy-update by blocks: the number of flushes of each,
// whatever a program writes.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <random>
#include <vector>

#include "gmac/protocols/protocol.h"

namespace gmac {
namespace {

// A program's blocks under a protocol, and what the runtime does with them, less the copies.
class Program {
 public:
  explicit Program(std::size_t blocks, std::size_t objects = 1, const RollingOptions& options = {})
      : blocks_(blocks), wasWritten_(blocks), rolling_(makeRollingProtocol(options)) {
    for (std::size_t i = 0; i < objects; ++i) {
      rolling_->allocated();
    }
  }
  ~Program() { rolling_.reset(); }  // before the blocks that it lists
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Protocol& rolling() { return *rolling_; }
  std::size_t size() const { return blocks_.size(); }

  void write(std::size_t index) {
    Block& block = blocks_[index];
    if (block.state == State::kDirty) {
      return;
    }
    block.state = State::kDirty;
    rolling_->becameDirty(block);
    if (!wasWritten_[index]) {
      wasWritten_[index] = true;
      ++lazyFlushes_;
      mostWritten_ = std::max(mostWritten_, ++written_);
    }
    ++block.holds;  // as a block that is being opened, it stays
    while (Block* oldest = rolling_->evictionCandidate(0)) {
      rolling_->leftDirty(*oldest);
      oldest->state = State::kReadOnly;
      rolling_->evicted(*oldest);
      ++flushes_;
      ++early_;
    }
    --block.holds;
  }
  // A call that uses the blocks [begin, end).
  void call(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      Block& block = blocks_[i];
      if (block.state == State::kDirty || block.evicted) {
        rolling_->released(block);
      }
      if (block.state == State::kDirty) {
        rolling_->leftDirty(block);
        ++flushes_;
      }
      block.state = State::kInvalid;
      written_ -= wasWritten_[i] ? 1 : 0;
      wasWritten_[i] = false;
    }
    rolling_->called();
  }
  void call() { call(0, blocks_.size()); }
  // The object of the blocks [begin, end) is freed, and another one is allocated in its place.
  void renew(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      Block& block = blocks_[i];
      if (block.state == State::kDirty || block.evicted) {
        rolling_->dropped(block);
      }
      if (block.state == State::kDirty) {
        rolling_->leftDirty(block);
      }
      block.state = State::kReadOnly;
      if (wasWritten_[i]) {
        --lazyFlushes_;
        --written_;
      }
      wasWritten_[i] = false;
    }
    rolling_->freed();
    rolling_->allocated();
  }

  std::size_t flushes() const { return flushes_; }
  std::size_t lazyFlushes() const { return lazyFlushes_; }
  std::size_t wasted() const { return flushes_ - lazyFlushes_; }
  // Flushes before a call, since this was asked last.
  std::size_t takeEarly() { return std::exchange(early_, 0); }
  // The bound that rolling.cc promises for wasted(); after a call that uses everything.
  std::size_t bound() const {
    return lazyFlushes_ / 16 + 3 * mostWritten_ + std::bit_width(mostWritten_) + 1;
  }

 private:
  std::vector<Block> blocks_;
  std::vector<bool> wasWritten_;  // since the last call that uses it: what lazy-update would flush
  std::unique_ptr<Protocol> rolling_;
  std::size_t flushes_ = 0;
  std::size_t lazyFlushes_ = 0;
  std::size_t early_ = 0;
  std::size_t written_ = 0;
  std::size_t mostWritten_ = 0;
};

// `streams` parts of the program's blocks, each filled in order, a store to each in turn;
// `stores` to a block.
void writeStreams(Program& program, std::size_t streams, std::size_t stores) {
  const std::size_t each = program.size() / streams;
  for (std::size_t store = 0; store < each * stores; ++store) {
    for (std::size_t stream = 0; stream < streams; ++stream) {
      program.write(stream * each + store / stores);
    }
  }
}

TEST(RollingSize, ArraysInOneObjectFilledInTurnAreFlushedHardlyMoreThanOnce) {
  // A block at every store without the policy.
  Program program(30);
  writeStreams(program, 3, 1000);
  program.call();
  EXPECT_EQ(program.lazyFlushes(), 30u);
  EXPECT_LE(program.wasted(), 1u);
}

class Streams : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Streams, InOneObjectWasteNoMoreThanASixteenthOnceTheyAreLearnt) {
  const std::size_t streams = GetParam();
  Program program(64 * 4);
  writeStreams(program, streams, 50);
  program.call();
  EXPECT_LE(program.wasted(), streams) << "while they are learnt, each stream's first block";
  const std::size_t learnt = program.wasted();
  const std::size_t lazyBefore = program.lazyFlushes();
  for (int call = 0; call < 200; ++call) {
    writeStreams(program, streams, 50);
    program.call();
  }
  EXPECT_LE(program.wasted() - learnt, (program.lazyFlushes() - lazyBefore) / 16);
}

TEST_P(Streams, AreStillFlushedEarly) {
  const std::size_t streams = GetParam();
  Program program(64 * 8);
  for (int call = 0; call < 100; ++call) {
    writeStreams(program, streams, 50);
    program.call();
  }
  (void)program.takeEarly();
  for (int call = 0; call < 20; ++call) {
    writeStreams(program, streams, 50);
    program.call();
  }
  EXPECT_GE(program.takeEarly(), 20 * (64 * 8 - 3 * streams - 2));
}

INSTANTIATE_TEST_SUITE_P(RollingSize, Streams, ::testing::Values(1, 2, 3, 4, 5, 7, 8, 16, 33, 64),
                         ::testing::PrintToStringParamName());

TEST(RollingSize, ComesBackToThePapersWhenItIsNotNeededAnyMore) {
  Program program(256);
  writeStreams(program, 64, 10);
  program.call();
  (void)program.takeEarly();
  for (int call = 0; call < 100; ++call) {
    writeStreams(program, 1, 10);
    program.call();
  }
  (void)program.takeEarly();
  writeStreams(program, 1, 10);
  EXPECT_EQ(program.takeEarly(), 256u - 2u);
}

TEST(RollingSize, StaysWhereNothingIsWrittenBetweenCalls) {
  Program program(64);
  for (int round = 0; round < 10; ++round) {  // what was wasted at first is paid for
    writeStreams(program, 32, 10);
    program.call();
  }
  const std::size_t wasted = program.wasted();
  for (int call = 0; call < 1000; ++call) {
    program.call();
  }
  writeStreams(program, 32, 10);
  program.call();
  EXPECT_LE(program.wasted() - wasted, 2u);
}

TEST(RollingSize, ABlockThatIsWrittenThroughoutDoesNotStopEvictions) {
  // A counter beside an array that is filled in order.
  Program program(2001);
  for (std::size_t block = 0; block < 2000; ++block) {
    for (int store = 0; store < 10; ++store) {
      program.write(block);
      program.write(2000);
    }
  }
  EXPECT_GE(program.takeEarly(), 1900u);
  program.call();
  EXPECT_LE(program.wasted(), 2000u / 16 + 8);
}

TEST(RollingSize, WhatIsWrittenAgainInTheSameOrderIsWastedOnce) {
  Program program(256);
  for (int pass = 0; pass < 50; ++pass) {
    writeStreams(program, 1, 10);
  }
  program.call();
  EXPECT_EQ(program.lazyFlushes(), 256u);
  EXPECT_LE(program.wasted(), 256u);
}

TEST(RollingSize, GrowsWhereNoCallEverNeedsWhatWasEvicted) {
  Program program(64);
  for (int round = 0; round < 100; ++round) {
    writeStreams(program, 1, 10);
    program.renew(0, 64);
  }
  EXPECT_EQ(program.lazyFlushes(), 0u);
  EXPECT_LE(program.flushes(), program.bound());
}

TEST(RollingSize, ShrinksOnlyForWhatACallHasTaken) {
  // Objects that are written and freed without a call pay for nothing: lazy-update flushes nothing
  // of them.
  Program program(66);
  for (int round = 0; round < 50; ++round) {
    for (int call = 0; call < 60; ++call) {
      program.write(0);
      program.call();
      for (int object = 0; object < 10; ++object) {
        program.write(64);
        program.write(65);
        program.renew(64, 66);
      }
    }
    for (int pass = 0; pass < 3; ++pass) {
      for (std::size_t block = 0; block < 64; ++block) {
        program.write(block);
      }
    }
    program.call();
  }
  EXPECT_LE(program.wasted(), program.bound());
}

TEST(RollingSize, GrowsWhereOneObjectIsNeverReleased) {
  // Each round writes blocks that a call takes, and one that it does not.
  Program program(4);
  for (int round = 0; round < 1600; ++round) {
    for (const std::size_t block : {0, 1, 2, 3}) {
      program.write(block);
    }
    program.call(1, 4);
  }
  program.call();
  EXPECT_LE(program.wasted(), program.bound());
}

TEST(RollingSize, IsNotConfusedByBlocksThatCannotBeEvicted) {
  Program program(4);
  Block held[2];
  for (Block& block : held) {
    block.holds = 1;
    program.rolling().becameDirty(block);
  }
  for (int store = 0; store < 1000; ++store) {
    program.write(store % 2);
  }
  program.call();
  EXPECT_LE(program.wasted(), 3u);
  for (Block& block : held) {
    program.rolling().leftDirty(block);
  }
}

TEST(RollingSize, FreedObjectsTakeTheirShareWithThem) {
  Program program(100);
  for (int i = 0; i < 1000; ++i) {
    program.rolling().allocated();
    program.rolling().freed();
  }
  writeStreams(program, 1, 10);
  EXPECT_EQ(program.takeEarly(), 98u);
}

TEST(RollingSize, AFreedObjectTakesNothingOfWhatIsNotPaidFor) {
  Program program(8, 2);
  for (int pass = 0; pass < 3; ++pass) {
    for (std::size_t block = 0; block < 8; ++block) {
      program.write(block);
    }
  }
  program.rolling().freed();
  program.call();
  (void)program.takeEarly();
  for (int pass = 0; pass < 3; ++pass) {
    for (std::size_t block = 0; block < 8; ++block) {
      program.write(block);
    }
  }
  EXPECT_EQ(program.takeEarly(), 0u);
}

TEST(RollingSize, AFixedSizeStaysWhateverIsWasted) {
  Program program(4, 1, {.step = 2, .fixed = 3});
  for (int round = 0; round < 100; ++round) {
    for (const std::size_t block : {0, 1, 2, 3}) {
      program.write(block);
    }
  }
  EXPECT_EQ(program.takeEarly(), 400u - 3u);
}

// Phases of random length, each with a pattern of its own, and calls in between: what would make a
// size that only follows the last evidence swing.
TEST(RollingSize, KeepsItsBoundWhateverTheProgramDoes) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const auto upTo = [&](std::size_t most) { return 1 + random() % most; };
    Program program(upTo(200));
    for (int phase = 0; phase < 60; ++phase) {
      const std::size_t used = upTo(program.size());
      const std::size_t streams = upTo(used);
      const std::size_t calls = upTo(8);
      const std::uint64_t kind = random() % 6;
      for (std::size_t call = 0; call < calls; ++call) {
        for (std::size_t store = 0; store < upTo(4 * used); ++store) {
          switch (kind) {
            case 0:  // everywhere
              program.write(random() % used);
              break;
            case 1:  // in order, again and again
              program.write(store % used);
              break;
            case 2:  // streams
              program.write((store % streams) * (used / streams) +
                            (store / streams / 3) % std::max<std::size_t>(1, used / streams));
              break;
            case 3:  // backwards and forwards
              program.write(store / used % 2 == 0 ? used - 1 - store % used : store % used);
              break;
            case 4:  // mostly few
              program.write(random() % (random() % 8 == 0 ? used : std::min<std::size_t>(used, 5)));
              break;
            default:  // a window that moves
              program.write((store / 3 + random() % streams) % used);
              break;
          }
        }
        if (random() % 4 == 0) {
          program.renew(0, upTo(used));
        } else if (random() % 3 == 0) {
          const std::size_t end = upTo(used);
          program.call(random() % end, end);
        } else {
          program.call();
        }
      }
    }
    program.call();
    ASSERT_LE(program.wasted(), program.bound());
  }
}

}  // namespace
}  // namespace gmac
