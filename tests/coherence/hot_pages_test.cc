// SPDX-License-Identifier: Apache-2.0
//
// Pages of a large object that have one copy, as where a program keeps its small arrays in one
// allocation: when they get it, that the rest of the object goes on as ever, and how it ends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmac/coherence/device_memory_port.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"
#include "tests/support/other_thread.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kHot = 2 * kMiB;  // a page
constexpr std::size_t kBytes = 8 * kHot;
constexpr std::size_t kBlock = 64 * kKiB;
constexpr std::uint32_t kRounds = 4;  // that move a page

// A pool of 16 MiB. In each round a kernel adds one to some of its bytes, the program waits, and
// the CPU adds one.
class HotPagesOf : public ::testing::TestWithParam<bool> {
 protected:
  HotPagesOf() { start(setup()); }
  static MachineSetup setup() {
    MachineSetup setup;
    setup.blockBytes = kBlock;
    setup.windowBytes = kBlock;
    setup.readAheadBytes = 8 * kMiB;
    setup.fake.movedPages = GetParam();
    setup.fake.movableMemory = true;
    setup.fake.zeroCopy = true;
    // However busy the machine is.
    setup.zeroCopy.limits = {.leastRounds = kRounds,
                             .longest = UINT64_MAX,
                             .slack = std::uint64_t{3600} * 1'000'000'000,
                             .few = SIZE_MAX};
    setup.zeroCopy.prompt = {.leastRounds = UINT32_MAX};
    setup.clock = [] { return std::uint64_t{1}; };
    return setup;
  }
  void start(const MachineSetup& setup) {
    machine_.reset();
    machine_ = std::make_unique<Machine>(setup);
    bump_ = fake().kernel("bump", 1, [fake = &fake()](const LaunchShape&, void** args) {
      ++*fake->argument<std::uint8_t>(args, 0);
    });
    pool_ = machine_->allocate(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) {
      pool_[i] = patternAt(i);
    }
    expected_.assign(kBytes, std::byte{0});
    for (std::size_t i = 0; i < kBytes; ++i) {
      expected_[i] = patternAt(i);
    }
  }
  static std::byte patternAt(std::size_t i) { return static_cast<std::byte>(i * 7 + i / 251); }
  FakeAccelerator& fake() { return machine_->fake(); }
  void round(const std::vector<std::size_t>& offsets) {
    for (const std::size_t offset : offsets) {
      machine_->call(bump_, {pool_ + offset});
      add(offset);
    }
    machine_->sync();
    for (const std::size_t offset : offsets) {
      volatile std::byte& byte = pool_[offset];
      ASSERT_TRUE(byte == expected_[offset]) << offset;
      add(offset);
      byte = expected_[offset];
    }
    machine_->verify();
  }
  void add(std::size_t offset) {
    expected_[offset] = static_cast<std::byte>(static_cast<unsigned>(expected_[offset]) + 1);
  }
  // So many that the pages of some bytes, which are pages of their own, have one copy, and are
  // opened at waits.
  void heat(const std::vector<std::size_t>& offsets, std::size_t hot = 0) {
    const std::uint64_t wanted = moved() + offsets.size() - hot;
    for (int i = 0; i < 60 && moved() < wanted; ++i) {
      ASSERT_NO_FATAL_FAILURE(round(offsets));
    }
    ASSERT_EQ(moved(), wanted);
    for (int i = 0; i < 4; ++i) {
      ASSERT_NO_FATAL_FAILURE(round(offsets));
    }
  }
  void expectAll() {
    for (std::size_t i = 0; i < kBytes; ++i) {
      ASSERT_EQ(pool_[i], expected_[i]) << i;
    }
  }
  static std::uint64_t faults() { return stats().readFaults.value() + stats().writeFaults.value(); }
  static std::uint64_t moved() { return stats().zeroCopies.value(); }
  static std::uint64_t ended() { return stats().zeroCopiesEnded.value(); }
  std::vector<Op> moves() { return fake().log({Op::Kind::kMove}); }
  Op pageMoved(std::size_t offset, accel::Home home) const {
    return {Op::Kind::kMove,
            reinterpret_cast<std::uintptr_t>(pool_ + offset),
            kHot,
            {},
            static_cast<std::uintptr_t>(home)};
  }
  static void* moveBytes(void* to, const void* from, std::size_t bytes) {
    return std::memmove(to, from, bytes);
  }

  std::unique_ptr<Machine> machine_;
  adsmKernel_t bump_ = nullptr;
  std::byte* pool_ = nullptr;
  std::vector<std::byte> expected_;
};

