// SPDX-License-Identifier: Apache-2.0
//
// Bad input and exhausted resources give a clear error, change nothing, and the runtime goes on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "gmac/observe/stats.h"
#include "gmac/protocols/protocol.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using accel::Placement;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Errors : public ::testing::Test {
 protected:
  CoherentMemory& objects() { return machine_.objects(); }
  FakeAccelerator& fake() { return machine_.fake(); }
  Status allocate(std::size_t bytes) {
    return objects().allocate(bytes, Placement::kSameAddress).status();
  }

  Machine machine_{MachineSetup{}};
};

TEST_F(Errors, FreeNamesAPointerThatIsNoObjects) {
  int onStack = 0;
  EXPECT_EQ(objects().free(&onStack).code(), adsmErrorInvalidPointer);
  EXPECT_THAT(lastErrorText(), HasSubstr(fmt::format("{}", fmt::ptr(&onStack))));
  EXPECT_TRUE(objects().free(nullptr).ok());
}

TEST_F(Errors, FreeInsideAnObjectNamesItsStart) {
  std::byte* object = machine_.allocate(kMiB);
  EXPECT_EQ(objects().free(object + 8).code(), adsmErrorInvalidPointer);
  EXPECT_THAT(lastErrorText(), AllOf(HasSubstr(fmt::format("{}", fmt::ptr(object + 8))),
                                     HasSubstr(fmt::format("{}", fmt::ptr(object)))));
  object[0] = std::byte{1};  // still there
  machine_.free(object);
}

TEST_F(Errors, ADoubleFreeIsTold) {
  std::byte* object = machine_.allocate(kMiB);
  machine_.free(object);
  EXPECT_EQ(objects().free(object).code(), adsmErrorInvalidPointer);
  EXPECT_THAT(lastErrorText(), HasSubstr("freed already"));
}

TEST_F(Errors, SmallObjectsHaveTheSameErrors) {
  std::byte* kept = machine_.allocate(100);
  std::byte* object = machine_.allocate(100);
  EXPECT_EQ(objects().free(object + 1).code(), adsmErrorInvalidPointer);
  machine_.free(object);
  EXPECT_EQ(objects().free(object).code(), adsmErrorInvalidPointer);
  EXPECT_THAT(lastErrorText(), HasSubstr("double free"));
  EXPECT_EQ(objects().free(kept + 2048).code(), adsmErrorInvalidPointer);
  machine_.free(kept);
}

TEST_F(Errors, AbsurdSizesAreRefusedAndChangeNothing) {
  const Footprint before = measureFootprint();
  EXPECT_EQ(allocate(0).code(), adsmErrorInvalidValue);
  EXPECT_THAT(lastErrorText(), HasSubstr("size is 0"));
  EXPECT_EQ(allocate(SIZE_MAX).code(), adsmErrorInvalidValue);
  EXPECT_THAT(lastErrorText(), HasSubstr("18446744073709551615"));
  EXPECT_EQ(allocate((std::size_t{1} << 46) + 1).code(), adsmErrorInvalidValue);
  EXPECT_EQ(allocate(std::size_t{1} << 45).code(), adsmErrorAcceleratorMemory);
  EXPECT_THAT(lastErrorText(), HasSubstr("fake driver"));
  EXPECT_EQ(measureFootprint(), before);
  EXPECT_EQ(fake().liveAllocations(), 0u);
}

TEST(Exhaustion, LeavesEverythingAsItWas) {
  MachineSetup setup;
  setup.blockBytes = kMiB;
  Machine machine(setup);
  std::vector<std::byte*> objects;
  for (;;) {
    auto made = machine.objects().allocate(8 * kGiB, Placement::kSameAddress);
    if (!made.ok()) {
      EXPECT_EQ(made.status().code(), adsmErrorAcceleratorMemory);
      break;
    }
    objects.push_back(static_cast<std::byte*>(*made));
    objects.back()[kGiB] = std::byte{1};
  }
  EXPECT_EQ(objects.size(), 8u);
  machine.verify();
  EXPECT_EQ(objects[3][kGiB], std::byte{1});
  machine.free(objects.back());
  objects.back() = machine.allocate(8 * kGiB);
  EXPECT_EQ(objects.back()[kGiB], std::byte{0});
  for (std::byte* object : objects) {
    machine.free(object);
  }
}

