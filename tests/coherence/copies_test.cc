// SPDX-License-Identifier: Apache-2.0
//
// Which bytes move, in what order, and in how many copies: assertions on the fake's log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/observe/stats.h"
#include "gmac/protocols/protocol.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kBlock = 64 * kKiB;

MachineSetup rolling(std::size_t size, std::size_t step = 2) {
  MachineSetup setup;
  setup.protocol = "rolling";
  setup.blockBytes = kBlock;
  setup.rollingSize = size;
  setup.rollingStep = step;
  return setup;
}

MachineSetup whole(const char* protocol) {
  MachineSetup setup;
  setup.protocol = protocol;
  return setup;
}

adsmKernel_t nothingKernel(FakeAccelerator& fake) {
  return fake.kernel("nothing", 0, [](const LaunchShape&, void**) {});
}

MachineSetup readingAhead(std::size_t bytes) {
  MachineSetup setup = rolling(100);
  setup.readAheadBytes = bytes;
  return setup;
}

MachineSetup withMovedPages() {
  MachineSetup setup = rolling(100);
  setup.fake.movedPages = true;
  return setup;
}

// An object of which only the accelerator has the bytes. The log is empty then.
std::byte* allocateInvalid(Machine& machine, std::size_t bytes) {
  std::byte* const object = machine.allocate(bytes);
  machine.call(nothingKernel(machine.fake()), {});
  machine.sync();
  machine.fake().clearLog();
  return object;
}

const std::set<Op::Kind> kMoves = {Op::Kind::kCopyIn, Op::Kind::kCopyOut, Op::Kind::kLaunch};
const Op kLaunch{Op::Kind::kLaunch, 0, 0, "nothing"};

TEST(RollingCopies, NeighbouringDirtyBlocksGoInOneCopyBeforeTheLaunch) {
  Machine machine(rolling(100));
  const adsmKernel_t nothing = nothingKernel(machine.fake());
  std::byte* a = machine.allocate(10 * kBlock);
  for (const int block : {1, 2, 3, 6, 7, 9}) {
    a[block * kBlock + 5] = std::byte{1};
  }
  machine.fake().clearLog();
  machine.call(nothing, {});
  EXPECT_THAT(machine.fake().log(kMoves),
              ElementsAre(copyIn(a + kBlock, 3 * kBlock), copyIn(a + 6 * kBlock, 2 * kBlock),
                          copyIn(a + 9 * kBlock, kBlock), kLaunch));
}

// The driver copies less through the CPU address, which is gone once pages have moved.
TEST(MovedCopies, AreNeverSmallerThanTheDriverCanReachWhateverTheBlockSize) {
  for (const char* protocol : {"batch", "lazy"}) {
    MachineSetup setup = whole(protocol);
    setup.blockBytes = 4 * kKiB;
    setup.fake.movedPages = true;
    Machine machine(setup);
    std::byte* small = machine.allocate(300);
    std::byte* large = machine.allocate(kBlock + 1);
    machine.fake().clearLog();
    *small = *large = std::byte{1};
    machine.call(nothingKernel(machine.fake()), {});
    machine.sync();
    *small = *large = std::byte{2};
    std::size_t copies = 0;
    for (const Op& op : machine.fake().log({Op::Kind::kCopyIn, Op::Kind::kCopyOut})) {
      EXPECT_GE(op.bytes, kBlock) << protocol;
      ++copies;
    }
    EXPECT_GE(copies, 4U) << protocol;
  }
}

TEST(RollingCopies, ACallClosesAnObjectInOneProtectionChange) {
  Machine machine(rolling(100));
  const adsmKernel_t nothing = nothingKernel(machine.fake());
  std::byte* a = machine.allocate(10 * kBlock);
  for (const int block : {1, 2, 5}) {
    a[block * kBlock] = std::byte{1};
  }
  os::failNext(os::Call::kProtect, 2, EIO);  // a second change would fail the call
  machine.call(nothing, {});
  os::failNext(os::Call::kProtect, 0, 0);
  EXPECT_EQ(accessAt(a), os::Access::kNone);
}

