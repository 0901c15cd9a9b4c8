// SPDX-License-Identifier: Apache-2.0
//
// Early flushes and early fetches: which bytes move, in what order, what they wait for, and that
// CPU and kernels see the same values as without them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kBlock = 64 * kKiB;

MachineSetup protocol(const char* name) {
  MachineSetup setup;
  setup.protocol = name;
  setup.blockBytes = kBlock;
  setup.rollingSize = 100;
  return setup;
}

// Adds one to the first byte of each of `count` blocks.
adsmKernel_t addOne(FakeAccelerator& fake) {
  return fake.kernel("addOne", 2, [&fake](const LaunchShape&, void** args) {
    auto* data = fake.argument<std::uint8_t>(args, 0);
    const auto count = *static_cast<std::size_t*>(args[1]);
    for (std::size_t block = 0; block < count; ++block) {
      ++data[block * kBlock];
    }
  });
}

const void* number(std::size_t value) { return reinterpret_cast<const void*>(value); }

std::uint8_t* bytesOf(std::byte* object) { return reinterpret_cast<std::uint8_t*>(object); }

// The accelerator's value of one byte, once its queues have run.
std::uint8_t onDevice(Machine& machine, std::byte* at) {
  machine.fake().runAll();
  return *machine.fake().at(bytesOf(at));
}

void startFlush(Machine& machine, const void* address, std::size_t bytes) {
  EXPECT_TRUE(machine.memory().startFlush(address, bytes).ok()) << lastErrorText();
  machine.verify();
}

void startFetch(Machine& machine, const void* address, std::size_t bytes) {
  EXPECT_TRUE(machine.memory().startFetch(address, bytes).ok()) << lastErrorText();
  machine.verify();
}

// An object whose blocks a kernel has written, all Invalid; the kernel has finished if `synced`.
std::byte* written(Machine& machine, std::size_t blocks, bool synced = true) {
  std::byte* a = machine.allocate(blocks * kBlock);
  for (std::size_t block = 0; block < blocks; ++block) {
    a[block * kBlock] = static_cast<std::byte>(block);
  }
  machine.call(addOne(machine.fake()), {a, number(blocks)});
  if (synced) {
    machine.sync();
  }
  machine.fake().clearLog();
  return a;
}

// ---- Flushes

TEST(EarlyFlush, CopiesRunsOfDirtyBlocksThatLieWhollyInTheRange) {
  Machine machine(protocol("rolling"));
  std::byte* a = machine.allocate(10 * kBlock);
  for (const int block : {1, 2, 3, 5, 6}) {
    a[block * kBlock] = std::byte{7};
  }
  machine.fake().clearLog();
  startFlush(machine, a + kBlock + 1, 6 * kBlock - 2);  // from inside block 1 to inside block 6
  EXPECT_THAT(machine.fake().log(),
              ElementsAre(copyIn(a + 2 * kBlock, 2 * kBlock), copyIn(a + 5 * kBlock, kBlock)))
      << "and nothing is waited for";
  EXPECT_EQ(accessAt(a + kBlock), os::Access::kReadWrite);
  EXPECT_EQ(accessAt(a + 2 * kBlock), os::Access::kRead);
  EXPECT_EQ(accessAt(a + 5 * kBlock), os::Access::kRead);
  EXPECT_EQ(accessAt(a + 6 * kBlock), os::Access::kReadWrite);
  EXPECT_EQ(onDevice(machine, a + 3 * kBlock), 7);
  EXPECT_EQ(a[3 * kBlock], std::byte{7});
}

TEST(EarlyFlush, TheCallCopiesOnlyWhatIsLeft) {
  Machine machine(protocol("rolling"));
  const adsmKernel_t kernel = addOne(machine.fake());
  std::byte* a = machine.allocate(4 * kBlock);
  for (int block = 0; block < 4; ++block) {
    a[block * kBlock] = std::byte{7};
  }
  startFlush(machine, a, 3 * kBlock);
  machine.fake().clearLog();
  machine.call(kernel, {a, number(4)});
  EXPECT_THAT(machine.fake().copies(), ElementsAre(copyIn(a + 3 * kBlock, kBlock)));
  machine.sync();
  for (int block = 0; block < 4; ++block) {
    EXPECT_EQ(a[block * kBlock], std::byte{8});
  }
}

