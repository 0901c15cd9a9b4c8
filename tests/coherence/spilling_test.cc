// SPDX-License-Identifier: Apache-2.0
//
// More objects than the device's memory holds: which of them get memory of the CPU's, what they
// hold afterwards, when they come back, and what happens where nothing can move.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gmac/coherence/device_memory_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using accel::Placement;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::SizeIs;

constexpr std::size_t kBytes = 2 * kMiB;
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
  static std::vector<Op> moves(Machine& machine) { return machine.fake().log({Op::Kind::kMove}); }
  // Adds one to the first byte of each page.
  static adsmKernel_t addOne(Machine& machine) {
    return machine.fake().kernel("addOne", 1, [&machine](const LaunchShape&, void** args) {
      auto* bytes = machine.fake().argument<unsigned char>(args, 0);
      for (std::size_t i = 0; i < kBytes; i += kPage) ++bytes[i];
    });
  }
  static std::vector<std::byte*> fill(Machine& machine, std::size_t count = kFit) {
    std::vector<std::byte*> objects;
    for (std::size_t i = 0; i < count; ++i) {
      objects.push_back(machine.allocate(kBytes));
      std::memset(objects.back(), static_cast<int>(i + 1), kBytes);
    }
    return objects;
  }
  static void expectAll(const std::byte* object, int value) {
    const std::vector<std::byte> expected(kBytes, static_cast<std::byte>(value));
    if (std::memcmp(object, expected.data(), kBytes) == 0) return;
    const auto other = std::mismatch(expected.begin(), expected.end(), object);
    FAIL() << "byte " << other.first - expected.begin() << " is "
           << std::to_integer<int>(*other.second) << ", not " << value;
  }
};

