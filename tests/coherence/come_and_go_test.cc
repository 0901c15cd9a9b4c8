// SPDX-License-Identifier: Apache-2.0
//
// Objects of a program for managed memory that come and go: each is used as the one before, whose
// memory it has. What was open stays so, what was known of the CPU's rounds holds on, and every
// object reads as zero.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gmac/coherence/device_memory_port.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using ::testing::ElementsAre;

constexpr std::size_t kBlock = 64 * kKiB;
constexpr std::size_t kBytes = 256 * kKiB;
constexpr int kRounds = 4;  // that move an object to the CPU's pages
constexpr std::uint64_t kNeverSlow = std::uint64_t{3600} * 1'000'000'000;

struct Kind {
  const char* name;
  const char* protocol;
  bool movedPages;
  std::size_t blockBytes;
  std::size_t windowBytes;
};
void PrintTo(const Kind& kind, std::ostream* out) {  // NOLINT: GoogleTest's name
  *out << kind.name;
}

class ComeAndGo : public ::testing::TestWithParam<Kind> {
 protected:
  static constexpr accel::NativeStream kStream{3};

  ComeAndGo() { start(setup()); }
  static MachineSetup setup() {
    MachineSetup setup;
    setup.protocol = GetParam().protocol;
    setup.blockBytes = GetParam().blockBytes;
    setup.windowBytes = GetParam().windowBytes;
    setup.keptBytes = 64 * kMiB;
    setup.managed = true;
    setup.fake.movedPages = GetParam().movedPages;
    setup.fake.movableMemory = true;
    setup.fake.zeroCopy = true;
    setup.zeroCopy.limits = {
        .leastRounds = kRounds, .longest = UINT64_MAX, .slack = kNeverSlow, .few = SIZE_MAX};
    setup.zeroCopy.prompt = {.leastRounds = UINT32_MAX};
    setup.clock = [] { return std::uint64_t{1}; };
    return setup;
  }
  void start(const MachineSetup& setup) {
    machine_.reset();
    machine_ = std::make_unique<Machine>(setup);
  }
  FakeAccelerator& fake() { return machine_->fake(); }
  static bool isZero(const std::byte* at, std::size_t bytes) {
    return std::all_of(at, at + bytes, [](std::byte b) { return b == std::byte{0}; });
  }
  // On the accelerator: a kernel copies it to plain memory of the test's.
  void expectZeroThere(std::byte* object, std::size_t bytes, std::size_t but) {
    std::size_t wrong = 0;
    launch([&, this] {
      const std::byte* const there = fake().at(object);
      for (std::size_t i = 0; i < bytes; ++i) {
        wrong += i != but && there[i] != std::byte{0} ? 1 : 0;
      }
    });
    fake().runAll();
    EXPECT_EQ(wrong, 0u);
  }
  void launch(std::function<void()> work) { (void)machine_->launch(kStream, std::move(work)); }
  void wait() {
    const coherence::DeviceWait wait = machine_->work().beforeDeviceWait(std::nullopt);
    fake().runAll();
    ASSERT_TRUE(machine_->work().afterDeviceWait(wait).ok());
  }
  static volatile std::uint8_t& at(std::byte* object, std::size_t offset) {
    return *reinterpret_cast<volatile std::uint8_t*>(object + offset);
  }
  // One life: the CPU stores a byte.
  std::byte* store(std::size_t offset, std::size_t bytes = kBytes) {
    std::byte* const object = machine_->allocate(bytes);
    at(object, offset) = 7;
    return object;
  }
  static std::uint64_t faults() { return stats().readFaults.value() + stats().writeFaults.value(); }
  static std::uint64_t moved() { return stats().zeroCopies.value(); }
  std::vector<Op> moves() { return fake().log({Op::Kind::kMove}); }

  std::unique_ptr<Machine> machine_;
};

