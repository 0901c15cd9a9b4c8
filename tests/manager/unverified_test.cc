// SPDX-License-Identifier: Apache-2.0
//
// Objects that kernels seldom write, between a call and the next acquire: the CPU goes on reading
// what it had, whatever is more than reading finds what the kernel has written, and behind the
// acquire everything does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gmac/stats.h"
#include "tests/support/manager_fixture.h"
#include "tests/support/read_mostly.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using accel::NativeStream;
using coherence::Current;
using coherence::DeviceRange;
using coherence::HoldFor;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace read_mostly;

std::uint8_t plus(std::size_t i, int added) {
  return static_cast<std::uint8_t>(static_cast<int>(pattern(i)) + added);
}

// ---- Under every protocol that lets a block be read only, on every mirror

class Unverified : public ::testing::TestWithParam<MachineSetup> {};

// The kernel does not run before somebody waits for it: nobody does.
TEST_P(Unverified, IsReadWithoutAFaultBesideAKernelThatRuns) {
  ManagerUnderTest machine(GetParam());
  std::byte* const table = makeTable(machine);
  machine.sync();
  expectPattern(table, kBytes);
  machine.call(bumpingKernel(machine.fake()), {table + 5});
  const std::size_t pending = machine.fake().pending();
  const std::uint64_t faults = stats().readFaults.value();
  machine.expectNothingHappens([&] { expectPattern(table, kBytes); });
  EXPECT_EQ(stats().readFaults.value(), faults);
  EXPECT_GT(pending, 0u);
  EXPECT_EQ(machine.fake().pending(), pending);
  machine.sync();
  expectPattern(table, kBytes, {5});
}

TEST_P(Unverified, IsClosedByTheSyncAndComesBackWithoutACopyWhereNothingChanged) {
  ManagerUnderTest machine(GetParam());
  std::byte* const table = makeTable(machine);
  EXPECT_EQ(accessAt(table), os::Access::kRead);
  machine.sync();
  EXPECT_EQ(accessAt(table), os::Access::kNone);
  EXPECT_EQ(accessAt(table + kBytes - 1), os::Access::kNone);
  const std::uint64_t unchanged = stats().bytesUnchanged.value();
  expectPattern(table, kBytes);
  EXPECT_THAT(fetches(machine, table), IsEmpty());
  EXPECT_EQ(stats().bytesUnchanged.value() - unchanged, kBytes);
}

TEST_P(Unverified, CostsNoProtectionChangeAtCallsThatFollow) {
  ManagerUnderTest machine(GetParam());
  std::byte* const table = makeTable(machine);
  const adsmKernel_t read = readingKernel(machine.fake());
  machine.expectNothingHappens([&] {
    for (int i = 0; i < 3; ++i) {
      machine.call(read, {table});
      EXPECT_EQ(table[kBlock], pattern(kBlock));
    }
  });
  EXPECT_EQ(digests(machine), 0u);
  machine.sync();
  machine.expectNothingHappens([&] {
    machine.call(read, {table});
    machine.sync();
    EXPECT_TRUE(machine.manager().afterDeviceWait().ok());
  });
}

TEST_P(Unverified, AWriteOfTheCpuLosesNeitherItselfNorTheKernels) {
  for (const FakeOptions::Run run : {FakeOptions::Run::kDeferred, FakeOptions::Run::kRandom}) {
    MachineSetup setup = GetParam();
    setup.fake.run = run;
    ManagerUnderTest machine(setup);
    std::byte* const table = makeTable(machine);
    const adsmKernel_t bump = bumpingKernel(machine.fake());
    machine.call(bump, {table + 5});
    machine.call(bump, {table + 9 * kBlock});
    table[6] = std::byte{0xA5};                // in a block that has changed
    table[12 * kBlock + 1] = std::byte{0x5A};  // in one that may not have
    machine.verify();
    EXPECT_EQ(static_cast<std::uint8_t>(table[5]), plus(5, 1));
    machine.call(bump, {table + 6});
    machine.call(bump, {table + 12 * kBlock + 1});
    machine.sync();
    EXPECT_EQ(table[6], std::byte{0xA6});
    EXPECT_EQ(table[12 * kBlock + 1], std::byte{0x5B});
    table[6] = pattern(6);
    table[12 * kBlock + 1] = pattern(12 * kBlock + 1);
    expectPattern(table, kBytes, {5, 9 * kBlock});
  }
}

