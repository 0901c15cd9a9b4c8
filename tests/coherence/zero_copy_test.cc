// SPDX-License-Identifier: Apache-2.0
//
// Objects with one copy, in the CPU's pages: when they get it, that nothing is copied then, that
// accesses and kernels keep out of each other's way as ever, and how it ends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/repeated_launches.h"
#include "gmac/coherence/unwaited_calls.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"
#include "tests/support/other_thread.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kBytes = 2 * kMiB;
constexpr std::size_t kBlock = 64 * kKiB;
constexpr int kRounds = 4;  // that move an object
constexpr std::uint64_t kNeverSlow = std::uint64_t{3600} * 1'000'000'000;

// A kernel adds one to a byte, the program waits, and the CPU adds one.
class ZeroCopies : public ::testing::TestWithParam<bool> {
 protected:
  ZeroCopies() { start(setup()); }
  static MachineSetup setup() {
    MachineSetup setup;
    setup.blockBytes = kBlock;
    setup.windowBytes = kBlock;
    setup.fake.movedPages = GetParam();
    setup.fake.movableMemory = true;
    setup.fake.zeroCopy = true;
    // However busy the machine is.
    setup.zeroCopy.limits = {
        .leastRounds = kRounds, .longest = UINT64_MAX, .slack = kNeverSlow, .few = SIZE_MAX};
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
    copy_ = fake().kernel("copy", 2, [fake = &fake()](const LaunchShape&, void** args) {
      *fake->argument<std::uint8_t>(args, 0) = *fake->argument<std::uint8_t>(args, 1);
    });
    object_ = machine_->allocate(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) {
      object_[i] = patternAt(i);
    }
    at_ = object_ + kBytes / 2 + 5;
    value_ = static_cast<std::uint8_t>(patternAt(kBytes / 2 + 5));
  }
  static std::byte patternAt(std::size_t i) { return static_cast<std::byte>(i * 7 + i / 251); }
  FakeAccelerator& fake() { return machine_->fake(); }
  volatile std::uint8_t& byte() const { return *reinterpret_cast<volatile std::uint8_t*>(at_); }
  void round() {
    machine_->call(bump_, {at_});
    ++value_;
    machine_->sync();
    ASSERT_EQ(byte(), value_);
    byte() = ++value_;
    machine_->verify();
  }
  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_NO_FATAL_FAILURE(round());
    }
  }
  // So many that the object has one copy, and is opened at waits.
  void move() {
    const std::uint64_t before = moved();
    for (int i = 0; i < 40 && moved() == before; ++i) {
      ASSERT_NO_FATAL_FAILURE(round());
    }
    ASSERT_EQ(moved(), before + 1);
    ASSERT_NO_FATAL_FAILURE(rounds(4));
  }
  void expectPattern() {
    for (std::size_t i = 0; i < kBytes; ++i) {
      ASSERT_EQ(object_[i], object_ + i == at_ ? std::byte{value_} : patternAt(i)) << i;
    }
  }
  static std::uint64_t moved() { return stats().zeroCopies.value(); }
  static std::uint64_t ended() { return stats().zeroCopiesEnded.value(); }
  std::vector<Op> moves() { return fake().log({Op::Kind::kMove}); }
  Op movedTo(accel::Home home) const {
    return {Op::Kind::kMove,
            reinterpret_cast<std::uintptr_t>(object_),
            kBytes,
            {},
            static_cast<std::uintptr_t>(home)};
  }

  std::unique_ptr<Machine> machine_;
  adsmKernel_t bump_ = nullptr;
  adsmKernel_t copy_ = nullptr;
  std::byte* object_ = nullptr;
  std::byte* at_ = nullptr;
  std::uint8_t value_ = 0;
};

TEST_P(ZeroCopies, NothingIsCopiedAnyMore) {
  move();
  fake().clearLog();
  const std::uint64_t faults = stats().readFaults.value() + stats().writeFaults.value();
  rounds(16);
  EXPECT_THAT(fake().copies(), IsEmpty());
  EXPECT_LE(stats().readFaults.value() + stats().writeFaults.value() - faults, 4u)
      << "but for checks, it is opened at the wait";
  EXPECT_THAT(moves(), IsEmpty());
  expectPattern();
}

TEST_P(ZeroCopies, TheMoveKeepsEveryByte) {
  move();
  EXPECT_THAT(moves(), ElementsAre(movedTo(accel::Home::kMirror)));
  expectPattern();
  machine_->call(bump_, {object_ + 17});
  machine_->sync();
  EXPECT_EQ(static_cast<std::uint8_t>(object_[17]),
            static_cast<std::uint8_t>(static_cast<std::uint8_t>(patternAt(17)) + 1));
}

TEST_P(ZeroCopies, AnAccessWithoutASyncWaitsForTheKernel) {
  move();
  for (int i = 0; i < 20; ++i) {
    machine_->call(bump_, {at_});
    ++value_;
    ASSERT_EQ(byte(), value_);
    byte() = ++value_;
    machine_->call(bump_, {at_});
    byte() = value_ = 9;
    machine_->verify();
  }
}

// The kernel runs only when something waits for it.
TEST_P(ZeroCopies, AWriteWaitsForAKernelThatOnlyReads) {
  move();
  std::byte* const target = machine_->allocate(kBytes);
  byte() = 1;
  machine_->callUsing(copy_, {target, at_}, {{target, adsmWrite}, {object_, adsmRead}});
  byte() = 2;
  machine_->callUsing(copy_, {target + 1, at_}, {{target, adsmWrite}, {object_, adsmRead}});
  machine_->memory().fill(at_, 3, 100, [](void* to, int value, std::size_t bytes) {
    return std::memset(to, value, bytes);
  });
  machine_->sync();
  EXPECT_EQ(target[0], std::byte{1});
  EXPECT_EQ(target[1], std::byte{2});
  EXPECT_EQ(byte(), 3);
}

TEST_P(ZeroCopies, AWaitForSomethingElseOpensNothing) {
  move();
  for (int i = 0; i < 10; ++i) {
    machine_->call(bump_, {at_});
    ++value_;
    machine_->work().beforeDeviceWait(std::nullopt);
    ASSERT_TRUE(machine_->work().afterDeviceWait().ok());  // the kernel has not run
    ASSERT_EQ(accessAt(at_), os::Access::kNone) << i;
    ASSERT_EQ(byte(), value_);
    byte() = ++value_;
  }
}

TEST_P(ZeroCopies, BulkMemoryAndOtherObjectsWorkWithIt) {
  move();
  std::byte* const other = machine_->allocate(kBytes);
  std::memset(other, 0x31, kBytes);
  const auto moveBytes = [](void* to, const void* from, std::size_t bytes) {
    return std::memmove(to, from, bytes);
  };
  machine_->call(bump_, {other + 1});
  machine_->call(bump_, {at_});
  ++value_;
  machine_->memory().copy(other, object_, kBytes, moveBytes);
  EXPECT_EQ(other[at_ - object_], std::byte{value_});
  EXPECT_EQ(other[1], patternAt(1));
  other[3] = std::byte{77};
  machine_->call(bump_, {other + 3});
  machine_->memory().copy(object_, other, kBytes / 2, moveBytes);
  EXPECT_EQ(object_[3], std::byte{78});
  EXPECT_EQ(byte(), value_);
  machine_->verify();
}

TEST_P(ZeroCopies, ItEndsWhereTheCpuComesNoMore) {
  move();
  const std::uint64_t before = ended();
  for (int i = 0; i < 30; ++i) {
    machine_->call(bump_, {at_});
    ++value_;
    machine_->sync();
  }
  EXPECT_EQ(ended(), before + 1);
  fake().clearLog();
  expectPattern();
  EXPECT_THAT(fake().copies(), ::testing::Not(IsEmpty()));
}

TEST_P(ZeroCopies, ItEndsWhereKernelsAreSlow) {
  MachineSetup strict = setup();
  strict.clock = nullptr;
  strict.zeroCopy.limits.slack = 0;
  start(strict);
  bool slow = false;
  bump_ = fake().kernel("slow bump", 1, [&, fake = &fake()](const LaunchShape&, void** args) {
    if (slow) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ++*fake->argument<std::uint8_t>(args, 0);
  });
  const std::uint64_t movedBefore = moved();
  for (int i = 0; i < 1000 && moved() == movedBefore; ++i) {
    ASSERT_NO_FATAL_FAILURE(round());
  }
  slow = true;
  const std::uint64_t before = ended();
  for (int i = 0; i < 20 && ended() == before; ++i) {
    machine_->call(bump_, {at_});
    // Not the end of the round: the kernel has not run.
    machine_->work().beforeDeviceWait(std::nullopt);
    ASSERT_TRUE(machine_->work().afterDeviceWait().ok());
    machine_->sync();
    ASSERT_EQ(byte(), ++value_);
    byte() = ++value_;
  }
  EXPECT_EQ(ended(), before + 1);
  expectPattern();
}

TEST_P(ZeroCopies, WhatItCannotReachStaysAndIsNotAskedForAgain) {
  MachineSetup refusing = setup();
  refusing.fake.zeroCopy = false;
  start(refusing);
  const std::uint64_t before = moved();
  rounds(60);
  EXPECT_EQ(moved(), before);
  EXPECT_THAT(moves(), ElementsAre(movedTo(accel::Home::kMirror)));
  expectPattern();
}

TEST_P(ZeroCopies, AMoveThatFailsLosesNothing) {
  fake().failNext(Op::Kind::kMove, 1, adsmErrorHostMemory);
  // The pages are open by then: what another thread writes stays.
  fake().onMove([this] { object_[100] = std::byte{77}; });
  const std::uint64_t before = moved();
  rounds(60);
  fake().onMove({});
  EXPECT_EQ(moved(), before);
  EXPECT_EQ(object_[100], std::byte{77});
  object_[100] = patternAt(100);
  expectPattern();
}

TEST_P(ZeroCopies, ItMovesBackBeforeItIsFreed) {
  move();
  fake().clearLog();
  machine_->free(object_);
  EXPECT_THAT(moves(), ElementsAre(movedTo(accel::Home::kDevice)));
}

TEST_P(ZeroCopies, SmallObjectsMoveTogether) {
  std::byte* const flag = machine_->allocate(4);
  std::byte* const neighbour = machine_->allocate(1000);
  std::memset(neighbour, 0x42, 1000);
  at_ = flag;
  byte() = value_ = 0;
  move();
  fake().clearLog();
  rounds(8);
  EXPECT_THAT(fake().copies(), IsEmpty());
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(neighbour[i], std::byte{0x42});
  }
  machine_->call(bump_, {neighbour});
  EXPECT_EQ(neighbour[0], std::byte{0x43});
  machine_->free(flag);
  machine_->free(neighbour);
}

// The device's page is larger: what a kernel finds after the object's end is mapped.
TEST_P(ZeroCopies, AnObjectThatIsNoWholePageHasAMargin) {
  constexpr std::size_t kSmall = kBlock;
  std::byte* const small = machine_->allocate(kSmall);
  std::memset(small, 0x42, kSmall);
  at_ = small + 9;
  value_ = 0x42;
  fake().clearLog();
  move();
  EXPECT_THAT(moves(), ElementsAre(Op{Op::Kind::kMove,
                                      reinterpret_cast<std::uintptr_t>(small),
                                      kSmall + kBlock,
                                      {},
                                      static_cast<std::uintptr_t>(accel::Home::kMirror)}));
  EXPECT_EQ(accessAt(small + kSmall), os::Access::kReadWrite);
  EXPECT_EQ(accessAt(small + 2 * kSmall), os::Access::kNone);
  const std::uint64_t before = ended();
  for (int i = 0; i < 30; ++i) {
    machine_->call(bump_, {at_});
    ++value_;
    machine_->sync();
  }
  ASSERT_EQ(ended(), before + 1) << "the CPU comes no more";
  EXPECT_EQ(accessAt(small + kSmall), os::Access::kNone);
  EXPECT_EQ(byte(), value_);
  EXPECT_EQ(small[kSmall - 1], std::byte{0x42});
  const std::uint64_t movedBefore = moved();
  for (int i = 0; i < 200 && moved() == movedBefore; ++i) {
    ASSERT_NO_FATAL_FAILURE(round());
  }
  EXPECT_EQ(accessAt(small + kSmall), os::Access::kReadWrite);
  machine_->free(small);
  EXPECT_EQ(accessAt(small + kSmall), os::Access::kNone);
}