TEST(RollingCopies, ACallThatOnlyReadsClosesRunsOfDirtyBlocksAndNothingElse) {
  Machine machine(rolling(100));
  std::byte* a = allocateInvalid(machine, 8 * kBlock);
  EXPECT_EQ(a[0], std::byte{0});
  for (const int block : {1, 2, 4}) {
    a[block * kBlock] = std::byte{1};
  }
  os::failNext(os::Call::kProtect, 3, EIO);  // a third change would fail the call
  machine.callUsing(nothingKernel(machine.fake()), {}, {{a, adsmRead}});
  os::failNext(os::Call::kProtect, 0, 0);
  for (const int block : {0, 1, 2, 4}) {
    EXPECT_EQ(accessAt(a + block * kBlock), os::Access::kRead) << block;
  }
  for (const int block : {3, 5, 6, 7}) {
    EXPECT_EQ(accessAt(a + block * kBlock), os::Access::kNone) << block;
  }
}

TEST(RollingCopies, AReadFetchesItsBlockOnly) {
  Machine machine(rolling(100));
  std::byte* a = allocateInvalid(machine, 10 * kBlock + kPage);
  EXPECT_EQ(a[4 * kBlock + 1], std::byte{0});
  EXPECT_EQ(a[10 * kBlock], std::byte{0});  // the last block is shorter
  EXPECT_THAT(machine.fake().copies(),
              ElementsAre(copyOut(a + 4 * kBlock, kBlock), copyOut(a + 10 * kBlock, kPage)));
  machine.verify();
}

TEST(RollingCopies, AWriteToAnInvalidBlockIsOneFault) {
  Machine machine(rolling(100));
  std::byte* a = allocateInvalid(machine, 10 * kBlock);
  const std::uint64_t reads = stats().readFaults.value();
  const std::uint64_t writes = stats().writeFaults.value();
  a[kBlock] = std::byte{1};
  EXPECT_EQ(stats().readFaults.value() - reads, 0u);
  EXPECT_EQ(stats().writeFaults.value() - writes, 1u);
  EXPECT_THAT(machine.fake().copies(), ElementsAre(copyOut(a + kBlock, kBlock)));
  EXPECT_EQ(accessAt(a + kBlock), os::Access::kReadWrite);
}

TEST(RollingCopies, AFirstWriteIsOneFaultAndNoCopy) {
  Machine machine(rolling(100));
  std::byte* a = machine.allocate(4 * kBlock);
  machine.fake().clearLog();
  const std::uint64_t reads = stats().readFaults.value();
  const std::uint64_t writes = stats().writeFaults.value();
  EXPECT_EQ(a[7], std::byte{0});
  a[7] = std::byte{1};
  a[8] = std::byte{1};
  EXPECT_EQ(stats().readFaults.value() - reads, 0u);
  EXPECT_EQ(stats().writeFaults.value() - writes, 1u);
  EXPECT_THAT(machine.fake().copies(), IsEmpty());
}

TEST(RollingCopies, TheOldestDirtyBlockIsEvicted) {
  Machine machine(rolling(2));
  std::byte* a = machine.allocate(10 * kBlock);
  machine.fake().clearLog();
  const std::uint64_t before = stats().evictions.value();
  for (const int block : {5, 2, 7, 0}) {
    a[block * kBlock] = std::byte{1};
    machine.verify();
  }
  EXPECT_THAT(machine.fake().copies(),
              ElementsAre(copyIn(a + 5 * kBlock, kBlock), copyIn(a + 2 * kBlock, kBlock)));
  EXPECT_EQ(stats().evictions.value() - before, 2u);
  EXPECT_EQ(accessAt(a + 5 * kBlock), os::Access::kRead);
  EXPECT_EQ(accessAt(a + 7 * kBlock), os::Access::kReadWrite);
}