TEST(EarlyFlush, TheLastBlockIsWholeWithTheBytesThatWereAskedFor) {
  Machine machine(protocol("rolling"));
  std::byte* a = machine.allocate(2 * kBlock + 100);
  a[2 * kBlock] = std::byte{7};
  machine.fake().clearLog();
  startFlush(machine, a, 2 * kBlock + 99);
  EXPECT_THAT(machine.fake().copies(), IsEmpty());
  startFlush(machine, a, 2 * kBlock + 100);
  EXPECT_THAT(machine.fake().copies(), ElementsAre(copyIn(a + 2 * kBlock, kPage)));
}

TEST(EarlyFlush, SpansObjectsAndPassesOverWhatIsNotShared) {
  Machine machine(protocol("rolling"));
  std::vector<std::byte*> objects;
  for (int i = 0; i < 3; ++i) {
    objects.push_back(machine.allocate(2 * kMiB));
    objects.back()[kBlock] = std::byte{7};
  }
  const auto [first, last] = std::minmax_element(objects.begin(), objects.end());
  machine.fake().clearLog();
  startFlush(machine, *first - kPage,
             static_cast<std::size_t>(*last - *first) + 2 * kMiB + 2 * kPage);
  EXPECT_THAT(machine.fake().copies(),
              ::testing::UnorderedElementsAre(copyIn(objects[0] + kBlock, kBlock),
                                              copyIn(objects[1] + kBlock, kBlock),
                                              copyIn(objects[2] + kBlock, kBlock)));
}

TEST(EarlyFlush, UnderLazyUpdateAnObjectGoesAsAWholeOrNotAtAll) {
  Machine machine(protocol("lazy"));
  const adsmKernel_t kernel = addOne(machine.fake());
  std::byte* a = machine.allocate(4 * kBlock);
  a[0] = a[3 * kBlock] = std::byte{7};
  machine.fake().clearLog();
  startFlush(machine, a, 3 * kBlock);
  EXPECT_THAT(machine.fake().copies(), IsEmpty());
  startFlush(machine, a, 4 * kBlock);
  EXPECT_THAT(machine.fake().log(), ElementsAre(copyIn(a, 4 * kBlock)));
  machine.fake().clearLog();
  machine.call(kernel, {a, number(4)});
  EXPECT_THAT(machine.fake().copies(), IsEmpty());
  machine.sync();
  EXPECT_EQ(a[3 * kBlock], std::byte{8});
}

// Its call would copy everything again.
TEST(EarlyFlush, UnderBatchUpdateNothingIsCopiedTwice) {
  Machine machine(protocol("batch"));
  const adsmKernel_t kernel = addOne(machine.fake());
  std::byte* a = machine.allocate(4 * kBlock);
  a[0] = std::byte{7};
  machine.expectNothingHappens([&] { startFlush(machine, a, 4 * kBlock); });
  machine.call(kernel, {a, number(4)});
  EXPECT_THAT(machine.fake().copies(), ElementsAre(copyIn(a, 4 * kBlock)));
  machine.sync();
  EXPECT_EQ(a[0], std::byte{8});
}

TEST(EarlyFlush, ALaterWriteWaitsForTheCopyAndIsCopiedAgain) {
  for (const char* name : {"rolling", "lazy"}) {
    Machine machine(protocol(name));
    const adsmKernel_t kernel = addOne(machine.fake());
    std::byte* a = machine.allocate(2 * kBlock);
    a[0] = std::byte{7};
    startFlush(machine, a, 2 * kBlock);
    EXPECT_EQ(machine.fake().pending(), 1u);
    EXPECT_EQ(a[0], std::byte{7});
    EXPECT_EQ(machine.fake().pending(), 1u) << "reading does not wait";
    a[0] = std::byte{20};
    EXPECT_EQ(machine.fake().pending(), 0u) << "the copy reads the pages";
    machine.verify();
    EXPECT_EQ(*machine.fake().at(bytesOf(a)), 7);
    machine.call(kernel, {a, number(2)});
    machine.sync();
    EXPECT_EQ(a[0], std::byte{21}) << name;
  }
}