TEST_P(Unverified, WhatIsHeldIsWhatTheKernelLeft) {
  for (const HoldFor purpose : {HoldFor::kRead, HoldFor::kWrite}) {
    ManagerUnderTest machine(GetParam());
    std::byte* const table = makeTable(machine);
    machine.call(bumpingKernel(machine.fake()), {table + kBlock});
    ASSERT_TRUE(machine.manager().hold(table, 2 * kBlock, purpose).ok());
    machine.verify();
    EXPECT_EQ(static_cast<std::uint8_t>(table[kBlock]), plus(kBlock, 1));
    if (purpose == HoldFor::kWrite) {
      table[kBlock + 1] = std::byte{7};
    }
    machine.manager().unhold(table, 2 * kBlock);
    machine.sync();
    EXPECT_EQ(static_cast<std::uint8_t>(table[kBlock]), plus(kBlock, 1));
    EXPECT_EQ(table[kBlock + 1], purpose == HoldFor::kWrite ? std::byte{7} : pattern(kBlock + 1));
  }
}

// As `read` into the object does.
TEST_P(Unverified, OverwritingPartOfItKeepsWhatTheKernelWroteBesideThat) {
  ManagerUnderTest machine(GetParam());
  std::byte* const table = makeTable(machine);
  const adsmKernel_t bump = bumpingKernel(machine.fake());
  const std::size_t first = kBlock + 100;
  const std::size_t bytes = 3 * kBlock;
  machine.call(bump, {table + kBlock});
  machine.call(bump, {table + 2 * kBlock});
  machine.call(bump, {table + first + bytes});
  ASSERT_TRUE(machine.manager().hold(table + first, bytes, HoldFor::kOverwrite).ok());
  for (std::size_t i = first; i < first + bytes; ++i) {
    table[i] = pattern(i);
  }
  machine.manager().unhold(table + first, bytes);
  machine.verify();
  machine.sync();
  expectPattern(table, kBytes, {kBlock, first + bytes});
  machine.call(readingKernel(machine.fake()), {table});
  machine.sync();
  expectPattern(table, kBytes, {kBlock, first + bytes});
}

TEST_P(Unverified, BulkOperationsIntoItAreOrderedBehindTheKernel) {
  for (const bool accelerated : {false, true}) {
    ManagerUnderTest machine(GetParam());
    Manager& manager = machine.manager();
    std::byte* const table = makeTable(machine);
    std::byte* const other = machine.allocate(kBytes);
    std::vector<std::byte> plain(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) {
      plain[i] = other[i] = pattern(i);
    }
    const adsmKernel_t bump = bumpingKernel(machine.fake());
    machine.call(bump, {table + 100});
    machine.call(bump, {table + 2 * kBlock});
    // Neither begins nor ends where a block does.
    const std::size_t first = kBlock / 2;
    const std::size_t bytes = 4 * kBlock;
    if (accelerated) {
      manager.copy(table + first, other + first, bytes, &std::memmove);
      manager.fill(table + first + bytes, 0x77, 10, &std::memset);
    } else {
      manager.copy(table + first, plain.data() + first, bytes, &std::memmove);
      std::memset(plain.data(), 0x77, 10);
      manager.copy(table + first + bytes, plain.data(), 10, &std::memmove);
    }
    machine.verify();
    machine.call(bump, {table + first + 3});
    machine.sync();
    for (std::size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(table[first + bytes + i], std::byte{0x77}) << i;
      table[first + bytes + i] = pattern(first + bytes + i);
    }
    expectPattern(table, kBytes, {100, first + 3});
  }
}