TEST(RollingCopies, TheEndOfAHoldEvictsWhatHasBecomeTooMuchMeanwhile) {
  Machine machine(rolling(1));
  std::byte* a = machine.allocate(3 * kBlock);
  ASSERT_TRUE(machine.memory().hold(a, 3 * kBlock, true).ok()) << lastErrorText();
  EXPECT_THAT(machine.fake().copies(), IsEmpty());
  machine.memory().unhold(a, 3 * kBlock);
  EXPECT_THAT(machine.fake().copies(), ElementsAre(copyIn(a, kBlock), copyIn(a + kBlock, kBlock)));
  machine.verify();
}

TEST(RollingCopies, TheRollingSizeGrowsWithEveryAllocation) {
  Machine machine(rolling(0, 2));
  std::byte* a = machine.allocate(10 * kBlock);
  (void)machine.allocate(kMiB);
  machine.fake().clearLog();
  for (int block = 0; block < 4; ++block) {
    a[block * kBlock] = std::byte{1};
  }
  EXPECT_THAT(machine.fake().copies(), IsEmpty());
  a[4 * kBlock] = std::byte{1};
  EXPECT_THAT(machine.fake().copies(), ElementsAre(copyIn(a, kBlock)));
}

// The stores of x[i] = ..; y[i] = ..; z[i] = ..; where x, y and z lie in one object.
TEST(RollingCopies, ArraysInOneObjectThatAreFilledInTurnAreFlushedHardlyMoreThanOnce) {
  for (const std::size_t arrays : {3, 4, 16}) {
    Machine machine(rolling(0));
    std::byte* a = machine.allocate(48 * kBlock);
    machine.fake().clearLog();
    const std::uint64_t wasted = stats().evictionsWasted.value();
    const std::size_t bytes = 48 * kBlock / arrays;
    for (std::size_t i = 0; i < bytes; i += kBlock / 8) {
      for (std::size_t array = 0; array < arrays; ++array) {
        a[array * bytes + i] = std::byte{1};
      }
    }
    machine.call(nothingKernel(machine.fake()), {});
    std::size_t flushed = 0;
    for (const Op& op : machine.fake().copies()) {
      flushed += op.bytes;
    }
    EXPECT_LE(flushed, (48 + arrays) * kBlock) << arrays << " arrays";
    EXPECT_EQ(flushed, (48 + stats().evictionsWasted.value() - wasted) * kBlock);
  }
}

TEST(RollingCopies, WhatACallHasTakenIsNotWastedByBeingWrittenAgain) {
  Machine machine(rolling(0));
  const adsmKernel_t nothing = nothingKernel(machine.fake());
  std::byte* a = machine.allocate(8 * kBlock);
  const std::uint64_t wasted = stats().evictionsWasted.value();
  const std::vector<adsmUse_t> reads = {{a, adsmRead}};
  for (int round = 0; round < 20; ++round) {
    for (int block = 0; block < 8; ++block) {
      a[block * kBlock] = std::byte{1};
    }
    machine.callUsing(nothing, {}, reads);  // leaves blocks that were evicted as they are
  }
  EXPECT_EQ(stats().evictionsWasted.value(), wasted);
}

TEST(RollingCopies, AWriteToABlockInFlightWaitsForThatBlockOnly) {
  Machine machine(rolling(1));
  std::byte* a = machine.allocate(10 * kBlock);
  a[0] = std::byte{1};
  a[kBlock] = std::byte{1};      // evicts block 0
  a[2 * kBlock] = std::byte{1};  // evicts block 1
  ASSERT_EQ(machine.fake().pending(), 2u);
  EXPECT_EQ(a[0], std::byte{1});  // reading does not wait
  EXPECT_EQ(machine.fake().pending(), 2u);
  a[0] = std::byte{2};  // waits for the copy of block 0, and evicts block 2
  EXPECT_EQ(machine.fake().pending(), 2u);
  machine.verify();
}

