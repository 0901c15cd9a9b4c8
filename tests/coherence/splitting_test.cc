// SPDX-License-Identifier: Apache-2.0
//
// Blocks of which the CPU touches a few places become small ones, and large ones again where it
// uses all of them; and no byte is lost.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gmac/observe/stats.h"
#include "tests/support/manager_fixture.h"

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
    setup.opensNeighbours = true;
    setup.splitAfter = 2;
    setup.fake.movedPages = GetParam();
    return setup;
  }
  void start(const MachineSetup& setup, std::size_t bytes = kBytes) {
    machine_.reset();
    machine_ = std::make_unique<ManagerUnderTest>(setup);
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
  std::size_t rounds(int count, const std::vector<std::size_t>& places) {
    std::size_t moved = 0;
    for (int i = 0; i < count; ++i) {
      moved = round(places);
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

  std::unique_ptr<ManagerUnderTest> machine_;
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
  // And small ones once more.
  for (int i = 0; i < 400 && splits() == wrong; ++i) {
    round(few());
  }
  EXPECT_EQ(splits(), wrong + 1);
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
  call();
  machine_->sync();
  EXPECT_EQ(splits(), before + 1);
  expectAll();
}

TEST_P(Splitting, AnObjectThatIsFreedIsInNoList) {
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

// Lazy-update has one block for an object, whatever comes.
TEST_P(Splitting, WholeObjectsStayWhole) {
  MachineSetup lazy = setup();
  lazy.protocol = "lazy";
  start(lazy);
  const std::uint64_t before = splits();
  rounds(60, few());
  EXPECT_EQ(splits(), before);
  expectAll();
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