TEST(EarlyFlush, PassesOverBlocksThatAreHeld) {
  Machine machine(protocol("rolling"));
  std::byte* a = machine.allocate(3 * kBlock);
  ASSERT_TRUE(machine.memory().hold(a, 3 * kBlock, true).ok());
  machine.memory().unhold(a, kBlock);
  machine.fake().clearLog();
  startFlush(machine, a, 3 * kBlock);
  EXPECT_THAT(machine.fake().copies(), ElementsAre(copyIn(a, kBlock)));
  a[kBlock] = std::byte{1};  // as a system call would: no fault may come
  EXPECT_EQ(accessAt(a + kBlock), os::Access::kReadWrite);
  machine.memory().unhold(a + kBlock, 2 * kBlock);
  startFlush(machine, a, 3 * kBlock);
  EXPECT_EQ(onDevice(machine, a + kBlock), 1);
}

// The copy must not change what a running call, which only reads the object, still reads.
TEST(EarlyFlush, ComesAfterTheCallThatStillReadsTheObject) {
  Machine machine(protocol("rolling"));
  std::byte* a = machine.allocate(kBlock);
  std::byte* result = machine.allocate(kBlock);
  a[0] = std::byte{1};
  const adsmKernel_t copy = machine.fake().kernel("copy", 2, [&](const LaunchShape&, void** args) {
    *machine.fake().argument<std::byte>(args, 0) = *machine.fake().argument<std::byte>(args, 1);
  });
  machine.callUsing(copy, {result, a}, {{result, adsmWrite}, {a, adsmRead}});
  a[0] = std::byte{2};
  startFlush(machine, a, kBlock);
  EXPECT_EQ(onDevice(machine, a), 2);
  EXPECT_EQ(result[0], std::byte{1});
}

TEST(EarlyFlush, AFailureLosesNothing) {
  for (const char* name : {"rolling", "lazy"}) {
    for (const bool protection : {false, true}) {
      Machine machine(protocol(name));
      const adsmKernel_t kernel = addOne(machine.fake());
      std::byte* a = machine.allocate(3 * kBlock);
      a[0] = a[2 * kBlock] = std::byte{7};
      if (protection) {
        os::failNext(os::Call::kProtect, 1, EIO);
      } else {
        machine.fake().failNext(Op::Kind::kCopyIn, 1, adsmErrorSystem);
      }
      EXPECT_EQ(machine.memory().startFlush(a, 3 * kBlock).code(), adsmErrorSystem);
      machine.verify();
      a[1] = std::byte{3};
      EXPECT_EQ(a[0], std::byte{7});
      machine.call(kernel, {a, number(3)});
      machine.sync();
      EXPECT_EQ(a[0], std::byte{8});
      EXPECT_EQ(a[1], std::byte{3});
      EXPECT_EQ(a[2 * kBlock], std::byte{8});
    }
  }
}

// ---- Overwriting

TEST(Overwriting, FetchesOnlyBlocksThatKeepSomeOfTheirBytes) {
  Machine machine(protocol("rolling"));
  std::byte* a = written(machine, 5, true);
  ASSERT_TRUE(
      machine.memory().hold(a + kBlock - 1, 3 * kBlock + 2, coherence::HoldFor::kOverwrite).ok());
  EXPECT_THAT(machine.fake().copies(),
              ElementsAre(copyOut(a, kBlock), copyOut(a + 4 * kBlock, kBlock)));
  std::fill_n(a + kBlock - 1, 3 * kBlock + 2, std::byte{77});
  machine.memory().unhold(a + kBlock - 1, 3 * kBlock + 2);
  machine.verify();
  EXPECT_EQ(a[0], std::byte{1});
  EXPECT_EQ(a[4 * kBlock + 1], std::byte{0});
  machine.call(addOne(machine.fake()), {a, number(5)});
  machine.sync();
  EXPECT_EQ(a[0], std::byte{2});
  EXPECT_EQ(a[2 * kBlock], std::byte{78});
  EXPECT_EQ(a[4 * kBlock], std::byte{78});
}