TEST_P(HotPagesOf, OnlyThatPageMovesAndNothingIsCopiedAnyMore) {
  fake().clearLog();
  ASSERT_NO_FATAL_FAILURE(heat({3 * kHot + 1000}));
  EXPECT_THAT(moves(), ElementsAre(pageMoved(3 * kHot, accel::Home::kMirror)));
  fake().clearLog();
  const std::uint64_t before = faults();
  for (int i = 0; i < 32; ++i) {
    ASSERT_NO_FATAL_FAILURE(round({3 * kHot + 1000}));
  }
  EXPECT_LE(faults() - before, 8U);
  // Other arrays in the page, too.
  ASSERT_NO_FATAL_FAILURE(round({3 * kHot, 4 * kHot - 1}));
  EXPECT_THAT(fake().copies(), IsEmpty());
  expectAll();
}

// All arrays of the page, without a fault and a copy.
TEST_P(HotPagesOf, KernelsOfAStreamAndTheCpuUseItAtOnce) {
  MachineSetup managed = setup();
  managed.managed = true;
  start(managed);
  constexpr accel::NativeStream kStream{3};
  const auto use = [&](const std::vector<std::size_t>& offsets) {
    (void)machine_->launch(kStream, [this, offsets] {
      for (const std::size_t offset : offsets) {
        ++*fake().at(reinterpret_cast<std::uint8_t*>(pool_ + offset));
      }
    });
    const coherence::DeviceWait wait = machine_->work().beforeDeviceWait(std::nullopt);
    fake().runAll();
    ASSERT_TRUE(machine_->work().afterDeviceWait(wait).ok());
    for (const std::size_t offset : offsets) {
      add(offset);
      ASSERT_TRUE(pool_[offset] == expected_[offset]) << offset;
      add(offset);
      pool_[offset] = expected_[offset];
    }
    machine_->verify();
  };
  for (int i = 0; i < 40; ++i) {
    ASSERT_NO_FATAL_FAILURE(use({3 * kHot + 1000}));
  }
  machine_->expectNothingHappens([&] {
    for (std::size_t i = 0; i < 4; ++i) {
      ASSERT_NO_FATAL_FAILURE(use({3 * kHot + i * 300000, 4 * kHot - 1 - i * 200000}));
    }
  });
  expectAll();
}

// The program stores before each launch, in bytes that no kernel uses, and waits for none.
TEST_P(HotPagesOf, TurnsThatNothingWaitsForMoveIt) {
  std::uint64_t now = 1;
  MachineSetup managed = setup();
  managed.managed = true;
  managed.clock = [&now] { return now; };
  start(managed);
  constexpr accel::NativeStream kStream{3};
  fake().clearLog();
  constexpr std::size_t kAt = 3 * kHot + 1000;
  const std::uint64_t before = moved();
  int turns = 0;
  for (; turns < 1000 && moved() == before; ++turns) {
    now += 30'000;
    add(kAt + 1);
    pool_[kAt + 1] = expected_[kAt + 1];
    (void)machine_->launch(kStream,
                           [this] { ++*fake().at(reinterpret_cast<std::uint8_t*>(pool_ + kAt)); });
    add(kAt);
  }
  EXPECT_LE(turns, 140);
  EXPECT_THAT(moves(), ElementsAre(pageMoved(3 * kHot, accel::Home::kMirror)));
  expectAll();
}

// Two threads come for a page, and wait at once: both announce its round, which ends with the
// first.
TEST_P(HotPagesOf, ARoundThatTwoWaitsAnnounceCounts) {
  MachineSetup managed = setup();
  managed.managed = true;
  start(managed);
  constexpr accel::NativeStream kStream{3};
  constexpr std::size_t kAt = 3 * kHot + 1000;
  OtherThread other;
  const std::uint64_t before = moved();
  for (int i = 0; i < 20 && moved() == before; ++i) {
    pool_[kAt] = expected_[kAt];
    other.does([&] { pool_[kAt + 2 * kBlock] = expected_[kAt + 2 * kBlock]; });
    (void)machine_->launch(kStream,
                           [this] { ++*fake().at(reinterpret_cast<std::uint8_t*>(pool_ + kAt)); });
    add(kAt);
    std::array<coherence::DeviceWait, 2> waits;
    waits[0] = machine_->work().beforeDeviceWait(std::nullopt);
    other.does([&] { waits[1] = machine_->work().beforeDeviceWait(std::nullopt); });
    fake().runAll();
    ASSERT_TRUE(machine_->work().afterDeviceWait(waits[0]).ok());
    other.does([&] { EXPECT_TRUE(machine_->work().afterDeviceWait(waits[1]).ok()); });
  }
  EXPECT_EQ(moved(), before + 1);
  expectAll();
}

// An access would wait for the call also where the page had one copy.
TEST_P(HotPagesOf, TurnsOfACallsProgramMoveNone) {
  const std::uint64_t before = moved();
  constexpr std::size_t kAt = 3 * kHot + 1000;
  for (int turn = 0; turn < 300; ++turn) {
    add(kAt + 1);
    pool_[kAt + 1] = expected_[kAt + 1];
    machine_->call(bump_, {pool_ + kAt});
    add(kAt);
  }
  EXPECT_EQ(moved(), before);
  expectAll();
}