TEST_P(ComeAndGo, WhatTheCpuHasWrittenIsOpenInTheNextObject) {
  machine_->free(store(5));
  std::byte* const first = store(5);
  EXPECT_EQ(accessAt(first + 5), os::Access::kReadWrite);
  machine_->free(first);
  const std::uint64_t before = faults();
  machine_->expectNothingHappens([&] {
    for (int i = 0; i < 10; ++i) {
      std::byte* const object = machine_->allocate(kBytes);
      ASSERT_EQ(object, first);
      EXPECT_TRUE(isZero(object, kPage)) << "of the one before";
      at(object, 5) = 7;
      at(object, kPage - 1) = 9;
      machine_->free(object);
    }
  });
  EXPECT_EQ(faults(), before);
  std::byte* const last = store(17);
  machine_->verify();
  EXPECT_EQ(faults(), before);
  EXPECT_TRUE(isZero(last, 17));
  EXPECT_TRUE(isZero(last + 18, kBytes - 18));
  EXPECT_EQ(at(last, 17), 7);
  expectZeroThere(last, kBytes, 17);
}

// The accelerator's bytes are cleared as ever.
TEST_P(ComeAndGo, WhatAKernelHasWrittenIsZeroInTheNextObject) {
  machine_->free(store(5));
  for (int i = 0; i < 20; ++i) {
    std::byte* const object = store(5);
    launch([this, object] { std::fill_n(fake().at(object), kBytes, std::byte{3}); });
    ASSERT_NO_FATAL_FAILURE(wait());
    at(object, 5) = 8;  // open, and dirty
    machine_->free(object);
    std::byte* const next = machine_->allocate(kBytes);
    ASSERT_EQ(next, object);
    machine_->verify();
    at(next, 6) = 1;
    EXPECT_TRUE(isZero(next, 6));
    EXPECT_TRUE(isZero(next + 7, kBytes - 7));
    expectZeroThere(next, kBytes, 6);
    machine_->free(next);
  }
}

// The CPU stores, and does not look after the kernel.
TEST_P(ComeAndGo, WhatTheCpuNeverReadsIsNotCopiedForLong) {
  MachineSetup two = setup();
  two.zeroCopy.allowed = false;
  start(two);
  const std::uint64_t before = stats().readBacks.value();
  for (int i = 0; i < 400; ++i) {
    std::byte* const object = store(5);
    launch([] {});
    ASSERT_NO_FATAL_FAILURE(wait());
    machine_->free(object);
  }
  EXPECT_LE(stats().readBacks.value() - before, 80u);
}

TEST_P(ComeAndGo, WhatIsOpenForReadingIsClosed) {
  machine_->free(store(5));
  std::byte* const object = machine_->allocate(kBytes);
  launch([] {});
  ASSERT_NO_FATAL_FAILURE(wait());
  EXPECT_EQ(at(object, 5), 0);
  machine_->free(object);
  EXPECT_EQ(accessAt(object + 5), os::Access::kNone);
}

// As under CUDA, which gives the pages of such an object back.
TEST_P(ComeAndGo, LargeObjectsAreClosed) {
  constexpr std::size_t kLarge = 2 * kMiB;
  machine_->free(store(5, kLarge));
  std::byte* const object = store(5, kLarge);
  machine_->free(object);
  EXPECT_EQ(accessAt(object + 5), os::Access::kNone);
}

TEST_P(ComeAndGo, WhatTakesLongToClearIsClosed) {
  machine_->free(store(5, kMiB));
  std::byte* const object = machine_->allocate(kMiB);
  std::fill_n(object, kMiB, std::byte{7});
  machine_->free(object);
  EXPECT_EQ(accessAt(object), os::Access::kNone);
}

TEST_P(ComeAndGo, NotInOtherPrograms) {
  MachineSetup other = setup();
  other.managed = false;
  start(other);
  machine_->free(store(5));
  std::byte* const object = store(5);
  machine_->free(object);
  EXPECT_EQ(accessAt(object + 5), os::Access::kNone);
}