TEST_F(Errors, RequestsOfTwoToFourGiBAreWhole) {
  for (const std::size_t bytes :
       {2 * kGiB - 1, 2 * kGiB, 3 * kGiB, 4 * kGiB - 1, 4 * kGiB, 5 * kGiB}) {
    std::byte* object = machine_.allocate(bytes);
    object[0] = object[bytes / 2] = object[bytes - 1] = std::byte{7};
    EXPECT_EQ(object[bytes - 1], std::byte{7}) << bytes;
    machine_.free(object);
  }
}

TEST_F(Errors, WhereNoAddressIsFreeOnBothSidesTheSafeCallIsNamed) {
  fake().refuseSameAddress(true);
  EXPECT_EQ(allocate(kMiB).code(), adsmErrorAddressConflict);
  EXPECT_THAT(lastErrorText(), AllOf(HasSubstr("adsmSafeAlloc"), HasSubstr("fake driver")));
  std::byte* safe = machine_.allocate(kMiB, Placement::kAnywhere);
  safe[0] = std::byte{1};
  machine_.free(safe);
}

TEST_F(Errors, ListsNameWhatIsWrong) {
  std::byte* object = machine_.allocate(kMiB);
  const adsmKernel_t nothing = fake().kernel("nothing", 0, [](const LaunchShape&, void**) {});
  int onStack = 0;
  EXPECT_EQ(machine_.tryCallUsing(nothing, {}, {{&onStack, adsmRead}}).code(),
            adsmErrorInvalidPointer);
  EXPECT_THAT(lastErrorText(), AllOf(HasSubstr("nothing"), HasSubstr("no shared object")));
  EXPECT_EQ(machine_.tryCallUsing(nothing, {}, {{object, static_cast<adsmAccess_t>(0)}}).code(),
            adsmErrorInvalidValue);
  EXPECT_EQ(machine_.tryCallUsing(nothing, {}, {{object, static_cast<adsmAccess_t>(4)}}).code(),
            adsmErrorInvalidValue);
  EXPECT_EQ(objects().bind(&onStack, nothing, adsmRead).code(), adsmErrorInvalidPointer);
  EXPECT_EQ(objects().bind(object, nothing, static_cast<adsmAccess_t>(7)).code(),
            adsmErrorInvalidValue);
  EXPECT_EQ(objects().bind(machine_.allocate(64), nothing, adsmRead).code(), adsmErrorNotSupported);
  EXPECT_FALSE(objects().deviceAddress(&onStack).ok());
}

TEST_F(Errors, AKernelWithoutImplementationIsNamed) {
  adsmKernel_s unknown;
  unknown.name = "unknown";
  unknown.desc.name = "unknown";
  EXPECT_EQ(machine_.tryCall(&unknown, {}).code(), adsmErrorNoImplementation);
  EXPECT_THAT(lastErrorText(), HasSubstr("unknown"));
}

TEST_F(Errors, MovedPagesNeedBlocksThatTheDriverCanCopy) {
  FakeOptions options;
  options.movedPages = true;
  FakeAccelerator accelerator(options);
  CoherenceOptions wanted;
  wanted.movedPages = true;
  wanted.blockBytes = 4 * kKiB;
  EXPECT_EQ(CoherentMemory::make(accelerator, makeRollingProtocol({}), wanted).status().code(),
            adsmErrorNotSupported);
}

