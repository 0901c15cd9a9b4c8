// SPDX-License-Identifier: Apache-2.0
//
// Small blocks that are opened together: which bytes move, that no byte is lost, and that nothing
// is evicted for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"
#include "tests/support/pattern.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr std::size_t kPiece = 64 * kKiB;
constexpr std::size_t kBytes = 2 * kMiB;

// An object that the CPU has filled with the pattern and a call has taken.
class SmallBlocks : public ::testing::Test {
 protected:
  SmallBlocks() { start(1000); }
  void start(std::size_t rollingSize) {
    machine_.reset();
    MachineSetup setup;
    setup.opensNeighbours = true;
    setup.rollingSize = rollingSize;
    machine_ = std::make_unique<Machine>(setup);
    read_ = fake().kernel("read", 1, [](const LaunchShape&, void**) {});
    a_ = machine_->allocate(kBytes);
    fillWithPattern(a_, kBytes);
    call();
  }
  FakeAccelerator& fake() { return machine_->fake(); }
  std::byte* page(std::size_t number) { return a_ + number * kPage; }
  void write(std::size_t number) { page(number)[5] = std::byte{99}; }
  void read(std::size_t number) { (void)*const_cast<volatile std::byte*>(page(number)); }
  void call() {
    machine_->call(read_, {a_});
    fake().clearLog();
  }
  std::vector<Op> copies() {
    std::vector<Op> found = fake().copies();
    fake().clearLog();
    return found;
  }
  // What a kernel finds, and the CPU after it; byte 5 of these pages was written.
  void expectPattern(const std::vector<std::size_t>& written) {
    std::vector<std::pair<std::size_t, std::byte>> changed;
    for (const std::size_t number : written) {
      changed.emplace_back(number * kPage + 5, std::byte{99});
    }
    testing::expectPattern(*machine_, a_, kBytes, changed);
  }

  std::unique_ptr<Machine> machine_;
  adsmKernel_t read_ = nullptr;
  std::byte* a_ = nullptr;
};

TEST_F(SmallBlocks, TheFourthWriteToAPieceOpensTheRestOfIt) {
  for (const std::size_t number : {3, 6, 11}) {
    write(number);
  }
  EXPECT_THAT(copies(), ElementsAre(copyOut(page(3), kPage), copyOut(page(6), kPage),
                                    copyOut(page(11), kPage)));
  write(8);
  EXPECT_THAT(copies(),
              UnorderedElementsAre(copyOut(page(0), 3 * kPage), copyOut(page(4), 2 * kPage),
                                   copyOut(page(7), 4 * kPage), copyOut(page(12), 4 * kPage)));
  machine_->verify();
  machine_->expectNothingHappens([&] {
    for (std::size_t number = 0; number < 16; ++number) {
      write(number);
    }
  });
  EXPECT_EQ(accessAt(page(16)), os::Access::kNone);
  expectPattern({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
}

TEST_F(SmallBlocks, ReadsOpenTheRestForReading) {
  for (const std::size_t number : {3, 6, 11, 8}) {
    read(number);
  }
  EXPECT_EQ(accessAt(page(0)), os::Access::kRead);
  EXPECT_EQ(accessAt(page(15)), os::Access::kRead);
  EXPECT_EQ(accessAt(page(16)), os::Access::kNone);
  (void)copies();
  machine_->call(read_, {a_});
  EXPECT_THAT(copies(), IsEmpty());
  expectPattern({});
}

TEST_F(SmallBlocks, OneTouchInEachPieceMovesItsBlockAlone) {
  for (int round = 0; round < 3; ++round) {
    for (std::size_t number = 0; number < kBytes / kPage; number += kPiece / kPage) {
      write(number);
      EXPECT_THAT(copies(), ElementsAre(copyOut(page(number), kPage)));
    }
    call();
  }
}

TEST_F(SmallBlocks, AGroupInDenseUseIsOpenedByTheFirstAccessAfterTheNextCalls) {
  for (std::size_t number = 0; number < kBytes / kPage; ++number) {
    write(number);
  }
  for (int round = 0; round < 3; ++round) {
    call();
    write(200);
    EXPECT_THAT(copies(), ElementsAre(copyOut(a_, kBytes)));
  }
  call();
  write(200);
  EXPECT_THAT(copies(), ElementsAre(copyOut(page(200), kPage)));
}

TEST_F(SmallBlocks, NothingIsEvictedForNeighbours) {
  start(10);
  const std::uint64_t evictions = stats().evictions.value();
  for (const std::size_t number : {3, 6, 11, 8}) {
    write(number);
  }
  EXPECT_EQ(stats().evictions.value(), evictions);
  expectPattern({3, 6, 8, 11});
  start(2);
  std::vector<std::size_t> all;
  for (int round = 0; round < 2; ++round) {
    all.clear();
    for (std::size_t number = 0; number < kBytes / kPage; ++number) {
      write(number);
      all.push_back(number);
    }
    EXPECT_THAT(copies(), ::testing::SizeIs(2 * kBytes / kPage - 2));  // each comes and goes alone
    call();
  }
  expectPattern(all);
}

TEST_F(SmallBlocks, AFailedCopyOpensNothingAndIsToldByTheAccess) {
  for (const std::size_t number : {3, 6, 11}) {
    write(number);
  }
  (void)copies();
  fake().failNext(Op::Kind::kCopyOut, 1, adsmErrorAcceleratorLost);
  EXPECT_FALSE(machine_->memory().hold(page(8), 1, coherence::HoldFor::kWrite).ok());
  machine_->verify();
  EXPECT_EQ(accessAt(page(8)), os::Access::kNone);
}

TEST_F(SmallBlocks, ARefusedProtectionLeavesNoBlockInTransit) {
  for (const std::size_t number : {3, 6, 11}) {
    write(number);
  }
  for (int refused = 1; refused <= 4; ++refused) {
    os::failNext(os::Call::kProtect, refused, EIO);
    const bool held = machine_->memory().hold(page(8), 1, coherence::HoldFor::kWrite).ok();
    os::failNext(os::Call::kProtect, 0, 0);
    if (held) {
      machine_->memory().unhold(page(8), 1);
    }
    machine_->verify();
  }
  write(8);
  expectPattern({3, 6, 8, 11});
}

TEST_F(SmallBlocks, ThreadsThatWriteEverywhereLoseNothing) {
  start(0);  // a rolling size that adapts
  constexpr unsigned kThreads = 4;
  std::vector<std::size_t> all(kBytes / kPage);
  std::iota(all.begin(), all.end(), 0);
  for (unsigned round = 0; round < 10; ++round) {
    const auto value = [&](std::size_t number, unsigned thread) {
      return static_cast<std::byte>(3 * number + thread + 5 * round);
    };
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        std::vector<std::size_t> mine = all;
        std::shuffle(mine.begin(), mine.end(), std::mt19937(kThreads * round + thread));
        for (const std::size_t number : mine) {
          page(number)[thread] = value(number, thread);
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    call();
    for (const std::size_t number : all) {
      for (unsigned thread = 0; thread < kThreads; ++thread) {
        ASSERT_EQ(page(number)[thread], value(number, thread)) << number;
      }
    }
    call();
  }
}

}  // namespace
}  // namespace gmac::testing