TEST_P(ComeAndGo, TheMemoryIsGivenBackOpen) {
  machine_->free(store(5));
  std::byte* const object = store(5);
  machine_->free(object);
  ASSERT_EQ(accessAt(object + 5), os::Access::kReadWrite);
  EXPECT_TRUE(machine_->deviceMemory().makeRoom());
  EXPECT_EQ(fake().liveAllocations(), 0u);
}

// ---- One copy

class RoundsOfEach : public ComeAndGo {
 protected:
  // A store, a kernel that adds one, its wait, a load.
  std::byte* round(std::size_t offset = 5) {
    std::byte* const object = store(offset);
    use(object, offset);
    return object;
  }
  void use(std::byte* object, std::size_t offset) {
    launch(
        [this, object, offset] { ++*fake().at(reinterpret_cast<std::uint8_t*>(object + offset)); });
    ASSERT_NO_FATAL_FAILURE(wait());
    ASSERT_EQ(at(object, offset), 8);
    machine_->verify();
  }
  void lives(int count) {
    for (int i = 0; i < count; ++i) {
      machine_->free(round());
    }
  }
  void move() {
    const std::uint64_t before = moved();
    for (int i = 0; i < 60 && moved() == before; ++i) {
      ASSERT_NO_FATAL_FAILURE(lives(1));
    }
    ASSERT_EQ(moved(), before + 1);
    ASSERT_NO_FATAL_FAILURE(lives(2));
  }
  Op movedTo(const std::byte* object, accel::Home home) const {
    return {Op::Kind::kMove,
            reinterpret_cast<std::uintptr_t>(object),
            kBytes,
            {},
            static_cast<std::uintptr_t>(home)};
  }
};

TEST_P(RoundsOfEach, GetOneCopyAndKeepIt) {
  ASSERT_NO_FATAL_FAILURE(move());
  const std::uint64_t before = faults();
  const std::uint64_t movedBefore = moved();
  machine_->expectNothingHappens([&] {
    for (int i = 0; i < 8; ++i) {
      std::byte* const object = machine_->allocate(kBytes);
      EXPECT_TRUE(isZero(object, kBytes));
      at(object, 5) = 7;
      launch([this, object] { std::fill_n(fake().at(object), kBytes, std::byte{8}); });
      ASSERT_NO_FATAL_FAILURE(wait());
      ASSERT_EQ(at(object, 5), 8);
      machine_->free(object);
    }
  });
  EXPECT_EQ(faults(), before);
  EXPECT_EQ(moved(), movedBefore);
  std::byte* const last = round();
  machine_->verify();
  EXPECT_TRUE(isZero(last, 5));
  EXPECT_TRUE(isZero(last + 6, kBytes - 6));
}

TEST_P(RoundsOfEach, TheCheckWhetherTheCpuComesGoesOn) {
  ASSERT_NO_FATAL_FAILURE(move());
  const std::uint64_t before = faults();
  ASSERT_NO_FATAL_FAILURE(lives(256));
  EXPECT_GE(faults(), before + 1) << "an object is closed once in 64 calls";
  EXPECT_LE(faults(), before + 20);
  EXPECT_EQ(moves().size(), 1u);
}

// The next objects are the accelerator's alone.
TEST_P(RoundsOfEach, MoveBackWhereTheCpuComesNoMore) {
  ASSERT_NO_FATAL_FAILURE(move());
  fake().clearLog();
  std::byte* object = nullptr;
  int lives = 0;
  for (; lives < 400 && moves().empty(); ++lives) {
    object = machine_->allocate(kBytes);
    launch([] {});
    ASSERT_NO_FATAL_FAILURE(wait());
    machine_->free(object);
  }
  EXPECT_THAT(moves(), ElementsAre(movedTo(object, accel::Home::kDevice)));
  EXPECT_LE(lives, 200);
  std::byte* const next = round();
  EXPECT_TRUE(isZero(next, 5));
  EXPECT_TRUE(isZero(next + 6, kBytes - 6));
  expectZeroThere(next, kBytes, 5);
}

