// SPDX-License-Identifier: Apache-2.0
//
// The CPU and kernels see each other's writes as promised, under every protocol, block size and
// kind of mirror, on a fake that runs work only when it must.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using accel::Placement;

class Coherence : public ::testing::TestWithParam<MachineSetup> {
 protected:
  Coherence() : machine_(GetParam()) {
    addOne_ = fake().kernel("addOne", 2, [this](const LaunchShape&, void** args) {
      auto* data = fake().argument<int>(args, 0);
      const auto count = *static_cast<std::size_t*>(args[1]);
      for (std::size_t i = 0; i < count; ++i) {
        ++data[i];
      }
    });
    sumInto_ = fake().kernel("sumInto", 3, [this](const LaunchShape&, void** args) {
      auto* sum = fake().argument<int>(args, 0);
      auto* data = fake().argument<int>(args, 1);
      const auto count = *static_cast<std::size_t*>(args[2]);
      *sum = std::accumulate(data, data + count, 0);
    });
    nothing_ = fake().kernel("nothing", 0, [](const LaunchShape&, void**) {});
  }

  FakeAccelerator& fake() { return machine_.fake(); }
  CoherentMemory& objects() { return machine_.objects(); }
  coherence::MemoryPort& memory() { return machine_.memory(); }
  static const void* number(std::size_t value) { return reinterpret_cast<const void*>(value); }
  void addOne(int* data, std::size_t count) { machine_.call(addOne_, {data, number(count)}); }
  bool isBatch() const { return GetParam().protocol == "batch"; }

  Machine machine_;
  adsmKernel_t addOne_;
  adsmKernel_t sumInto_;
  adsmKernel_t nothing_;
};

// 3 MiB and a page: several blocks, several chunks, and a last block that is shorter.
constexpr std::size_t kInts = (3 * kMiB + kPage) / sizeof(int);

TEST_P(Coherence, ANewObjectReadsAsZeroOnBothSides) {
  int* data = machine_.allocateArray<int>(kInts);
  EXPECT_EQ(std::count(data, data + kInts, 0), static_cast<std::ptrdiff_t>(kInts));
  int* sum = machine_.allocateArray<int>(kInts);
  *sum = 7;
  machine_.call(sumInto_, {sum, data, number(kInts)});
  machine_.sync();
  EXPECT_EQ(*sum, 0);
  machine_.verify();
}

TEST_P(Coherence, AKernelSeesEveryWriteMadeBeforeItsCall) {
  int* data = machine_.allocateArray<int>(kInts);
  int* sum = machine_.allocateArray<int>(20000);
  std::fill_n(data, kInts, 1);
  data[kInts - 1] = 1000;
  machine_.verify();
  machine_.call(sumInto_, {sum, data, number(kInts)});
  machine_.sync();
  EXPECT_EQ(*sum, static_cast<int>(kInts) - 1 + 1000);
}

TEST_P(Coherence, ASecondKernelsResultIsReadAfterTheSecondSync) {
  int* data = machine_.allocateArray<int>(kInts);
  for (int round = 1; round <= 3; ++round) {
    addOne(data, kInts);
    machine_.sync();
    EXPECT_EQ(data[0], round);
    EXPECT_EQ(data[kInts / 2], round);
    EXPECT_EQ(data[kInts - 1], round);
    machine_.verify();
  }
}

TEST_P(Coherence, TheCpuMayReadWithoutASync) {
  int* data = machine_.allocateArray<int>(kInts);
  data[5] = 41;
  addOne(data, kInts);
  EXPECT_GT(fake().pending(), 0u);  // the kernel has not run: the access below must wait for it
  EXPECT_EQ(data[5], 42);
  EXPECT_EQ(data[6], 1);
  machine_.verify();
}

TEST_P(Coherence, AWriteBetweenACallAndItsSyncLosesNeitherSide) {
  int* data = machine_.allocateArray<int>(kInts);
  int* other = machine_.allocateArray<int>(kInts);
  other[9] = 90;
  addOne(data, kInts);
  data[3] = 300;  // waits for the kernel, then fetches its block
  other[4] = 400;
  machine_.verify();
  machine_.sync();
  EXPECT_EQ(data[3], 300);
  EXPECT_EQ(data[2], 1);
  EXPECT_EQ(data[kInts - 1], 1);
  EXPECT_EQ(other[4], 400);
  EXPECT_EQ(other[9], 90);
  addOne(data, kInts);
  machine_.sync();
  EXPECT_EQ(data[3], 301);
  EXPECT_EQ(data[2], 2);
  machine_.verify();
}