// ---- Blocks that are joined, 16 to one, as the kernel refuses a mapping to a write elsewhere

void join(std::byte* elsewhere) {
  const std::uint64_t before = stats().coarsenings.value();
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  *elsewhere = std::byte{1};
  os::failNext(os::Call::kProtect, 0, 0);
  EXPECT_EQ(stats().coarsenings.value(), before + 1);
}

TEST(RollingCopies, AWriteToABlockThatWasJoinedInFlightWaits) {
  Machine machine(rolling(1));
  std::byte* a = machine.allocate(32 * kBlock);
  std::byte* b = machine.allocate(2 * kBlock);
  for (int block = 0; block <= 16; ++block) {
    a[block * kBlock] = std::byte{1};  // evicts the one before
  }
  ASSERT_EQ(machine.fake().pending(), 16u);
  join(b);  // evicts what block 16 has become
  ASSERT_EQ(machine.fake().pending(), 17u);
  a[0] = std::byte{2};  // waits for the copies of 16 blocks, and evicts b's
  EXPECT_EQ(machine.fake().pending(), 2u);
  machine.verify();
}

TEST(RollingCopies, BlocksThatACallMayBeWritingAreFetchedAfterItWhenTheyAreJoined) {
  Machine machine(rolling(100));
  std::byte* a = allocateInvalid(machine, 16 * kBlock);
  std::byte* b = machine.allocate(kBlock);
  a[0] = std::byte{1};
  const adsmKernel_t write =
      machine.fake().kernel("write", 1, [&](const LaunchShape&, void** args) {
        *machine.fake().argument<std::byte>(args, 0) = std::byte{9};
      });
  machine.callRanges(write, {a + 5 * kBlock}, {{a + 5 * kBlock, kBlock, adsmReadWrite}});
  join(b);
  EXPECT_EQ(a[5 * kBlock], std::byte{9});
  EXPECT_EQ(a[0], std::byte{1});
  machine.verify();
}

TEST(RollingCopies, AHoldOpensWhatAFailedJoinHasClosed) {
  Machine machine(rolling(100));
  std::byte* a = allocateInvalid(machine, 16 * kBlock);
  std::byte* b = machine.allocate(kBlock);
  a[0] = std::byte{1};
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  machine.fake().failNext(Op::Kind::kCopyOut, 1, adsmErrorSystem);
  EXPECT_EQ(machine.memory().hold(b, 1, true).code(), adsmErrorSystem);
  os::failNext(os::Call::kProtect, 0, 0);
  ASSERT_EQ(accessAt(a), os::Access::kNone);
  ASSERT_TRUE(machine.memory().hold(a, 1, true).ok()) << lastErrorText();
  EXPECT_EQ(accessAt(a), os::Access::kReadWrite);
  machine.memory().unhold(a, 1);
  EXPECT_EQ(a[0], std::byte{1});
  machine.verify();
}

TEST(RollingCopies, ASequentialReaderFetchesTwiceAsMuchEachTimeUpToTheLimit) {
  Machine machine(readingAhead(4 * kBlock));
  std::byte* a = allocateInvalid(machine, 14 * kBlock);
  for (int block = 0; block < 14; ++block) {
    EXPECT_EQ(a[block * kBlock], std::byte{0});
  }
  EXPECT_THAT(machine.fake().copies(),
              ElementsAre(copyOut(a, kBlock), copyOut(a + kBlock, 2 * kBlock),
                          copyOut(a + 3 * kBlock, 4 * kBlock), copyOut(a + 7 * kBlock, 4 * kBlock),
                          copyOut(a + 11 * kBlock, 3 * kBlock)));
  machine.verify();
}