TEST_P(Spills, WhatDoesNotFitGetsMemoryOfTheCpusAndWorksThere) {
  Machine machine(small(GetParam()));
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
  Machine machine(small(GetParam()));
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
  Machine machine(small(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  const std::vector<std::byte*> objects = fill(machine);
  machine.call(kernel, {objects[0]});
  machine.allocate(kBytes);
  EXPECT_THAT(moves(machine), IsEmpty());
}

TEST_P(Spills, AMoveKeepsWhatEitherSideHas) {
  Machine machine(small(GetParam()));
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
    ASSERT_TRUE(machine.deviceMemory().makeRoom());
    machine.verify();
  }
  EXPECT_FALSE(machine.deviceMemory().makeRoom());
  expectAll(objects[0], 77);
  for (std::size_t i = 1; i < kFit; ++i) {
    EXPECT_EQ(objects[i][kPage], static_cast<std::byte>(i + 2));
    EXPECT_EQ(objects[i][kPage + 1], static_cast<std::byte>(i + 1));
  }
}

TEST_P(Spills, ObjectsComeBackBeforeTheNextWorkOnceThereIsRoom) {
  MachineSetup setup = small(GetParam());
  setup.fake.memoryBytes += 64 * kMiB;  // which stay free
  Machine machine(setup);
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

// The last one is a guest in the CPU's memory.
TEST_P(Spills, AGuestThatIsUsedTakesThePlaceOfWhatIsNotUsed) {
  Machine machine(small(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  const std::vector<std::byte*> objects = fill(machine, kFit + 1);
  const auto use = [&](std::size_t i) {
    machine.callUsing(kernel, {objects[i]}, {{objects[i], adsmReadWrite}});
  };
  for (int i = 0; i < 3; ++i) {
    use(0);
    use(kFit);
    EXPECT_THAT(moves(machine), IsEmpty());
  }
  use(kFit);
  EXPECT_THAT(moves(machine), ElementsAre(toCpu(objects[1]), toDevice(objects[kFit])));
  machine.verify();
  // And the next one that is used takes the place of the next one that is not.
  for (int i = 0; i < 4; ++i) {
    use(1);
  }
  EXPECT_THAT(moves(machine), ElementsAre(toCpu(objects[1]), toDevice(objects[kFit]),
                                          toCpu(objects[2]), toDevice(objects[1])));
  machine.sync();
  machine.verify();
  const std::array<int, kFit + 1> uses{3, 4, 0, 0, 4};
  for (std::size_t i = 0; i <= kFit; ++i) {
    EXPECT_EQ(objects[i][kPage], static_cast<std::byte>(i + 1 + static_cast<std::size_t>(uses[i])));
    EXPECT_EQ(objects[i][kPage + 1], static_cast<std::byte>(i + 1));
  }
}

TEST_P(Spills, NothingMovesWhereTheProgramGoesThroughMoreThanFits) {
  Machine machine(small(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  const std::vector<std::byte*> objects = fill(machine, 2 * kFit);
  for (int sweep = 0; sweep < 30; ++sweep) {
    for (std::byte* const object : objects) {
      machine.callUsing(kernel, {object}, {{object, adsmReadWrite}});
    }
  }
  EXPECT_THAT(moves(machine), IsEmpty());
}

// (64 MiB are left to the application.)
TEST_P(Spills, WhatNoDeviceHasRoomForIsTold) {
  MachineSetup setup = small(GetParam());
  setup.fake.memoryBytes = 96 * kMiB;
  Machine machine(setup);
  EXPECT_FALSE(machine.deviceMemory().fitsNowhere(32 * kMiB));
  EXPECT_TRUE(machine.deviceMemory().fitsNowhere(32 * kMiB + 1));
  // Objects can leave the device, and what is kept of freed ones is given back.
  std::byte* const object = machine.allocate(16 * kMiB);
  EXPECT_FALSE(machine.deviceMemory().fitsNowhere(32 * kMiB));
  EXPECT_TRUE(machine.deviceMemory().fitsNowhere(32 * kMiB + 1));
  EXPECT_TRUE(machine.deviceMemory().fitsNowhere(SIZE_MAX));
  ASSERT_TRUE(machine.objects().free(object).ok());
  EXPECT_FALSE(machine.deviceMemory().fitsNowhere(32 * kMiB));
  EXPECT_TRUE(machine.deviceMemory().fitsNowhere(32 * kMiB + 1));
}

TEST_P(Spills, WhereNothingMayLeaveADeviceNothingIsTooLarge) {
  MachineSetup setup = small(GetParam());
  setup.spill.allowed = false;
  Machine machine(setup);
  EXPECT_FALSE(machine.deviceMemory().fitsNowhere(std::size_t{1} << 40));
}

// The hot half finds no room at first; the other half is used a quarter as often.
TEST_P(Spills, AHotHalfComesToTheDevice) {
  Machine machine(small(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  machine.free(machine.allocate(100));  // a small object's region lies on the device, too
  const std::vector<std::byte*> objects = fill(machine, 2 * kFit - 2);
  std::array<int, 2 * kFit - 2> uses{};
  const auto sweep = [&](bool all) {
    for (std::size_t i = all ? 0 : objects.size() / 2; i < objects.size(); ++i) {
      machine.callUsing(kernel, {objects[i]}, {{objects[i], adsmReadWrite}});
      ++uses[i];
    }
  };
  for (int number = 0; number < 40; ++number) {
    sweep(number % 4 == 0);
  }
  const std::size_t moved = moves(machine).size();
  EXPECT_THAT(moved, AllOf(Ge(4u), Le(12u)));
  const auto homes = [&] {
    std::vector<bool> onDevice;
    for (std::byte* const object : objects) {
      onDevice.push_back(false);
      for (const Op& op : moves(machine)) {
        if (op.device == reinterpret_cast<std::uintptr_t>(object)) {
          onDevice.back() = op == toDevice(object);
        }
      }
    }
    return onDevice;
  };
  EXPECT_TRUE(homes().back());
  for (int number = 40; number < 200; ++number) {
    sweep(number % 4 == 0);
  }
  EXPECT_EQ(moves(machine).size(), moved) << "it stays there";
  machine.sync();
  machine.verify();
  for (std::size_t i = 0; i < objects.size(); ++i) {
    EXPECT_EQ(objects[i][kPage], static_cast<std::byte>(static_cast<int>(i) + 1 + uses[i]));
  }
}

// The CPU's pages that one guest leaves are there for what leaves the device next, until work comes
// that exchanges nothing.
TEST_P(Spills, ExchangesThatFollowEachOtherMakeTheCpusPagesOnce) {
  Machine machine(small(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  const std::vector<std::byte*> objects = fill(machine, 2 * kFit);
  std::size_t most = 0;
  for (int sweep = 0; sweep < 12; ++sweep) {
    for (std::size_t i = kFit; i < objects.size(); ++i) {
      machine.callUsing(kernel, {objects[i]}, {{objects[i], adsmReadWrite}});
      most = std::max(most, machine.fake().cpuPagesKept());
    }
  }
  EXPECT_THAT(moves(machine), SizeIs(2 * kFit));
  EXPECT_EQ(machine.fake().cpuPagesMade(), kBytes);
  EXPECT_EQ(most, kBytes);
  EXPECT_EQ(machine.fake().cpuPagesKept(), 0u);
}

// Guests that were used much have no claim to the place of what was made a moment ago.
TEST_P(Spills, ANewObjectIsNotColdAtOnce) {
  MachineSetup setup = small(GetParam());
  setup.fake.memoryBytes += kBytes;
  Machine machine(setup);
  const adsmKernel_t kernel = addOne(machine);
  std::byte* const filler = machine.allocate(kBytes);
  const std::vector<std::byte*> objects = fill(machine, kFit + 1);
  machine.free(filler);  // (The guest would leave too little free.)
  const auto sweep = [&] {
    for (std::byte* const object : objects) {
      machine.callUsing(kernel, {object}, {{object, adsmReadWrite}});
    }
  };
  for (int number = 0; number < 20; ++number) {
    sweep();
  }
  for (int number = 0; number < 20; ++number) {
    std::byte* const made = machine.allocate(kBytes);
    sweep();
    sweep();
    machine.free(made);
  }
  EXPECT_THAT(moves(machine), IsEmpty());
}

// The worst case: the other one is used as soon as one has come.
TEST_P(Spills, ObjectsThatAreUsedInTurnMoveAFewTimesOnly) {
  MachineSetup setup = small(GetParam());
  setup.fake.memoryBytes = kBytes;
  Machine machine(setup);
  const adsmKernel_t kernel = addOne(machine);
  const std::vector<std::byte*> objects = fill(machine, 2);
  constexpr int kTurns = 100;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (std::byte* const object : objects) {
      for (int use = 0; use < 21; ++use) {
        machine.callUsing(kernel, {object}, {{object, adsmReadWrite}});
      }
    }
  }
  EXPECT_THAT(moves(machine), SizeIs(AllOf(Ge(2u), Le(20u))));
}

// One that is larger than the guest goes only after as much use as that takes.
TEST_P(Spills, ALargeObjectGoesForASmallGuestWhenThatPays) {
  MachineSetup setup = small(GetParam());
  constexpr std::size_t kLarge = kFit * kBytes;
  Machine machine(setup);
  const adsmKernel_t kernel = addOne(machine);
  std::byte* const large = machine.allocate(kLarge);
  std::byte* const guest = machine.allocate(kBytes);
  int uses = 0;
  for (; uses < 100 && moves(machine).empty(); ++uses) {
    machine.callUsing(kernel, {guest}, {{guest, adsmReadWrite}});
  }
  EXPECT_THAT(moves(machine), ElementsAre(toCpu(large, kLarge), toDevice(guest)));
  EXPECT_GE(uses, 8) << "1.5 times what is moved";
  EXPECT_LE(uses, 16);
}

TEST_P(Spills, WhatMakesTooLittleRoomStays) {
  MachineSetup setup = small(GetParam());
  setup.fake.memoryBytes += kBytes / 2;
  Machine machine(setup);
  const adsmKernel_t kernel = addOne(machine);
  machine.allocate(kBytes / 2);
  const std::vector<std::byte*> objects = fill(machine, kFit + 1);
  for (int i = 0; i < 4; ++i) {
    machine.callUsing(kernel, {objects[kFit]}, {{objects[kFit], adsmReadWrite}});
  }
  EXPECT_THAT(moves(machine), ElementsAre(toCpu(objects[0]), toDevice(objects[kFit])));
}

TEST_P(Spills, AnExchangeThatFailsLosesNothingAndIsTriedAgainLater) {
  Machine machine(small(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  const std::vector<std::byte*> objects = fill(machine, kFit + 1);
  machine.fake().failNext(Op::Kind::kMove, 1, adsmErrorHostMemory);
  int uses = 0;
  const auto use = [&] {
    machine.callUsing(kernel, {objects[kFit]}, {{objects[kFit], adsmReadWrite}});
    ++uses;
  };
  for (int i = 0; i < 4; ++i) {
    use();
  }
  EXPECT_THAT(moves(machine), ElementsAre(toCpu(objects[0])));
  machine.verify();
  for (int i = 0; i < 7; ++i) {
    use();
  }
  EXPECT_THAT(moves(machine),
              ElementsAre(toCpu(objects[0]), toCpu(objects[0]), toDevice(objects[kFit])));
  machine.sync();
  EXPECT_EQ(objects[kFit][0], static_cast<std::byte>(static_cast<int>(kFit) + 1 + uses));
  expectAll(objects[0], 1);
}

// The second half of an exchange: the guest finds no room after all.
TEST_P(Spills, WhatHasMadeRoomForNobodyComesBack) {
  Machine machine(small(GetParam()));
  const adsmKernel_t kernel = addOne(machine);
  const std::vector<std::byte*> objects = fill(machine, kFit + 1);
  machine.fake().failNext(Op::Kind::kMove, 2, adsmErrorAcceleratorMemory);
  for (int i = 0; i < 5; ++i) {
    machine.callUsing(kernel, {objects[kFit]}, {{objects[kFit], adsmReadWrite}});
  }
  machine.sync();
  machine.verify();
  EXPECT_THAT(moves(machine), SizeIs(Ge(2u)));
  EXPECT_EQ(objects[kFit][0], static_cast<std::byte>(kFit + 6));
  for (std::size_t i = 0; i < kFit; ++i) {
    expectAll(objects[i], static_cast<int>(i) + 1);
  }
}

TEST_P(Spills, AnAllocationThatFitsNowhereFailsWithBothReasonsAndChangesNothing) {
  MachineSetup setup = small(GetParam());
  setup.fake.cpuBytes = kBytes;
  Machine machine(setup);
  const std::vector<std::byte*> objects = fill(machine, kFit + 1);
  const std::size_t live = machine.fake().liveAllocations();
  const auto none = machine.objects().allocate(kBytes, Placement::kSameAddress);
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
  Machine machine(setup);
  fill(machine);
  EXPECT_EQ(machine.objects().allocate(kBytes, Placement::kSameAddress).status().code(),
            adsmErrorAcceleratorMemory);
  EXPECT_FALSE(machine.deviceMemory().makeRoom());
}

TEST_P(Spills, AMoveThatFailsLeavesTheObjectAndTheNewOneGoesToTheCpu) {
  Machine machine(small(GetParam()));
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
  Machine machine(small(GetParam()));
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

// Another thread that frees an object has it cleared, in the queue of kernels.
TEST_P(Spills, AnObjectMayBeClearedMeanwhile) {
  Machine machine(small(GetParam()));
  const std::vector<std::byte*> objects = fill(machine, 2);
  machine.fake().onMove([&] {
    const auto device =
        static_cast<accel::DeviceAddress>(reinterpret_cast<std::uintptr_t>(objects[1]));
    EXPECT_TRUE(machine.fake().fill(device, std::byte{0}, kBytes).ok());
  });
  ASSERT_TRUE(machine.deviceMemory().makeRoom());
  machine.fake().onMove({});
  EXPECT_TRUE(machine.fake().waitForAll().ok());
  EXPECT_THAT(moves(machine), ElementsAre(toCpu(objects[0])));
  expectAll(objects[0], 1);
}

// Whether the CPU uses an object while it moves, frees it, or calls kernels on it: nothing is lost.
TEST_P(Spills, OtherThreadsGoOnMeanwhile) {
  Machine machine(small(GetParam()));
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
      EXPECT_TRUE(machine.objects().free(object).ok());
    }
    stop = --running == 0;
  };
  const std::vector<std::byte*> objects = fill(machine, 2);
  std::vector<std::thread> threads;
  for (unsigned seed = 10; seed < 40; seed += 10) threads.emplace_back(work, seed);
  while (!stop) {
    (void)machine.deviceMemory().makeRoom();
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  expectAll(objects[0], 1);
  expectAll(objects[1], 2);
}

INSTANTIATE_TEST_SUITE_P(All, Spills, ::testing::ValuesIn(everySetup()),
                         [](const auto& info) { return nameOf(info.param); });

// ---- Several devices that reach each other's memory

Op toPeer(const void* object, int device) {
  return {
      Op::Kind::kMove, reinterpret_cast<std::uintptr_t>(object), kBytes, {}, Op::toDevice(device)};
}

class SpillsToDevices : public Spills {
 protected:
  static constexpr std::size_t kReserve = 64 * kMiB;
  // Device 0 has room for kFit objects, the others for as many as given besides what stays free.
  static MachineSetup several(MachineSetup setup, const std::vector<std::size_t>& peers) {
    setup = small(setup);
    setup.fake.peerBytes.clear();
    for (const std::size_t objects : peers) {
      setup.fake.peerBytes.push_back(kReserve + objects * kBytes);
    }
    return setup;
  }
  static std::vector<int> devicesOf(Machine& machine, const std::vector<std::byte*>& objects) {
    std::vector<int> devices;
    for (const std::byte* const object : objects)
      devices.push_back(machine.fake().deviceOf(object));
    return devices;
  }
  static void use(Machine& machine, adsmKernel_t kernel, std::byte* object) {
    machine.callUsing(kernel, {object}, {{object, adsmReadWrite}});
  }
};

TEST_P(SpillsToDevices, OneDeviceWithRoomIsEnough) {
  MachineSetup setup = several(GetParam(), {16, 8});
  Machine machine(setup);
  EXPECT_FALSE(machine.deviceMemory().fitsNowhere(16 * kBytes));
  EXPECT_TRUE(machine.deviceMemory().fitsNowhere(16 * kBytes + 1));
}

TEST_P(SpillsToDevices, WhatDoesNotFitGoesToAnotherDeviceThenToTheCpu) {
  Machine machine(several(GetParam(), {2, 1}));
  const adsmKernel_t kernel = addOne(machine);
  const auto counted = [] {
    return std::array{stats().peerSpills.value(), stats().peerSpilledBytes.value(),
                      stats().spills.value()};
  };
  const auto before = counted();
  const std::vector<std::byte*> objects = fill(machine, kFit + 5);
  // The one with the most room first; of all, a part stays free.
  EXPECT_THAT(devicesOf(machine, objects), ElementsAre(0, 0, 0, 0, 1, 1, 2, -1, -1));
  const auto after = counted();
  EXPECT_EQ(after[0] - before[0], 3u);
  EXPECT_EQ(after[1] - before[1], 3 * kBytes);
  EXPECT_EQ(after[2] - before[2], 2u);
  for (std::byte* const object : objects) machine.call(kernel, {object});
  machine.sync();
  for (std::size_t i = 0; i < objects.size(); ++i) {
    EXPECT_EQ(objects[i][kPage], static_cast<std::byte>(i + 2));
  }
}

TEST_P(SpillsToDevices, TheObjectThatWasUsedLeastLatelyGoesThere) {
  Machine machine(several(GetParam(), {1}));
  const adsmKernel_t kernel = addOne(machine);
  const std::vector<std::byte*> objects = fill(machine);
  for (const std::size_t i : {1, 0, 3, 2}) use(machine, kernel, objects[i]);
  std::byte* const next = machine.allocate(kBytes);
  use(machine, kernel, next);
  EXPECT_THAT(moves(machine), ElementsAre(toPeer(objects[1], 1)));
  machine.allocate(kBytes);
  EXPECT_THAT(moves(machine), ElementsAre(toPeer(objects[1], 1), toCpu(objects[0])));
  machine.sync();
  EXPECT_EQ(objects[1][0], std::byte{3});
  EXPECT_EQ(objects[0][0], std::byte{2});
}

// Objects that lie elsewhere make no room on the device that is full.
TEST_P(SpillsToDevices, RoomIsMadeOnTheDeviceThatIsFull) {
  MachineSetup setup = several(GetParam(), {0});
  setup.fake.peerBytes = {2 * kBytes};
  Machine machine(setup);
  const adsmKernel_t kernel = addOne(machine);
  const std::vector<std::byte*> first = fill(machine, 2);
  machine.fake().setDeviceHere(1);
  const std::vector<std::byte*> second = fill(machine, 2);
  EXPECT_THAT(devicesOf(machine, second), ElementsAre(1, 1));
  for (std::byte* const object : {first[0], first[1], second[1], second[0]}) {
    use(machine, kernel, object);
  }
  ASSERT_TRUE(machine.deviceMemory().makeRoom());
  EXPECT_THAT(moves(machine), ElementsAre(toCpu(second[1])));
  machine.allocate(kBytes);
  EXPECT_EQ(machine.fake().deviceOf(second[0]), 1);
  machine.sync();
  EXPECT_EQ(second[1][0], std::byte{3});
}

// The program has said where it wants it.
TEST_P(SpillsToDevices, WhatTheProgramHasPlacedGoesLast) {
  Machine machine(several(GetParam(), {3}));
  const adsmKernel_t kernel = addOne(machine);
  const std::vector<std::byte*> objects = fill(machine);
  ASSERT_TRUE(machine.deviceMemory().prefer(objects[0], kBytes, 0, /*forGood=*/false).ok());
  for (std::byte* const object : objects) use(machine, kernel, object);
  machine.sync();
  machine.fake().clearLog();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(machine.deviceMemory().makeRoom());
  EXPECT_THAT(moves(machine), ElementsAre(toPeer(objects[1], 1), toPeer(objects[2], 1),
                                          toPeer(objects[3], 1), toCpu(objects[0])));
}

TEST_P(SpillsToDevices, ObjectsComeBackToTheirDevice) {
  MachineSetup setup = several(GetParam(), {2});
  setup.fake.memoryBytes += kReserve;
  Machine machine(setup);
  const adsmKernel_t kernel = addOne(machine);
  std::byte* const filler = machine.allocate(kReserve);
  const std::vector<std::byte*> objects = fill(machine, kFit + 3);
  ASSERT_THAT(devicesOf(machine, objects), ElementsAre(0, 0, 0, 0, 1, 1, -1));
  for (std::byte* const object : objects) use(machine, kernel, object);
  machine.sync();
  machine.fake().clearLog();
  const std::uint64_t back = stats().broughtBack.value();
  const std::uint64_t peers = stats().peerSpills.value();
  machine.free(filler);
  machine.free(objects[0]);
  use(machine, kernel, objects[1]);
  // The newest used has the room; the other device has none yet for the one in the CPU's memory.
  EXPECT_THAT(moves(machine), ElementsAre(toPeer(objects[6], 0)));
  EXPECT_EQ(stats().broughtBack.value() - back, 1u);
  machine.fake().clearLog();
  machine.free(objects[1]);
  use(machine, kernel, objects[2]);
  EXPECT_THAT(moves(machine), ElementsAre(toPeer(objects[5], 0)));
  EXPECT_EQ(stats().broughtBack.value() - back, 2u);
  EXPECT_EQ(stats().peerSpills.value(), peers);
  machine.sync();
  EXPECT_EQ(objects[6][0], std::byte{8});
  EXPECT_EQ(objects[5][0], std::byte{7});
}

// Nearer than the CPU's memory, if not its own.
TEST_P(SpillsToDevices, WhatLiesInTheCpusMemoryGoesToADeviceOnceThatHasRoom) {
  Machine machine(several(GetParam(), {1}));
  const adsmKernel_t kernel = addOne(machine);
  const std::vector<std::byte*> objects = fill(machine, kFit + 2);
  ASSERT_THAT(devicesOf(machine, objects), ElementsAre(0, 0, 0, 0, 1, -1));
  machine.free(objects[4]);
  use(machine, kernel, objects[5]);
  EXPECT_THAT(moves(machine), ElementsAre(toPeer(objects[5], 1)));
  machine.sync();
  EXPECT_EQ(objects[5][0], std::byte{7});
}

TEST_P(SpillsToDevices, AMoveThatFailsGoesToTheNextPlace) {
  Machine machine(several(GetParam(), {2, 1}));
  const adsmKernel_t kernel = addOne(machine);
  for (const bool fails : {false, true}) {
    const std::vector<std::byte*> objects = fill(machine);
    for (std::byte* const object : objects) use(machine, kernel, object);
    machine.sync();
    machine.fake().clearLog();
    if (fails) machine.fake().failNext(Op::Kind::kMove, 1, adsmErrorAcceleratorMemory);
    ASSERT_TRUE(machine.deviceMemory().makeRoom());
    machine.verify();
    EXPECT_EQ(moves(machine).front(), toPeer(objects[0], 1));
    EXPECT_EQ(moves(machine).size(), fails ? 2u : 1u);
    EXPECT_EQ(machine.fake().deviceOf(objects[0]), fails ? 2 : 1);
    for (std::size_t i = 0; i < kFit; ++i) {
      EXPECT_EQ(objects[i][kPage], static_cast<std::byte>(i + 2));
      EXPECT_EQ(objects[i][kPage + 1], static_cast<std::byte>(i + 1));
      machine.free(objects[i]);
    }
  }
}

TEST_P(SpillsToDevices, ADeviceThatIsGoneTakesNothing) {
  Machine machine(several(GetParam(), {2, 1}));
  const std::vector<std::byte*> objects = fill(machine, kFit - 1);
  machine.fake().loseDevice(1);
  const std::vector<std::byte*> others = fill(machine, 2);
  ASSERT_TRUE(machine.deviceMemory().makeRoom());
  EXPECT_THAT(devicesOf(machine, others), ElementsAre(0, 2));
  EXPECT_THAT(moves(machine), ElementsAre(toCpu(objects[0])));
  expectAll(objects[0], 1);
  expectAll(others[1], 2);
}

TEST_P(SpillsToDevices, WhereItIsNotAllowedOnlyTheFirstDeviceIsTriedBesides) {
  MachineSetup setup = several(GetParam(), {0});
  setup.fake.peerBytes = {kBytes};
  setup.spill.allowed = false;
  Machine machine(setup);
  machine.fake().setDeviceHere(1);
  const std::vector<std::byte*> objects = fill(machine, kFit + 1);
  EXPECT_THAT(devicesOf(machine, objects), ElementsAre(1, 0, 0, 0, 0));
  EXPECT_EQ(machine.objects().allocate(kBytes, Placement::kSameAddress).status().code(),
            adsmErrorAcceleratorMemory);
  EXPECT_FALSE(machine.deviceMemory().makeRoom());
}

INSTANTIATE_TEST_SUITE_P(All, SpillsToDevices, ::testing::ValuesIn(everySetup()),
                         [](const auto& info) { return nameOf(info.param); });

}  // namespace
}  // namespace gmac::testing