// What the CPU alone uses is cleared more quickly where it has two copies, of which little is open.
TEST_P(RoundsOfEach, MoveBackWhereNoKernelComesAnyMore) {
  ASSERT_NO_FATAL_FAILURE(move());
  fake().clearLog();
  std::byte* object = nullptr;
  int lives = 0;
  for (; lives < 40 && moves().empty(); ++lives) {
    object = store(5);
    machine_->free(object);
  }
  EXPECT_THAT(moves(), ElementsAre(movedTo(object, accel::Home::kDevice)));
  EXPECT_LE(lives, 8);
  std::byte* const next = store(7);
  machine_->verify();
  EXPECT_TRUE(isZero(next, 7));
  EXPECT_TRUE(isZero(next + 8, kBytes - 8));
  machine_->free(next);
  // And comes again.
  const std::uint64_t before = moved();
  for (lives = 0; lives < 60 && moved() == before; ++lives) {
    ASSERT_NO_FATAL_FAILURE(this->lives(1));
  }
  EXPECT_EQ(moved(), before + 1);
  EXPECT_GT(lives, kRounds) << "more rounds are needed after a wrong move";
}

TEST_P(RoundsOfEach, MoveBackWhenTheirMemoryIsGivenBack) {
  ASSERT_NO_FATAL_FAILURE(move());
  fake().clearLog();
  EXPECT_TRUE(machine_->deviceMemory().makeRoom());
  EXPECT_EQ(moves().size(), 1u);
  EXPECT_EQ(fake().liveAllocations(), 0u);
  EXPECT_TRUE(isZero(round() + 6, kBytes - 6));
}

// One is the CPU's and kernels' together, the other one kernels' alone.
TEST_P(RoundsOfEach, TwoOfOneSizeKeepTheirRoles) {
  for (int life = 0; life < 200; ++life) {
    std::byte* const ours = store(5);
    std::byte* const kernels = machine_->allocate(kBytes);
    launch([this, kernels] { std::fill_n(fake().at(kernels), kBytes, std::byte{9}); });
    ASSERT_NO_FATAL_FAILURE(use(ours, 5));
    machine_->free(life % 2 == 0 ? ours : kernels);
    machine_->free(life % 2 == 0 ? kernels : ours);
  }
  ASSERT_EQ(moves().size(), 1u);
  std::byte* const ours = machine_->allocate(kBytes);
  EXPECT_EQ(moves()[0].device, reinterpret_cast<std::uintptr_t>(ours));
}

// A turn to be checked comes to what lives for one kernel, too.
TEST_P(RoundsOfEach, MoveBackBesideOthersThatLiveLonger) {
  std::vector<std::byte*> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(machine_->allocate(kBytes));
  }
  const auto useOthers = [&] {
    for (std::byte* other : others) {
      at(other, 3) = 1;
    }
    launch([] {});
    ASSERT_NO_FATAL_FAILURE(wait());
    for (std::byte* other : others) {
      ASSERT_EQ(at(other, 3), 1);
    }
  };
  const std::uint64_t before = moved();
  for (int i = 0; i < 200 && moved() < before + others.size(); ++i) {
    ASSERT_NO_FATAL_FAILURE(useOthers());
  }
  ASSERT_EQ(moved(), before + others.size());
  ASSERT_NO_FATAL_FAILURE(move());
  fake().clearLog();
  int lives = 0;
  for (; lives < 20'000 && moves().empty(); ++lives) {
    ASSERT_NO_FATAL_FAILURE(useOthers());
    std::byte* const object = machine_->allocate(kBytes);
    std::byte* const another = machine_->allocate(2 * kBytes);  // so that numbers are odd, or even
    launch([] {});
    ASSERT_NO_FATAL_FAILURE(wait());
    machine_->free(object);
    machine_->free(another);
  }
  EXPECT_EQ(moves().size(), 1u) << lives;
}