TEST(RollingCopies, ABackwardReaderFetchesTwiceAsMuchEachTimeUpToTheLimit) {
  Machine machine(readingAhead(4 * kBlock));
  std::byte* a = allocateInvalid(machine, 14 * kBlock);
  for (int block = 13; block >= 0; --block) {
    EXPECT_EQ(a[(block + 1) * kBlock - 1], std::byte{0});
  }
  EXPECT_THAT(machine.fake().copies(),
              ElementsAre(copyOut(a + 13 * kBlock, kBlock), copyOut(a + 11 * kBlock, 2 * kBlock),
                          copyOut(a + 7 * kBlock, 4 * kBlock), copyOut(a + 3 * kBlock, 4 * kBlock),
                          copyOut(a, 3 * kBlock)));
  machine.verify();
}

TEST(RollingCopies, SomeReadersOfOneObjectInTurnAreToldApart) {
  Machine machine(readingAhead(8 * kBlock));
  std::byte* a = allocateInvalid(machine, 80 * kBlock);
  for (int block = 0; block < 8; ++block) {
    for (const int reader : {0, 1, 2}) {
      EXPECT_EQ(a[(16 * reader + block) * kBlock], std::byte{0});
    }
    EXPECT_EQ(a[(79 - block) * kBlock], std::byte{0});
  }
  EXPECT_EQ(machine.fake().copies().size(), 4u * 4u) << "of 1, 2, 4 and 8 blocks each";
}

TEST(RollingCopies, AReaderThatLeavesBlocksOutFetchesNothingAhead) {
  Machine machine(readingAhead(8 * kBlock));
  std::byte* a = allocateInvalid(machine, 16 * kBlock);
  for (int block = 14; block >= 0; block -= 2) {
    EXPECT_EQ(a[block * kBlock], std::byte{0});
  }
  EXPECT_EQ(machine.fake().copies().size(), 8u);
  for (const Op& op : machine.fake().copies()) {
    EXPECT_EQ(op.bytes, kBlock);
  }
}

TEST(RollingCopies, ARandomReaderFetchesNothingAhead) {
  Machine machine(readingAhead(8 * kBlock));
  std::byte* a = allocateInvalid(machine, 14 * kBlock);
  for (const int block : {9, 3, 12, 0}) {
    EXPECT_EQ(a[block * kBlock], std::byte{0});
  }
  EXPECT_THAT(machine.fake().copies(),
              ElementsAre(copyOut(a + 9 * kBlock, kBlock), copyOut(a + 3 * kBlock, kBlock),
                          copyOut(a + 12 * kBlock, kBlock), copyOut(a, kBlock)));
}

TEST(RollingCopies, ReadAheadStopsAtABlockThatIsCurrent) {
  Machine machine(readingAhead(8 * kBlock));
  std::byte* a = allocateInvalid(machine, 14 * kBlock);
  a[2 * kBlock] = std::byte{9};
  machine.fake().clearLog();
  for (int block = 0; block < 4; ++block) {
    EXPECT_EQ(a[block * kBlock], block == 2 ? std::byte{9} : std::byte{0});
  }
  EXPECT_THAT(machine.fake().copies(), ElementsAre(copyOut(a, kBlock), copyOut(a + kBlock, kBlock),
                                                   copyOut(a + 3 * kBlock, kBlock)));
}

TEST(LazyCopies, OnlyDirtyObjectsAreFlushedAndASyncFetchesNothing) {
  Machine machine(whole("lazy"));
  const adsmKernel_t nothing = nothingKernel(machine.fake());
  std::byte* clean = machine.allocate(kMiB);
  std::byte* dirty = machine.allocate(kMiB);
  dirty[1] = std::byte{1};
  EXPECT_EQ(clean[1], std::byte{0});
  machine.fake().clearLog();
  machine.call(nothing, {});
  machine.sync();
  EXPECT_THAT(machine.fake().log(kMoves), ElementsAre(copyIn(dirty, kMiB), kLaunch));
  machine.fake().clearLog();
  EXPECT_EQ(clean[2], std::byte{0});
  EXPECT_THAT(machine.fake().copies(), ElementsAre(copyOut(clean, kMiB)));
}

