// SPDX-License-Identifier: Apache-2.0
//
// More objects than the device's memory holds: which of them get memory of the CPU's, what they
// hold afterwards, when they come back, and what happens where nothing can move.
#include "gmac/coherence/policies/spilling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gmac/observe/stats.h"
#include "tests/support/manager_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using accel::Placement;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kBytes = 4 * kMiB;
constexpr std::size_t kFit = 4;  // objects of that size in the device's memory

Op toCpu(const void* object, std::size_t bytes = kBytes) {
  return {Op::Kind::kMove, reinterpret_cast<std::uintptr_t>(object), bytes, {}, 1};
}
Op toDevice(const void* object, std::size_t bytes = kBytes) {
  return {Op::Kind::kMove, reinterpret_cast<std::uintptr_t>(object), bytes, {}, 0};
}

class Spills : public ::testing::TestWithParam<MachineSetup> {
 protected:
  static MachineSetup small(MachineSetup setup) {
    setup.fake.movableMemory = true;
    setup.fake.memoryBytes = kFit * kBytes;
    setup.keptBytes = 64 * kMiB;
    return setup;
  }
  static std::vector<Op> moves(ManagerUnderTest& machine) {
    return machine.fake().log({Op::Kind::kMove});
  }
  // Adds one to the first byte of each page.
  static adsmKernel_t addOne(ManagerUnderTest& machine) {
    return machine.fake().kernel("addOne", 1, [&machine](const LaunchShape&, void** args) {
      auto* bytes = machine.fake().argument<unsigned char>(args, 0);
      for (std::size_t i = 0; i < kBytes; i += kPage) ++bytes[i];
    });
  }
  static std::vector<std::byte*> fill(ManagerUnderTest& machine, std::size_t count = kFit) {
    std::vector<std::byte*> objects;
    for (std::size_t i = 0; i < count; ++i) {
      objects.push_back(machine.allocate(kBytes));
      std::memset(objects.back(), static_cast<int>(i + 1), kBytes);
    }
    return objects;
  }
  static void expectAll(const std::byte* object, int value) {
    for (std::size_t i = 0; i < kBytes; ++i) {
      ASSERT_EQ(object[i], static_cast<std::byte>(value)) << "byte " << i;
    }
  }
};

