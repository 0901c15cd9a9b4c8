// SPDX-License-Identifier: Apache-2.0
//
// The memory of freed objects, kept for the next allocations: which is reused, what it reads as,
// and when it is given back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "gmac/coherence/device_memory_port.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/object_pool.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using accel::Placement;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::size_t kBytes = 4 * kMiB;

bool isZeroFrom(const std::byte* at, std::size_t bytes) {
  return std::all_of(at, at + bytes, [](std::byte b) { return b == std::byte{0}; });
}

class Kept : public ::testing::TestWithParam<MachineSetup> {
 protected:
  static MachineSetup keeping(MachineSetup setup, std::size_t bytes = 64 * kMiB) {
    setup.keptBytes = bytes;
    return setup;
  }
  static std::vector<Op> memory(Machine& machine) {
    return machine.fake().log({Op::Kind::kAllocate, Op::Kind::kFree});
  }
  // A kernel that adds one to the first byte of each page, and one that leaves all as it is.
  static adsmKernel_t addOne(Machine& machine) {
    return machine.fake().kernel("addOne", 1, [&machine](const LaunchShape&, void** args) {
      auto* bytes = machine.fake().argument<unsigned char>(args, 0);
      for (std::size_t i = 0; i < kBytes; i += kPage) ++bytes[i];
    });
  }
  static bool isZero(const std::byte* object, std::size_t bytes = kBytes) {
    return isZeroFrom(object, bytes);
  }
};

TEST_P(Kept, MemoryServesTheNextAllocationOfItsSize) {
  Machine machine(keeping(GetParam()));
  std::byte* const first = machine.allocate(kBytes);
  first[kPage] = std::byte{1};
  machine.fake().clearLog();
  const std::uint64_t reused = stats().reusedAllocations.value();
  machine.free(first);
  EXPECT_EQ(machine.deviceMemory().keptBytes(), kBytes);
  std::byte* const second = machine.allocate(kBytes);
  EXPECT_EQ(second, first);
  EXPECT_EQ(machine.deviceMemory().keptBytes(), 0u);
  EXPECT_EQ(stats().reusedAllocations.value() - reused, 1u);
  EXPECT_THAT(memory(machine), IsEmpty());
  EXPECT_THAT(machine.fake().log({Op::Kind::kPin, Op::Kind::kUnpin}), IsEmpty());
}