TEST(BatchCopies, EveryObjectGoesAtTheCallAndComesBackAtTheSync) {
  Machine machine(whole("batch"));
  const adsmKernel_t nothing = nothingKernel(machine.fake());
  std::vector<std::byte*> objects = {machine.allocate(kMiB), machine.allocate(kMiB + kPage)};
  machine.fake().clearLog();
  machine.call(nothing, {});
  EXPECT_THAT(machine.fake().log(kMoves),
              ElementsAre(copyIn(objects[0], kMiB), copyIn(objects[1], kMiB + kPage), kLaunch));
  machine.fake().clearLog();
  machine.sync();
  EXPECT_THAT(machine.fake().copies(),
              ::testing::UnorderedElementsAre(copyOut(objects[0], kMiB),
                                              copyOut(objects[1], kMiB + kPage)));
  const std::uint64_t faults = stats().readFaults.value() + stats().writeFaults.value();
  objects[0][3] = objects[1][4];
  EXPECT_EQ(stats().readFaults.value() + stats().writeFaults.value(), faults)
      << "an access outside a call and its sync is never detected";
}

TEST(MovedPages, ChunksArePinnedWhenTheCpuNeedsThem) {
  Machine machine(withMovedPages());
  std::byte* a = machine.allocate(6 * kMiB);
  EXPECT_EQ(machine.fake().livePins(), 0u);
  a[5 * kMiB] = std::byte{1};
  EXPECT_EQ(machine.fake().livePins(), 1u);
  EXPECT_EQ(a[0], std::byte{0});
  EXPECT_EQ(machine.fake().livePins(), 2u);
  machine.verify();
}

TEST(MovedPages, AnInstalledChunkIsOpenOnlyAsFarAsItsBlocks) {
  Machine machine(withMovedPages());
  const adsmKernel_t nothing = nothingKernel(machine.fake());
  std::byte* a = machine.allocate(4 * kMiB);
  a[0] = std::byte{1};
  EXPECT_EQ(accessAt(a), os::Access::kReadWrite);
  EXPECT_EQ(accessAt(a + kBlock), os::Access::kRead);
  EXPECT_EQ(accessAt(a + 2 * kMiB), os::Access::kNone) << "not installed yet";
  machine.call(nothing, {});
  EXPECT_EQ(a[2 * kMiB], std::byte{0});
  EXPECT_EQ(accessAt(a + 2 * kMiB), os::Access::kRead);
  EXPECT_EQ(accessAt(a + 2 * kMiB + kBlock), os::Access::kNone) << "invalid when installed";
  machine.verify();
}

// Blocks larger than the pieces in which pages are pinned: what is fetched ahead must be pinned as
// a whole.
TEST(MovedPages, ReadAheadStopsWhereAChunkIsNotReady) {
  MachineSetup setup = withMovedPages();
  setup.blockBytes = 4 * kMiB;
  setup.readAheadBytes = 16 * kMiB;
  Machine machine(setup);
  const adsmKernel_t nothing = nothingKernel(machine.fake());
  std::byte* a = machine.allocate(16 * kMiB);
  for (const std::size_t chunk : {0, 1, 2, 4, 5}) {  // not 3, the second half of block 1
    EXPECT_TRUE(machine.memory().hold(a + chunk * 2 * kMiB, 1, false).ok());
    machine.memory().unhold(a + chunk * 2 * kMiB, 1);
  }
  machine.call(nothing, {});
  machine.sync();
  for (int block = 0; block < 4; ++block) {
    EXPECT_EQ(a[block * 4 * kMiB], std::byte{0});
  }
  machine.verify();
}