TEST_P(RoundsOfEach, MoveBackWhereKernelsComeAloneAndNobodyWaits) {
  ASSERT_NO_FATAL_FAILURE(move());
  fake().clearLog();
  int lives = 0;
  for (; lives < 1000 && moves().empty(); ++lives) {
    std::byte* const object = machine_->allocate(kBytes);
    launch([] {});
    machine_->free(object);
  }
  EXPECT_EQ(moves().size(), 1u);
  EXPECT_LE(lives, 200);
}

// Objects of other programs keep their rounds to themselves.
TEST_P(RoundsOfEach, NotInOtherPrograms) {
  MachineSetup other = setup();
  other.managed = false;
  start(other);
  const std::uint64_t before = moved();
  for (int i = 0; i < 40; ++i) {
    ASSERT_NO_FATAL_FAILURE(lives(1));
  }
  EXPECT_EQ(moved(), before);
}

TEST_P(RoundsOfEach, OneCopyTakesNoneOfTheDevicesMemory) {
  ASSERT_NO_FATAL_FAILURE(move());
  EXPECT_EQ(machine_->deviceMemory().keptBytes(), 0u);
  machine_->free(store(5, kMiB));
  EXPECT_EQ(machine_->deviceMemory().keptBytes(), kMiB);
}

// The device is full.
TEST_P(RoundsOfEach, WhatCannotMoveBackIsZeroAllTheSame) {
  ASSERT_NO_FATAL_FAILURE(move());
  std::byte* const object = machine_->allocate(kBytes);
  std::fill_n(object, kBytes, std::byte{7});
  for (int life = 0; life < 12; ++life) {
    fake().failNext(Op::Kind::kMove, 1, adsmErrorAcceleratorMemory);
    machine_->free(machine_->allocate(2 * kBytes));
    fake().failNext(Op::Kind::kMove, 0, adsmErrorAcceleratorMemory);
  }
  machine_->free(object);
  for (int life = 0; life < 12; ++life) {
    std::byte* const next = machine_->allocate(kBytes);
    ASSERT_TRUE(isZero(next, kBytes));
    std::fill_n(next, kBytes, std::byte{7});
    fake().failNext(Op::Kind::kMove, 1, adsmErrorAcceleratorMemory);
    machine_->free(next);
  }
  fake().failNext(Op::Kind::kMove, 0, adsmErrorAcceleratorMemory);
  std::byte* const next = round();
  EXPECT_TRUE(isZero(next + 6, kBytes - 6));
}

// ---- Small objects, which share their pages

class SmallOnes : public ComeAndGo {
 protected:
  static constexpr std::size_t kSmall = 1000;
};

// A program that relies on it works with managed memory.
TEST_P(SmallOnes, AreZeroWhereNoOtherLives) {
  std::byte* const first = machine_->allocate(kSmall);
  std::fill_n(first, kSmall, std::byte{7});
  std::byte* const second = machine_->allocate(kSmall);
  launch([this, second] { std::fill_n(fake().at(second), kSmall, std::byte{3}); });
  ASSERT_NO_FATAL_FAILURE(wait());
  machine_->free(first);
  machine_->free(second);
  for (int i = 0; i < 3; ++i) {
    std::byte* const again = machine_->allocate(kSmall);
    std::byte* const other = machine_->allocate(kSmall);
    ASSERT_EQ(std::min(again, other), std::min(first, second));
    EXPECT_TRUE(isZero(again, kSmall));
    EXPECT_TRUE(isZero(other, kSmall));
    launch([this, again, other] {
      ++*fake().at(reinterpret_cast<std::uint8_t*>(again));
      ++*fake().at(reinterpret_cast<std::uint8_t*>(other));
    });
    ASSERT_NO_FATAL_FAILURE(wait());
    EXPECT_EQ(at(again, 0), 1);
    EXPECT_EQ(at(other, 0), 1);
    machine_->verify();
    machine_->free(again);
    machine_->free(other);
  }
}