TEST_P(Coherence, CallsInARowSeeEachOther) {
  int* data = machine_.allocateArray<int>(kInts);
  data[kInts - 1] = 10;
  addOne(data, kInts);
  addOne(data, kInts);
  addOne(data, kInts);
  EXPECT_EQ(data[kInts - 1], 13);
  EXPECT_EQ(data[0], 3);
}

TEST_P(Coherence, ACallAfterWhichTheCpuTouchedNothingMovesNothing) {
  int* data = machine_.allocateArray<int>(kInts);
  int* scratch = machine_.allocateArray<int>(kInts);
  data[1] = scratch[2] = 5;
  addOne(data, kInts);
  if (isBatch()) {
    // Batch fetches at a sync; without one there is nothing to move either.
    machine_.expectNothingHappens([&] { addOne(data, kInts); });
    return;
  }
  machine_.expectNothingHappens([&] {
    addOne(data, kInts);
    machine_.sync();
    addOne(data, kInts);
    machine_.sync();
  });
  EXPECT_EQ(data[1], 8);
}

TEST_P(Coherence, ListedReadsStayReadableWhileTheKernelRunsAndCostNothing) {
  int* input = machine_.allocateArray<int>(kInts);
  int* output = machine_.allocateArray<int>(kInts);
  std::fill_n(input, kInts, 2);
  machine_.callUsing(sumInto_, {output, input, number(kInts)},
                     {{input, adsmRead}, {output, adsmWrite}});
  const std::size_t pending = fake().pending();
  ASSERT_GT(pending, 0u);
  machine_.expectNothingHappens(
      [&] { EXPECT_EQ(std::accumulate(input, input + kInts, std::size_t{0}), 2 * kInts); });
  EXPECT_EQ(fake().pending(), pending) << "reading made the kernel run";
  machine_.sync();
  machine_.expectNothingHappens(
      [&] { EXPECT_EQ(std::accumulate(input, input + kInts, std::size_t{0}), 2 * kInts); });
  EXPECT_EQ(*output, static_cast<int>(2 * kInts));
  machine_.verify();
}

TEST_P(Coherence, AWriteToAListedInputDoesNotReachTheRunningKernel) {
  int* input = machine_.allocateArray<int>(kInts);
  int* output = machine_.allocateArray<int>(kInts);
  for (int round = 0; round < 4; ++round) {
    std::fill_n(input, kInts, 1);
    machine_.callUsing(sumInto_, {output, input, number(kInts)},
                       {{input, adsmRead}, {output, adsmWrite}});
    std::fill_n(input, kInts, 100);  // more than the rolling size: evictions queue copies meanwhile
    machine_.verify();
    fake().runAll();  // copies first, wherever nothing keeps them back
    machine_.sync();
    EXPECT_EQ(*output, static_cast<int>(kInts));
  }
}

TEST_P(Coherence, AFlushDoesNotOvertakeACallThatStillReads) {
  int* input = machine_.allocateArray<int>(kInts);
  int* output = machine_.allocateArray<int>(kInts);
  std::fill_n(input, kInts, 1);
  machine_.callUsing(sumInto_, {output, input, number(kInts)},
                     {{input, adsmRead}, {output, adsmWrite}});
  std::fill_n(input, kInts, 100);
  machine_.call(nothing_, {});
  fake().runAll();  // copies first, wherever nothing keeps them back
  machine_.sync();
  EXPECT_EQ(*output, static_cast<int>(kInts));
}

TEST_P(Coherence, ObjectsThatACallDoesNotListAreLeftAlone) {
  int* data = machine_.allocateArray<int>(kInts);
  int* other = machine_.allocateArray<int>(kInts);
  other[7] = 70;
  data[0] = 1;
  machine_.callUsing(addOne_, {data, number(kInts)}, {{data, adsmReadWrite}});
  machine_.expectNothingHappens([&] {
    EXPECT_EQ(other[7], 70);
    other[7] = 71;
  });
  EXPECT_EQ(data[0], 2);
  machine_.verify();
}