TEST(MovedPages, PopulationAheadNeverExceedsWhatTheCpuTouched) {
  Machine machine(withMovedPages());  // without its thread: driven from here
  std::byte* a = machine.allocate(10 * kMiB);
  EXPECT_FALSE(machine.objects().populateNext()) << "nothing touched yet";
  a[0] = std::byte{1};
  const std::uint64_t before = stats().populatedBytes.value();
  EXPECT_TRUE(machine.objects().populateNext());
  EXPECT_FALSE(machine.objects().populateNext());
  EXPECT_EQ(stats().populatedBytes.value() - before, 2 * kMiB);
  machine.verify();
  machine.expectNothingHappens([&] { EXPECT_EQ(a[2 * kMiB], std::byte{0}); });
  a[4 * kMiB] = std::byte{2};
  EXPECT_TRUE(machine.objects().populateNext());
  machine.verify();
  EXPECT_EQ(a[6 * kMiB], std::byte{0});
}

TEST(MovedPages, PopulationGoesOnWithWhatWasAllocatedNext) {
  Machine machine(withMovedPages());
  const std::byte* before = machine.allocate(4 * kMiB);
  std::byte* touched = machine.allocate(4 * kMiB);
  const std::byte* behind = machine.allocate(4 * kMiB);
  touched[0] = std::byte{1};
  touched[2 * kMiB] = std::byte{1};
  EXPECT_TRUE(machine.objects().populateNext());
  EXPECT_EQ(accessAt(before), os::Access::kNone);
  EXPECT_EQ(accessAt(behind), os::Access::kRead);
  EXPECT_EQ(accessAt(behind + 2 * kMiB), os::Access::kNone);
  EXPECT_TRUE(machine.objects().populateNext());
  EXPECT_EQ(accessAt(before), os::Access::kNone);
  EXPECT_EQ(accessAt(behind + 2 * kMiB), os::Access::kRead);
  EXPECT_FALSE(machine.objects().populateNext()) << "as much as the CPU has touched";
  machine.verify();
}

TEST(MovedPages, ACallDoesNotWaitForPagesThatAreBeingPopulated) {
  Machine machine(withMovedPages());
  const adsmKernel_t nothing = nothingKernel(machine.fake());
  std::byte* a = machine.allocate(4 * kMiB);
  a[0] = std::byte{1};
  std::promise<void> pinning;
  std::promise<void> called;
  bool calledInTime = false;
  machine.fake().onPin([&] {
    pinning.set_value();
    calledInTime =
        called.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  });
  std::thread populator([&] { EXPECT_TRUE(machine.objects().populateNext()); });
  pinning.get_future().wait();
  EXPECT_TRUE(machine.tryCall(nothing, {}).ok());
  called.set_value();
  populator.join();
  machine.fake().onPin(nullptr);
  EXPECT_TRUE(calledInTime);
  EXPECT_EQ(accessAt(a + 2 * kMiB), os::Access::kNone) << "invalid by the time it is installed";
  machine.sync();
  machine.verify();
}

TEST(MovedPages, TheSelfTestRefusesADriverThatCopiesThroughTheOldAddress) {
  FakeOptions options;
  options.movedPages = false;
  FakeAccelerator fake(options);
  CoherenceOptions wanted;
  wanted.movedPages = true;
  auto made = CoherentMemory::make(fake, makeRollingProtocol({}), wanted);
  EXPECT_EQ(made.status().code(), adsmErrorNotSupported);
  EXPECT_THAT(lastErrorText(), ::testing::HasSubstr("moved pages"));
}

TEST(MovedPages, TheSelfTestNoticesCopiesThatDoNotArrive) {
  FakeOptions options;
  options.movedPages = true;
  options.loseCopies = true;
  FakeAccelerator fake(options);
  CoherenceOptions wanted;
  wanted.movedPages = true;
  wanted.chunkBytes = 2 * kMiB;
  auto made = CoherentMemory::make(fake, makeRollingProtocol({}), wanted);
  EXPECT_EQ(made.status().code(), adsmErrorNotSupported);
  EXPECT_THAT(lastErrorText(), ::testing::HasSubstr("do not reach moved pages"));
  EXPECT_EQ(fake.liveAllocations(), 0u);
  EXPECT_EQ(fake.livePins(), 0u);
}

}  // namespace
}  // namespace gmac::testing