// Also where the accelerator alone has used them.
TEST_P(SmallOnes, AreZeroForKernelsToo) {
  std::byte* const first = machine_->allocate(kSmall);
  launch([this, first] { std::fill_n(fake().at(first), kSmall, std::byte{3}); });
  ASSERT_NO_FATAL_FAILURE(wait());
  machine_->free(first);
  std::byte* const again = machine_->allocate(kSmall);
  ASSERT_EQ(again, first);
  expectZeroThere(again, kSmall, SIZE_MAX);
  EXPECT_TRUE(isZero(again, kSmall));
}

TEST_P(SmallOnes, DoNotWaitForAKernelBeforeTheyAreCleared) {
  machine_->free(machine_->allocate(kSmall));
  bool ran = false;
  launch([&ran] { ran = true; });
  std::byte* const object = machine_->allocate(kSmall);
  EXPECT_FALSE(ran);
  fake().runAll();
  EXPECT_TRUE(isZero(object, kSmall));
}

// Whatever the CPU knows of it, a region's memory may be a large object's next.
TEST_P(SmallOnes, LeaveTheirRegionToALargeObject) {
  constexpr std::size_t kLarge = 2 * kMiB - kPage;
  constexpr std::size_t kEach = 32 * kKiB;
  std::vector<std::byte*> objects;
  for (std::size_t i = 0; i < 2 * 2 * kMiB / kEach; ++i) {
    objects.push_back(machine_->allocate(kEach));
  }
  for (int i = 0; i < 8; ++i) {
    for (std::byte* const object : {objects[60], objects[124]}) {
      at(object, 5) = 1;
    }
    launch([] {});
    ASSERT_NO_FATAL_FAILURE(wait());
    for (std::byte* const object : {objects[60], objects[124]}) {
      ASSERT_EQ(at(object, 5), 1);
    }
  }
  for (std::byte* const object : objects) {
    machine_->free(object);
  }
  for (int i = 0; i < 8; ++i) {
    std::byte* const large = store(5, kLarge);
    launch([] {});
    ASSERT_NO_FATAL_FAILURE(wait());
    ASSERT_EQ(at(large, 5), 7);
    EXPECT_TRUE(isZero(large + 6, kLarge - 6));
    machine_->verify();
    machine_->free(large);
  }
}

// Its bytes may be the next one's at once, and no work on another stream follows the kernel.
TEST_P(SmallOnes, AreFreedOnceTheirKernelsHaveEnded) {
  std::byte* const object = machine_->allocate(kSmall);
  machine_->free(machine_->allocate(kSmall));
  bool ran = false;
  launch([&ran] { ran = true; });
  machine_->free(object);
  EXPECT_TRUE(ran);
}

constexpr Kind kKinds[] = {
    {"windows", "rolling", false, kMiB, kBlock}, {"windowsMoved", "rolling", true, kMiB, kBlock},
    {"blocks", "rolling", false, kBlock, 0},     {"blocksMoved", "rolling", true, kBlock, 0},
    {"pages", "rolling", false, kPage, 0},       {"lazy", "lazy", false, kPage, 0},
    {"lazyMoved", "lazy", true, kPage, 0}};
std::string nameOfKind(const ::testing::TestParamInfo<Kind>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Kinds, ComeAndGo, ::testing::ValuesIn(kKinds), nameOfKind);
INSTANTIATE_TEST_SUITE_P(Kinds, RoundsOfEach, ::testing::ValuesIn(kKinds), nameOfKind);
INSTANTIATE_TEST_SUITE_P(Kinds, SmallOnes, ::testing::ValuesIn(kKinds), nameOfKind);

}  // namespace
}  // namespace gmac::testing