// A region of small objects whose memory the accelerator does not take back must not be handed out
// again.
TEST_F(Errors, ARegionThatTheAcceleratorDoesNotTakeBackIsNotHandedOutAgain) {
  std::vector<std::byte*> allocated;
  for (int i = 0; i < 200; ++i) {  // three regions
    allocated.push_back(machine_.allocate(32 * kKiB));
  }
  bool failed = false;
  fake().failNext(Op::Kind::kFree, 1, adsmErrorSystem);
  for (std::byte* object : allocated) {
    failed |= !objects().free(object).ok();
    machine_.verify();
  }
  EXPECT_TRUE(failed);
  EXPECT_THAT(lastErrorText(), HasSubstr("injected failure of free"));
  for (int i = 0; i < 200; ++i) {
    machine_.allocate(32 * kKiB)[i] = std::byte{1};
  }
}

// ---- Coarsening

TEST_F(Errors, AlternatingBlocksBeyondTheLimitOfMappingsAreCoarsened) {
  std::size_t limit = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  if (limit > 70000) {
    GTEST_SKIP() << "vm.max_map_count is " << limit << " here; 65530 is what this test exceeds";
  }
  constexpr std::size_t kBytes = 600 * kMiB;  // 153,600 blocks of 4 KiB
  std::byte* object = machine_.allocate(kBytes);
  machine_.call(fake().kernel("nothing", 0, [](const LaunchShape&, void**) {}), {});
  const std::uint64_t before = stats().coarsenings.value();
  for (std::size_t offset = 0; offset < kBytes; offset += 2 * kPage) {
    object[offset + offset / kPage % 100] = static_cast<std::byte>(offset / kPage % 251 + 1);
  }
  EXPECT_GT(stats().coarsenings.value(), before);
  machine_.verify();
  const adsmKernel_t check = fake().kernel("check", 2, [this](const LaunchShape&, void** args) {
    std::size_t wrong = 0;
    auto* count = fake().argument<std::size_t>(args, 0);
    auto* bytes = fake().argument<std::byte>(args, 1);
    for (std::size_t offset = 0; offset < kBytes; offset += 2 * kPage) {
      wrong +=
          bytes[offset + offset / kPage % 100] != static_cast<std::byte>(offset / kPage % 251 + 1);
      bytes[offset + kPage] = std::byte{9};
    }
    *count = wrong + 1;
  });
  auto* count = machine_.allocateArray<std::size_t>(1);
  machine_.call(check, {count, object});
  machine_.sync();
  EXPECT_EQ(*count, 1u);
  std::size_t wrong = 0;
  for (std::size_t offset = 0; offset < kBytes; offset += 2 * kPage) {
    wrong +=
        object[offset + offset / kPage % 100] != static_cast<std::byte>(offset / kPage % 251 + 1);
    wrong += object[offset + kPage] != std::byte{9};
  }
  EXPECT_EQ(wrong, 0u);
  machine_.verify();
}

TEST_F(Errors, ARefusedMappingCoarsensAndLosesNothing) {
  constexpr std::size_t kBlocks = 64;
  auto* data = machine_.allocateArray<int>(kBlocks * kPage / 4);
  const auto at = [&](std::size_t block) -> int& { return data[block * kPage / 4]; };
  const adsmKernel_t addOne = fake().kernel("addOne", 1, [this](const LaunchShape&, void** args) {
    auto* values = fake().argument<int>(args, 0);
    for (std::size_t i = 0; i < kBlocks * kPage / 4; ++i) {
      ++values[i];
    }
  });
  for (std::size_t block = 0; block < kBlocks; ++block) {
    at(block) = static_cast<int>(block);
  }
  machine_.call(addOne, {data});
  const std::uint64_t before = stats().coarsenings.value();
  at(20) = 500;
  EXPECT_EQ(at(3), 4);
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  at(40) = 600;
  EXPECT_EQ(stats().coarsenings.value(), before + 1);
  machine_.verify();
  for (std::size_t block = 0; block < kBlocks; ++block) {
    const int expected = block == 20 ? 500 : block == 40 ? 600 : static_cast<int>(block) + 1;
    EXPECT_EQ(at(block), expected) << block;
  }
  machine_.call(addOne, {data});
  machine_.sync();
  EXPECT_EQ(at(20), 501);
  EXPECT_EQ(at(21), 23);
  EXPECT_EQ(at(40), 601);
  machine_.verify();
}

}  // namespace
}  // namespace gmac::testing