TEST(Overwriting, UnderEveryProtocolAWholeObjectIsNotFetched) {
  for (const MachineSetup& setup : everySetup()) {
    SCOPED_TRACE(nameOf(setup));
    Machine machine(setup);
    std::byte* a = machine.allocate(3 * kBlock + 100);
    machine.call(addOne(machine.fake()), {a, number(3)});
    machine.fake().clearLog();
    ASSERT_TRUE(machine.memory().hold(a, 3 * kBlock + 100, coherence::HoldFor::kOverwrite).ok());
    for (const Op& op : machine.fake().copies()) {
      EXPECT_EQ(op.kind, Op::Kind::kCopyIn) << "evictions only";
    }
    std::fill_n(a, 3 * kBlock + 100, std::byte{77});
    machine.memory().unhold(a, 3 * kBlock + 100);
    machine.call(addOne(machine.fake()), {a, number(3)});
    machine.sync();
    EXPECT_EQ(a[2 * kBlock], std::byte{78});
    EXPECT_EQ(a[2 * kBlock + 1], std::byte{77});
  }
}

TEST(Overwriting, WaitsForTheKernelThatStillWritesTheObject) {
  Machine machine(protocol("rolling"));
  std::byte* a = written(machine, 1, false);
  EXPECT_EQ(machine.fake().pending(), 2u);  // the flush before the kernel, and the kernel
  ASSERT_TRUE(machine.memory().hold(a, kBlock, coherence::HoldFor::kOverwrite).ok());
  EXPECT_EQ(machine.fake().pending(), 0u);
  std::fill_n(a, kBlock, std::byte{77});
  machine.memory().unhold(a, kBlock);
  startFlush(machine, a, kBlock);
  EXPECT_EQ(onDevice(machine, a), 77);
}

// ---- Fetches

void expectAddedOne(const std::byte* a, std::size_t blocks) {
  for (std::size_t block = 0; block < blocks; ++block) {
    EXPECT_EQ(a[block * kBlock], static_cast<std::byte>(block + 1)) << "block " << block;
  }
}

TEST(EarlyFetch, BringsTheBlocksThatTheRangeTouchesInCopiesOfTheReadAheadSize) {
  MachineSetup setup = protocol("rolling");
  setup.readAheadBytes = 4 * kBlock;
  Machine machine(setup);
  std::byte* a = written(machine, 12);
  startFetch(machine, a + kBlock - 1, 9 * kBlock + 2);  // blocks 0 to 10
  EXPECT_THAT(machine.fake().log(), IsEmpty()) << "nothing is done by the asking thread";
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(machine.objects().fetchNext(), EarlyStep::kMoved);
    machine.verify();
  }
  EXPECT_THAT(machine.fake().copies(),
              ElementsAre(copyOut(a, 4 * kBlock), copyOut(a + 4 * kBlock, 4 * kBlock),
                          copyOut(a + 8 * kBlock, 3 * kBlock)));
  EXPECT_EQ(accessAt(a + 10 * kBlock), os::Access::kRead);
  EXPECT_EQ(accessAt(a + 11 * kBlock), os::Access::kNone);
  machine.expectNothingHappens([&] { expectAddedOne(a, 11); });
  EXPECT_EQ(machine.objects().fetchNext(), EarlyStep::kMoved);  // it finds that all is there
  EXPECT_EQ(machine.objects().fetchNext(), EarlyStep::kIdle);
}

TEST(EarlyFetch, LeavesWhatTheCpuHas) {
  MachineSetup setup = protocol("rolling");
  setup.readAheadBytes = 8 * kBlock;
  Machine machine(setup);
  std::byte* a = written(machine, 6);
  a[kBlock] = std::byte{99};
  EXPECT_EQ(a[4 * kBlock], std::byte{5});
  machine.fake().clearLog();
  startFetch(machine, a, 6 * kBlock);
  while (machine.objects().fetchNext() != EarlyStep::kIdle) {
    machine.verify();
  }
  EXPECT_THAT(machine.fake().copies(),
              ElementsAre(copyOut(a, kBlock), copyOut(a + 2 * kBlock, 2 * kBlock),
                          copyOut(a + 5 * kBlock, kBlock)));
  EXPECT_EQ(a[kBlock], std::byte{99});
  a[kBlock] = std::byte{2};
  expectAddedOne(a, 6);
}