TEST_P(Unverified, AFillIsQueuedBehindTheKernelWithoutWaiting) {
  ManagerUnderTest machine(GetParam());
  std::byte* const table = makeTable(machine);
  machine.sync();
  expectPattern(table, kBytes);
  machine.call(bumpingKernel(machine.fake()), {table + 5});
  const std::size_t pending = machine.fake().pending();
  machine.manager().fill(table + 6, 0x77, 1, &std::memset);
  EXPECT_EQ(machine.fake().pending(), pending + 1);
  EXPECT_EQ(table[6], std::byte{0x77});
  table[6] = pattern(6);
  expectPattern(table, kBytes, {5});
}

TEST_P(Unverified, ACopyFromItWaitsForNobodyOrIsMadeBehindTheKernel) {
  ManagerUnderTest machine(GetParam());
  Manager& manager = machine.manager();
  std::byte* const table = makeTable(machine);
  machine.call(bumpingKernel(machine.fake()), {table + 5});
  const std::size_t pending = machine.fake().pending();
  std::vector<std::byte> plain(kBytes);
  manager.copy(plain.data(), table, kBytes, &std::memmove);
  EXPECT_EQ(machine.fake().pending(), pending);
  expectPattern(plain.data(), kBytes);
  // The target is the accelerator's, and stays there.
  std::byte* const other = machine.allocate(kBytes);
  machine.call(readingKernel(machine.fake()), {other});
  manager.copy(other, table, kBytes, &std::memmove);
  machine.verify();
  expectPattern(other, kBytes, {5});
  EXPECT_EQ(static_cast<std::uint8_t>(table[5]), plus(5, 1)) << "the copy has shown the kernel's";
}

TEST_P(Unverified, IsTheAcceleratorsToPackFrom) {
  ManagerUnderTest machine(GetParam());
  std::byte* const table = makeTable(machine);
  Current current{};
  EXPECT_EQ(machine.manager().currentPrefix(table, kBytes, &current), kBytes);
  EXPECT_EQ(current, Current::kAccelerator);
  machine.sync();
  EXPECT_EQ(table[0], pattern(0));
  (void)machine.manager().currentPrefix(table, kBytes, &current);
  EXPECT_EQ(current, Current::kBoth);
}

TEST_P(Unverified, PartsThatDeviceWorkNamesAreReleasedAsEver) {
  ManagerUnderTest machine(GetParam());
  std::byte* const table = makeTable(machine);
  machine.call(bumpingKernel(machine.fake()), {table + 5});
  for (const bool write : {false, true}) {
    const DeviceRange range{table, 10, write};
    std::uint8_t seen = 0;
    ASSERT_TRUE(machine.manager().beginDeviceWork(NativeStream{1}, {&range, 1}).ok());
    machine.fake().submit(NativeStream{1}, [&machine, &seen, table, write] {
      auto* const at = reinterpret_cast<std::uint8_t*>(machine.fake().at(table + 5));
      seen = *at;
      *at = static_cast<std::uint8_t>(*at + (write ? 1 : 0));
    });
    ASSERT_TRUE(machine.manager().endDeviceWork(NativeStream{1}, true).ok());
    machine.verify();
    machine.fake().runAll();
    EXPECT_EQ(seen, plus(5, 1));
  }
  EXPECT_EQ(static_cast<std::uint8_t>(table[5]), plus(5, 2)) << "a write that was named is seen";
  machine.sync();
  expectPattern(table, kBytes, {5, 5});
}

TEST_P(Unverified, AFetchOfAnotherKernelsResultIsAnAcquire) {
  ManagerUnderTest machine(GetParam());
  std::byte* const table = makeTable(machine);
  std::byte* const result = machine.allocate(kBlock);
  const adsmKernel_t both =
      machine.fake().kernel("both", 2, [&fake = machine.fake()](const LaunchShape&, void** args) {
        ++*fake.argument<std::uint8_t>(args, 0);
        ++*fake.argument<std::uint8_t>(args, 1);
      });
  machine.call(both, {table + 7 * kBlock, result});
  EXPECT_EQ(result[0], std::byte{1});
  EXPECT_EQ(static_cast<std::uint8_t>(table[7 * kBlock]), plus(7 * kBlock, 1));
}