TEST_P(Coherence, AWriteOnlyObjectKeepsWhatTheKernelDoesNotWrite) {
  int* data = machine_.allocateArray<int>(kInts);
  std::iota(data, data + kInts, 0);
  machine_.callUsing(addOne_, {data, number(10)}, {{data, adsmWrite}});
  machine_.sync();
  EXPECT_EQ(data[9], 10);
  EXPECT_EQ(data[10], 10);
  EXPECT_EQ(data[kInts - 1], static_cast<int>(kInts - 1));
}

TEST_P(Coherence, BoundObjectsBelongToTheirKernels) {
  int* bound = machine_.allocateArray<int>(kInts);
  int* free = machine_.allocateArray<int>(kInts);
  ASSERT_TRUE(objects().bind(bound + 3, addOne_, adsmReadWrite).ok()) << lastErrorText();
  bound[0] = free[0] = 1;
  machine_.call(nothing_, {});
  machine_.expectNothingHappens([&] { EXPECT_EQ(bound[0], 1); });
  EXPECT_EQ(free[0], 1);
  addOne(bound, kInts);
  EXPECT_EQ(bound[0], 2);
  EXPECT_EQ(bound[1], 1);
  machine_.verify();
}

TEST_P(Coherence, AnObjectBoundAfterACallWaitsForThatCall) {
  int* data = machine_.allocateArray<int>(kInts);
  addOne(data, kInts);
  ASSERT_TRUE(objects().bind(data, nothing_, adsmRead).ok());
  EXPECT_EQ(data[0], 1);
  machine_.call(nothing_, {});
  EXPECT_EQ(data[1], 1);
}

TEST_P(Coherence, AnObjectBoundForReadingStaysReadable) {
  int* input = machine_.allocateArray<int>(kInts);
  int* output = machine_.allocateArray<int>(kInts);
  ASSERT_TRUE(objects().bind(input, sumInto_, adsmRead).ok());
  std::fill_n(input, kInts, 3);
  machine_.call(sumInto_, {output, input, number(kInts)});
  const std::size_t pending = fake().pending();
  EXPECT_EQ(input[kInts - 1], 3);
  EXPECT_EQ(fake().pending(), pending);
  machine_.sync();
  EXPECT_EQ(*output, static_cast<int>(3 * kInts));
}

TEST_P(Coherence, ForgettingAKernelDropsItsBindings) {
  int* data = machine_.allocateArray<int>(kInts);
  ASSERT_TRUE(objects().bind(data, nothing_, adsmReadWrite).ok());
  ASSERT_TRUE(objects().forget(nothing_).ok());
  addOne(data, kInts);
  EXPECT_EQ(data[0], 1);
}

TEST_P(Coherence, SmallObjectsShareARegionAndKeepTheirBytes) {
  std::vector<int*> objects;
  for (int i = 0; i < 300; ++i) {
    objects.push_back(machine_.allocateArray<int>(64));
    objects.back()[0] = i;
  }
  machine_.callUsing(addOne_, {objects[7], number(64)}, {{objects[7], adsmReadWrite}});
  objects[8][1] = 1;  // in the same region: waits, and loses nothing
  machine_.verify();
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(objects[i][0], i == 7 ? 8 : i);
  }
  EXPECT_EQ(objects[8][1], 1);
  for (int* object : objects) {
    machine_.free(object);
  }
}

TEST_P(Coherence, SafeObjectsHaveAnotherAddressOnTheAccelerator) {
  auto* data = reinterpret_cast<int*>(machine_.allocate(kInts * 4, Placement::kAnywhere));
  auto device = objects().deviceAddress(data + 5);
  ASSERT_TRUE(device.ok());
  EXPECT_NE(*device, data + 5);
  std::fill_n(data, kInts, 4);
  machine_.call(addOne_, {static_cast<int*>(*device) - 5, number(kInts)});
  EXPECT_EQ(data[0], 5);
  EXPECT_EQ(data[kInts - 1], 5);
  machine_.verify();
  machine_.free(data);
}