TEST(EarlyFetch, EveryProtocolHasTheKernelsValuesWithoutAFaultAfterwards) {
  for (const MachineSetup& setup : everySetup()) {
    SCOPED_TRACE(nameOf(setup));
    Machine machine(setup);
    std::byte* a = machine.allocate(4 * kBlock);
    for (int block = 0; block < 4; ++block) {
      a[block * kBlock] = static_cast<std::byte>(block);
    }
    machine.call(addOne(machine.fake()), {a, number(4)});
    machine.fake().runAll();  // but no sync, at which batch-update would fetch
    startFetch(machine, a, 4 * kBlock);
    while (machine.objects().fetchNext() != EarlyStep::kIdle) {
      machine.verify();
    }
    machine.expectNothingHappens([&] { expectAddedOne(a, 4); });
    machine.sync();
    expectAddedOne(a, 4);
  }
}

TEST(EarlyFetch, WaitsForTheKernelWithoutForcingOrBlockingAnything) {
  for (const char* name : {"batch", "lazy", "rolling"}) {
    SCOPED_TRACE(name);
    Machine machine(protocol(name));
    std::byte* a = written(machine, 4, false);
    startFetch(machine, a, 4 * kBlock);
    EXPECT_EQ(machine.objects().fetchNext(), EarlyStep::kWaits);
    EXPECT_EQ(machine.objects().fetchNext(), EarlyStep::kWaits);
    EXPECT_THAT(machine.fake().log(), IsEmpty());
    machine.fake().runAll();
    EXPECT_EQ(machine.objects().fetchNext(), EarlyStep::kMoved);
    expectAddedOne(a, 4);
  }
}

TEST(EarlyFetch, WhatWaitsLetsOthersPass) {
  Machine machine(protocol("rolling"));
  std::byte* done = written(machine, 1);
  std::byte* running = machine.allocate(kBlock);
  running[0] = std::byte{40};
  machine.callUsing(addOne(machine.fake()), {running, number(1)}, {{running, adsmReadWrite}});
  startFetch(machine, running, kBlock);
  startFetch(machine, done, kBlock);
  machine.fake().clearLog();
  EXPECT_EQ(machine.objects().fetchNext(), EarlyStep::kWaits);
  EXPECT_EQ(machine.objects().fetchNext(), EarlyStep::kMoved);
  EXPECT_THAT(machine.fake().copies(), ElementsAre(copyOut(done, kBlock)));
  machine.fake().runAll();
  while (machine.objects().fetchNext() != EarlyStep::kIdle) {
  }
  EXPECT_EQ(running[0], std::byte{41});
}

TEST(EarlyFetch, ALaterCallMakesItForgotten) {
  Machine machine(protocol("rolling"));
  std::byte* a = written(machine, 2);
  startFetch(machine, a, 2 * kBlock);
  machine.call(addOne(machine.fake()), {a, number(2)});
  machine.sync();
  EXPECT_EQ(machine.objects().fetchNext(), EarlyStep::kMoved);
  EXPECT_EQ(machine.objects().fetchNext(), EarlyStep::kIdle);
  EXPECT_THAT(machine.fake().copies(), IsEmpty());
  EXPECT_EQ(a[kBlock], std::byte{3});
}

TEST(EarlyFetch, DeviceWorkOfTheApplicationIsWaitedForAndALaterOneMakesItForgotten) {
  Machine machine(protocol("rolling"));
  std::byte* a = machine.allocate(kBlock);
  a[0] = std::byte{7};
  const accel::NativeStream stream{1};
  const coherence::DeviceRange range{a, kBlock, true};
  const auto work = [&] {
    ASSERT_TRUE(machine.work().beginDeviceWork(stream, {&range, 1}).ok());
    machine.fake().submit(stream, [&] { ++*machine.fake().at(bytesOf(a)); });
    ASSERT_TRUE(machine.work().endDeviceWork(stream, true).ok());
  };
  work();
  startFetch(machine, a, kBlock);
  EXPECT_EQ(machine.objects().fetchNext(), EarlyStep::kWaits);
  work();
  machine.fake().runAll();
  machine.fake().clearLog();
  EXPECT_EQ(machine.objects().fetchNext(), EarlyStep::kMoved);
  EXPECT_THAT(machine.fake().copies(), IsEmpty());
  EXPECT_EQ(a[0], std::byte{9});
}