TEST_P(Kept, MemoryReadsAsZeroOnTheCpu) {
  Machine machine(keeping(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  std::byte* const first = machine.allocate(kBytes);
  std::fill_n(first, kBytes, std::byte{7});
  machine.call(kernel, {first});
  machine.sync();
  EXPECT_EQ(first[kPage], std::byte{8});
  first[3 * kPage] = std::byte{9};  // also what was Dirty last
  machine.free(first);
  std::byte* const second = machine.allocate(kBytes);
  ASSERT_EQ(second, first);
  EXPECT_TRUE(isZero(second));
  second[5] = std::byte{1};
  EXPECT_EQ(second[6], std::byte{0});
}

TEST_P(Kept, MemoryReadsAsZeroOnTheAcceleratorFirst) {
  Machine machine(keeping(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  std::byte* const first = machine.allocate(kBytes);
  std::fill_n(first, kBytes, std::byte{7});
  machine.call(kernel, {first});
  machine.free(first);
  std::byte* const second = machine.allocate(kBytes);
  ASSERT_EQ(second, first);
  machine.call(kernel, {second});
  machine.sync();
  EXPECT_EQ(second[0], std::byte{1});
  EXPECT_EQ(second[1], std::byte{0});
  EXPECT_EQ(second[kBytes - kPage], std::byte{1});
}

// A page of each block, so that the blocks' other bytes have to be zero without a store.
void writeEachBlock(std::byte* object) {
  for (std::size_t i = 0; i < kBytes; i += 64 * kKiB) object[i + kPage] = std::byte{3};
}
bool isZeroElsewhere(const std::byte* object) {
  for (std::size_t i = 0; i < kBytes; ++i) {
    const std::byte wanted{i % (64 * kKiB) == kPage ? std::uint8_t{3} : std::uint8_t{0}};
    if (object[i] != wanted) return false;
  }
  return true;
}

class KeptInFiles : public Kept {};

// Both copies are zero: the CPU clears its own pages, where it reaches them while they are closed.
TEST_P(KeptInFiles, MemoryIsClearedWithoutACopy) {
  Machine machine(keeping(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  std::byte* const first = machine.allocate(kBytes);
  std::fill_n(first, kBytes, std::byte{7});
  machine.call(kernel, {first});
  machine.sync();
  EXPECT_EQ(first[kBytes - 1], std::byte{7});
  machine.free(first);
  std::byte* const second = machine.allocate(kBytes);
  ASSERT_EQ(second, first);
  machine.fake().clearLog();
  writeEachBlock(second);
  EXPECT_THAT(machine.fake().log({Op::Kind::kCopyOut}), IsEmpty());
  EXPECT_TRUE(isZeroElsewhere(second));
  machine.call(kernel, {second});
  EXPECT_EQ(second[0], std::byte{1});
  EXPECT_EQ(second[kPage], std::byte{4});
  EXPECT_EQ(second[kPage + 1], std::byte{0});
}

// Pages that the first object did not use are zero already.
TEST_P(Kept, PagesThatNobodyHasTouchedAreNotFetched) {
  Machine machine(keeping(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  std::byte* const first = machine.allocate(kBytes);
  machine.call(kernel, {first});
  machine.free(first);
  std::byte* const second = machine.allocate(kBytes);
  ASSERT_EQ(second, first);
  machine.fake().clearLog();
  writeEachBlock(second);
  EXPECT_THAT(machine.fake().log({Op::Kind::kCopyOut}), IsEmpty());
  EXPECT_TRUE(isZeroElsewhere(second));
}

// What has been written on the accelerator only is no longer zero.
TEST_P(Kept, WhatTheAcceleratorHasFilledIsFetched) {
  Machine machine(keeping(GetParam()));
  std::byte* const first = machine.allocate(kBytes);
  std::fill_n(first, kBytes, std::byte{7});
  machine.free(first);
  std::byte* const second = machine.allocate(kBytes);
  ASSERT_EQ(second, first);
  machine.memory().fill(second, 5, kBytes, &std::memset);
  EXPECT_EQ(second[0], std::byte{5});
  second[kBytes / 2] = std::byte{6};
  EXPECT_EQ(second[kBytes / 2 + 1], std::byte{5});
}

// What is written on the CPU alone leaves the accelerator's bytes zero.
TEST_P(Kept, MemoryThatTheAcceleratorHasNotGotIsNotClearedAgain) {
  Machine machine(keeping(GetParam()));
  machine.free(machine.allocate(kBytes));
  machine.fake().clearLog();
  for (int i = 0; i < 3; ++i) {
    std::byte* const object = machine.allocate(kBytes);
    object[i * kPage] = std::byte{7};
    machine.free(object);
  }
  EXPECT_THAT(machine.fake().log({Op::Kind::kFill, Op::Kind::kCopyIn}), IsEmpty());
  std::byte* const last = machine.allocate(kBytes);
  EXPECT_TRUE(isZero(last));
  machine.call(addOne(machine), {last});
  machine.sync();
  EXPECT_EQ(last[0], std::byte{1});
  EXPECT_EQ(last[1], std::byte{0});
}

// And what it has got, or may have written, is cleared.
TEST_P(Kept, MemoryThatTheAcceleratorHasGotIsCleared) {
  Machine machine(keeping(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  machine.free(machine.allocate(kBytes));
  const auto expectCleared = [&](const auto& use) {
    std::byte* const object = machine.allocate(kBytes);
    use(object);
    machine.fake().clearLog();
    machine.free(object);
    EXPECT_THAT(machine.fake().log({Op::Kind::kFill}), SizeIs(1));
    std::byte* const next = machine.allocate(kBytes);
    EXPECT_EQ(next, object);
    machine.call(kernel, {next});
    machine.sync();
    EXPECT_EQ(next[kPage], std::byte{1});
    EXPECT_EQ(next[kPage + 1], std::byte{0});
    machine.free(next);
  };
  expectCleared([&](std::byte* object) { machine.call(kernel, {object}); });
  expectCleared([&](std::byte* object) {
    std::fill_n(object, kBytes, std::byte{5});
    EXPECT_TRUE(machine.memory().startFlush(object, kBytes).ok());
  });
  expectCleared([&](std::byte* object) { machine.memory().fill(object, 5, kBytes, &std::memset); });
  // Of a stream, and of one that the runtime does not know.
  const auto writes = [&](std::byte* object) {
    *machine.fake().at(object + kPage + 1) = std::byte{5};
  };
  expectCleared([&](std::byte* object) {
    machine.launch(accel::NativeStream{3}, [&writes, object] { writes(object); });
    machine.fake().runAll();
  });
  expectCleared([&](std::byte* object) {
    const coherence::DeviceRange everything{nullptr, 0, true};
    EXPECT_TRUE(machine.work().beginDeviceWork(accel::kForeignStream, {&everything, 1}).ok());
    writes(object);
    EXPECT_TRUE(machine.work().endDeviceWork(accel::kForeignStream, true).ok());
  });
}

TEST_P(Kept, WhatAnUnknownStreamHasWrittenIsFetched) {
  Machine machine(keeping(GetParam()));
  machine.free(machine.allocate(kBytes));
  std::byte* const object = machine.allocate(kBytes);
  const coherence::DeviceRange everything{nullptr, 0, true};
  EXPECT_TRUE(machine.work().beginDeviceWork(accel::kForeignStream, {&everything, 1}).ok());
  *machine.fake().at(object + kPage + 1) = std::byte{5};
  EXPECT_TRUE(machine.work().endDeviceWork(accel::kForeignStream, true).ok());
  EXPECT_EQ(object[kPage + 1], std::byte{5});
}

TEST_P(Kept, MemoryIsClosedAndNobodys) {
  Machine machine(keeping(GetParam()));
  std::byte* const object = machine.allocate(kBytes);
  object[0] = std::byte{1};
  machine.free(object);
  EXPECT_EQ(accessAt(object), os::Access::kNone);
  EXPECT_FALSE(machine.memory().touchesShared(object, kBytes));
  EXPECT_FALSE(machine.objects().onFault(object, false));
  EXPECT_FALSE(machine.objects().free(object).ok());
}

TEST_P(Kept, TheAddressOfASafeObjectIsNotASharedOnes) {
  Machine machine(keeping(GetParam()));
  std::byte* const safe = machine.allocate(kBytes, Placement::kAnywhere);
  machine.free(safe);
  std::byte* const object = machine.allocate(kBytes);
  EXPECT_EQ(*machine.objects().deviceAddress(object), object);
  machine.free(object);
  EXPECT_EQ(machine.allocate(kBytes, Placement::kAnywhere), safe);
}

TEST_P(Kept, MemoryThatIsAnEighthLargerServesAndMoreDoesNot) {
  Machine machine(keeping(GetParam()));
  std::byte* const object = machine.allocate(kBytes);
  machine.free(object);
  std::byte* const half = machine.allocate(kBytes / 2);
  EXPECT_NE(half, object);
  std::byte* const near = machine.allocate(kBytes / 9 * 8 + kPage);
  EXPECT_EQ(near, object);
  EXPECT_TRUE(isZero(near, kBytes / 9 * 8 + kPage));
}

// Whose uses each of them has.
TEST_P(Kept, SeveralGetTheirMemoryAgainInWhateverOrderTheyWereFreed) {
  Machine machine(keeping(GetParam()));
  std::byte* const other = machine.allocate(kBytes);
  std::vector<std::byte*> first;
  for (int i = 0; i < 3; ++i) first.push_back(machine.allocate(kBytes));
  machine.free(other);
  std::vector<std::byte*> objects = first;
  for (const std::vector<int>& order : {std::vector{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    EXPECT_EQ(machine.allocate(kBytes), other) << "freed by itself";
    for (int i : order) machine.free(objects[i]);
    for (std::byte*& object : objects) object = machine.allocate(kBytes);
    EXPECT_EQ(objects, first);
    machine.free(other);
  }
}

TEST_P(Kept, NothingIsKeptWhereNothingShallBe) {
  Machine machine(keeping(GetParam(), 0));
  std::byte* const object = machine.allocate(kBytes);
  machine.free(object);
  EXPECT_EQ(machine.deviceMemory().keptBytes(), 0u);
  EXPECT_EQ(machine.fake().liveAllocations(), 0u);
}

TEST_P(Kept, TheOldestIsGivenBackBeyondTheBound) {
  Machine machine(keeping(GetParam(), 2 * kBytes));
  std::vector<std::byte*> objects;
  for (int i = 0; i < 3; ++i) objects.push_back(machine.allocate(kBytes));
  for (std::byte* object : objects) machine.free(object);
  EXPECT_EQ(machine.deviceMemory().keptBytes(), 2 * kBytes);
  EXPECT_EQ(machine.fake().liveAllocations(), 2u);
  EXPECT_EQ(machine.allocate(kBytes), objects[1]);
  EXPECT_EQ(machine.allocate(kBytes), objects[2]);
  // An object that alone exceeds the bound (an eighth of the 8 MiB that live is within it) is not
  // kept.
  machine.free(machine.allocate(3 * kBytes));
  EXPECT_EQ(machine.deviceMemory().keptBytes(), 0u);
}

TEST_P(Kept, AnEighthOfWhatLivesMayBeKeptBeside) {
  Machine machine(keeping(GetParam(), kPage));
  std::byte* const large = machine.allocate(8 * kBytes);
  std::byte* const object = machine.allocate(kBytes);
  machine.free(object);
  EXPECT_EQ(machine.deviceMemory().keptBytes(), kBytes);
  machine.free(large);
  EXPECT_EQ(machine.deviceMemory().keptBytes(), 0u);
}

TEST_P(Kept, ManyObjectsAreBoundedByTheirNumber) {
  Machine machine(keeping(GetParam()));
  std::vector<std::byte*> objects;
  for (std::size_t i = 0; i < ObjectPool::kMaxObjects + 3; ++i) {
    objects.push_back(machine.allocate(64 * kKiB));
  }
  for (std::byte* object : objects) machine.free(object);
  EXPECT_EQ(machine.fake().liveAllocations(), ObjectPool::kMaxObjects);
}

TEST_P(Kept, ServesAProgramThatReleasesHundredsOfObjectsAtOnce) {
  constexpr std::size_t kObjects = 300;
  Machine machine(keeping(GetParam()));
  std::vector<std::byte*> objects;
  const auto allocateAll = [&] {
    objects.clear();
    for (std::size_t i = 0; i < kObjects; ++i) objects.push_back(machine.allocate(64 * kKiB));
  };
  allocateAll();
  for (std::byte* object : objects) machine.free(object);
  const std::uint64_t reused = stats().reusedAllocations.value();
  allocateAll();
  EXPECT_EQ(stats().reusedAllocations.value() - reused, kObjects);
}

TEST_P(Kept, IsGivenBackWhereTheAcceleratorRunsOutOfMemory) {
  MachineSetup setup = keeping(GetParam());
  setup.fake.memoryBytes = 16 * kMiB;
  Machine machine(setup);
  std::byte* const small = machine.allocate(6 * kMiB);
  machine.free(small);
  EXPECT_NE(machine.allocate(12 * kMiB), nullptr);
  EXPECT_EQ(machine.deviceMemory().keptBytes(), 0u);
  EXPECT_FALSE(machine.objects().allocate(12 * kMiB, Placement::kSameAddress).ok());
}

TEST_P(Kept, IsGivenBackWherePagesCannotBePinned) {
  Machine machine(keeping(GetParam()));
  std::byte* const object = machine.allocate(kBytes);
  object[0] = std::byte{1};
  std::byte* const other = machine.allocate(kBytes);
  machine.free(object);
  machine.fake().failNext(Op::Kind::kPin, 1, adsmErrorHostMemory);
  other[0] = std::byte{2};  // would end the process
  EXPECT_FALSE(machine.fake().armed());
  EXPECT_EQ(machine.deviceMemory().keptBytes(), 0u);
}

TEST_P(Kept, IsGivenBackWhenAskedFor) {
  Machine machine(keeping(GetParam()));
  machine.free(machine.allocate(kBytes));
  EXPECT_TRUE(machine.deviceMemory().makeRoom());
  EXPECT_EQ(machine.fake().liveAllocations(), 0u);
  EXPECT_FALSE(machine.deviceMemory().makeRoom());
}

TEST_P(Kept, IsNotKeptWhereTheAcceleratorDoesNotClearIt) {
  Machine machine(keeping(GetParam()));
  std::byte* const object = machine.allocate(kBytes);
  machine.fake().failNext(Op::Kind::kFill, 1, adsmErrorSystem);
  EXPECT_TRUE(machine.objects().free(object).ok());
  EXPECT_EQ(machine.fake().liveAllocations(), 0u);
}

// A kernel that was launched before an allocation cannot use it.
TEST_P(Kept, ANewObjectDoesNotWaitForOlderKernels) {
  Machine machine(keeping(GetParam()));
  bool ran = false;
  const adsmKernel_t older =
      machine.fake().kernel("older", 0, [&ran](const LaunchShape&, void**) { ran = true; });
  machine.free(machine.allocate(kBytes));
  machine.call(older, {});
  std::byte* const object = machine.allocate(kBytes);
  EXPECT_THAT(machine.fake().log({Op::Kind::kAllocate}), SizeIs(1));
  object[0] = std::byte{1};
  EXPECT_EQ(object[1], std::byte{0});
  EXPECT_FALSE(ran);
  // One that was launched after it may write it.
  machine.call(addOne(machine), {object});
  EXPECT_EQ(object[0], std::byte{2});
  EXPECT_TRUE(ran);
}

// An object that is bound to another kernel is freed while this one runs; so its bytes are cleared
// after that, and an allocation takes other memory instead of waiting.
TEST_P(Kept, AnAllocationDoesNotWaitForTheKernelsOfOthers) {
  Machine machine(keeping(GetParam()));
  bool ran = false;
  const adsmKernel_t others =
      machine.fake().kernel("others", 0, [&ran](const LaunchShape&, void**) { ran = true; });
  const adsmKernel_t own = machine.fake().kernel("own", 0, [](const LaunchShape&, void**) {});
  std::byte* const bound = machine.allocate(kBytes);
  ASSERT_TRUE(machine.objects().bind(bound, own, adsmReadWrite).ok());
  machine.call(others, {});
  machine.free(bound);
  EXPECT_EQ(machine.deviceMemory().keptBytes(), kBytes);
  std::byte* const object = machine.allocate(kBytes);
  EXPECT_NE(object, bound);
  EXPECT_FALSE(ran);
  machine.sync();
  EXPECT_EQ(machine.allocate(kBytes), bound);
}

std::vector<MachineSetup> keepingSetups() {
  std::vector<MachineSetup> setups = everySetup();
  // Where new objects are Dirty (batch) nothing is kept.
  std::erase_if(setups, [](const MachineSetup& setup) { return setup.protocol == "batch"; });
  return setups;
}

std::vector<MachineSetup> keepingInFiles() {
  std::vector<MachineSetup> setups = keepingSetups();
  std::erase_if(setups, [](const MachineSetup& setup) { return setup.fake.movedPages; });
  setups.push_back(setups.back());
  setups.back().windowBytes = 64 * kKiB;
  return setups;
}

INSTANTIATE_TEST_SUITE_P(All, KeptInFiles, ::testing::ValuesIn(keepingInFiles()),
                         [](const auto& of) { return nameOf(of.param); });
INSTANTIATE_TEST_SUITE_P(All, Kept, ::testing::ValuesIn(keepingSetups()),
                         [](const auto& of) { return nameOf(of.param); });

// The flush of a window leaves its block Invalid, although no kernel has written it.
TEST(KeptWindows, HaveWhatTheCpuWroteWhenTheyWereClosedForWantOfMappings) {
  MachineSetup setup;
  setup.blockBytes = 64 * kKiB;
  setup.windowBytes = 4 * kPage;
  setup.rollingSize = 1000;
  setup.keptBytes = 64 * kMiB;
  setup.mappingLimit = 2000;
  Machine machine(setup);
  constexpr std::size_t kTwoBlocks = 128 * kKiB;
  std::vector<std::byte*> objects;
  for (int i = 0; i < 100; ++i) objects.push_back(machine.allocate(kTwoBlocks));
  for (std::byte* object : objects) std::fill_n(object, kTwoBlocks, std::byte{7});
  for (std::byte* object : objects) machine.free(object);
  objects.clear();
  const std::uint64_t reused = stats().reusedAllocations.value();
  for (int i = 0; i < 100; ++i) objects.push_back(machine.allocate(kTwoBlocks));
  ASSERT_EQ(stats().reusedAllocations.value() - reused, 100u);
  const std::uint64_t windows = stats().windows.value();
  for (std::byte* object : objects) *object = std::byte{1};
  ASSERT_GT(stats().windows.value(), windows);
  while (machine.objects().allocate(kTwoBlocks, Placement::kSameAddress).ok()) {
  }
  for (std::byte* object : objects) {
    EXPECT_EQ(*object, std::byte{1});
    EXPECT_TRUE(isZeroFrom(object + 1, kTwoBlocks - 1));
  }
}

TEST(KeptByBatch, IsNothing) {
  MachineSetup setup;
  setup.protocol = "batch";
  setup.keptBytes = 64 * kMiB;
  Machine machine(setup);
  machine.free(machine.allocate(kBytes));
  EXPECT_EQ(machine.deviceMemory().keptBytes(), 0u);
}

}  // namespace
}  // namespace gmac::testing