TEST_P(HotPagesOf, SeveralMoveTheFirstAndTheLastAndNeighbours) {
  ASSERT_NO_FATAL_FAILURE(heat({5, 3 * kHot + 5, 4 * kHot + 5, 7 * kHot + 5}));
  fake().clearLog();
  for (int i = 0; i < 16; ++i) {
    ASSERT_NO_FATAL_FAILURE(round({5, 3 * kHot + 9, 4 * kHot, 7 * kHot + 77}));
  }
  EXPECT_THAT(fake().copies(), IsEmpty());
  expectAll();
}

// In each round for all of them, and never in the same order.
TEST_P(HotPagesOf, TheCpuMayComeForThemInAnyOrder) {
  std::vector<std::size_t> offsets{5, 2 * kHot + 5, 5 * kHot + 5};
  const std::uint64_t before = moved();
  for (int i = 0; i < 60 && moved() < before + 3; ++i) {
    ASSERT_NO_FATAL_FAILURE(round(offsets));
    std::next_permutation(offsets.begin(), offsets.end());
  }
  EXPECT_EQ(moved(), before + 3);
  expectAll();
}

// All of a few pages may be used by the CPU; of an object that it uses as a whole none moves.
TEST_P(HotPagesOf, TheyStayWhereTheCpuUsesAllOfMany) {
  for (const std::size_t pages : {6, 4}) {
    const std::uint64_t before = moved();
    for (int i = 0; i < 30; ++i) {
      machine_->call(bump_, {pool_ + 2 * kHot});
      add(2 * kHot);
      machine_->sync();
      for (std::size_t at = 2 * kHot; at < (2 + pages) * kHot; at += kBlock / 2) {
        ASSERT_EQ(pool_[at], expected_[at]) << at;
        add(at);
        pool_[at] = expected_[at];
      }
      machine_->verify();
    }
    EXPECT_EQ(moved() - before, pages == 4 ? 4U : 0U);
    expectAll();
  }
}