TEST_P(Unverified, WithdrawnAdviceClosesIt) {
  ManagerUnderTest machine(GetParam());
  std::byte* const table = makeTable(machine);
  machine.call(bumpingKernel(machine.fake()), {table + 5});
  advise(machine, table, false);
  EXPECT_EQ(accessAt(table), os::Access::kNone);
  expectPattern(table, kBytes, {5});
  machine.call(bumpingKernel(machine.fake()), {table + 5});
  EXPECT_EQ(accessAt(table), os::Access::kNone);
  advise(machine, table);
  expectPattern(table, kBytes, {5, 5});
}

TEST_P(Unverified, ACallThatNamesTheObjectClosesIt) {
  ManagerUnderTest machine(GetParam());
  std::byte* const table = makeTable(machine);
  const adsmKernel_t bump = bumpingKernel(machine.fake());
  machine.callUsing(bump, {table + 5}, {{table, adsmReadWrite}});
  expectPattern(table, kBytes, {5});
  machine.callUsing(bump, {table + 5}, {{table, adsmRead}});  // it lies
  ASSERT_TRUE(machine.manager().bind(table, bump, adsmReadWrite).ok());
  machine.call(bump, {table + 6});
  EXPECT_EQ(static_cast<std::uint8_t>(table[6]), plus(6, 1));
}

TEST_P(Unverified, WorkWithCodeOfTheCpuInsideClosesIt) {
  ManagerUnderTest machine(GetParam());
  Streams streams(machine);
  std::byte* const table = makeTable(machine);
  streams.launch(NativeStream{1}, table + 5, /*closes=*/true);
  EXPECT_EQ(accessAt(table), os::Access::kNone);
  expectPattern(table, kBytes, {5});
}

TEST_P(Unverified, ClosingItTwiceOrNeverIsAllTheSameToTheComparison) {
  ManagerUnderTest machine(GetParam());
  Streams streams(machine);
  std::byte* const table = makeTable(machine);
  streams.launch(NativeStream{1}, table + 5);
  streams.launch(NativeStream{2}, table + 3 * kBlock);
  streams.acquire();  // of one; the other one runs
  EXPECT_EQ(static_cast<std::uint8_t>(table[5]), plus(5, 1));
  EXPECT_EQ(static_cast<std::uint8_t>(table[3 * kBlock]), plus(3 * kBlock, 1));
  streams.launch(NativeStream{1}, table + 5);
  streams.launch(NativeStream{2}, nullptr);
  streams.acquire();
  streams.acquire();
  expectPattern(table, kBytes, {5, 5, 3 * kBlock});
}

TEST_P(Unverified, IsFreedAndItsContextMayEnd) {
  for (const bool contextEnds : {false, true}) {
    ManagerUnderTest machine(GetParam());
    std::byte* const table = makeTable(machine);
    std::byte* const other = makeTable(machine);
    machine.call(bumpingKernel(machine.fake()), {other});
    machine.free(table);
    if (contextEnds) {
      machine.fake().runAll();
      machine.manager().endContext(true);
    } else {
      expectPattern(other, kBytes);
      machine.sync();
      expectPattern(other, kBytes, {0});
    }
    machine.verify();
  }
}

std::vector<MachineSetup> setupsWithReadOnlyBlocks() {
  std::vector<MachineSetup> setups = everySetup();
  std::erase_if(setups, [](const MachineSetup& setup) { return setup.protocol == "batch"; });
  for (MachineSetup& setup : setups) {
    setup.rollingSize = 1000;
  }
  return setups;
}

INSTANTIATE_TEST_SUITE_P(Setups, Unverified, ::testing::ValuesIn(setupsWithReadOnlyBlocks()),
                         [](const auto& info) { return nameOf(info.param); });

// ---- Details