TEST(EarlyFetch, AFreedObjectIsForgotten) {
  Machine machine(protocol("rolling"));
  std::byte* a = written(machine, 2);
  startFetch(machine, a, 2 * kBlock);
  machine.free(a);
  EXPECT_EQ(machine.objects().fetchNext(), EarlyStep::kMoved);
  EXPECT_EQ(machine.objects().fetchNext(), EarlyStep::kIdle);
}

TEST(EarlyFetch, AFailureIsLeftToTheAccess) {
  for (const char* name : {"batch", "lazy", "rolling"}) {
    for (const Op::Kind kind : {Op::Kind::kCopyOut, Op::Kind::kWait}) {
      Machine machine(protocol(name));
      std::byte* a = written(machine, 2, false);
      machine.fake().runAll();
      startFetch(machine, a, 2 * kBlock);
      machine.fake().failNext(kind, 1, adsmErrorSystem);
      EXPECT_EQ(machine.objects().fetchNext(), EarlyStep::kMoved);
      EXPECT_FALSE(machine.fake().armed());
      machine.verify();
      EXPECT_EQ(machine.objects().fetchNext(), EarlyStep::kIdle) << "it is not tried for ever";
      expectAddedOne(a, 2);
    }
  }
}

TEST(EarlyFetch, AKernelsErrorIsLeftToTheSync) {
  Machine machine(protocol("rolling"));
  machine.fake().crashKernel(1);
  std::byte* a = written(machine, 2, false);
  startFetch(machine, a, 2 * kBlock);
  machine.fake().runAll();
  while (machine.objects().fetchNext() == EarlyStep::kMoved) {
  }
  EXPECT_EQ(machine.objects().sync().code(), adsmErrorKernel);
}

TEST(EarlyFetch, MakesReadyWhatTheCpuHasNeverTouched) {
  MachineSetup setup = protocol("rolling");
  setup.fake.movedPages = true;
  setup.readAheadBytes = 16 * kMiB;
  Machine machine(setup);
  std::byte* a = machine.allocate(6 * kMiB);
  machine.call(addOne(machine.fake()), {a, number(6 * kMiB / kBlock)});
  machine.sync();
  EXPECT_EQ(machine.fake().livePins(), 0u);
  startFetch(machine, a, 4 * kMiB);
  while (machine.objects().fetchNext() != EarlyStep::kIdle) {
    machine.verify();
  }
  EXPECT_EQ(machine.fake().livePins(), 2u);
  machine.expectNothingHappens([&] {
    for (std::size_t at = 0; at < 4 * kMiB; at += kBlock) {
      EXPECT_EQ(a[at], std::byte{1});
    }
  });
}

TEST(EarlyFetch, MoreThanCanWaitIsDroppedAndFetchedWhenItIsNeeded) {
  Machine machine(protocol("rolling"));
  constexpr std::size_t kBlocks = 100;
  std::byte* a = written(machine, kBlocks);
  for (std::size_t block = 0; block < kBlocks; ++block) {
    startFetch(machine, a + block * kBlock, kBlock);
  }
  while (machine.objects().fetchNext() != EarlyStep::kIdle) {
  }
  EXPECT_THAT(machine.fake().copies(), ::testing::SizeIs(64));
  expectAddedOne(a, kBlocks);
}

TEST(EarlyFetch, RunsOnAThreadOfItsOwnThatEndsWithTheRuntime) {
  MachineSetup setup = protocol("rolling");
  setup.fetchInBackground = true;
  setup.fake.run = FakeOptions::Run::kEager;
  Machine machine(setup);
  std::byte* a = written(machine, 4);
  std::promise<std::thread::id> fetched;
  std::atomic<bool> first{true};
  machine.fake().onCopyOut([&] {
    if (first.exchange(false)) {
      fetched.set_value(std::this_thread::get_id());
    }
  });
  startFetch(machine, a, 4 * kBlock);
  EXPECT_NE(fetched.get_future().get(), std::this_thread::get_id());
  expectAddedOne(a, 4);  // whoever comes first, and while blocks are in transit
  machine.objects().exits();
  machine.call(addOne(machine.fake()), {a, number(4)});
  machine.fake().clearLog();
  startFetch(machine, a, 4 * kBlock);
  EXPECT_THAT(machine.fake().copies(), IsEmpty()) << "no thread is started any more";
  EXPECT_EQ(a[0], std::byte{2});
}

}  // namespace
}  // namespace gmac::testing