// Where the accelerator has none, other memory may lie there.
TEST_P(ZeroCopies, NothingIsMappedAfterWhatCannotMove) {
  MachineSetup refusing = setup();
  refusing.fake.zeroCopy = false;
  start(refusing);
  constexpr std::size_t kSmall = kBlock;
  std::byte* const small = machine_->allocate(kSmall);
  std::byte* const after = small + kSmall;
  void* const others = mmap(after, kSmall, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  std::memset(small, 0x42, kSmall);
  at_ = small + 9;
  value_ = 0x42;
  if (others == after) {
    std::memset(after, 0x17, kSmall);
  }
  fake().clearLog();
  rounds(60);
  EXPECT_EQ(moves().size(), 1u) << "asked for once";
  if (others == after) {
    EXPECT_EQ(after[0], std::byte{0x17});
    EXPECT_EQ(after[kSmall - 1], std::byte{0x17});
    munmap(after, kSmall);
  } else {
    ADD_FAILURE() << "the addresses after the object are taken; nothing is checked";
  }
}

// Blocks that are too large to be copied ahead of the CPU's next look.
TEST_P(ZeroCopies, SoDoesAnObjectOfWhichTheCpuUsesMuch) {
  MachineSetup large = setup();
  large.blockBytes = kBytes / 2;
  large.windowBytes = 0;
  start(large);
  ASSERT_NO_FATAL_FAILURE(move());
  fake().clearLog();
  rounds(16);
  EXPECT_THAT(fake().copies(), IsEmpty());
  expectPattern();
}

// As where it works on one half of an array, and kernels on the other.
TEST_P(ZeroCopies, SoDoesAnObjectForWhichTheCpuComesBeforeItWaits) {
  const std::uint64_t before = moved();
  const std::uint64_t endedBefore = ended();
  for (int i = 0; i < 60 && moved() == before; ++i) {
    machine_->call(bump_, {at_});
    ++value_;
    byte() = ++value_;
    machine_->sync();
    machine_->verify();
  }
  EXPECT_EQ(moved(), before + 1);
  for (int i = 0; i < 200; ++i) {
    machine_->call(bump_, {at_});
    ++value_;
    ASSERT_EQ(byte(), value_);
    byte() = ++value_;
    machine_->sync();
  }
  EXPECT_EQ(ended(), endedBefore) << "it stays so";
  expectPattern();
}

TEST_P(ZeroCopies, NotWhereItIsOff) {
  MachineSetup off = setup();
  off.zeroCopy.allowed = false;
  start(off);
  rounds(60);
  EXPECT_THAT(moves(), IsEmpty());
}

// ---- Calls that wait for their kernel, and pass over it

class AwaitedCalls : public ZeroCopies {
 protected:
  AwaitedCalls() {
    MachineSetup prompt = setup();
    prompt.fake.run = FakeOptions::Run::kEager;
    prompt.zeroCopy.prompt = {.leastRounds = kRounds, .soon = UINT64_MAX};
    start(prompt);
  }
  // So many that a call leaves the object open, and the next would.
  void beginToWait() {
    ASSERT_NO_FATAL_FAILURE(move());
    const std::uint64_t before = awaited();
    for (int i = 0; i < 20 && awaited() < before + 8; ++i) {
      ASSERT_NO_FATAL_FAILURE(round());
    }
    ASSERT_GE(awaited(), before + 8);
    for (int i = 0; i < 40 && !opensCalls(); ++i) {
      ASSERT_NO_FATAL_FAILURE(round());
    }
  }
  // Whether the last call has left it open; makes one, and its wait.
  bool opensCalls() {
    const std::uint64_t before = awaited();
    round();
    return awaited() == before + 1;
  }
  void call() {
    machine_->call(bump_, {at_});
    ++value_;
  }
  static std::uint64_t awaited() { return stats().awaitedCalls.value(); }
  static std::uint64_t faults() { return stats().readFaults.value() + stats().writeFaults.value(); }
};

TEST_P(AwaitedCalls, NoProtectionChangesAndNothingIsCopied) {
  ASSERT_NO_FATAL_FAILURE(beginToWait());
  machine_->expectNothingHappens([&] { ASSERT_NO_FATAL_FAILURE(round()); });
  EXPECT_EQ(accessAt(at_), os::Access::kReadWrite);
  expectPattern();
}

TEST_P(AwaitedCalls, TheKernelHasFinishedWhenTheCallReturns) {
  ASSERT_NO_FATAL_FAILURE(beginToWait());
  machine_->call(bump_, {at_});
  ASSERT_EQ(accessAt(at_), os::Access::kReadWrite);
  EXPECT_EQ(fake().pending(), 0u);
  EXPECT_EQ(byte(), ++value_);
}

TEST_P(AwaitedCalls, TheWaitAfterItAsksForNothing) {
  ASSERT_NO_FATAL_FAILURE(beginToWait());
  call();
  ASSERT_EQ(accessAt(at_), os::Access::kReadWrite);
  fake().clearLog();
  machine_->sync();
  EXPECT_THAT(fake().log(), IsEmpty());
  EXPECT_EQ(byte(), value_);
}

TEST_P(AwaitedCalls, AWaitForWhatCameAfterItWaits) {
  constexpr accel::NativeStream kStream{3};
  MachineSetup prompt = setup();
  prompt.fake.run = FakeOptions::Run::kRandom;
  prompt.zeroCopy.prompt = {.leastRounds = kRounds, .soon = UINT64_MAX};
  start(prompt);
  ASSERT_NO_FATAL_FAILURE(beginToWait());
  std::byte* const other = machine_->allocate(kBytes);
  for (int i = 1; i <= 50; ++i) {
    call();
    if (i % 2 == 0) {
      machine_->callUsing(bump_, {other}, {{other, adsmReadWrite}});
    } else {
      const coherence::DeviceRange range{other, 1, true};
      ASSERT_TRUE(machine_->work().beginDeviceWork(kStream, {&range, 1}).ok());
      fake().submit(kStream, [&] { ++*fake().at(reinterpret_cast<std::uint8_t*>(other)); });
      ASSERT_TRUE(machine_->work().endDeviceWork(kStream, true).ok());
    }
    machine_->sync();
    ASSERT_EQ(fake().pending(), 0u) << i;
    ASSERT_EQ(other[0], static_cast<std::byte>(i));
    ASSERT_EQ(byte(), value_);
    byte() = ++value_;
  }
}

TEST_P(AwaitedCalls, WhatIsReadBackAfterAWaitStillIs) {
  ASSERT_NO_FATAL_FAILURE(beginToWait());
  std::byte* const large = machine_->allocate(2 * kBytes);
  coherence::internal::recorded = true;  // so its pages stay where they are
  large[0] = std::byte{0};
  const std::uint64_t before = stats().readBacks.value();
  for (int i = 1; i <= 40; ++i) {
    machine_->call(bump_, {at_});
    ++value_;
    machine_->sync();
    ASSERT_EQ(byte(), value_);
    byte() = ++value_;
    ASSERT_EQ(large[0], std::byte{0});
  }
  EXPECT_GE(stats().readBacks.value() - before, 20u);
  coherence::internal::recorded = false;
}

TEST_P(AwaitedCalls, NowAndThenItIsClosedToSeeWhetherTheCpuStillComes) {
  ASSERT_NO_FATAL_FAILURE(beginToWait());
  const std::uint64_t before = awaited();
  const std::uint64_t faultsBefore = faults();
  ASSERT_NO_FATAL_FAILURE(rounds(128));
  EXPECT_GE(awaited() - before, 120u);
  EXPECT_LT(awaited() - before, 128u);
  EXPECT_GE(faults() - faultsBefore, 1u);
  EXPECT_LE(faults() - faultsBefore, 16u);
}

TEST_P(AwaitedCalls, ASecondCallWithoutAWaitCloses) {
  ASSERT_NO_FATAL_FAILURE(beginToWait());
  for (int i = 0; i < 4; ++i) {
    call();
    call();
    ASSERT_EQ(accessAt(at_), os::Access::kNone) << i;
    machine_->sync();
    ASSERT_EQ(byte(), value_);
    byte() = ++value_;
    machine_->verify();
  }
}

TEST_P(AwaitedCalls, WorkOnStreamsWaitsLikewise) {
  constexpr accel::NativeStream kStream{3};
  ASSERT_NO_FATAL_FAILURE(beginToWait());
  const auto work = [&] {
    const coherence::DeviceRange everything{nullptr, 0, true};
    ASSERT_TRUE(machine_->work().beginDeviceWork(kStream, {&everything, 1}).ok());
    fake().submit(kStream, [this] { ++*fake().at(reinterpret_cast<std::uint8_t*>(at_)); });
    ASSERT_TRUE(machine_->work().endDeviceWork(kStream, true).ok());
    ++value_;
  };
  const std::uint64_t before = awaited();
  for (int i = 0; i < 4; ++i) {
    ASSERT_NO_FATAL_FAILURE(work());
    machine_->work().beforeDeviceWait(kStream);
    ASSERT_TRUE(machine_->work().afterDeviceWait().ok());
    ASSERT_EQ(byte(), value_);
    byte() = ++value_;
    machine_->verify();
  }
  EXPECT_GE(awaited() - before, 3u);
}

TEST_P(AwaitedCalls, ACallThatListsPartOfItWaitsLikewise) {
  ASSERT_NO_FATAL_FAILURE(beginToWait());
  machine_->callRanges(bump_, {at_}, {{at_, 1, adsmReadWrite}});
  EXPECT_EQ(fake().pending(), 0u);
  EXPECT_EQ(accessAt(at_), os::Access::kReadWrite);
  EXPECT_EQ(byte(), ++value_);
}

TEST_P(AwaitedCalls, WorkThatNamesItCloses) {
  constexpr accel::NativeStream kStream{3};
  ASSERT_NO_FATAL_FAILURE(beginToWait());
  const coherence::DeviceRange range{at_, 1, true};
  ASSERT_TRUE(machine_->work().beginDeviceWork(kStream, {&range, 1}).ok());
  fake().submit(kStream, [this] { ++*fake().at(reinterpret_cast<std::uint8_t*>(at_)); });
  ASSERT_TRUE(machine_->work().endDeviceWork(kStream, true).ok());
  EXPECT_EQ(accessAt(at_), os::Access::kNone);
  EXPECT_EQ(byte(), ++value_);
}

TEST_P(AwaitedCalls, AllOfItIsOpen) {
  ASSERT_NO_FATAL_FAILURE(beginToWait());
  EXPECT_EQ(accessAt(object_), os::Access::kReadWrite);
  EXPECT_EQ(accessAt(object_ + kBytes - 1), os::Access::kReadWrite);
  machine_->expectNothingHappens([&] {
    machine_->call(bump_, {object_ + 17});
    machine_->sync();
    object_[17] = patternAt(17);
  });
  expectPattern();
}

// The program does not wait at once, but the CPU comes for the object, and would wait.
class AwaitedAccesses : public AwaitedCalls {
 protected:
  AwaitedAccesses() {
    MachineSetup prompt = setup();
    prompt.fake.run = FakeOptions::Run::kEager;
    prompt.zeroCopy.prompt = {.leastRounds = kRounds, .soon = 4'000};
    prompt.clock = [this] { return now_ += 10; };
    start(prompt);
    moveIt();
  }
  // Rounds in which the CPU comes after `pause`.
  void accessRounds(int count, std::uint64_t pause = 1'000) {
    for (int i = 0; i < count; ++i) {
      ASSERT_NO_FATAL_FAILURE(accessRound(pause));
    }
  }
  void accessRound(std::uint64_t pause) {
    machine_->call(bump_, {at_});
    ++value_;
    now_ += pause;
    ASSERT_EQ(byte(), value_);
    byte() = ++value_;
    now_ += 100'000;
    machine_->sync();
    machine_->verify();
  }
  void moveIt() {
    const std::uint64_t before = moved();
    for (int i = 0; i < 40 && moved() == before; ++i) {
      ASSERT_NO_FATAL_FAILURE(accessRound(50'000));
    }
    ASSERT_EQ(moved(), before + 1);
  }

  std::uint64_t now_ = 1;
};

TEST_P(AwaitedAccesses, NoProtectionChangesAndNothingIsCopied) {
  ASSERT_NO_FATAL_FAILURE(accessRounds(64));
  const std::uint64_t before = awaited();
  const std::uint64_t faultsBefore = faults();
  ASSERT_NO_FATAL_FAILURE(accessRounds(256));
  EXPECT_GE(awaited() - before, 240u);
  EXPECT_GE(faults() - faultsBefore, 1u) << "now and then a call looks";
  EXPECT_LE(faults() - faultsBefore, 16u);
  expectPattern();
}

TEST_P(AwaitedAccesses, WhereTheyComeLateCallsDoNotWait) {
  const std::uint64_t before = awaited();
  ASSERT_NO_FATAL_FAILURE(accessRounds(256, 50'000));
  EXPECT_EQ(awaited(), before);
  EXPECT_EQ(accessAt(at_), os::Access::kReadWrite);
  machine_->call(bump_, {at_});
  EXPECT_EQ(accessAt(at_), os::Access::kNone);
  EXPECT_EQ(byte(), ++value_);
}

TEST_P(AwaitedAccesses, WhereTheyCeaseToBePromptCallsCeaseToWait) {
  ASSERT_NO_FATAL_FAILURE(accessRounds(200));
  const std::uint64_t before = awaited();
  ASSERT_NO_FATAL_FAILURE(accessRounds(2'000, 50'000));
  EXPECT_LE(awaited() - before, 200u);
  machine_->call(bump_, {at_});
  EXPECT_EQ(accessAt(at_), os::Access::kNone);
  EXPECT_EQ(byte(), ++value_);
  expectPattern();
}

// The call does not use what the CPU comes for.
TEST_P(AwaitedAccesses, ThoseToWhatTheCallDoesNotUseCountForNothing) {
  std::byte* const other = machine_->allocate(kBytes);
  const std::uint64_t before = awaited();
  for (int i = 0; i < 64; ++i) {
    machine_->call(bump_, {at_});
    machine_->sync();
    now_ += 100'000;
    machine_->callUsing(bump_, {other}, {{other, adsmReadWrite}});
    byte() = value_ = static_cast<std::uint8_t>(i);
    now_ += 100'000;
    machine_->sync();
    machine_->verify();
  }
  EXPECT_EQ(awaited(), before);
}

TEST_P(AwaitedCalls, OtherObjectsAreClosedAsEver) {
  std::byte* const other = machine_->allocate(kBytes);
  ASSERT_NO_FATAL_FAILURE(beginToWait());
  other[7] = std::byte{7};
  call();
  EXPECT_EQ(accessAt(at_), os::Access::kReadWrite);
  EXPECT_EQ(accessAt(other + 7), os::Access::kNone);
  EXPECT_EQ(other[7], std::byte{7});
}

// However many there are, no call closes them.
class ManyObjects : public ZeroCopies {
 protected:
  static constexpr std::uint64_t kMostAtOnce = 16;  // moves at a wait

  void useObjects(std::size_t count) {
    MachineSetup many = setup();
    many.managed = managed_;
    many.fake.run = FakeOptions::Run::kEager;
    many.zeroCopy.limits.longest = 10;
    many.zeroCopy.limits.each = 10;
    many.zeroCopy.prompt = {.leastRounds = kRounds, .soon = UINT64_MAX};
    // A round takes 10 for each object.
    many.clock = [this] { return now_; };
    start(many);
    for (std::size_t i = 0; i < count; ++i) {
      objects_.push_back(machine_->allocate(kBytes));
      objects_.back()[7] = std::byte{0};
    }
  }
  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      const std::uint64_t before = moved() + ended();
      ASSERT_NO_FATAL_FAILURE(manyRound());
      ASSERT_LE(moved() + ended() - before, kMostAtOnce);
    }
  }
  void manyRound() {
    std::byte* const bumped = objects_[value_ % objects_.size()] + 7;
    if (managed_) {
      (void)machine_->launch(
          kStream, [=, fake = &fake()] { ++*fake->at(reinterpret_cast<std::uint8_t*>(bumped)); });
      const coherence::DeviceWait wait = machine_->work().beforeDeviceWait(std::nullopt);
      now_ += 10 * objects_.size();
      fake().runAll();
      ASSERT_TRUE(machine_->work().afterDeviceWait(wait).ok());
    } else {
      machine_->call(bump_, {bumped});
      now_ += 10 * objects_.size();
      machine_->sync();
    }
    for (std::size_t i = 0; i < objects_.size(); ++i) {
      ASSERT_EQ(objects_[i][7],
                std::byte{objects_[i] + 7 == bumped ? std::uint8_t{1} : std::uint8_t{0}})
          << i;
      objects_[i][7] = std::byte{0};
    }
    ++value_;
    machine_->verify();
  }
  // Moves all, and then looks at some rounds more.
  void expectAllStayOpen(std::size_t count) {
    useObjects(count);
    const std::uint64_t before = moved() - ended();
    ASSERT_NO_FATAL_FAILURE(rounds(600));
    EXPECT_EQ(moved() - ended() - before, count);
    fake().clearLog();
    const std::uint64_t faults = stats().writeFaults.value() + stats().readFaults.value();
    constexpr int kMore = 256;
    ASSERT_NO_FATAL_FAILURE(rounds(kMore));
    EXPECT_THAT(fake().copies(), IsEmpty());
    // One is closed in 64 calls, and is open again soon.
    EXPECT_LE(stats().writeFaults.value() + stats().readFaults.value() - faults, 3u * kMore / 64);
  }

  static constexpr accel::NativeStream kStream{3};
  bool managed_ = false;
  std::uint64_t now_ = 1;
  std::vector<std::byte*> objects_;
};

TEST_P(ManyObjects, AllMoveAndStayOpen) { expectAllStayOpen(100); }

TEST_P(ManyObjects, ThoseOfAManagedProgramDoToo) {
  managed_ = true;
  expectAllStayOpen(100);
}

// Each is closed now and then, so that one which the CPU leaves alone goes back.
TEST_P(ManyObjects, OneThatTheCpuLeavesMovesBack) {
  useObjects(8);
  ASSERT_NO_FATAL_FAILURE(rounds(600));
  const std::uint64_t before = ended();
  std::byte* const left = objects_.back();
  objects_.pop_back();
  int round = 0;
  for (; round < 20'000 && ended() == before; ++round) {
    ASSERT_NO_FATAL_FAILURE(manyRound());
  }
  EXPECT_EQ(ended(), before + 1) << round;
  EXPECT_EQ(left[7], std::byte{0});
}

// Once the CPU has not come for one, the others are closed without delay.
TEST_P(ManyObjects, WhereTheCpuLeavesAllTheyMoveBackSoon) {
  useObjects(8);
  ASSERT_NO_FATAL_FAILURE(rounds(600));
  const std::uint64_t before = ended();
  const auto roundsUntilEnded = [&](std::uint64_t count) {
    int rounds = 0;
    for (; rounds < 20'000 && ended() < before + count; ++rounds) {
      machine_->call(bump_, {objects_[0] + 100});
      machine_->sync();
    }
    return rounds;
  };
  EXPECT_LT(roundsUntilEnded(1), 5000);
  EXPECT_LT(roundsUntilEnded(8), 200);
}

// ---- A program for managed memory: no call waits

class ManagedProgram : public ZeroCopies {
 protected:
  static constexpr accel::NativeStream kStream{3};

  ManagedProgram() { start(managed()); }
  static MachineSetup managed() {
    MachineSetup managed = setup();
    managed.managed = true;
    return managed;
  }
  void kernel(std::byte* at) {
    (void)machine_->launch(kStream,
                           [at, this] { ++*fake().at(reinterpret_cast<std::uint8_t*>(at)); });
  }
  void wait() {
    const coherence::DeviceWait wait = machine_->work().beforeDeviceWait(std::nullopt);
    fake().runAll();
    ASSERT_TRUE(machine_->work().afterDeviceWait(wait).ok());
  }
  void managedRound() {
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    ASSERT_NO_FATAL_FAILURE(wait());
    ASSERT_EQ(byte(), ++value_);
    byte() = ++value_;
    machine_->verify();
  }
  // So many that the object has one copy, and is open for good.
  void open() {
    const std::uint64_t before = moved();
    for (int i = 0; i < 40 && moved() == before; ++i) {
      ASSERT_NO_FATAL_FAILURE(managedRound());
    }
    ASSERT_EQ(moved(), before + 1);
    ASSERT_NO_FATAL_FAILURE(managedRound());
    ASSERT_EQ(accessAt(object_), os::Access::kReadWrite);
  }
  // Closes it, so that it is watched; the CPU comes for it, while it may not join those that are
  // used at once; a kernel is under way.
  void closeAndCome() {
    const coherence::DeviceRange everything{nullptr, 0, true};
    ASSERT_TRUE(machine_->work().beginDeviceWork(accel::kForeignStream, {&everything, 1}).ok());
    ASSERT_TRUE(machine_->work().endDeviceWork(accel::kForeignStream, true).ok());
    machine_->work().hostFunctionQueued();
    ASSERT_EQ(byte(), value_);
    machine_->work().hostFunctionEnded();
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    ++value_;
  }
  // The byte is held.
  void expectKernelWaitsForHold() {
    std::atomic<bool> submitted{false};
    std::thread launcher([&] {
      kernel(at_);
      submitted = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(submitted);
    machine_->memory().unhold(at_, 1);
    launcher.join();
    ASSERT_NO_FATAL_FAILURE(wait());
    EXPECT_EQ(byte(), ++value_);
  }
  // The same after something has closed it.
  void openAgain() {
    ASSERT_NO_FATAL_FAILURE(managedRound());
    ASSERT_NO_FATAL_FAILURE(managedRound());
    ASSERT_EQ(accessAt(object_), os::Access::kReadWrite);
  }
  static std::uint64_t awaited() { return stats().awaitedCalls.value(); }
};

TEST_P(ManagedProgram, ItsKernelsLeaveItOpenAndAreNotWaitedFor) {
  ASSERT_NO_FATAL_FAILURE(open());
  const std::uint64_t before = awaited();
  machine_->expectNothingHappens([&] {
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    EXPECT_EQ(fake().pending(), 2u);
    EXPECT_EQ(accessAt(at_), os::Access::kReadWrite);
    EXPECT_EQ(byte(), value_) << "no kernel has run";
    ASSERT_NO_FATAL_FAILURE(wait());
  });
  EXPECT_EQ(awaited(), before);
  value_ += 2;
  EXPECT_EQ(byte(), value_);
  expectPattern();
}

// What the library does for the program comes after the kernels that the program has launched.
TEST_P(ManagedProgram, WhatTheLibraryCopiesForItIsInOrder) {
  ASSERT_NO_FATAL_FAILURE(open());
  std::uint8_t seen = 0;
  ASSERT_NO_FATAL_FAILURE(kernel(at_));
  machine_->memory().copy(&seen, at_, 1, &std::memmove);
  EXPECT_EQ(seen, ++value_);
  ASSERT_NO_FATAL_FAILURE(wait());
  ASSERT_NO_FATAL_FAILURE(openAgain());

  ASSERT_NO_FATAL_FAILURE(kernel(at_));
  machine_->memory().fill(at_, 7, 1, &std::memset);
  ASSERT_NO_FATAL_FAILURE(wait());
  EXPECT_EQ(byte(), value_ = 7);
  ASSERT_NO_FATAL_FAILURE(openAgain());

  ASSERT_NO_FATAL_FAILURE(kernel(at_));
  ASSERT_TRUE(machine_->memory().hold(at_, 1, coherence::HoldFor::kRead).ok());
  EXPECT_EQ(byte(), ++value_);
  machine_->memory().unhold(at_, 1);
  machine_->verify();
  expectPattern();
}

TEST_P(ManagedProgram, WhatAKernelMayStillWriteIsNotTheCpus) {
  using coherence::Current;
  const coherence::Ports& before = coherence::open(machine_->objects().ports());
  const auto place = [&] {
    Current current{};
    EXPECT_EQ(coherence::currentPrefix(at_, 1, &current), 1u);
    return current;
  };
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_EQ(place(), Current::kCpu);
  ASSERT_NO_FATAL_FAILURE(kernel(at_));
  EXPECT_EQ(place(), Current::kAccelerator);
  ASSERT_NO_FATAL_FAILURE(wait());
  EXPECT_EQ(place(), Current::kCpu);
  coherence::open(before);
}

TEST_P(ManagedProgram, AKernelWaitsForWhatIsHeld) {
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_TRUE(machine_->memory().hold(at_, 1, coherence::HoldFor::kRead).ok());
  expectKernelWaitsForHold();
}

TEST_P(ManagedProgram, WhatIsHeldDoesNotStayOpenAtAWait) {
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_NO_FATAL_FAILURE(closeAndCome());
  fake().runAll();
  ASSERT_TRUE(machine_->memory().hold(at_, 1, coherence::HoldFor::kRead).ok());
  ASSERT_NO_FATAL_FAILURE(wait());
  expectKernelWaitsForHold();
}

TEST_P(ManagedProgram, AWaitForSomethingElseOpensNothing) {
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_NO_FATAL_FAILURE(closeAndCome());
  machine_->work().beforeDeviceWait(std::nullopt);
  ASSERT_TRUE(machine_->work().afterDeviceWait().ok());  // the kernel has not run
  EXPECT_EQ(accessAt(at_), os::Access::kNone);
  ASSERT_NO_FATAL_FAILURE(wait());
  EXPECT_EQ(accessAt(at_), os::Access::kReadWrite);
  EXPECT_EQ(byte(), value_);
}

TEST_P(ManagedProgram, WorkOfUnknownStreamsAndTheLibrarysOwnCloseIt) {
  ASSERT_NO_FATAL_FAILURE(open());
  const coherence::DeviceRange everything{nullptr, 0, true};
  ASSERT_TRUE(machine_->work().beginDeviceWork(accel::kForeignStream, {&everything, 1}).ok());
  EXPECT_EQ(accessAt(at_), os::Access::kNone);
  ASSERT_TRUE(machine_->work().endDeviceWork(accel::kForeignStream, true).ok());
  EXPECT_EQ(byte(), value_);
  ASSERT_NO_FATAL_FAILURE(openAgain());
  const coherence::DeviceRange range{at_, 1, true};
  ASSERT_TRUE(machine_->work().beginOwnWork({&range, 1}).ok());
  EXPECT_EQ(accessAt(at_), os::Access::kNone);
  ASSERT_TRUE(machine_->work().endOwnWork({&range, 1}, accel::Ticket{}).ok());
  EXPECT_EQ(byte(), value_);
  machine_->verify();
}

TEST_P(ManagedProgram, WhatIsFlushedEarlyIsClosedByTheNextKernel) {
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_TRUE(machine_->memory().startFlush(object_, kBytes).ok());
  machine_->verify();
  ASSERT_NO_FATAL_FAILURE(kernel(at_));
  EXPECT_EQ(accessAt(at_), os::Access::kNone);
  ASSERT_NO_FATAL_FAILURE(wait());
  EXPECT_EQ(byte(), ++value_);
  ASSERT_NO_FATAL_FAILURE(openAgain());
}

TEST_P(ManagedProgram, ACallOfTheLibrarysOwnInterfaceStillClosesIt) {
  ASSERT_NO_FATAL_FAILURE(open());
  machine_->call(bump_, {at_});
  EXPECT_EQ(accessAt(at_), os::Access::kNone);
  EXPECT_EQ(byte(), ++value_) << "the access waits";
  machine_->verify();
}

TEST_P(ManagedProgram, ItEndsWhereTheCpuComesNoMore) {
  ASSERT_NO_FATAL_FAILURE(open());
  const std::uint64_t before = ended();
  for (int i = 0; i < 200 && ended() == before; ++i) {
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    ++value_;
    ASSERT_NO_FATAL_FAILURE(wait());
  }
  EXPECT_EQ(ended(), before + 1);
  EXPECT_EQ(accessAt(at_), os::Access::kNone);
  expectPattern();
}

TEST_P(ManagedProgram, ItEndsWhereKernelsAreSlow) {
  MachineSetup strict = managed();
  std::uint64_t now = 1;
  strict.clock = [&now] { return now; };
  strict.zeroCopy.limits.slack = 0;
  start(strict);
  ASSERT_NO_FATAL_FAILURE(open());
  const std::uint64_t before = ended();
  int slow = 0;
  for (; slow < 20 && ended() == before; ++slow) {
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    ++value_;
    now += 1000;
    ASSERT_NO_FATAL_FAILURE(wait());
    ASSERT_EQ(byte(), value_);
    byte() = ++value_;
  }
  EXPECT_EQ(ended(), before + 1);
  EXPECT_GE(slow, 3);
  EXPECT_LE(slow, 9);
  expectPattern();
}

// Something else is to be done at each wait, so that the waits take the lock: so do the launches
// then.
TEST_P(ManagedProgram, SlowKernelsAreNoticedWhereOnlyWaitsTakeTheLock) {
  MachineSetup strict = managed();
  std::uint64_t now = 1;
  strict.clock = [&now] { return now; };
  strict.zeroCopy.limits.slack = 0;
  strict.zeroCopy.pageBytes = 64 * kMiB;
  start(strict);
  std::byte* const other = machine_->allocate(4 * kBytes);
  const std::uint64_t copies = stats().readBacks.value();
  for (int i = 0; i < 3; ++i) {
    ASSERT_NO_FATAL_FAILURE(kernel(other));
    ASSERT_NO_FATAL_FAILURE(wait());
    EXPECT_EQ(static_cast<int>(*other), i + 1);
  }
  ASSERT_EQ(stats().readBacks.value(), copies + 1);
  const auto wait = [&] {  // (The bytes that are copied back for it cannot be.)
    fake().failNext(Op::Kind::kCopyOut, 1, adsmErrorSystem);
    ManagedProgram::wait();
    fake().failNext(Op::Kind::kCopyOut, 0, adsmSuccess);
  };
  const std::uint64_t before = moved();
  for (int i = 0; i < 40 && moved() == before; ++i) {
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    wait();
    ASSERT_EQ(byte(), ++value_);
    byte() = ++value_;
  }
  ASSERT_EQ(moved(), before + 1);
  // Now and then a launch takes the lock, too, and checks whether the CPU still comes.
  const std::uint64_t calls = stats().calls.value();
  const std::uint64_t repeated = stats().repeatedCalls.value();
  for (int i = 0; i < 160; ++i) {
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    wait();
    ASSERT_EQ(byte(), ++value_);
    byte() = ++value_;
  }
  EXPECT_GE(stats().calls.value() - calls - (stats().repeatedCalls.value() - repeated), 10u);
  const std::uint64_t movedBack = ended();
  int slow = 0;
  for (; slow < 40 && ended() == movedBack; ++slow) {
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    now += 1000;
    wait();
    ASSERT_EQ(byte(), ++value_);
    byte() = ++value_;
  }
  EXPECT_EQ(ended(), movedBack + 1);
  EXPECT_LE(slow, 9);
}

// A program whose rounds were small copies the object as a whole from some time on, and the CPU
// comes no more.
TEST_P(ManagedProgram, ItEndsWhereTheProgramCopiesInPlaceOfLooking) {
  ASSERT_NO_FATAL_FAILURE(open());
  // So many that nobody looks at it for a thousand calls.
  for (int i = 0; i < 4000; ++i) {
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    ASSERT_NO_FATAL_FAILURE(wait());
    ASSERT_EQ(byte(), ++value_);
    byte() = ++value_;
  }
  const std::uint64_t before = ended();
  const auto copy = [&](bool write) {
    const coherence::DeviceRange range{at_, 1, write};
    ASSERT_TRUE(machine_->work().beginDeviceWork(kStream, {&range, 1}).ok());
    fake().submit(kStream, [] {});
    ASSERT_TRUE(machine_->work().endDeviceWork(kStream, true).ok());
  };
  int rounds = 0;
  for (; rounds < 400 && ended() == before; ++rounds) {
    ASSERT_NO_FATAL_FAILURE(copy(true));
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    ++value_;
    ASSERT_NO_FATAL_FAILURE(copy(false));
    ASSERT_NO_FATAL_FAILURE(wait());
  }
  EXPECT_EQ(ended(), before + 1);
  EXPECT_LE(rounds, 100);
  EXPECT_EQ(byte(), value_);
}

// The same, where the driver copies by the CPU, a part of the object after another: it comes for
// each, which makes no round.
TEST_P(ManagedProgram, ItEndsWhereTheDriverCopiesByTheCpu) {
  MachineSetup strict = managed();
  std::uint64_t now = 1;
  strict.clock = [&now] { return now; };
  strict.zeroCopy.limits.slack = 0;
  start(strict);
  ASSERT_NO_FATAL_FAILURE(open());
  const std::uint64_t before = ended();
  std::vector<std::byte> copy(kBlock / 2);
  int rounds = 0;
  for (; rounds < 400 && ended() == before; ++rounds) {
    std::byte* const part = object_ + static_cast<std::size_t>(rounds) % (kBytes / kBlock) * kBlock;
    std::memcpy(copy.data(), part, copy.size());
    std::memcpy(part, copy.data(), copy.size());
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    ++value_;
    now += 1000;
    ASSERT_NO_FATAL_FAILURE(wait());
  }
  EXPECT_EQ(ended(), before + 1);
  EXPECT_LE(rounds, 100);
  EXPECT_EQ(byte(), value_);
}

// Threads that launch one kernel after another, each on its own stream: there is no wait after
// which nothing is in flight.
class BusyStreams : public ManagedProgram {
 protected:
  static constexpr accel::NativeStream kOther{4};

  // Its kernel has ended at the end of the wait, and the other stream's newest has not.
  void busyRound() {
    (void)machine_->launch(kOther, [] {});
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    const coherence::DeviceWait wait = machine_->work().beforeDeviceWait(kStream);
    fake().runAll();
    (void)machine_->launch(kOther, [] {});
    ASSERT_TRUE(machine_->work().afterDeviceWait(wait).ok());
    ASSERT_EQ(byte(), ++value_);
    byte() = ++value_;
  }
  void busyRounds(int most) {
    const std::uint64_t before = moved();
    for (int i = 0; i < most && moved() == before; ++i) {
      ASSERT_NO_FATAL_FAILURE(busyRound());
    }
  }
};

TEST_P(BusyStreams, AnObjectMovesWhileLaunchesAreHeldUp) {
  fake().runWhenAsked(40);
  const std::uint64_t before = moved();
  ASSERT_NO_FATAL_FAILURE(busyRounds(200));
  ASSERT_EQ(moved(), before + 1);
  EXPECT_EQ(accessAt(at_), os::Access::kReadWrite);
  fake().runWhenAsked(0);
  ASSERT_NO_FATAL_FAILURE(kernel(at_));
  EXPECT_EQ(accessAt(at_), os::Access::kReadWrite) << "kernels leave it open from then on";
  ASSERT_NO_FATAL_FAILURE(wait());
  EXPECT_EQ(byte(), ++value_);
  machine_->verify();
  expectPattern();
}

TEST_P(BusyStreams, LaunchesAreNotHeldUpForAKernelThatDoesNotEnd) {
  const std::uint64_t before = moved();
  ASSERT_NO_FATAL_FAILURE(busyRounds(200));
  EXPECT_EQ(moved(), before);
  machine_->verify();
  expectPattern();
}

// As by a thread that reads a pipe into it, which the waiting thread feeds.
TEST_P(ManagedProgram, WhatIsHeldMovesLater) {
  const std::uint64_t before = moved();
  for (int i = 0; i < 100; ++i) {
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    const coherence::DeviceWait wait = machine_->work().beforeDeviceWait(kStream);
    fake().runAll();
    ASSERT_TRUE(machine_->memory().hold(at_, 1, coherence::HoldFor::kRead).ok());
    ASSERT_TRUE(machine_->work().afterDeviceWait(wait).ok());
    machine_->memory().unhold(at_, 1);
    ASSERT_EQ(byte(), ++value_);
    byte() = ++value_;
  }
  ASSERT_EQ(moved(), before);
  ASSERT_NO_FATAL_FAILURE(managedRound());
  EXPECT_EQ(moved(), before + 1);
  expectPattern();
}

// Each of them stores a word of an object of its own, launches on its own stream, waits for that,
// and loads the word. Whose kernels run is the device's business, so there is always work in
// flight.
TEST_P(BusyStreams, TheObjectsOfThreadsWithAStreamEachGetOneCopy) {
  constexpr int kThreads = 4;
  constexpr std::uint32_t kMostRounds = 20'000;
  MachineSetup busy = managed();
  busy.zeroCopy.limits = {};
  // Time passes as the program goes on, however busy the machine is.
  auto clock = std::make_shared<std::atomic<std::uint64_t>>(1);
  busy.clock = [clock] { return clock->fetch_add(500) + 500; };
  start(busy);
  std::array<std::byte*, kThreads> objects{};
  for (std::byte*& object : objects) {
    object = machine_->allocate(kBlock);
  }
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
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const accel::NativeStream stream{static_cast<std::uintptr_t>(10 + i)};
      auto* const word = reinterpret_cast<volatile std::uint32_t*>(objects[i]);
      std::atomic<std::uint32_t> ran{0};
      for (std::uint32_t round = 1; round <= kMostRounds && !allMoved(); ++round) {
        *word = 2 * round;
        (void)machine_->launch(stream, [this, &ran, round, at = objects[i]] {
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

// Two streams of one thread, each with an object of its own.
class StreamsInTurns : public BusyStreams {
 protected:
  enum class Step : std::uint8_t {
    kLaunchFirst,
    kLaunchSecond,
    kWaitFirst,
    kWaitSecond,
    kWaitAll,
    kWaitIdle,  // for a stream without work
    kEventOfFirst,
    kEventOfSecond,
    kLock
  };
  using Turn = std::vector<Step>;

  void startTurns() {
    fake().runAll();
    MachineSetup strict = managed();
    strict.clock = [this] { return now_; };
    strict.zeroCopy.limits.slack = 0;
    start(strict);
    for (Stream& one : streams_) {
      one.bytes = machine_->allocateArray<std::uint8_t>(kBlock);
      one.value = one.bytes[0];
    }
  }
  // Once each; the CPU comes for what it has waited for.
  void take(const Turn& turn) {
    for (const Step step : turn) {
      const bool second =
          step == Step::kLaunchSecond || step == Step::kWaitSecond || step == Step::kEventOfSecond;
      if (second && other_ != nullptr) {
        other_->does([&] { ASSERT_NO_FATAL_FAILURE(take(step)); });
      } else {
        ASSERT_NO_FATAL_FAILURE(take(step));
      }
    }
  }
  void take(Step step) {
    switch (step) {
      case Step::kLaunchFirst:
      case Step::kLaunchSecond:
        return launch(streams_[step == Step::kLaunchFirst ? 0 : 1]);
      case Step::kWaitFirst:
        return waitFor({&streams_[0]}, streams_[0].stream);
      case Step::kWaitSecond:
        return waitFor({&streams_[1]}, streams_[1].stream);
      case Step::kWaitAll:
        return waitFor({&streams_[0], &streams_[1]}, std::nullopt);
      case Step::kWaitIdle:
        return waitFor({}, accel::NativeStream{5});
      case Step::kEventOfFirst:
        return waitFor({&streams_[0]}, accel::kForeignStream);
      case Step::kEventOfSecond:
        return waitFor({&streams_[1]}, accel::kForeignStream);
      case Step::kLock:
        return machine_->verify();
    }
  }
  // Once both have one copy, kernels of one of them become slow.
  void expectSlowRoundsAreSeen(const Turn& turn, std::size_t slow, int rounds) {
    ASSERT_NO_FATAL_FAILURE(startTurns());
    const std::uint64_t before = moved();
    const std::uint64_t movedBack = ended();
    for (int i = 0; i < 300; ++i) {
      ASSERT_NO_FATAL_FAILURE(take(turn));
    }
    ASSERT_EQ(moved(), before + 2);
    ASSERT_EQ(ended(), movedBack);
    streams_[slow].takes = 1000;
    for (int i = 0; i < rounds && ended() == movedBack; ++i) {
      ASSERT_NO_FATAL_FAILURE(take(turn));
    }
    EXPECT_NE(ended(), movedBack);
    streams_[slow].takes = 10;
  }

  struct Stream {
    accel::NativeStream stream{};
    std::uint8_t* bytes = nullptr;
    std::uint8_t value = 0;
    std::uint64_t takes = 10;
  };
  void launch(Stream& one) {
    (void)machine_->launch(one.stream, [&one, this] {
      ++*fake().at(one.bytes);
      now_ += one.takes;
    });
    ++one.value;
  }
  void waitFor(std::initializer_list<Stream*> some, std::optional<accel::NativeStream> stream) {
    const coherence::DeviceWait wait = machine_->work().beforeDeviceWait(stream);
    ++waits_;
    skipped_ += wait.skipped ? 1 : 0;
    for (Stream* const one : some) {
      fake().runStream(one->stream);
    }
    ASSERT_TRUE(machine_->work().afterDeviceWait(wait).ok());
    for (Stream* const one : some) {
      ASSERT_EQ(*const_cast<volatile std::uint8_t*>(one->bytes), one->value);
      *const_cast<volatile std::uint8_t*>(one->bytes) = ++one->value;
    }
  }

  std::uint64_t now_ = 1;
  OtherThread* other_ = nullptr;  // whose stream the second one is
  int waits_ = 0;
  int skipped_ = 0;
  std::array<Stream, 2> streams_{Stream{kStream}, Stream{kOther}};
};

// Whether or not there is always one that has begun: each stream's are measured for themselves.
TEST_P(StreamsInTurns, MostOfTheirRoundsTakeNoLock) {
  using enum Step;
  const Turn turns[] = {
      {kLaunchFirst, kWaitFirst, kLaunchSecond, kWaitSecond},
      {kLaunchFirst, kLaunchSecond, kWaitFirst, kWaitSecond},
      {kLaunchFirst, kLaunchSecond, kWaitAll},
      {kLaunchFirst, kWaitSecond, kLaunchSecond, kWaitFirst},  // there always is
      {kLaunchFirst, kWaitIdle, kWaitFirst, kWaitIdle, kLaunchSecond, kWaitSecond},
      {kLaunchFirst, kEventOfFirst, kLaunchSecond, kEventOfSecond},
  };
  for (std::size_t i = 0; i < std::size(turns); ++i) {
    SCOPED_TRACE(::testing::Message() << "turn " << i);
    ASSERT_NO_FATAL_FAILURE(startTurns());
    for (int k = 0; k < 300; ++k) {
      ASSERT_NO_FATAL_FAILURE(take(turns[0]));
    }
    streams_[0].takes = streams_[1].takes = 4;  // (a round may be as long as two kernels then)
    const std::uint64_t calls = stats().calls.value();
    const std::uint64_t repeated = stats().repeatedCalls.value();
    waits_ = skipped_ = 0;
    for (int k = 0; k < 320; ++k) {
      ASSERT_NO_FATAL_FAILURE(take(turns[i]));
    }
    EXPECT_GE(skipped_, waits_ * 3 / 4) << "of " << waits_;
    EXPECT_TRUE(i != 0 || skipped_ >= waits_ - waits_ / 40)
        << skipped_ << " of " << waits_ << ": a launch with the lock is no reason for a wait";
    EXPECT_GE(stats().repeatedCalls.value() - repeated, (stats().calls.value() - calls) * 3 / 4);
    streams_[0].takes = streams_[1].takes = 10;
  }
}

// None is lost where something else takes the lock in between.
TEST_P(StreamsInTurns, SlowRoundsOfEitherAreSeen) {
  using enum Step;
  const Turn turns[] = {
      {kLaunchFirst, kWaitFirst, kLaunchSecond, kWaitSecond},
      {kLaunchFirst, kLaunchSecond, kWaitFirst, kWaitSecond},
      {kLaunchFirst, kLaunchSecond, kWaitSecond, kWaitFirst},
      {kLaunchFirst, kLaunchSecond, kLock, kWaitFirst, kWaitSecond},
      {kLaunchFirst, kWaitFirst, kLaunchSecond, kLock, kWaitSecond},
      {kLock, kLaunchFirst, kLaunchSecond, kWaitFirst, kWaitSecond},
      {kLaunchFirst, kWaitFirst, kLock, kLaunchSecond, kLock, kWaitSecond},
      {kLaunchFirst, kLaunchSecond, kWaitAll},
      {kLaunchFirst, kLock, kLaunchSecond, kWaitAll},
      {kLaunchFirst, kEventOfFirst, kLaunchSecond, kEventOfSecond},
      {kLaunchFirst, kEventOfFirst, kLock, kLaunchSecond, kLock, kEventOfSecond},
  };
  for (std::size_t i = 0; i < std::size(turns); ++i) {
    for (const std::size_t slow : {0, 1}) {
      SCOPED_TRACE(::testing::Message() << "turn " << i << ", slow " << slow);
      ASSERT_NO_FATAL_FAILURE(expectSlowRoundsAreSeen(turns[i], slow, 60));
    }
  }
}

// The second stream is another thread's.
TEST_P(StreamsInTurns, SlowRoundsOfEitherThreadAreSeen) {
  using enum Step;
  OtherThread other;
  other_ = &other;
  const Turn turns[] = {
      {kLaunchFirst, kLaunchSecond, kWaitFirst, kWaitSecond},
      {kLaunchFirst, kLaunchSecond, kLock, kWaitFirst, kLock, kWaitSecond},
      {kLaunchFirst, kLaunchSecond, kEventOfFirst, kEventOfSecond},
      {kLaunchFirst, kLaunchSecond, kLock, kEventOfFirst, kLock, kEventOfSecond},
  };
  for (std::size_t i = 0; i < std::size(turns); ++i) {
    for (const std::size_t slow : {0, 1}) {
      SCOPED_TRACE(::testing::Message() << "turn " << i << ", slow " << slow);
      ASSERT_NO_FATAL_FAILURE(expectSlowRoundsAreSeen(turns[i], slow, 200));
    }
  }
  other_ = nullptr;
}

// Two threads that each wait for events of their own, so that the other one's kernel still runs.
TEST_P(BusyStreams, RoundsOfThreadsEndWithTheirOwnEvents) {
  fake().runWhenAsked(40);
  OtherThread other;
  std::byte* const second = machine_->allocate(kBlock);
  const auto at = [](std::byte* byte) { return reinterpret_cast<std::uint8_t*>(byte); };
  const auto see = [&](std::byte * byte) -> volatile std::uint8_t& { return *at(byte); };
  std::uint8_t value = see(second);
  const std::uint64_t before = moved();
  const auto round = [&](std::byte* object, accel::NativeStream stream, std::uint8_t* sum) {
    const coherence::DeviceWait wait = machine_->work().beforeDeviceWait(accel::kForeignStream);
    fake().runStream(stream);
    ASSERT_TRUE(machine_->work().afterDeviceWait(wait).ok());
    ASSERT_EQ(see(object), ++*sum);
    see(object) = ++*sum;
    (void)machine_->launch(stream, [=, this] { ++*fake().at(at(object)); });
  };
  (void)machine_->launch(kStream, [=, this] { ++*fake().at(at(at_)); });
  other.does([&] { (void)machine_->launch(kOther, [=, this] { ++*fake().at(at(second)); }); });
  for (int i = 0; i < 100 && moved() < before + 2; ++i) {
    ASSERT_NO_FATAL_FAILURE(round(at_, kStream, &value_));
    other.does([&] { ASSERT_NO_FATAL_FAILURE(round(second, kOther, &value)); });
  }
  EXPECT_EQ(moved(), before + 2);
}

// Its kernels would reach the object over the bus, too.
TEST_P(BusyStreams, LongWorkOnAnotherStreamIsEvidenceAgainstIt) {
  MachineSetup strict = managed();
  std::uint64_t now = 1;
  strict.clock = [&now] { return now; };
  strict.zeroCopy.limits.longest = 100'000;
  strict.zeroCopy.limits.each = 0;
  start(strict);
  const std::uint64_t before = moved();
  for (int i = 0; i < 100; ++i) {
    ASSERT_NO_FATAL_FAILURE(busyRound());
    now += 60'000;
  }
  ASSERT_EQ(moved(), before);
  for (int i = 0; i < 20 && moved() == before; ++i) {
    ASSERT_NO_FATAL_FAILURE(managedRound());
    now += 60'000;
  }
  EXPECT_EQ(moved(), before + 1) << "once none is left";
}

// A thread that waits for all the others that work.
TEST_P(BusyStreams, AThreadThatNeverWaitsIsWaitedForByOthers) {
  OtherThread other;
  const std::uint64_t before = moved();
  for (int i = 0; i < 100 && moved() == before; ++i) {
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    ASSERT_NO_FATAL_FAILURE(wait());
    other.does([&] {
      EXPECT_EQ(byte(), ++value_);
      byte() = ++value_;
    });
  }
  EXPECT_EQ(moved(), before + 1);
}

// What has one copy already, and has been closed to see whether the CPU still comes, is open again
// after the wait for its own stream.
TEST_P(BusyStreams, WhatHasBeenLookedAtIsOpenAgain) {
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_NO_FATAL_FAILURE(closeAndCome());
  const coherence::DeviceWait wait = machine_->work().beforeDeviceWait(kStream);
  fake().runAll();
  (void)machine_->launch(kOther, [] {});
  EXPECT_EQ(accessAt(at_), os::Access::kNone);
  ASSERT_TRUE(machine_->work().afterDeviceWait(wait).ok());
  EXPECT_EQ(accessAt(at_), os::Access::kReadWrite);
  EXPECT_EQ(byte(), value_);
  machine_->verify();
}

TEST_P(BusyStreams, AWaitForTheOtherStreamOpensItToo) {
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_NO_FATAL_FAILURE(closeAndCome());
  const coherence::DeviceWait forOther = machine_->work().beforeDeviceWait(kOther);
  ASSERT_TRUE(machine_->work().afterDeviceWait(forOther).ok());
  EXPECT_EQ(accessAt(at_), os::Access::kReadWrite) << "as for a program for managed memory";
  ASSERT_NO_FATAL_FAILURE(wait());
  EXPECT_EQ(byte(), value_);
}

// A kernel that may use it is under way; with one copy there is nothing to wait for.
TEST_P(ManagedProgram, AnAccessOpensItBesideKernels) {
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_NO_FATAL_FAILURE(closeAndCome());
  ASSERT_EQ(accessAt(at_), os::Access::kNone);
  EXPECT_EQ(byte(), value_ - 1) << "the kernel has not run";
  EXPECT_EQ(accessAt(object_), os::Access::kReadWrite) << "all of it is open, and used at once";
  EXPECT_EQ(fake().pending(), 1u);
  ASSERT_NO_FATAL_FAILURE(kernel(at_));
  EXPECT_EQ(accessAt(at_), os::Access::kReadWrite);
  machine_->verify();
  ASSERT_NO_FATAL_FAILURE(wait());
  EXPECT_EQ(byte(), ++value_);
  expectPattern();
}

// Copies, packs and the like keep their order.
TEST_P(ManagedProgram, AnAccessWaitsForWorkThatNamesIt) {
  ASSERT_NO_FATAL_FAILURE(open());
  const coherence::DeviceRange everything{nullptr, 0, true};
  ASSERT_TRUE(machine_->work().beginDeviceWork(accel::kForeignStream, {&everything, 1}).ok());
  ASSERT_TRUE(machine_->work().endDeviceWork(accel::kForeignStream, true).ok());
  const coherence::DeviceRange range{at_, 1, true};
  ASSERT_TRUE(machine_->work().beginDeviceWork(kStream, {&range, 1}).ok());
  fake().submit(kStream, [this] { ++*fake().at(reinterpret_cast<std::uint8_t*>(at_)); });
  ASSERT_TRUE(machine_->work().endDeviceWork(kStream, true).ok());
  EXPECT_EQ(byte(), ++value_);
  ASSERT_NO_FATAL_FAILURE(openAgain());
}

// Not while the library is about to use it after them.
TEST_P(ManagedProgram, AnAccessDoesNotOpenWhatIsOrdered) {
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_NO_FATAL_FAILURE(closeAndCome());
  coherence::Loan loan{};
  EXPECT_FALSE(machine_->memory().lend(at_, 1, &loan));
  EXPECT_EQ(byte(), value_) << "as for a program whose accesses wait";
  ASSERT_NO_FATAL_FAILURE(openAgain());
}

// Where the library is about to use it for the program, after its kernels.
TEST_P(BusyStreams, AWaitForTheOtherStreamDoesNotOpenWhatIsOrdered) {
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_NO_FATAL_FAILURE(closeAndCome());
  coherence::Loan loan{};
  EXPECT_FALSE(machine_->memory().lend(at_, 1, &loan));  // which waits for nothing
  const coherence::DeviceWait forOther = machine_->work().beforeDeviceWait(kOther);
  ASSERT_TRUE(machine_->work().afterDeviceWait(forOther).ok());
  EXPECT_EQ(accessAt(at_), os::Access::kNone);
  ASSERT_TRUE(machine_->memory().hold(at_, 1, coherence::HoldFor::kRead).ok());
  EXPECT_EQ(byte(), value_);
  machine_->memory().unhold(at_, 1);
  ASSERT_NO_FATAL_FAILURE(openAgain());
}

// The program's question about another stream, on which nothing was launched, ends no round.
TEST_P(ManagedProgram, AWaitForAnIdleStreamIsNoRound) {
  constexpr accel::NativeStream kIdle{9};
  const std::uint64_t before = moved();
  for (int i = 0; i < 100; ++i) {
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    const coherence::DeviceWait idle = machine_->work().beforeDeviceWait(kIdle);
    ASSERT_TRUE(machine_->work().afterDeviceWait(idle).ok());
    fake().runAll();
    ASSERT_EQ(byte(), ++value_);
    byte() = ++value_;
  }
  EXPECT_EQ(moved(), before);
}

// It ends where the program copies in place of looking, which somebody has to see.
TEST_P(ManagedProgram, LaunchesRepeatAndCopiesDoNot) {
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_NO_FATAL_FAILURE(kernel(at_));
  EXPECT_FALSE(machine_->work().beginRepeated(kStream, true));
  ASSERT_TRUE(machine_->work().beginRepeated(kStream));
  machine_->work().endRepeated(kStream, false);
  ASSERT_NO_FATAL_FAILURE(wait());
  EXPECT_EQ(byte(), ++value_);
}

// Nor is the wait of a call of the program's for its own work: the launches after it are a round.
TEST_P(ManagedProgram, AFillThatIsWaitedForEndsNoRound) {
  const std::uint64_t before = moved();
  for (int i = 0; i < 60 && moved() == before; ++i) {
    const coherence::DeviceRange range{object_, kBytes, true};
    ASSERT_TRUE(machine_->work().beginDeviceWork(kStream, {&range, 1}).ok());
    fake().submit(kStream, [this] { *fake().at(reinterpret_cast<std::uint8_t*>(at_)) = 3; });
    ASSERT_TRUE(machine_->work().endDeviceWork(kStream, true).ok());
    fake().runAll();
    ASSERT_TRUE(machine_->work().afterDeviceWait({.ofOwn = true, .stream = kStream}).ok());
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    ASSERT_NO_FATAL_FAILURE(wait());
    ASSERT_EQ(byte(), 4);
    machine_->verify();
  }
  EXPECT_EQ(moved(), before + 1);
}

// What two copies cost besides the kernels counts: a kernel may take so much longer with one copy.
class CostOfCopies : public ManagedProgram {
 protected:
  static constexpr std::uint64_t kUs = 1'000;
  static constexpr std::uint64_t kCopy = 10 * kUs;
  static constexpr std::uint64_t kKernel = 10 * kUs;
  static constexpr std::uint64_t kOverTheBus = 19 * kUs;

  CostOfCopies() {
    MachineSetup strict = managed();
    strict.clock = [this] { return now_; };
    strict.zeroCopy.limits.slack = 0;
    strict.zeroCopy.limits.longest = 300 * kUs;
    start(strict);
  }
  // Gets one copy, with which kernels take longer. Whether it keeps that.
  template <typename Round>
  bool keepsIt(Round round) {
    const std::uint64_t before = moved();
    for (int i = 0; i < 60 && moved() == before; ++i) {
      round(i);
    }
    EXPECT_EQ(moved(), before + 1);
    takes_ = over_;
    const std::uint64_t back = ended();
    for (int i = 0; i < 200; ++i) {
      round(i);
    }
    return ended() == back;
  }
  void timedKernel(std::byte* at) {
    kernel(at);
    now_ += takes_;
  }

  std::uint64_t now_ = 1;
  std::uint64_t takes_ = kKernel;
  std::uint64_t over_ = kOverTheBus;
};

// Of what the CPU has stored, before a launch.
TEST_P(CostOfCopies, CountsBeforeALaunch) {
  const auto round = [this](int) {
    timedKernel(at_);
    wait();
    EXPECT_EQ(byte(), ++value_);
    byte() = ++value_;
  };
  fake().onCopyIn([this] { now_ += kCopy; });
  EXPECT_TRUE(keepsIt(round));
  expectPattern();
}

// After a call that has waited for work of its own, a pause of the program counts for nothing.
TEST_P(CostOfCopies, PausesOfTheProgramDoNot) {
  over_ = 8 * kKernel;
  EXPECT_FALSE(keepsIt([this](int) {
    timedKernel(at_);
    ++value_;
    fake().runAll();
    EXPECT_TRUE(machine_->work().afterDeviceWait({.ofOwn = true, .stream = kStream}).ok());
    now_ += 20 * kKernel;
    timedKernel(at_);
    wait();
    EXPECT_EQ(byte(), ++value_);
    byte() = ++value_;
  }));
}

// Of what it reads after a wait, now here, now there.
class CostOfFetches : public CostOfCopies {
 protected:
  // Whether it keeps one copy where each such fetch took so long before.
  bool keepsItAfter(std::uint64_t fetch) {
    fake().onCopyOut([this, fetch] { now_ += afterWait_ ? fetch : 0; });
    return keepsIt([this](int i) {
      const auto block = static_cast<std::size_t>(i) % sums_.size();
      std::byte* const at = object_ + block * kBlock;
      const auto sum = [at] { return *reinterpret_cast<volatile std::uint8_t*>(at); };
      const auto expected = static_cast<std::uint8_t>(
          static_cast<unsigned>(patternAt(block * kBlock)) + (sums_.at(block) += 2));
      timedKernel(at);
      fake().runAll();
      EXPECT_EQ(sum(), static_cast<std::uint8_t>(expected - 1));
      timedKernel(at);
      wait();
      afterWait_ = true;
      EXPECT_EQ(sum(), expected);
      afterWait_ = false;
    });
  }

  std::array<unsigned, kBytes / kBlock> sums_{};
  bool afterWait_ = false;
};

TEST_P(CostOfFetches, CountsAfterAWait) { EXPECT_TRUE(keepsItAfter(2 * kCopy)); }

// But no more than the round itself takes: who knows what kept the copy waiting.
TEST_P(CostOfFetches, CountsNoMoreThanTheRound) {
  over_ = 3 * kKernel;
  EXPECT_FALSE(keepsItAfter(100 * kCopy));
}

TEST_P(ManagedProgram, RoundsEndWithEventsToo) {
  const std::uint64_t before = moved();
  for (int i = 0; i < 40 && moved() == before; ++i) {
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    const bool asks = i % 2 == 0;
    const coherence::DeviceWait wait =
        machine_->work().beforeDeviceWait(accel::kForeignStream, asks);
    fake().runAll();
    ASSERT_TRUE(machine_->work().afterDeviceWait(wait).ok());
    ASSERT_EQ(byte(), ++value_);
    byte() = ++value_;
    machine_->verify();
  }
  EXPECT_EQ(moved(), before + 1);
}

// Rounds of such a program are its launches, the wait and no more, but for a check now and then.
TEST_P(ManagedProgram, RoundsOfManyLaunchesTakeNoLock) {
  ASSERT_NO_FATAL_FAILURE(open());
  const std::uint64_t repeated = stats().repeatedCalls.value();
  constexpr std::uint64_t kMore = 40;
  constexpr std::uint64_t kEach = 8;
  for (std::uint64_t i = 0; i < kMore; ++i) {
    for (std::uint64_t k = 0; k < kEach; ++k) {
      ASSERT_NO_FATAL_FAILURE(kernel(at_));
      ++value_;
    }
    ASSERT_NO_FATAL_FAILURE(wait());
    ASSERT_EQ(byte(), value_);
    byte() = ++value_;
  }
  EXPECT_GE(stats().repeatedCalls.value() - repeated, kMore * kEach * 31 / 32);
  machine_->verify();
  expectPattern();
}

// A wait lets no more repeat than may without one.
TEST_P(ManagedProgram, LaunchesThatNothingWaitsForTakeTheLock) {
  ASSERT_NO_FATAL_FAILURE(open());
  for (int i = 0; i < 20; ++i) {
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    ASSERT_NO_FATAL_FAILURE(wait());
    ASSERT_EQ(byte(), ++value_);
  }
  std::uint64_t inARow = 0;
  std::uint64_t most = 0;
  for (int i = 0; i < 64; ++i) {
    const std::uint64_t repeated = stats().repeatedCalls.value();
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    inARow = stats().repeatedCalls.value() != repeated ? inARow + 1 : 0;
    most = std::max(most, inARow);
  }
  EXPECT_GT(most, 0U);
  EXPECT_LE(most, RepeatedLaunches::kMostUnchecked);
}

// One in sixteen is looked at, at most.
TEST_P(ManagedProgram, MostOfItsRoundsTakeNoLock) {
  ASSERT_NO_FATAL_FAILURE(open());
  const std::uint64_t calls = stats().calls.value();
  const std::uint64_t repeated = stats().repeatedCalls.value();
  fake().clearLog();
  constexpr std::uint64_t kMore = 160;
  for (std::uint64_t i = 0; i < kMore; ++i) {
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    ASSERT_NO_FATAL_FAILURE(wait());
    ASSERT_EQ(byte(), ++value_);
    byte() = ++value_;
  }
  EXPECT_EQ(stats().calls.value() - calls, kMore);
  EXPECT_GE(stats().repeatedCalls.value() - repeated, kMore * 14 / 16);
  EXPECT_LE(fake().log({Op::Kind::kMark}).size(), kMore / 8);
  machine_->verify();
  expectPattern();
}

TEST_P(ManagedProgram, ItMovesBackBeforeItIsFreed) {
  ASSERT_NO_FATAL_FAILURE(open());
  fake().clearLog();
  machine_->free(object_);
  EXPECT_THAT(moves(), ElementsAre(movedTo(accel::Home::kDevice)));
  object_ = machine_->allocate(kBytes);
  object_[3] = std::byte{3};
  machine_->call(bump_, {object_ + 3});
  EXPECT_EQ(object_[3], std::byte{4});
  machine_->verify();
}

TEST_P(AwaitedCalls, AnObjectThatThreadsHoldIsWaitedFor) {
  ASSERT_NO_FATAL_FAILURE(beginToWait());
  ASSERT_TRUE(machine_->memory().hold(at_, 1, false).ok());
  std::atomic<bool> called{false};
  std::thread caller([&] {
    machine_->call(bump_, {at_});
    called = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(called);
  EXPECT_EQ(byte(), value_);
  machine_->memory().unhold(at_, 1);
  caller.join();
  EXPECT_EQ(byte(), ++value_);
}

TEST_P(AwaitedCalls, AMoveBackClosesIt) {
  ASSERT_NO_FATAL_FAILURE(beginToWait());
  const std::uint64_t before = ended();
  for (int i = 0; i < 100 && ended() == before; ++i) {
    call();
    machine_->sync();
  }
  EXPECT_EQ(ended(), before + 1) << "the CPU comes no more";
  EXPECT_EQ(accessAt(at_), os::Access::kNone);
  expectPattern();
}

TEST_P(AwaitedCalls, SlowKernelsMoveItBackAtTheWait) {
  MachineSetup strict = setup();
  std::uint64_t now = 1;
  std::uint64_t took = 0;
  strict.fake.run = FakeOptions::Run::kEager;
  strict.clock = [&now] { return now; };
  strict.zeroCopy.limits.slack = 0;
  strict.zeroCopy.prompt = {.leastRounds = kRounds, .soon = UINT64_MAX};
  start(strict);
  bump_ = fake().kernel("slow bump", 1, [&, fake = &fake()](const LaunchShape&, void** args) {
    now += took;
    ++*fake->argument<std::uint8_t>(args, 0);
  });
  ASSERT_NO_FATAL_FAILURE(beginToWait());
  const std::uint64_t before = ended();
  took = 1000;
  int slow = 0;
  for (; slow < 20 && ended() == before; ++slow) {
    ASSERT_NO_FATAL_FAILURE(round());
  }
  EXPECT_EQ(ended(), before + 1);
  EXPECT_GE(slow, 3);
  EXPECT_LE(slow, 9);
  expectPattern();
}

// The fake's kernels run only when something waits for them in earnest.
TEST_P(AwaitedCalls, ALongKernelIsNotWaitedForToItsEnd) {
  MachineSetup prompt = setup();
  prompt.zeroCopy.limits.slack = 0;
  prompt.zeroCopy.prompt = {.leastRounds = kRounds, .soon = UINT64_MAX};
  start(prompt);
  for (int i = 0; i < 1000 && moved() == ended(); ++i) {
    ASSERT_NO_FATAL_FAILURE(round());
  }
  const std::uint64_t before = awaited();
  for (int i = 0; i < 100 && awaited() == before; ++i) {
    call();
    ASSERT_EQ(accessAt(at_), os::Access::kNone) << "it runs still";
    machine_->sync();
    ASSERT_EQ(byte(), value_);
    byte() = ++value_;
  }
  EXPECT_EQ(awaited(), before + 1);
  // After three the object is watched by itself first.
  for (int i = 0; i < 20; ++i) {
    call();
    machine_->sync();
    ASSERT_EQ(byte(), value_);
    byte() = ++value_;
  }
  EXPECT_EQ(awaited(), before + 3);
  expectPattern();
}

TEST_P(AwaitedCalls, AKernelThatFailsIsToldOfByTheWait) {
  ASSERT_NO_FATAL_FAILURE(beginToWait());
  fake().crashKernel(1);
  EXPECT_TRUE(machine_->tryCall(bump_, {at_}).ok());
  EXPECT_EQ(machine_->objects().sync().code(), adsmErrorKernel);
}

// A program launches kernel after kernel and waits for none; kernels are slow where the object has
// one copy, or by themselves.
class Unwaited : public ManagedProgram {
 protected:
  static constexpr std::uint64_t kUs = 1000;

  Unwaited() {
    MachineSetup timed = managed();
    timed.clock = [this] { return now_; };
    start(timed);
  }
  void flagRounds(int count) {
    for (int i = 0; i < count; ++i) {
      now_ += 10 * kUs;
      ASSERT_NO_FATAL_FAILURE(managedRound());
    }
  }
  void getOneCopy() {
    const std::uint64_t before = moved();
    for (int i = 0; i < 40 && moved() == before; ++i) {
      ASSERT_NO_FATAL_FAILURE(flagRounds(1));
    }
    ASSERT_EQ(moved(), before + 1);
    ASSERT_NO_FATAL_FAILURE(flagRounds(4));
  }
  bool hasOneCopy() const { return moved() - ended() == oneCopies_ + 1; }
  // The device lags behind the program: kernels run when their end is asked for again and again,
  // and take `each`.
  template <typename Launch>
  void onDevice(const std::function<std::uint64_t()>& each, int count, Launch launch) {
    each_ = each;
    fake().runWhenAsked(kAsked);
    for (int i = 0; i < count; ++i) {
      now_ += 2 * kUs;
      launch();
    }
    fake().runAll();
    fake().runWhenAsked(0);
    value_ += static_cast<std::uint8_t>(count);
  }
  void timedKernel() {
    (void)machine_->launch(kStream, [this] {
      now_ += each_();
      ++*fake().at(reinterpret_cast<std::uint8_t*>(at_));
    });
  }
  void launches(int count, bool slowByThemselves) {
    onDevice([=, this] { return slowByThemselves || hasOneCopy() ? 44 * kUs : 4 * kUs; }, count,
             [this] { timedKernel(); });
    machine_->verify();
  }

  // Kernels are slow by themselves, in so many launches after the move as well; then the program
  // waits, and the next rounds give the object one copy again.
  void moveInVain(int after) {
    ASSERT_NO_FATAL_FAILURE(getOneCopy());
    const std::uint64_t before = ended();
    ASSERT_NO_FATAL_FAILURE(launches(64 + 3 * 16, true));
    ASSERT_EQ(ended(), before + 1);
    ASSERT_NO_FATAL_FAILURE(launches(after, true));
    ASSERT_NO_FATAL_FAILURE(wait());
    EXPECT_EQ(byte(), value_);
    const std::uint64_t again = moved();
    ASSERT_NO_FATAL_FAILURE(flagRounds(3));
    EXPECT_EQ(moved(), again + 1);
  }

  static constexpr std::uint64_t kAsked = 8;
  std::function<std::uint64_t()> each_;
  std::uint64_t now_ = 1;
  const std::uint64_t oneCopies_ = moved() - ended();  // of other tests
};

TEST_P(Unwaited, SlowKernelsGiveItTwoCopies) {
  ASSERT_NO_FATAL_FAILURE(getOneCopy());
  const std::uint64_t before = ended();
  ASSERT_NO_FATAL_FAILURE(launches(64 + 3 * 16, false));
  EXPECT_EQ(ended(), before + 1);
  ASSERT_NO_FATAL_FAILURE(launches(1000, false));
  EXPECT_EQ(ended(), before + 1);
  ASSERT_NO_FATAL_FAILURE(wait());
  EXPECT_EQ(byte(), value_);
  expectPattern();
  const std::uint64_t again = moved();
  ASSERT_NO_FATAL_FAILURE(flagRounds(2 * kRounds - 1));
  EXPECT_EQ(moved(), again) << "it takes twice the evidence now";
  ASSERT_NO_FATAL_FAILURE(getOneCopy());
}

TEST_P(Unwaited, WhereThatIsInVainItsNextRoundGivesItOneCopy) {
  ASSERT_NO_FATAL_FAILURE(moveInVain(1000));
  expectPattern();
}

TEST_P(Unwaited, AWaitEndsTheTrialToo) { ASSERT_NO_FATAL_FAILURE(moveInVain(20)); }

// The program takes its time between launches, and no kernel is behind.
TEST_P(Unwaited, SlowLaunchesLeaveItAlone) {
  ASSERT_NO_FATAL_FAILURE(getOneCopy());
  const std::uint64_t before = ended();
  for (int i = 0; i < 500; ++i) {
    now_ += 100 * kUs;
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    fake().runAll();
    ++value_;
  }
  EXPECT_EQ(ended(), before);
  ASSERT_NO_FATAL_FAILURE(wait());
  EXPECT_EQ(byte(), value_);
}

// A look that is due as the program waits is none of the next run, which begins with a long kernel.
TEST_P(Unwaited, ALookThatIsDueAtAWaitIsNotMade) {
  ASSERT_NO_FATAL_FAILURE(getOneCopy());
  const std::uint64_t before = ended();
  for (int count = 33; count < 64; ++count) {
    bool first = true;
    onDevice([&] { return std::exchange(first, false) ? 1500 * kUs : 3 * kUs; }, count,
             [this] { timedKernel(); });
    ASSERT_NO_FATAL_FAILURE(wait());
    ASSERT_NO_FATAL_FAILURE(flagRounds(1));
  }
  EXPECT_EQ(ended(), before);
}

TEST_P(Unwaited, QuickKernelsLeaveItAlone) {
  ASSERT_NO_FATAL_FAILURE(getOneCopy());
  const std::uint64_t before = ended();
  onDevice([] { return 3 * kUs; }, 2000, [this] { timedKernel(); });
  EXPECT_EQ(ended(), before);
  ASSERT_NO_FATAL_FAILURE(wait());
  EXPECT_EQ(byte(), value_);
}

// A stream waits for what the program stores next: no launch waits for the stream.
TEST_P(Unwaited, NothingIsWaitedForThatWaitsForTheProgram) {
  ASSERT_NO_FATAL_FAILURE(getOneCopy());
  const std::uint64_t before = ended();
  coherence::noteOpenWait();
  ASSERT_NO_FATAL_FAILURE(launches(200, false));
  EXPECT_EQ(ended(), before);
  coherence::internal::openWaits = false;  // (of a real process, never)
}

// The same of calls, which close it.
TEST_P(Unwaited, SlowCallsGiveItTwoCopies) {
  MachineSetup timed = setup();
  timed.clock = [this] { return now_ += 10; };
  start(timed);
  ASSERT_NO_FATAL_FAILURE(move());
  const std::uint64_t before = ended();
  const adsmKernel_t timedBump = fake().kernel("timed", 1, [this](const LaunchShape&, void** args) {
    now_ += 44 * kUs;
    ++*fake().argument<std::uint8_t>(args, 0);
  });
  onDevice({}, 100, [&] { machine_->call(timedBump, {at_}); });
  EXPECT_EQ(ended(), before + 1);
  EXPECT_EQ(byte(), value_);
  expectPattern();
}

// A program stores before each launch, into bytes that no kernel uses, and waits for none.
class Turns : public Unwaited {
 protected:
  static constexpr std::uint64_t kTurns = UnwaitedCalls::kTurns;

  // With the limits of a program's.
  void startWithLimits(bool managed = true) {
    MachineSetup timed = managed ? ManagedProgram::managed() : setup();
    timed.clock = [this] { return now_; };
    timed.zeroCopy.limits = {};
    start(timed);
  }
  void turns(std::uint64_t count, std::uint64_t each = 30 * kUs) {
    for (std::uint64_t i = 0; i < count; ++i) {
      now_ += each;
      at_[1] = static_cast<std::byte>(++stored_);
      ASSERT_NO_FATAL_FAILURE(kernel(at_));
      ++value_;
    }
  }
  // So many turns that the object has one copy; how many.
  std::uint64_t turnsUntilMove(std::uint64_t each = 30 * kUs) {
    const std::uint64_t before = moved();
    std::uint64_t count = 0;
    for (; count < 20 * kTurns && moved() == before; ++count) {
      turns(1, each);
    }
    return count;
  }
  void expectBytes() {
    ASSERT_NO_FATAL_FAILURE(wait());
    EXPECT_EQ(byte(), value_);
    EXPECT_EQ(at_[1], static_cast<std::byte>(stored_));
    machine_->verify();
  }

  std::uint8_t stored_ = 0;
  std::uint8_t seen_ = 0;
  const std::uint64_t oneCopiesEnded_ = ended();  // of other tests
};

TEST_P(Turns, GiveItOneCopy) {
  EXPECT_LE(turnsUntilMove(), 2 * kTurns + 10);
  ASSERT_NO_FATAL_FAILURE(turns(2));
  machine_->expectNothingHappens([&] {
    ASSERT_NO_FATAL_FAILURE(turns(10));
    EXPECT_GE(fake().pending(), 10u) << "no access has waited";
  });
  expectBytes();
}

TEST_P(Turns, OfLongKernelsLeaveItAlone) {
  ASSERT_NO_FATAL_FAILURE(startWithLimits());
  const std::uint64_t before = moved();
  ASSERT_NO_FATAL_FAILURE(turns(10 * kTurns, 400 * kUs));
  EXPECT_EQ(moved(), before);
  expectBytes();
}

TEST_P(Turns, OfACallsProgramDoToo) {
  ASSERT_NO_FATAL_FAILURE(startWithLimits(false));
  const std::uint64_t before = moved();
  ASSERT_NO_FATAL_FAILURE(turns(10 * kTurns));
  EXPECT_EQ(moved(), before) << "accesses of what has one copy would wait as well";
  expectBytes();
}

// A round of turns ends in the middle of what the program waits for then.
TEST_P(Turns, AndWaitsTellOfItTogether) {
  ASSERT_NO_FATAL_FAILURE(startWithLimits());
  const std::uint64_t before = moved();
  for (int run = 0; run < 3; ++run) {
    ASSERT_NO_FATAL_FAILURE(turns(kTurns + 40));
    ASSERT_NO_FATAL_FAILURE(wait());
  }
  EXPECT_EQ(moved(), before + 1);
  const std::uint64_t faults = stats().writeFaults.value();
  for (int run = 0; run < 10; ++run) {
    ASSERT_NO_FATAL_FAILURE(turns(4 * kTurns, 50 * kUs));
    ASSERT_NO_FATAL_FAILURE(wait());
  }
  EXPECT_LE(stats().writeFaults.value() - faults, 10 * 4U) << "but for checks";
  EXPECT_EQ(moved() - ended(), before + 1 - oneCopiesEnded_) << "however long such rounds are";
  expectBytes();
}

// A stream may wait for what the program stores next.
TEST_P(Turns, AreNoRoundWhileSomethingWaitsForTheProgram) {
  ASSERT_NO_FATAL_FAILURE(startWithLimits());
  const std::uint64_t before = moved();
  coherence::noteOpenWait();
  ASSERT_NO_FATAL_FAILURE(turns(4 * kTurns));
  coherence::internal::openWaits = false;  // (of a real process, never)
  EXPECT_EQ(moved(), before);
  expectBytes();
}

// Kernels only read what the CPU stores: nothing of it is fetched.
TEST_P(Turns, OfStoresThatKernelsReadGiveItOneCopyToo) {
  MachineSetup lists = ManagedProgram::managed();
  lists.clock = [this] { return now_; };
  lists.listingWorth = 0;
  start(lists);
  ASSERT_NO_FATAL_FAILURE(turns(2));
  const std::uint64_t before = moved();
  std::uint64_t count = 0;
  for (; count < 20 * kTurns && moved() == before; ++count) {
    now_ += 30 * kUs;
    at_[1] = static_cast<std::byte>(++stored_);
    machine_->launchListed(kStream, {{at_, false}}, [this] {
      seen_ = *fake().at(reinterpret_cast<std::uint8_t*>(at_) + 1);
    });
  }
  EXPECT_GE(count, 2 * kTurns);
  EXPECT_LE(count, 3 * kTurns);
  expectBytes();
  EXPECT_EQ(seen_, stored_);
}

// Each launch is waited for: such rounds are none, and cost nothing.
TEST_P(Turns, StoresThatAWaitFollowsAreNone) {
  MachineSetup lists = ManagedProgram::managed();
  lists.clock = [this] { return now_; };
  lists.listingWorth = 0;
  start(lists);
  ASSERT_NO_FATAL_FAILURE(turns(2));
  ASSERT_NO_FATAL_FAILURE(wait());
  const std::uint64_t before = moved();
  for (std::uint64_t i = 0; i < 4 * kTurns; ++i) {
    now_ += 30 * kUs;
    at_[1] = static_cast<std::byte>(++stored_);
    machine_->launchListed(kStream, {{at_, false}}, [] {});
    ASSERT_NO_FATAL_FAILURE(wait());
  }
  EXPECT_EQ(moved(), before);
  expectBytes();
}

// The program waits again, for many calls each time. A call takes less than before, but a round of
// these takes longer than one call did.
TEST_P(Turns, RoundsOfManyQuickCallsLeaveItOpen) {
  for (const int calls : {14, 60}) {  // (fewer take no lock)
    ASSERT_NO_FATAL_FAILURE(startWithLimits());
    turnsUntilMove();
    const std::uint64_t faults = stats().writeFaults.value();
    for (int run = 0; run < 40; ++run) {
      ASSERT_NO_FATAL_FAILURE(turns(static_cast<std::uint64_t>(calls), 9 * kUs));
      ASSERT_NO_FATAL_FAILURE(wait());
    }
    EXPECT_LE(stats().writeFaults.value() - faults, static_cast<std::uint64_t>(40 * calls / 64 + 2))
        << "but for checks";
    expectBytes();
  }
}

// Kernels read all that has one copy, and the CPU's accesses to the rest wait for them.
TEST_P(Turns, ThatTakeLongerByOneCopyEndIt) {
  ASSERT_NO_FATAL_FAILURE(startWithLimits());
  const std::array<std::byte*, 3> objects{at_, machine_->allocate(kBytes),
                                          machine_->allocate(kBytes)};
  const std::uint64_t before = moved() - ended();
  const std::uint64_t movedBefore = moved();
  int slow = 0;
  int most = 0;
  constexpr int kCount = 60 * static_cast<int>(kTurns);
  for (int i = 0; i < kCount; ++i) {
    const int oneCopies = static_cast<int>(moved() - ended() - before);
    most = std::max(most, oneCopies);
    slow += oneCopies > 0 ? 1 : 0;
    now_ += oneCopies > 0 ? 70 * kUs : 30 * kUs;
    ++stored_;
    for (std::byte* const object : objects) {
      object[1] = static_cast<std::byte>(stored_);
    }
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    ++value_;
  }
  EXPECT_GE(moved(), movedBefore + 2) << "they are tried";
  EXPECT_EQ(most, 2) << "not all at once";
  EXPECT_LE(slow, kCount / 4);
  expectBytes();
}

// Kernels reach one copy far more slowly, and nothing waits for them: without a trial all launches
// after the move would be in flight before the first one has ended.
TEST_P(Turns, CallsThatAreFarSlowerEndTheTrial) {
  ASSERT_NO_FATAL_FAILURE(startWithLimits());
  constexpr int kCount = 20 * static_cast<int>(kTurns);
  const std::uint64_t before = moved();
  int slow = 0;
  const auto storeAndLaunch = [this] {
    at_[1] = static_cast<std::byte>(++stored_);
    timedKernel();
  };
  onDevice(
      [&] {
        slow += hasOneCopy() ? 1 : 0;
        return hasOneCopy() ? 24'000 * kUs : 30 * kUs;
      },
      kCount, storeAndLaunch);
  const auto tries = static_cast<int>(moved() - before);
  EXPECT_GE(tries, 1);
  EXPECT_LE(tries, 4) << "each takes twice the evidence";
  EXPECT_GE(slow, tries);
  EXPECT_LE(slow, 2 * tries);
  EXPECT_FALSE(hasOneCopy());
  expectBytes();
}

// Of eight calls for each store one is slower.
TEST_P(Turns, TheTrialIsOfAllCallsOfATurn) {
  ASSERT_NO_FATAL_FAILURE(startWithLimits());
  constexpr int kCalls = 40 * static_cast<int>(kTurns);
  const std::uint64_t before = moved();
  int call = 0;
  int slow = 0;
  const auto launch = [&] {
    if (call++ % 8 == 0) {
      at_[1] = static_cast<std::byte>(++stored_);
    }
    timedKernel();
  };
  int run = 0;
  onDevice(
      [&] {
        const bool slower = run++ % 8 == 5 && hasOneCopy();
        slow += slower ? 1 : 0;
        return slower ? 24'000 * kUs : 10 * kUs;
      },
      kCalls, launch);
  EXPECT_GE(moved(), before + 1);
  EXPECT_GE(slow, 1);
  EXPECT_LE(slow, 8);
  EXPECT_FALSE(hasOneCopy());
  expectBytes();
}

TEST_P(Turns, AfterTheTrialNothingWaits) {
  ASSERT_NO_FATAL_FAILURE(startWithLimits());
  const std::uint64_t before = moved();
  int launched = 0;
  int run = 0;
  int most = 0;
  int afterMove = 0;
  int mostOnTrial = 0;
  onDevice(
      [&] {
        ++run;
        return 30 * kUs;
      },
      4 * static_cast<int>(kTurns),
      [&] {
        at_[1] = static_cast<std::byte>(++stored_);
        timedKernel();
        most = std::max(most, ++launched - run);
        if (moved() == before + 1 && ++afterMove <= static_cast<int>(UnwaitedCalls::kTrial)) {
          mostOnTrial = most;
        }
      });
  EXPECT_EQ(moved(), before + 1);
  EXPECT_EQ(mostOnTrial, 1);
  EXPECT_GT(most, 8);
  expectBytes();
}

// The CPU comes no more, and kernels are slow by one copy; the program waits for each. A round is
// no longer than a round of turns was, but its call is.
TEST_P(Turns, RoundsOfSlowCallsEndIt) {
  ASSERT_NO_FATAL_FAILURE(startWithLimits());
  turnsUntilMove();
  // (So often that checks are rare.)
  for (int run = 0; run < 40; ++run) {
    ASSERT_NO_FATAL_FAILURE(turns(60, 5 * kUs));
    ASSERT_NO_FATAL_FAILURE(wait());
  }
  const std::uint64_t before = ended();
  int rounds = 0;
  for (; rounds < 100 && ended() == before; ++rounds) {
    ASSERT_NO_FATAL_FAILURE(kernel(at_));
    ++value_;
    now_ += 44 * kUs;
    ASSERT_NO_FATAL_FAILURE(wait());
  }
  EXPECT_LE(rounds, 66) << "a trial, and as many waits without a round";
  expectBytes();
}

INSTANTIATE_TEST_SUITE_P(Mirrors, ManagedProgram, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "moved" : "file"; });
INSTANTIATE_TEST_SUITE_P(Mirrors, CostOfCopies, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "moved" : "file"; });
INSTANTIATE_TEST_SUITE_P(Mirrors, CostOfFetches, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "moved" : "file"; });
INSTANTIATE_TEST_SUITE_P(Mirrors, BusyStreams, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "moved" : "file"; });
INSTANTIATE_TEST_SUITE_P(Mirrors, StreamsInTurns, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "moved" : "file"; });
INSTANTIATE_TEST_SUITE_P(Mirrors, ManyObjects, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Moved" : "File"; });
INSTANTIATE_TEST_SUITE_P(Mirrors, AwaitedCalls, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "moved" : "file"; });
INSTANTIATE_TEST_SUITE_P(Mirrors, Unwaited, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "moved" : "file"; });
INSTANTIATE_TEST_SUITE_P(Mirrors, Turns, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "moved" : "file"; });
INSTANTIATE_TEST_SUITE_P(Mirrors, AwaitedAccesses, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "moved" : "file"; });
INSTANTIATE_TEST_SUITE_P(Mirrors, ZeroCopies, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "moved" : "file"; });

}  // namespace
}  // namespace gmac::testing