// Batch-update knows no block that is only read.
TEST(UnverifiedBlocks, DoNotExistUnderBatchUpdate) {
  MachineSetup setup = rolling();
  setup.protocol = "batch";
  ManagerUnderTest machine(setup);
  std::byte* const table = makeTable(machine);
  EXPECT_EQ(accessAt(table), os::Access::kNone);
  machine.call(bumpingKernel(machine.fake()), {table + 5});
  expectPattern(table, kBytes, {5});
}

TEST(UnverifiedBlocks, AWriteClosesNoOtherBlockBeforeTheKernelIsOver) {
  ManagerUnderTest machine(rolling());
  std::byte* const table = makeTable(machine);
  machine.sync();
  expectPattern(table, kBytes);
  machine.call(bumpingKernel(machine.fake()), {table + 5});
  table[5 * kBlock] = std::byte{1};
  // The wait was for the kernel, and what came of that is news: all of the table is compared.
  EXPECT_EQ(accessAt(table), os::Access::kNone);
  EXPECT_EQ(accessAt(table + 5 * kBlock), os::Access::kReadWrite);
  EXPECT_EQ(digests(machine), 2u) << "one comparison, and one description before";
}

TEST(UnverifiedBlocks, AreComparedAheadByAnEarlyFetch) {
  ManagerUnderTest machine(rolling());
  Manager& manager = machine.manager();
  std::byte* const table = makeTable(machine);
  machine.call(bumpingKernel(machine.fake()), {table + 5});
  ASSERT_TRUE(manager.startFetch(table, kBytes).ok());
  EXPECT_EQ(manager.fetchNext(), Manager::EarlyStep::kWaits);
  machine.fake().runAll();
  while (manager.fetchNext() != Manager::EarlyStep::kIdle) {
  }
  machine.verify();
  EXPECT_THAT(fetches(machine, table), ElementsAre(copyOut(table, kBlock)));
  machine.sync();
  machine.expectNothingHappens([&] { expectPattern(table, kBytes, {5}); });
}

TEST(UnverifiedBlocks, ThatCannotBeDescribedAreClosedByTheCall) {
  for (const Op::Kind kind : {Op::Kind::kFill, Op::Kind::kLaunch}) {
    ManagerUnderTest machine(rolling());
    Streams streams(machine);
    std::byte* const table = makeTable(machine);
    machine.sync();
    expectPattern(table, kBytes);
    table[2 * kBlock] = pattern(2 * kBlock);
    table[3 * kBlock] = pattern(3 * kBlock);
    machine.fake().failNext(kind, 1, adsmErrorSystem);
    streams.launch(NativeStream{1}, table + 3 * kBlock);
    EXPECT_EQ(accessAt(table + kBlock), os::Access::kRead);
    EXPECT_EQ(accessAt(table + 2 * kBlock), os::Access::kNone);
    EXPECT_EQ(accessAt(table + 3 * kBlock), os::Access::kNone);
    EXPECT_EQ(accessAt(table + 4 * kBlock), os::Access::kRead);
    EXPECT_EQ(static_cast<std::uint8_t>(table[3 * kBlock]), plus(3 * kBlock, 1));
    machine.sync();
    expectPattern(table, kBytes, {3 * kBlock});
  }
}

TEST(UnverifiedBlocks, AreClosedByTheNextSyncWhereOneCannot) {
  ManagerUnderTest machine(rolling());
  std::byte* const table = makeTable(machine);
  machine.call(bumpingKernel(machine.fake()), {table + 5});
  os::failNext(os::Call::kProtect, 1, EIO);
  EXPECT_FALSE(machine.manager().sync().ok());
  os::failNext(os::Call::kProtect, 0, 0);
  machine.sync();
  expectPattern(table, kBytes, {5});
}

// Where the kernel has no mappings left, the whole object is closed; and what it may still have
// open is opened by the next fault.
TEST(UnverifiedBlocks, AreClosedWithoutMappings) {
  ManagerUnderTest machine(rolling());
  std::byte* const table = makeTable(machine);
  machine.sync();
  for (std::size_t block = 0; block < kBlocks; block += 2) {
    EXPECT_EQ(table[block * kBlock], pattern(block * kBlock));
  }
  machine.call(bumpingKernel(machine.fake()), {table + 2 * kBlock});
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  machine.sync();
  os::failNext(os::Call::kProtect, 0, 0);
  expectPattern(table, kBytes, {2 * kBlock});
}