TEST_P(Coherence, FreeWaitsForTheKernelsThatUseTheObject) {
  int* data = machine_.allocateArray<int>(kInts);
  data[0] = 1;
  addOne(data, kInts);
  machine_.free(data);  // the fake complains if queued work still names it
}

TEST_P(Coherence, FreeWaitsForReadersAndForCopiesInFlight) {
  int* input = machine_.allocateArray<int>(kInts);
  int* output = machine_.allocateArray<int>(kInts);
  std::fill_n(input, kInts, 1);
  machine_.callUsing(sumInto_, {output, input, number(kInts)},
                     {{input, adsmRead}, {output, adsmWrite}});
  std::fill_n(input, kInts, 2);
  machine_.free(input);
  machine_.sync();
  EXPECT_EQ(*output, static_cast<int>(kInts));
}

TEST_P(Coherence, AfterALaunchThatFailsTheCpuSeesItsOwnWrites) {
  int* data = machine_.allocateArray<int>(kInts);
  std::iota(data, data + kInts, 0);
  fake().failNext(Op::Kind::kLaunch, 1, adsmErrorLaunch);
  EXPECT_EQ(machine_.tryCall(addOne_, {data, number(kInts)}).code(), adsmErrorLaunch);
  EXPECT_THAT(lastErrorText(), ::testing::HasSubstr("injected failure of launch"));
  machine_.verify();
  EXPECT_EQ(data[0], 0);
  EXPECT_EQ(data[kInts - 1], static_cast<int>(kInts - 1));
  data[1] = 11;
  addOne(data, kInts);
  machine_.sync();
  EXPECT_EQ(data[1], 12);
  EXPECT_EQ(data[kInts - 1], static_cast<int>(kInts));
}

TEST_P(Coherence, ACrashedKernelIsReportedOnceAndTheRuntimeGoesOn) {
  int* data = machine_.allocateArray<int>(kInts);
  data[0] = 1;
  fake().crashKernel(1);
  addOne(data, kInts);
  EXPECT_EQ(objects().sync().code(), adsmErrorKernel);
  EXPECT_THAT(lastErrorText(), ::testing::HasSubstr("a kernel crashed"));
  machine_.sync();
  addOne(data, kInts);
  machine_.sync();
  EXPECT_EQ(data[0], 2);
}

TEST_P(Coherence, HeldRangesAreOpenForSystemCallsAndKeepTheirBytes) {
  auto* data = reinterpret_cast<std::byte*>(machine_.allocateArray<int>(kInts));
  addOne(reinterpret_cast<int*>(data), kInts);
  ASSERT_TRUE(memory().hold(data + 100, 2 * kMiB, true).ok()) << lastErrorText();
  machine_.verify();
  for (const std::size_t offset : {std::size_t{100}, kMiB, 2 * kMiB + 99}) {
    EXPECT_EQ(accessAt(data + offset), os::Access::kReadWrite) << offset;
  }
  machine_.expectNothingHappens([&] { std::memset(data + 100, 3, 2 * kMiB); });
  memory().unhold(data + 100, 2 * kMiB);
  machine_.verify();
  EXPECT_EQ(reinterpret_cast<int*>(data)[0], 1);
  EXPECT_EQ(reinterpret_cast<int*>(data)[26], 0x03030303);
  addOne(reinterpret_cast<int*>(data), kInts);
  EXPECT_EQ(reinterpret_cast<int*>(data)[26], 0x03030304);
}

TEST_P(Coherence, ThousandsOfObjectsWork) {
  std::vector<int*> allocated;
  for (int i = 0; i < 1200; ++i) {
    auto made = objects().allocate(40 * kKiB, Placement::kSameAddress);
    ASSERT_TRUE(made.ok()) << lastErrorText();
    allocated.push_back(static_cast<int*>(*made));
    *allocated.back() = i;
  }
  machine_.call(nothing_, {});
  for (int i = 0; i < 1200; ++i) {
    EXPECT_EQ(*allocated[i], i);
  }
  machine_.verify();
  for (int* object : allocated) {
    ASSERT_TRUE(objects().free(object).ok()) << lastErrorText();
  }
}

INSTANTIATE_TEST_SUITE_P(, Coherence, ::testing::ValuesIn(everySetup()),
                         [](const auto& info) { return nameOf(info.param); });

}  // namespace
}  // namespace gmac::testing
