// SPDX-License-Identifier: Apache-2.0
//
// Blocks of which the CPU touches a few places become small ones, and large ones again where it
// uses all of them; and no byte is lost.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;

constexpr std::size_t kBlock = 2 * kMiB;
constexpr std::size_t kWindow = 64 * kKiB;
constexpr std::size_t kBytes = 4 * kBlock;

// A kernel adds one to every 32 KiB of an object, the program waits, and the CPU looks at some of
// these words, and adds one.
class Splitting : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr std::size_t kStep = 32 * kKiB;

  Splitting() { start(setup()); }
  static MachineSetup setup() {
    MachineSetup setup;
    setup.blockBytes = kBlock;
    setup.windowBytes = kWindow;
    setup.readAheadBytes = 8 * kMiB;
    setup.opensNeighbours = true;
    setup.splitAfter = 2;
    setup.fake.movedPages = GetParam();
    return setup;
  }
  void start(const MachineSetup& setup, std::size_t bytes = kBytes) {
    machine_.reset();
    machine_ = std::make_unique<Machine>(setup);
    bump_ = fake().kernel("bump", 2, [fake = &fake()](const LaunchShape&, void** args) {
      auto* const data = fake->argument<std::uint8_t>(args, 0);
      const auto bytes = *static_cast<std::size_t*>(args[1]);
      for (std::size_t at = 0; at < bytes; at += kStep) {
        ++data[at];
      }
    });
    allocate(bytes);
  }
  void allocate(std::size_t bytes) {
    bytes_ = bytes;
    a_ = machine_->allocate(bytes);
    std::memset(a_, 7, bytes);
    expected_.assign(bytes, std::byte{7});
  }
  FakeAccelerator& fake() { return machine_->fake(); }
  static std::byte next(std::byte byte) {
    return static_cast<std::byte>(std::to_integer<int>(byte) + 1);
  }
  void call() {
    machine_->call(bump_, {a_, reinterpret_cast<const void*>(bytes_)});
    for (std::size_t at = 0; at < bytes_; at += kStep) {
      expected_[at] = next(expected_[at]);
    }
  }
  // What was moved, both ways.
  std::size_t round(const std::vector<std::size_t>& places, bool write = true) {
    call();
    machine_->sync();
    const std::uint64_t before = moved();
    for (const std::size_t at : places) {
      volatile std::byte& byte = a_[at];
      EXPECT_TRUE(byte == expected_[at]) << at;
      if (write) {
        byte = expected_[at] = next(expected_[at]);
      }
    }
    machine_->verify();
    return moved() - before;
  }
  std::size_t rounds(int count, const std::vector<std::size_t>& places, bool write = true) {
    std::size_t moved = 0;
    for (int i = 0; i < count; ++i) {
      moved = round(places, write);
    }
    return moved;
  }
  void expectAll() {
    machine_->sync();
    EXPECT_EQ(std::memcmp(a_, expected_.data(), bytes_), 0);
    machine_->verify();
  }
  // Two words of each block, far from each other.
  static std::vector<std::size_t> few() {
    std::vector<std::size_t> places;
    for (std::size_t block = 0; block < kBytes; block += kBlock) {
      places.push_back(block);
      places.push_back(block + kBlock / 2);
    }
    return places;
  }
  static std::vector<std::size_t> every(std::size_t step) {
    std::vector<std::size_t> places;
    for (std::size_t at = 0; at < kBytes; at += step) {
      places.push_back((at * 37) % kBytes);  // not in order
    }
    return places;
  }
  static std::uint64_t moved() {
    return stats().bytesToHost.value() + stats().bytesToAccelerator.value();
  }
  static std::uint64_t splits() { return stats().splits.value(); }

  std::unique_ptr<Machine> machine_;
  adsmKernel_t bump_ = nullptr;
  std::byte* a_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<std::byte> expected_;
};

TEST_P(Splitting, AFewWordsOfLargeBlocksMoveLittle) {
  const std::uint64_t before = splits();
  EXPECT_GE(round(few()), kBytes / 2);
  rounds(20, few());
  EXPECT_EQ(splits(), before + 1);
  EXPECT_LE(round(few()), few().size() * kWindow);
  expectAll();
}

TEST_P(Splitting, TheBlocksAreLargeAgainWhereTheCpuUsesAllOfThem) {
  rounds(20, few());
  const std::uint64_t before = splits();
  const auto all = every(kStep);
  rounds(4, all);
  // A fault for each block then.
  const std::uint64_t faults = stats().readFaults.value() + stats().writeFaults.value();
  const int count = 100;
  rounds(count, all);
  const std::uint64_t after = stats().readFaults.value() + stats().writeFaults.value();
  EXPECT_LE(after - faults, std::uint64_t{count} * (2 * kBytes / kBlock + 2));
  const std::uint64_t wrong = splits();
  EXPECT_LE(wrong, before + 2) << "ever more rarely";
  expectAll();
}

TEST_P(Splitting, SoTheyAreWhereItOnlyReads) {
  rounds(20, few());
  const auto all = every(kStep);
  rounds(4, all, false);
  const std::uint64_t faults = stats().readFaults.value();
  const int count = 100;
  rounds(count, all, false);
  EXPECT_LE(stats().readFaults.value() - faults, std::uint64_t{count} * (kBytes / kBlock + 2));
  expectAll();
}