TEST(UnverifiedBlocks, AreComparedAlsoWhenTheyHaveBeenJoined) {
  MachineSetup setup = rolling();
  setup.blockBytes = kPage;
  ManagerUnderTest machine(setup);
  std::byte* const table = makeTable(machine);
  machine.call(bumpingKernel(machine.fake()), {table + 5});
  // Of these nothing need be fetched.
  std::byte* const other = machine.allocate(kPage * 64);
  const std::uint64_t joined = stats().coarsenings.value();
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  other[0] = std::byte{1};
  os::failNext(os::Call::kProtect, 0, 0);
  machine.verify();
  EXPECT_GT(stats().coarsenings.value(), joined);
  machine.sync();
  expectPattern(table, kBytes, {5});
}

// A result that is opened because its blocks are joined is news as much as one that is fetched.
TEST(UnverifiedBlocks, AreClosedWhereJoiningBlocksShowsAKernelsResult) {
  MachineSetup setup = rolling();
  setup.blockBytes = kPage;
  ManagerUnderTest machine(setup);
  std::byte* const table = makeTable(machine, kBlock);
  constexpr std::size_t kMany = 64;
  std::byte* const result = machine.allocate(kMany * kPage);
  const adsmKernel_t both =
      machine.fake().kernel("both", 2, [&fake = machine.fake()](const LaunchShape&, void** args) {
        ++*fake.argument<std::uint8_t>(args, 0);
        ++*fake.argument<std::uint8_t>(args, 1);
      });
  machine.call(both, {table, result + kPage});
  // Two blocks are opened without their bytes, so that nothing is fetched; then they are joined
  // with the one between them.
  for (std::byte* const at : {result, result + 2 * kPage}) {
    os::failNext(os::Call::kProtect, at == result ? 0 : 1, ENOMEM);
    ASSERT_TRUE(machine.manager().hold(at, kPage, HoldFor::kOverwrite).ok());
    os::failNext(os::Call::kProtect, 0, 0);
    std::memset(at, 1, kPage);
    machine.manager().unhold(at, kPage);
  }
  machine.verify();
  EXPECT_EQ(result[kPage], std::byte{1});
  EXPECT_EQ(static_cast<std::uint8_t>(table[0]), plus(0, 1));
}

// ---- Threads

TEST(UnverifiedBlocks, AreReadByThreadsWhileOthersCallAndSync) {
  MachineSetup setup = rolling();
  setup.fake.run = FakeOptions::Run::kRandom;
  ManagerUnderTest machine(setup);
  std::byte* const table = makeTable(machine);
  const adsmKernel_t read = readingKernel(machine.fake());
  std::atomic<bool> over{false};
  std::vector<std::thread> readers;
  for (std::size_t reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&, reader] {
      std::size_t wrong = 0;
      for (std::size_t i = reader; !over; i = (i + 4099) % kBytes) {
        wrong += table[i] != pattern(i) ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0u);
    });
  }
  for (int round = 0; round < 100; ++round) {
    machine.call(read, {table});
    machine.sync();
  }
  over = true;
  for (std::thread& reader : readers) {
    reader.join();
  }
}

// Whoever holds may wait for the thread that acquires, through a pipe for instance.
TEST(UnverifiedBlocks, ThatAreHeldMakeNoAcquireWait) {
  ManagerUnderTest machine(rolling());
  std::byte* const table = makeTable(machine);
  machine.call(bumpingKernel(machine.fake()), {table + 5});
  ASSERT_TRUE(machine.manager().hold(table, 10, HoldFor::kRead).ok());
  machine.sync();
  EXPECT_EQ(static_cast<std::uint8_t>(table[5]), plus(5, 1));
  machine.manager().unhold(table, 10);
}

}  // namespace
}  // namespace gmac::testing