// Each waits for its own stream, whatever others have under way.
TEST_P(HotPagesOf, ThreadsMayHaveOneEach) {
  constexpr std::size_t kThreads = 4;
  constexpr std::uint32_t kMostRounds = 20'000;
  MachineSetup busy = setup();
  busy.managed = true;
  busy.zeroCopy.limits = {};
  // Time passes as the program goes on, however busy the machine is.
  auto clock = std::make_shared<std::atomic<std::uint64_t>>(1);
  busy.clock = [clock] { return clock->fetch_add(500) + 500; };
  start(busy);
  std::atomic<bool> ends{false};
  std::thread device([&] {
    while (!ends) {
      fake().runAll();
      std::this_thread::yield();
    }
  });
  const std::uint64_t before = moved();
  const std::uint64_t endedBefore = ended();
  const auto allMoved = [&] { return moved() - before == kThreads + ended() - endedBefore; };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const accel::NativeStream stream{static_cast<std::uintptr_t>(10 + i)};
      std::byte* const at = pool_ + 2 * i * kHot;
      auto* const word = reinterpret_cast<volatile std::uint32_t*>(at);
      std::atomic<std::uint32_t> ran{0};
      for (std::uint32_t round = 1; round <= kMostRounds && !allMoved(); ++round) {
        *word = 2 * round;
        (void)machine_->launch(stream, [this, &ran, round, at] {
          ++*fake().at(reinterpret_cast<std::uint32_t*>(at));
          ran = round;
        });
        const coherence::DeviceWait wait = machine_->work().beforeDeviceWait(stream);
        while (ran != round) {
          std::this_thread::yield();
        }
        EXPECT_TRUE(machine_->work().afterDeviceWait(wait).ok());
        ASSERT_EQ(*word, 2 * round + 1);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  ends = true;
  device.join();
  EXPECT_TRUE(allMoved()) << moved() - before << " moved, " << ended() - endedBefore << " back";
  machine_->verify();
}

// Its thread has ended, or waits for something else for long; others go on.
TEST_P(HotPagesOf, ItGoesBackWhereItsThreadComesNoMore) {
  for (const bool destroyed : {true, false}) {
    MachineSetup managed = setup();
    managed.managed = true;
    start(managed);
    const auto once = [&](accel::NativeStream stream, std::size_t offset) {
      std::byte* const at = pool_ + offset;
      auto* const word = reinterpret_cast<volatile std::uint8_t*>(at);
      *word = static_cast<std::uint8_t>(*word + 1);
      (void)machine_->launch(stream,
                             [this, at] { ++*fake().at(reinterpret_cast<std::uint8_t*>(at)); });
      const coherence::DeviceWait wait = machine_->work().beforeDeviceWait(stream);
      fake().runAll();
      ASSERT_TRUE(machine_->work().afterDeviceWait(wait).ok());
      add(offset);
      add(offset);
      EXPECT_EQ(std::byte{*word}, expected_[offset]);
    };
    const std::uint64_t movedBefore = moved();
    std::thread([&] {
      for (int i = 0; i < 40; ++i) {
        once(accel::NativeStream{10}, 2 * kHot + 64);
      }
    }).join();
    ASSERT_EQ(moved(), movedBefore + 1);
    if (destroyed) {
      machine_->work().streamDestroyed(accel::NativeStream{10});
    }
    // By turns, each in a thread of its own.
    const std::uint64_t endedBefore = ended();
    std::atomic<int> turn{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        const int most = destroyed ? 2000 : 40'000;
        for (int next = i; next < most; next += 2) {
          while (turn.load() != next) {
            std::this_thread::yield();
          }
          if (ended() == endedBefore) {
            const accel::NativeStream stream{static_cast<std::uintptr_t>(11 + i)};
            (void)machine_->launch(stream, [] {});
            const auto wait = machine_->work().beforeDeviceWait(stream);
            fake().runAll();
            EXPECT_TRUE(machine_->work().afterDeviceWait(wait).ok());
          }
          turn.store(next + 1);
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(ended(), endedBefore + 1) << destroyed;
    expectAll();
  }
}

// So may those of a small object, in a program for managed memory.
TEST_P(HotPagesOf, TheCpuMayComeForManyPlacesOfASmallObject) {
  for (const bool managed : {true, false}) {
    MachineSetup several = setup();
    several.managed = managed;
    start(several);
    constexpr accel::NativeStream kStream{3};
    std::byte* const small = machine_->allocate(kHot);
    std::memset(small, 0, kHot);
    const std::uint64_t before = moved();
    unsigned value = 0;
    const auto rounds = [&](std::size_t step) {
      for (unsigned i = 0; i < 3 * kRounds && moved() == before; ++i) {
        const std::size_t first = std::size_t{i} * (kBlock + 100);
        for (std::size_t at = first; at < kHot; at += step) {
          small[at] = static_cast<std::byte>(value);
          (void)machine_->launch(
              kStream, [&, at] { ++*fake().at(reinterpret_cast<std::uint8_t*>(small + at)); });
          fake().runAll();
        }
        const coherence::DeviceWait wait = machine_->work().beforeDeviceWait(kStream);
        ASSERT_TRUE(machine_->work().afterDeviceWait(wait).ok());
        ++value;
        for (std::size_t at = first; at < kHot; at += step) {
          ASSERT_EQ(small[at], static_cast<std::byte>(value)) << at;
        }
      }
    };
    rounds(kHot);
    EXPECT_EQ(moved(), before) << "once in a round";
    rounds(5 * kBlock);
    EXPECT_EQ(moved(), before + (managed ? 1 : 0));
  }
}

// Launches may take its bytes many times in a round.
TEST_P(HotPagesOf, ALongRoundOfManyLaunchesCounts) {
  MachineSetup timed = setup();
  auto clock = std::make_shared<std::atomic<std::uint64_t>>(1);
  timed.zeroCopy.limits = {.leastRounds = kRounds,
                           .longest = 300'000,
                           .each = 60'000,
                           .slack = std::uint64_t{3600} * 1'000'000'000,
                           .few = SIZE_MAX};
  timed.clock = [clock] { return clock->load(); };
  timed.managed = true;
  start(timed);
  constexpr accel::NativeStream kStream{3};
  const auto rounds = [&](std::uint64_t nanoseconds) {
    for (int i = 0; i < 30; ++i) {
      for (std::size_t word = 0; word < 16; ++word) {
        std::byte* const at = pool_ + word * kBlock;
        add(word * kBlock);
        *at = expected_[word * kBlock];
        (void)machine_->launch(kStream,
                               [this, at] { ++*fake().at(reinterpret_cast<std::uint8_t*>(at)); });
        add(word * kBlock);
        fake().runAll();
        clock->fetch_add(nanoseconds);
      }
      const coherence::DeviceWait wait = machine_->work().beforeDeviceWait(kStream);
      ASSERT_TRUE(machine_->work().afterDeviceWait(wait).ok());
    }
  };
  const std::uint64_t before = moved();
  rounds(100'000);
  EXPECT_EQ(moved(), before) << "longer than copies take";
  rounds(50'000);
  EXPECT_EQ(moved(), before + 1);
  expectAll();
}

// At each wait another thread has come for the page last.
TEST_P(HotPagesOf, ThreadsMayShareOne) {
  MachineSetup managed = setup();
  managed.managed = true;
  start(managed);
  const std::uint64_t before = moved();
  std::atomic<int> turn{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      const accel::NativeStream stream{static_cast<std::uintptr_t>(10 + i)};
      std::byte* const at = pool_ + 2 * kHot + static_cast<std::size_t>(i) * 4096;
      auto* const word = reinterpret_cast<volatile std::uint8_t*>(at);
      std::uint8_t value = *word;
      for (int round = 0; round < 10 * static_cast<int>(kRounds); ++round) {
        while (turn.load() != 2 * round + i) {
          std::this_thread::yield();
        }
        const coherence::DeviceWait wait = machine_->work().beforeDeviceWait(stream);
        fake().runAll();
        EXPECT_TRUE(machine_->work().afterDeviceWait(wait).ok());
        EXPECT_EQ(*word, value);
        *word = ++value;
        (void)machine_->launch(stream,
                               [this, at] { ++*fake().at(reinterpret_cast<std::uint8_t*>(at)); });
        ++value;
        turn.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  fake().runAll();
  EXPECT_EQ(moved(), before + 1);
}

TEST_P(HotPagesOf, TheRestGoesOnAsBefore) {
  ASSERT_NO_FATAL_FAILURE(heat({2 * kHot + 64}));
  for (int i = 0; i < 6; ++i) {
    // Before, over, and after the page; each is read by the CPU after a kernel.
    for (const std::size_t offset : {2 * kHot - 1, 2 * kHot, 3 * kHot - 1, 3 * kHot}) {
      ASSERT_NO_FATAL_FAILURE(round({offset}));
    }
    ASSERT_NO_FATAL_FAILURE(round({2 * kHot + 64, kHot / 2, 5 * kHot}));
    ASSERT_NO_FATAL_FAILURE(expectAll());
  }
}

TEST_P(HotPagesOf, BulkMemoryCrossesItsBorders) {
  ASSERT_NO_FATAL_FAILURE(heat({2 * kHot + 64}));
  std::byte* const other = machine_->allocate(kBytes);
  std::memset(other, 0x31, kBytes);
  machine_->memory().copy(other + 17, pool_ + kHot, 3 * kHot, moveBytes);
  EXPECT_EQ(std::memcmp(other + 17, expected_.data() + kHot, 3 * kHot), 0);
  // Within the pool, forwards and backwards, with ranges that overlap.
  machine_->call(bump_, {pool_ + 2 * kHot + 1});
  add(2 * kHot + 1);
  for (const auto& [to, from] : std::vector<std::pair<std::size_t, std::size_t>>{
           {kHot + 3, 2 * kHot + 1}, {2 * kHot + 1, kHot + 5}, {2 * kHot + 9, 2 * kHot}}) {
    machine_->memory().copy(pool_ + to, pool_ + from, kHot + 4096, moveBytes);
    std::memmove(expected_.data() + to, expected_.data() + from, kHot + 4096);
    machine_->call(bump_, {pool_ + to});
    add(to);
    machine_->verify();
  }
  machine_->memory().fill(
      pool_ + 2 * kHot - 10, 9, kHot + 20,
      [](void* to, int value, std::size_t bytes) { return std::memset(to, value, bytes); });
  std::memset(expected_.data() + 2 * kHot - 10, 9, kHot + 20);
  expectAll();
}

TEST_P(HotPagesOf, HoldsAndQuestionsCrossItsBorders) {
  ASSERT_NO_FATAL_FAILURE(heat({2 * kHot + 64}));
  machine_->call(bump_, {pool_ + 2 * kHot});
  add(2 * kHot);
  ASSERT_TRUE(machine_->memory().hold(pool_ + kHot, 3 * kHot, coherence::HoldFor::kWrite).ok());
  EXPECT_EQ(std::memcmp(pool_ + kHot, expected_.data() + kHot, 3 * kHot), 0);
  machine_->verify();
  machine_->memory().unhold(pool_ + kHot, 3 * kHot);
  bool shared = false;
  EXPECT_EQ(machine_->memory().sharedPrefix(pool_ + kHot, 3 * kHot, &shared), kHot);
  EXPECT_TRUE(shared);
  EXPECT_EQ(machine_->memory().sharedPrefix(pool_ + 2 * kHot + 5, 3 * kHot, &shared), kHot - 5);
  EXPECT_EQ(machine_->memory().sharedPrefix(pool_ + 3 * kHot, kBytes, &shared), 5 * kHot);
  machine_->call(bump_, {pool_ + kHot});
  add(kHot);
  machine_->sync();
  // No place has bytes on both sides of a border.
  for (const std::size_t offset : {kHot, 2 * kHot, 2 * kHot + 100, 3 * kHot, 3 * kHot + 5}) {
    const coherence::Place place = machine_->memory().placeOf(pool_ + offset, kBytes - offset);
    const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(pool_) + 2 * kHot;
    const bool inside = place.begin >= page && place.end <= page + kHot;
    const bool outside = place.end <= page || place.begin >= page + kHot;
    EXPECT_TRUE(inside || outside) << offset;
    EXPECT_EQ(inside, offset >= 2 * kHot && offset < 3 * kHot) << offset;
  }
  expectAll();
}

TEST_P(HotPagesOf, ItEndsWhereTheCpuComesNoMore) {
  ASSERT_NO_FATAL_FAILURE(heat({2 * kHot + 64}));
  const std::uint64_t before = ended();
  fake().clearLog();
  for (int i = 0; i < 30; ++i) {
    machine_->call(bump_, {pool_ + 2 * kHot + 64});
    add(2 * kHot + 64);
    machine_->sync();
  }
  EXPECT_EQ(ended(), before + 1);
  EXPECT_THAT(moves(), ElementsAre(pageMoved(2 * kHot, accel::Home::kDevice)));
  expectAll();
  // It may have one copy again, after more rounds.
  ASSERT_NO_FATAL_FAILURE(heat({2 * kHot + 64}));
  expectAll();
}

TEST_P(HotPagesOf, APageThatCannotMoveStaysAndIsNotAskedForAgain) {
  fake().failNext(Op::Kind::kMove, 1, adsmErrorHostMemory);
  const std::uint64_t before = moved();
  fake().clearLog();
  for (int i = 0; i < 60; ++i) {
    ASSERT_NO_FATAL_FAILURE(round({2 * kHot + 64}));
  }
  EXPECT_EQ(moved(), before);
  EXPECT_THAT(moves(), ElementsAre(pageMoved(2 * kHot, accel::Home::kMirror)));
  expectAll();
}

TEST_P(HotPagesOf, FreeingThePoolBringsItsPagesBackFirst) {
  ASSERT_NO_FATAL_FAILURE(heat({64, 2 * kHot + 64}));
  machine_->call(bump_, {pool_ + 64});
  fake().clearLog();
  machine_->free(pool_);
  EXPECT_THAT(moves(), ElementsAre(pageMoved(0, accel::Home::kDevice),
                                   pageMoved(2 * kHot, accel::Home::kDevice)));
}

TEST_P(HotPagesOf, MemoryThatIsUsedAgainIsZero) {
  MachineSetup keeping = setup();
  keeping.keptBytes = 4 * kBytes;
  start(keeping);
  ASSERT_NO_FATAL_FAILURE(heat({2 * kHot + 64}));
  std::byte* const other = machine_->allocate(kBytes);
  machine_->free(pool_);
  pool_ = machine_->allocate(kBytes);
  expected_.assign(kBytes, std::byte{0});
  expectAll();
  ASSERT_NO_FATAL_FAILURE(heat({2 * kHot + 64}));
  machine_->free(other);
}

// The driver refuses what lies in both.
TEST_P(HotPagesOf, WorkThatNamesARangeOverItsBorderHasOneKindOfMemory) {
  constexpr accel::NativeStream kStream{3};
  for (const bool own : {false, true}) {
    ASSERT_NO_FATAL_FAILURE(heat({2 * kHot + 64}));
    fake().clearLog();
    // A copy inside the page, and one beside it, leave it.
    for (const coherence::DeviceRange range :
         {coherence::DeviceRange{pool_ + 2 * kHot, kHot, true},
          coherence::DeviceRange{pool_ + 3 * kHot, kHot, true},
          coherence::DeviceRange{pool_ + 3 * kHot - 1, 2, true}}) {
      EXPECT_THAT(moves(), IsEmpty());
      if (own) {
        ASSERT_TRUE(machine_->work().beginOwnWork({&range, 1}).ok());
        const auto filled =
            fake().fill(accel::DeviceAddress{reinterpret_cast<std::uintptr_t>(range.address)},
                        std::byte{5}, range.bytes);
        ASSERT_TRUE(filled.ok());
        ASSERT_TRUE(machine_->work().endOwnWork({&range, 1}, *filled).ok());
      } else {
        ASSERT_TRUE(machine_->work().beginDeviceWork(kStream, {&range, 1}).ok());
        fake().submit(kStream, [this, range] {
          std::memset(
              fake().at(const_cast<std::byte*>(static_cast<const std::byte*>(range.address))), 5,
              range.bytes);
        });
        ASSERT_TRUE(machine_->work().endDeviceWork(kStream, true).ok());
      }
      const auto offset =
          static_cast<std::size_t>(static_cast<const std::byte*>(range.address) - pool_);
      std::memset(expected_.data() + offset, 5, range.bytes);
      machine_->verify();
    }
    EXPECT_THAT(moves(), ElementsAre(pageMoved(2 * kHot, accel::Home::kDevice)));
    expectAll();
  }
}

// Whatever the order in which they have left.
TEST_P(HotPagesOf, AllPagesThatARangeCrossesAreBack) {
  ASSERT_NO_FATAL_FAILURE(heat({5 * kHot}));
  ASSERT_NO_FATAL_FAILURE(heat({5 * kHot, 64, 2 * kHot + 64}, 1));
  fake().clearLog();
  const coherence::DeviceRange ranges[] = {{pool_ + kHot, 2 * kHot, false},
                                           {pool_ + 4 * kHot, 2 * kHot, true}};
  ASSERT_TRUE(machine_->work().beginOwnWork(ranges).ok());
  ASSERT_TRUE(machine_->work().endOwnWork(ranges, accel::Ticket{}).ok());
  EXPECT_THAT(moves(), ElementsAre(pageMoved(2 * kHot, accel::Home::kDevice),
                                   pageMoved(5 * kHot, accel::Home::kDevice)));
  expectAll();
}

// What goes to the driver in parts needs no move.
TEST_P(HotPagesOf, RangesInPartsLeaveThemWhereTheyAre) {
  ASSERT_NO_FATAL_FAILURE(heat({2 * kHot + 64}));
  fake().clearLog();
  const coherence::DeviceRange range{pool_ + kHot, 3 * kHot, true, true};
  ASSERT_TRUE(machine_->work().beginOwnWork({&range, 1}).ok());
  EXPECT_EQ(machine_->work().ofOneKind(pool_ + kHot, 3 * kHot), kHot);
  EXPECT_EQ(machine_->work().ofOneKind(pool_ + 2 * kHot, 2 * kHot), kHot);
  EXPECT_EQ(machine_->work().ofOneKind(pool_ + 2 * kHot + 5, 7), 7U);
  EXPECT_EQ(machine_->work().ofOneKind(pool_ + 3 * kHot, kHot), kHot);
  EXPECT_EQ(machine_->work().ofOneKind(pool_ + 3 * kHot, 2 * kBytes), 2 * kBytes)
      << "not our borders";
  ASSERT_TRUE(machine_->work().endOwnWork({&range, 1}, accel::Ticket{}).ok());
  EXPECT_THAT(moves(), IsEmpty());
  expectAll();
}

// Who has no room for it now may have it later.
TEST_P(HotPagesOf, WantOfDeviceMemoryPutsItOff) {
  fake().failNext(Op::Kind::kMove, 1, adsmErrorAcceleratorMemory);
  ASSERT_NO_FATAL_FAILURE(heat({2 * kHot + 64}));
  EXPECT_FALSE(fake().armed());
  expectAll();
}

// Other threads ask about its bytes, and come for them, while its memory is on its way.
TEST_P(HotPagesOf, QuestionsWhileItsMemoryMovesEnd) {
  for (const bool first : {false, true}) {
    const std::size_t hot = first ? 64 : 2 * kHot + 64;
    std::thread reader;
    fake().onMove([&] {
      if (reader.joinable()) {
        return;
      }
      bool shared = false;
      EXPECT_GE(machine_->memory().sharedPrefix(pool_ + hot, kHot, &shared), 1U);
      EXPECT_TRUE(shared);
      const coherence::Place place = machine_->memory().placeOf(pool_ + hot, kHot);
      EXPECT_GT(place.end, reinterpret_cast<std::uintptr_t>(pool_ + hot));
      EXPECT_TRUE(machine_->memory().startFetch(pool_ + hot, kHot).ok());
      EXPECT_TRUE(machine_->memory().startFlush(pool_ + hot, kHot).ok());
      reader = std::thread([&, hot] {
        std::vector<std::byte> plain(kHot);
        machine_->memory().copy(plain.data(), pool_ + hot - 64, kHot, moveBytes);
        EXPECT_EQ(std::memcmp(plain.data() + 100, expected_.data() + hot + 36, kHot - 100), 0);
      });
    });
    ASSERT_NO_FATAL_FAILURE(heat({hot}));
    fake().onMove({});
    ASSERT_TRUE(reader.joinable());
    reader.join();
  }
  // What begins before the pool, whose first page is apart.
  ASSERT_TRUE(machine_->memory().hold(pool_ - kPage, kPage + 8, coherence::HoldFor::kRead).ok());
  machine_->verify();
  machine_->memory().unhold(pool_ - kPage, kPage + 8);
  expectAll();
}

TEST_P(HotPagesOf, NoneIsLeftOnceTheProgramRecordsWork) {
  ASSERT_NO_FATAL_FAILURE(heat({64, 2 * kHot + 64}));
  fake().clearLog();
  coherence::noteRecorded();
  const coherence::DeviceRange within{pool_ + 2 * kHot + 5, 100, true};
  machine_->work().keepWhole({&within, 1});
  EXPECT_THAT(moves(), IsEmpty()) << "it lies in one of them";
  machine_->work().keepWhole();
  EXPECT_THAT(moves(), ElementsAre(pageMoved(0, accel::Home::kDevice),
                                   pageMoved(2 * kHot, accel::Home::kDevice)));
  const std::uint64_t before = moved();
  for (int i = 0; i < 200; ++i) {
    ASSERT_NO_FATAL_FAILURE(round({2 * kHot + 64}));
  }
  EXPECT_EQ(moved(), before);
  expectAll();
  coherence::internal::recorded = false;  // (of a real process, never)
}

// The capture names it, or what is around it, by ranges.
TEST_P(HotPagesOf, NoneMovesWhileAStreamIsCaptured) {
  ASSERT_NO_FATAL_FAILURE(heat({2 * kHot + 64}));
  const std::uint64_t before = ended();
  const auto calls = [&] {
    for (int i = 0; i < 100; ++i) {
      machine_->call(bump_, {pool_ + 5 * kHot});
      add(5 * kHot);
      machine_->sync();
    }
  };
  coherence::captureBegins();
  calls();
  EXPECT_EQ(ended(), before);
  coherence::captureEnds();
  calls();
  EXPECT_EQ(ended(), before + 1) << "the CPU comes no more";
  expectAll();
}

TEST_P(HotPagesOf, CallsThatListTheObjectOrPartsOfItUseItsPages) {
  ASSERT_NO_FATAL_FAILURE(heat({2 * kHot + 64}));
  const auto bumpUsing = [&](std::size_t offset, const auto& call) {
    call(pool_ + offset);
    add(offset);
    ASSERT_EQ(pool_[offset], expected_[offset]) << "the access waits for the call";
    add(offset);
    pool_[offset] = expected_[offset];
  };
  for (int i = 0; i < 10; ++i) {
    for (const std::size_t offset : {2 * kHot + 64, 2 * kHot - 1, 4 * kHot}) {
      bumpUsing(offset, [&](std::byte* at) {
        machine_->callUsing(bump_, {at}, {{pool_, adsmReadWrite}});
      });
      bumpUsing(offset, [&](std::byte* at) {
        machine_->callRanges(bump_, {at}, {{at, 1, adsmReadWrite}});
      });
      bumpUsing(offset, [&](std::byte* at) {
        machine_->callRanges(bump_, {at}, {{pool_ + kHot, 5 * kHot, adsmReadWrite}});
      });
      bumpUsing(offset, [&](std::byte* at) {
        machine_->callUsing(bump_, {at}, {{pool_ + 2 * kHot + 8, adsmReadWrite}});
      });
    }
    machine_->verify();
  }
  expectAll();
}

// The rest of the pool leaves the device's memory, and comes back; the pages stay where they are.
TEST_P(HotPagesOf, ThePoolSpillsAroundThem) {
  MachineSetup small = setup();
  small.fake.memoryBytes = kBytes + 2 * kHot;
  start(small);
  ASSERT_NO_FATAL_FAILURE(heat({2 * kHot + 64, 64}));
  std::byte* const large = machine_->allocate(kBytes);
  machine_->call(bump_, {large});
  machine_->sync();
  std::byte* const larger = machine_->allocate(kBytes);
  machine_->call(bump_, {larger});
  machine_->call(bump_, {larger});
  machine_->sync();
  for (int i = 0; i < 20; ++i) {
    ASSERT_NO_FATAL_FAILURE(round({2 * kHot + 64, 5, 4 * kHot}));
  }
  EXPECT_FALSE(machine_->deviceMemory().makeRoom() && machine_->deviceMemory().makeRoom() &&
               machine_->deviceMemory().makeRoom() && machine_->deviceMemory().makeRoom())
      << "each object leaves once";
  EXPECT_EQ(large[0], std::byte{1});
  EXPECT_EQ(larger[0], std::byte{2});
  ASSERT_NO_FATAL_FAILURE(expectAll());
  machine_->free(large);
  machine_->free(larger);
  for (int i = 0; i < 40; ++i) {
    machine_->call(bump_, {pool_ + 2 * kHot + 64});
    add(2 * kHot + 64);
    machine_->sync();
  }
  expectAll();
}

// One thread's rounds move a page and bring it back. Others write elsewhere in the pool, of which
// the calls take nothing: blocks are evicted and opened again all the time.
TEST_P(HotPagesOf, OtherThreadsGoOnMeanwhile) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      const std::size_t begin = (5 + thread) * kHot;
      for (unsigned i = 0; !stop; ++i) {
        for (std::size_t at = begin; at < begin + kHot; at += kBlock / 2 + 1) {
          expected_[at] = static_cast<std::byte>(i + at);
          pool_[at] = expected_[at];
        }
        for (std::size_t at = begin; at < begin + kHot; at += kBlock / 2 + 1) {
          if (pool_[at] != expected_[at]) {
            ADD_FAILURE() << at;
            return;
          }
        }
      }
    });
  }
  for (int i = 0; i < 3 && !HasFatalFailure(); ++i) {
    const std::uint64_t before = moved();
    for (int rounds = 0; rounds < 20'000 && moved() == before; ++rounds) {
      std::byte* const at = pool_ + 2 * kHot + 64;
      machine_->callRanges(bump_, {at}, {{at, 1, adsmReadWrite}});
      add(2 * kHot + 64);
      machine_->sync();
      ASSERT_EQ(*at, expected_[2 * kHot + 64]);
      add(2 * kHot + 64);
      *at = expected_[2 * kHot + 64];
    }
    EXPECT_GT(moved(), before);
    const coherence::DeviceRange range{pool_, 4 * kHot, false};
    EXPECT_TRUE(machine_->work().beginOwnWork({&range, 1}).ok());
    EXPECT_TRUE(machine_->work().endOwnWork({&range, 1}, accel::Ticket{}).ok());
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  expectAll();
}

INSTANTIATE_TEST_SUITE_P(Mirrors, HotPagesOf, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "moved" : "file");
});

}  // namespace
}  // namespace gmac::testing