// More groups than are looked at first, and more places than are read back.
TEST_P(Splitting, ALargeObjectStaysSplit) {
  constexpr std::size_t kLarge = 16 * kBlock;
  start(setup(), kLarge);
  const std::uint64_t before = splits();
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < kLarge; at += kBlock / 4) {
    places.push_back(at);
  }
  rounds(60, places);
  EXPECT_EQ(splits(), before + 1);
  EXPECT_LE(round(places), 2 * places.size() * kWindow);
  expectAll();
}

// As long as some of it is open, the object stays as it is.
TEST_P(Splitting, WhatTheCpuHasStaysOpen) {
  const std::uint64_t before = splits();
  for (int i = 0; i < 20; ++i) {
    call();
    for (const std::size_t at : few()) {  // waits for the kernel
      volatile std::byte& byte = a_[at];
      EXPECT_TRUE(byte == expected_[at]) << at;
    }
    machine_->sync();
    machine_->verify();
  }
  EXPECT_EQ(splits(), before);
  rounds(20, few());
  EXPECT_EQ(splits(), before + 1);
  expectAll();
}

TEST_P(Splitting, AnObjectThatIsFreedIsInNoListWhereItsMemoryIsKept) {
  MachineSetup keeps = setup();
  keeps.keptBytes = 2 * kBytes;
  start(keeps);
  const std::uint64_t before = splits();
  for (int i = 0; i < 20; ++i) {
    call();
    for (const std::size_t at : few()) {
      EXPECT_EQ(a_[at], expected_[at]);
    }
  }
  machine_->free(a_);
  allocate(kBytes);
  machine_->sync();
  EXPECT_EQ(splits(), before);
  rounds(20, few());
  EXPECT_EQ(splits(), before + 1);
  expectAll();
}

TEST_P(Splitting, SoAreThoseOfASmallObject) {
  start(setup(), kMiB + kPage);
  const std::uint64_t before = splits();
  rounds(60, {0, kMiB});
  EXPECT_EQ(splits(), before + 1);
  EXPECT_LE(round({0, kMiB}), 3 * kWindow);
  expectAll();
}

// Bulk operations open block by block what they overwrite, and fetch nothing: small blocks are
// worse for them, too.
TEST_P(Splitting, TheyAreJoinedWhereAllIsOverwritten) {
  rounds(20, few());
  const std::uint64_t before = splits();
  const std::vector<std::byte> bytes(kBytes, std::byte{3});
  const auto overwrite = [&] {
    machine_->memory().copy(a_, bytes.data(), kBytes, &std::memmove);
    expected_ = bytes;
    call();
    machine_->sync();
    machine_->verify();
  };
  for (int i = 0; i < 3; ++i) {
    overwrite();
  }
  // (Windows of large blocks are tried again.)
  const std::uint64_t windows = stats().windows.value();
  rounds(4, {0});
  EXPECT_GT(stats().windows.value(), windows);
  EXPECT_EQ(splits(), before);
  expectAll();
}

// An object of split blocks gets one copy, and two again.
TEST_P(Splitting, OneCopyHasThemToo) {
  MachineSetup one = setup();
  one.fake.movableMemory = true;
  one.fake.zeroCopy = true;
  one.zeroCopy.limits = {.leastRounds = 32, .longest = UINT64_MAX, .few = SIZE_MAX};
  one.zeroCopy.prompt = {.leastRounds = UINT32_MAX};
  one.clock = [] { return std::uint64_t{1}; };
  start(one, kBlock);
  const std::uint64_t before = splits();
  const std::uint64_t moved = stats().zeroCopies.value();
  rounds(12, {0, kBlock / 2});
  EXPECT_EQ(splits(), before + 1);
  rounds(100, {0});
  EXPECT_EQ(stats().zeroCopies.value(), moved + 1);
  rounds(300, {0, kBlock / 2});
  expectAll();
  const std::uint64_t ended = stats().zeroCopiesEnded.value();
  for (int i = 0; i < 1000 && stats().zeroCopiesEnded.value() == ended; ++i) {
    call();
    machine_->sync();
  }
  EXPECT_EQ(stats().zeroCopiesEnded.value(), ended + 1);
  rounds(12, {0, kBlock / 2});
  expectAll();
}

// A program that uses all of its data at random looks like one that touches a few places. The split
// costs it the faults of two groups.
TEST_P(Splitting, AWrongOneCostsFewFaults) {
  constexpr std::size_t kLarge = 16 * kBlock;
  start(setup(), kLarge);
  const std::uint64_t before = splits();
  std::mt19937_64 random(1);
  for (int i = 0; i < 12; ++i) {
    const std::uint64_t faults = stats().readFaults.value();
    for (std::size_t access = 0; access < kLarge / kStep * 16; ++access) {
      const std::size_t at = random() % kLarge;
      volatile std::byte& byte = a_[at];
      ASSERT_TRUE(byte == expected_[at]) << at;
    }
    EXPECT_LE(stats().readFaults.value() - faults, kLarge / kBlock + 40) << i;
    call();
    machine_->sync();
    machine_->verify();
  }
  EXPECT_GT(splits(), before);
}

TEST_P(Splitting, ARunOfNeighboursIsNoEvidence) {
  const std::uint64_t before = splits();
  std::vector<std::size_t> run;
  for (std::size_t at = 0; at < kBytes; at += kStep) {
    run.push_back(at);
  }
  rounds(60, run);
  EXPECT_EQ(splits(), before);
  expectAll();
}

INSTANTIATE_TEST_SUITE_P(Mirrors, Splitting, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "moved" : "file"; });

}  // namespace
}  // namespace gmac::testing