TEST_P(Spills, WhatDoesNotFitGetsMemoryOfTheCpusAndWorksThere) {
  ManagerUnderTest machine(small(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  const std::uint64_t spills = stats().spills.value();
  const std::uint64_t bytes = stats().spilledBytes.value();
  const std::vector<std::byte*> objects = fill(machine, kFit + 2);
  EXPECT_EQ(stats().spills.value() - spills, 2u);
  EXPECT_EQ(stats().spilledBytes.value() - bytes, 2 * kBytes);
  // Nothing has been used yet, so nothing is copied.
  EXPECT_THAT(moves(machine), IsEmpty());
  for (std::byte* const object : objects) {
    machine.call(kernel, {object});
  }
  machine.sync();
  for (std::size_t i = 0; i < objects.size(); ++i) {
    EXPECT_EQ(objects[i][kPage], static_cast<std::byte>(i + 2));
    EXPECT_EQ(objects[i][kPage + 1], static_cast<std::byte>(i + 1));
  }
}

TEST_P(Spills, TheObjectThatWasUsedLeastLatelyMakesRoom) {
  ManagerUnderTest machine(small(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  const std::vector<std::byte*> objects = fill(machine);
  for (const std::size_t i : {1, 0, 3, 2}) {
    machine.callUsing(kernel, {objects[i]}, {{objects[i], adsmReadWrite}});
  }
  std::byte* const next = machine.allocate(kBytes);
  EXPECT_THAT(moves(machine), ElementsAre(toCpu(objects[1])));
  machine.callUsing(kernel, {next}, {{next, adsmReadWrite}});
  machine.allocate(kBytes);
  EXPECT_THAT(moves(machine), ElementsAre(toCpu(objects[1]), toCpu(objects[0])));
  machine.sync();
  EXPECT_EQ(objects[1][0], std::byte{3});
  EXPECT_EQ(next[0], std::byte{1});
}

// Work that lists nothing may use every object.
TEST_P(Spills, WhatTheNewestWorkMayUseStays) {
  ManagerUnderTest machine(small(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  const std::vector<std::byte*> objects = fill(machine);
  machine.call(kernel, {objects[0]});
  machine.allocate(kBytes);
  EXPECT_THAT(moves(machine), IsEmpty());
}

TEST_P(Spills, AMoveKeepsWhatEitherSideHas) {
  ManagerUnderTest machine(small(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  std::vector<std::byte*> objects = fill(machine);
  for (std::byte* const object : objects) {
    machine.callUsing(kernel, {object}, {{object, adsmReadWrite}});
  }
  machine.sync();
  // One the CPU has written since, one it has read, one the accelerator alone has.
  std::memset(objects[0], 77, kBytes);
  EXPECT_EQ(objects[1][kPage], std::byte{3});
  for (std::size_t i = 0; i < kFit; ++i) {
    ASSERT_TRUE(machine.manager().makeRoom());
    machine.verify();
  }
  EXPECT_FALSE(machine.manager().makeRoom());
  expectAll(objects[0], 77);
  for (std::size_t i = 1; i < kFit; ++i) {
    EXPECT_EQ(objects[i][kPage], static_cast<std::byte>(i + 2));
    EXPECT_EQ(objects[i][kPage + 1], static_cast<std::byte>(i + 1));
  }
}

TEST_P(Spills, ObjectsComeBackBeforeTheNextWorkOnceThereIsRoom) {
  MachineSetup setup = small(GetParam());
  setup.fake.memoryBytes += 64 * kMiB;  // which stay free
  ManagerUnderTest machine(setup);
  const adsmKernel_t kernel = addOne(machine);
  std::byte* const filler = machine.allocate(64 * kMiB);
  const std::vector<std::byte*> objects = fill(machine, kFit + 1);
  machine.call(kernel, {objects[kFit]});
  EXPECT_THAT(moves(machine), IsEmpty());
  const std::uint64_t back = stats().broughtBack.value();
  machine.free(filler);
  EXPECT_THAT(moves(machine), IsEmpty());
  machine.free(objects[0]);
  machine.call(kernel, {objects[kFit]});
  EXPECT_THAT(moves(machine), ElementsAre(toDevice(objects[kFit])));
  EXPECT_EQ(stats().broughtBack.value() - back, 1u);
  machine.sync();
  EXPECT_EQ(objects[kFit][0], static_cast<std::byte>(kFit + 3));
  // And only once.
  machine.call(kernel, {objects[kFit]});
  EXPECT_THAT(moves(machine), ElementsAre(toDevice(objects[kFit])));
}

TEST_P(Spills, AnAllocationThatFitsNowhereFailsWithBothReasonsAndChangesNothing) {
  MachineSetup setup = small(GetParam());
  setup.fake.cpuBytes = kBytes;
  ManagerUnderTest machine(setup);
  const std::vector<std::byte*> objects = fill(machine, kFit + 1);
  const std::size_t live = machine.fake().liveAllocations();
  const auto none = machine.manager().allocate(kBytes, Placement::kSameAddress);
  EXPECT_EQ(none.status().code(), adsmErrorAcceleratorMemory);
  EXPECT_THAT(lastErrorText(), HasSubstr("out of memory"));
  EXPECT_THAT(lastErrorText(), HasSubstr("no memory of the CPU's"));
  EXPECT_EQ(machine.fake().liveAllocations(), live);
  for (std::size_t i = 0; i < objects.size(); ++i) {
    expectAll(objects[i], static_cast<int>(i + 1));
  }
}

TEST_P(Spills, WhereItIsNotAllowedTheAllocationFails) {
  MachineSetup setup = small(GetParam());
  setup.spill.allowed = false;
  ManagerUnderTest machine(setup);
  fill(machine);
  EXPECT_EQ(machine.manager().allocate(kBytes, Placement::kSameAddress).status().code(),
            adsmErrorAcceleratorMemory);
  EXPECT_FALSE(machine.manager().makeRoom());
}

TEST_P(Spills, AMoveThatFailsLeavesTheObjectAndTheNewOneGoesToTheCpu) {
  ManagerUnderTest machine(small(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  const std::vector<std::byte*> objects = fill(machine);
  machine.callUsing(kernel, {objects[0]}, {{objects[0], adsmReadWrite}});
  machine.callUsing(kernel, {objects[1]}, {{objects[1], adsmReadWrite}});
  machine.fake().failNext(Op::Kind::kMove, 1, adsmErrorHostMemory);
  std::byte* const next = machine.allocate(kBytes);
  EXPECT_THAT(moves(machine), ElementsAre(toCpu(objects[2])));
  std::memset(next, 9, kBytes);
  expectAll(next, 9);
  expectAll(objects[2], 3);
  EXPECT_EQ(objects[0][0], std::byte{2});
}

TEST_P(Spills, SmallObjectsFitToo) {
  ManagerUnderTest machine(small(GetParam()));
  fill(machine);
  std::vector<std::byte*> little;
  for (int i = 0; i < 20; ++i) {
    little.push_back(machine.allocate(100));
    std::memset(little.back(), i, 100);
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(little[static_cast<std::size_t>(i)][99], static_cast<std::byte>(i));
  }
}

// Whether the CPU uses an object while it moves, frees it, or calls kernels on it: nothing is lost.
TEST_P(Spills, OtherThreadsGoOnMeanwhile) {
  ManagerUnderTest machine(small(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  std::atomic<bool> stop{false};
  std::atomic<int> running{3};
  const auto work = [&](unsigned seed) {
    for (unsigned round = 0; round < 8; ++round) {
      std::byte* const object = machine.allocate(kBytes);
      if (object == nullptr) break;
      std::memset(object, static_cast<int>(seed), kBytes);
      EXPECT_TRUE(machine.tryCallUsing(kernel, {object}, {{object, adsmReadWrite}}).ok());
      EXPECT_EQ(object[kPage], static_cast<std::byte>(seed + 1));
      object[kPage + 1] = std::byte{200};
      EXPECT_EQ(object[2 * kPage + 1], static_cast<std::byte>(seed));
      EXPECT_EQ(object[kPage + 1], std::byte{200});
      EXPECT_TRUE(machine.manager().free(object).ok());
    }
    stop = --running == 0;
  };
  const std::vector<std::byte*> objects = fill(machine, 2);
  std::vector<std::thread> threads;
  for (unsigned seed = 10; seed < 40; seed += 10) threads.emplace_back(work, seed);
  while (!stop) {
    (void)machine.manager().makeRoom();
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  expectAll(objects[0], 1);
  expectAll(objects[1], 2);
}

INSTANTIATE_TEST_SUITE_P(All, Spills, ::testing::ValuesIn(everySetup()),
                         [](const auto& info) { return nameOf(info.param); });

}  // namespace
}  // namespace gmac::testing
