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
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmac/observe/stats.h"
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

// A table that may be unverified, and the kernel that writes it.
class UnverifiedBlocks : public ::testing::Test {
 protected:
  explicit UnverifiedBlocks(const MachineSetup& setup = rolling()) { setScene(setup); }

  // The scene anew, on another machine.
  void setScene(const MachineSetup& setup, std::size_t bytes = kBytes) {
    machine_.reset();
    machine_.emplace(setup);
    table_ = makeTable(*machine_, bytes);
    bumping_ = bumpingKernel(machine_->fake());
  }
  // Calls the kernel that adds one to the table's byte `at`.
  void bump(std::size_t at) { machine_->call(bumping_, {table_ + at}); }
  // Calls a kernel that adds one to both bytes.
  void bumpBoth(std::byte* one, std::byte* other) {
    FakeAccelerator& fake = machine_->fake();
    const adsmKernel_t both = fake.kernel("both", 2, [&fake](const LaunchShape&, void** args) {
      ++*fake.argument<std::uint8_t>(args, 0);
      ++*fake.argument<std::uint8_t>(args, 1);
    });
    machine_->call(both, {one, other});
  }
  std::uint8_t byteAt(std::size_t at) const { return static_cast<std::uint8_t>(table_[at]); }

  std::optional<ManagerUnderTest> machine_;
  std::byte* table_ = nullptr;
  adsmKernel_t bumping_ = nullptr;
};

// ---- Under every protocol that lets a block be read only, on every mirror

class Unverified : public UnverifiedBlocks, public ::testing::WithParamInterface<MachineSetup> {
 protected:
  Unverified() : UnverifiedBlocks(GetParam()) {}
};

// The kernel does not run before somebody waits for it: nobody does.
TEST_P(Unverified, IsReadWithoutAFaultBesideAKernelThatRuns) {
  machine_->sync();
  expectPattern(table_, kBytes);
  bump(5);
  const std::size_t pending = machine_->fake().pending();
  const std::uint64_t faults = stats().readFaults.value();
  machine_->expectNothingHappens([&] { expectPattern(table_, kBytes); });
  EXPECT_EQ(stats().readFaults.value(), faults);
  EXPECT_GT(pending, 0u);
  EXPECT_EQ(machine_->fake().pending(), pending);
  machine_->sync();
  expectPattern(table_, kBytes, {5});
}

TEST_P(Unverified, IsClosedByTheSyncAndComesBackWithoutACopyWhereNothingChanged) {
  EXPECT_EQ(accessAt(table_), os::Access::kRead);
  machine_->sync();
  EXPECT_EQ(accessAt(table_), os::Access::kNone);
  EXPECT_EQ(accessAt(table_ + kBytes - 1), os::Access::kNone);
  const std::uint64_t unchanged = stats().bytesUnchanged.value();
  expectPattern(table_, kBytes);
  EXPECT_THAT(fetches(*machine_, table_), IsEmpty());
  EXPECT_EQ(stats().bytesUnchanged.value() - unchanged, kBytes);
}

TEST_P(Unverified, CostsNoProtectionChangeAtCallsThatFollow) {
  const adsmKernel_t read = readingKernel(machine_->fake());
  machine_->expectNothingHappens([&] {
    for (int i = 0; i < 3; ++i) {
      machine_->call(read, {table_});
      EXPECT_EQ(table_[kBlock], pattern(kBlock));
    }
  });
  EXPECT_EQ(digests(*machine_), 0u);
  machine_->sync();
  machine_->expectNothingHappens([&] {
    machine_->call(read, {table_});
    machine_->sync();
    EXPECT_TRUE(machine_->manager().afterDeviceWait().ok());
  });
}

TEST_P(Unverified, AWriteOfTheCpuLosesNeitherItselfNorTheKernels) {
  for (const FakeOptions::Run run : {FakeOptions::Run::kDeferred, FakeOptions::Run::kRandom}) {
    MachineSetup setup = GetParam();
    setup.fake.run = run;
    setScene(setup);
    bump(5);
    bump(9 * kBlock);
    table_[6] = std::byte{0xA5};                // in a block that has changed
    table_[12 * kBlock + 1] = std::byte{0x5A};  // in one that may not have
    machine_->verify();
    EXPECT_EQ(byteAt(5), plus(5, 1));
    bump(6);
    bump(12 * kBlock + 1);
    machine_->sync();
    EXPECT_EQ(table_[6], std::byte{0xA6});
    EXPECT_EQ(table_[12 * kBlock + 1], std::byte{0x5B});
    table_[6] = pattern(6);
    table_[12 * kBlock + 1] = pattern(12 * kBlock + 1);
    expectPattern(table_, kBytes, {5, 9 * kBlock});
  }
}

TEST_P(Unverified, WhatIsHeldIsWhatTheKernelLeft) {
  for (const HoldFor purpose : {HoldFor::kRead, HoldFor::kWrite}) {
    setScene(GetParam());
    bump(kBlock);
    ASSERT_TRUE(machine_->manager().hold(table_, 2 * kBlock, purpose).ok());
    machine_->verify();
    EXPECT_EQ(byteAt(kBlock), plus(kBlock, 1));
    if (purpose == HoldFor::kWrite) {
      table_[kBlock + 1] = std::byte{7};
    }
    machine_->manager().unhold(table_, 2 * kBlock);
    machine_->sync();
    EXPECT_EQ(byteAt(kBlock), plus(kBlock, 1));
    EXPECT_EQ(table_[kBlock + 1], purpose == HoldFor::kWrite ? std::byte{7} : pattern(kBlock + 1));
  }
}

// As `read` into the object does.
TEST_P(Unverified, OverwritingPartOfItKeepsWhatTheKernelWroteBesideThat) {
  const std::size_t first = kBlock + 100;
  const std::size_t bytes = 3 * kBlock;
  bump(kBlock);
  bump(2 * kBlock);
  bump(first + bytes);
  ASSERT_TRUE(machine_->manager().hold(table_ + first, bytes, HoldFor::kOverwrite).ok());
  for (std::size_t i = first; i < first + bytes; ++i) {
    table_[i] = pattern(i);
  }
  machine_->manager().unhold(table_ + first, bytes);
  machine_->verify();
  machine_->sync();
  expectPattern(table_, kBytes, {kBlock, first + bytes});
  machine_->call(readingKernel(machine_->fake()), {table_});
  machine_->sync();
  expectPattern(table_, kBytes, {kBlock, first + bytes});
}

TEST_P(Unverified, BulkOperationsIntoItAreOrderedBehindTheKernel) {
  for (const bool accelerated : {false, true}) {
    setScene(GetParam());
    Manager& manager = machine_->manager();
    std::byte* const other = machine_->allocate(kBytes);
    std::vector<std::byte> plain(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) {
      plain[i] = other[i] = pattern(i);
    }
    bump(100);
    bump(2 * kBlock);
    // Neither begins nor ends where a block does.
    const std::size_t first = kBlock / 2;
    const std::size_t bytes = 4 * kBlock;
    if (accelerated) {
      manager.copy(table_ + first, other + first, bytes, &std::memmove);
      manager.fill(table_ + first + bytes, 0x77, 10, &std::memset);
    } else {
      manager.copy(table_ + first, plain.data() + first, bytes, &std::memmove);
      std::memset(plain.data(), 0x77, 10);
      manager.copy(table_ + first + bytes, plain.data(), 10, &std::memmove);
    }
    machine_->verify();
    bump(first + 3);
    machine_->sync();
    for (std::size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(table_[first + bytes + i], std::byte{0x77}) << i;
      table_[first + bytes + i] = pattern(first + bytes + i);
    }
    expectPattern(table_, kBytes, {100, first + 3});
  }
}

TEST_P(Unverified, AFillIsQueuedBehindTheKernelWithoutWaiting) {
  machine_->sync();
  expectPattern(table_, kBytes);
  bump(5);
  const std::size_t pending = machine_->fake().pending();
  machine_->manager().fill(table_ + 6, 0x77, 1, &std::memset);
  EXPECT_EQ(machine_->fake().pending(), pending + 1);
  EXPECT_EQ(table_[6], std::byte{0x77});
  table_[6] = pattern(6);
  expectPattern(table_, kBytes, {5});
}

TEST_P(Unverified, ACopyFromItWaitsForNobodyOrIsMadeBehindTheKernel) {
  Manager& manager = machine_->manager();
  bump(5);
  const std::size_t pending = machine_->fake().pending();
  std::vector<std::byte> plain(kBytes);
  manager.copy(plain.data(), table_, kBytes, &std::memmove);
  EXPECT_EQ(machine_->fake().pending(), pending);
  expectPattern(plain.data(), kBytes);
  // The target is the accelerator's, and stays there.
  std::byte* const other = machine_->allocate(kBytes);
  machine_->call(readingKernel(machine_->fake()), {other});
  manager.copy(other, table_, kBytes, &std::memmove);
  machine_->verify();
  expectPattern(other, kBytes, {5});
  EXPECT_EQ(byteAt(5), plus(5, 1)) << "the copy has shown the kernel's";
}

TEST_P(Unverified, IsTheAcceleratorsToPackFrom) {
  Current current{};
  EXPECT_EQ(machine_->manager().currentPrefix(table_, kBytes, &current), kBytes);
  EXPECT_EQ(current, Current::kAccelerator);
  machine_->sync();
  EXPECT_EQ(table_[0], pattern(0));
  (void)machine_->manager().currentPrefix(table_, kBytes, &current);
  EXPECT_EQ(current, Current::kBoth);
}

TEST_P(Unverified, PartsThatDeviceWorkNamesAreReleasedAsEver) {
  bump(5);
  for (const bool write : {false, true}) {
    const DeviceRange range{table_, 10, write};
    std::uint8_t seen = 0;
    ASSERT_TRUE(machine_->manager().beginDeviceWork(NativeStream{1}, {&range, 1}).ok());
    machine_->fake().submit(NativeStream{1}, [this, &seen, write] {
      auto* const at = reinterpret_cast<std::uint8_t*>(machine_->fake().at(table_ + 5));
      seen = *at;
      *at = static_cast<std::uint8_t>(*at + (write ? 1 : 0));
    });
    ASSERT_TRUE(machine_->manager().endDeviceWork(NativeStream{1}, true).ok());
    machine_->verify();
    machine_->fake().runAll();
    EXPECT_EQ(seen, plus(5, 1));
  }
  EXPECT_EQ(byteAt(5), plus(5, 2)) << "a write that was named is seen";
  machine_->sync();
  expectPattern(table_, kBytes, {5, 5});
}

TEST_P(Unverified, AFetchOfAnotherKernelsResultIsAnAcquire) {
  std::byte* const result = machine_->allocate(kBlock);
  bumpBoth(table_ + 7 * kBlock, result);
  EXPECT_EQ(result[0], std::byte{1});
  EXPECT_EQ(byteAt(7 * kBlock), plus(7 * kBlock, 1));
}

TEST_P(Unverified, WithdrawnAdviceClosesIt) {
  bump(5);
  advise(*machine_, table_, false);
  EXPECT_EQ(accessAt(table_), os::Access::kNone);
  expectPattern(table_, kBytes, {5});
  bump(5);
  EXPECT_EQ(accessAt(table_), os::Access::kNone);
  advise(*machine_, table_);
  expectPattern(table_, kBytes, {5, 5});
}

TEST_P(Unverified, ACallThatNamesTheObjectClosesIt) {
  machine_->callUsing(bumping_, {table_ + 5}, {{table_, adsmReadWrite}});
  expectPattern(table_, kBytes, {5});
  machine_->callUsing(bumping_, {table_ + 5}, {{table_, adsmRead}});  // it lies
  ASSERT_TRUE(machine_->manager().bind(table_, bumping_, adsmReadWrite).ok());
  bump(6);
  EXPECT_EQ(byteAt(6), plus(6, 1));
}

TEST_P(Unverified, WorkWithCodeOfTheCpuInsideClosesIt) {
  Streams streams(*machine_);
  streams.launch(NativeStream{1}, table_ + 5, /*closes=*/true);
  EXPECT_EQ(accessAt(table_), os::Access::kNone);
  expectPattern(table_, kBytes, {5});
}

TEST_P(Unverified, ClosingItTwiceOrNeverIsAllTheSameToTheComparison) {
  Streams streams(*machine_);
  streams.launch(NativeStream{1}, table_ + 5);
  streams.launch(NativeStream{2}, table_ + 3 * kBlock);
  streams.acquire();  // of one; the other one runs
  EXPECT_EQ(byteAt(5), plus(5, 1));
  EXPECT_EQ(byteAt(3 * kBlock), plus(3 * kBlock, 1));
  streams.launch(NativeStream{1}, table_ + 5);
  streams.launch(NativeStream{2}, nullptr);
  streams.acquire();
  streams.acquire();
  expectPattern(table_, kBytes, {5, 5, 3 * kBlock});
}

TEST_P(Unverified, IsFreedAndItsContextMayEnd) {
  for (const bool contextEnds : {false, true}) {
    setScene(GetParam());
    std::byte* const other = makeTable(*machine_);
    machine_->call(bumping_, {other});
    machine_->free(table_);
    if (contextEnds) {
      machine_->fake().runAll();
      machine_->manager().endContext(true);
    } else {
      expectPattern(other, kBytes);
      machine_->sync();
      expectPattern(other, kBytes, {0});
    }
    machine_->verify();
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
TEST_F(UnverifiedBlocks, DoNotExistUnderBatchUpdate) {
  MachineSetup setup = rolling();
  setup.protocol = "batch";
  setScene(setup);
  EXPECT_EQ(accessAt(table_), os::Access::kNone);
  bump(5);
  expectPattern(table_, kBytes, {5});
}

TEST_F(UnverifiedBlocks, AWriteClosesNoOtherBlockBeforeTheKernelIsOver) {
  machine_->sync();
  expectPattern(table_, kBytes);
  bump(5);
  table_[5 * kBlock] = std::byte{1};
  // The wait was for the kernel, and what came of that is news: all of the table is compared.
  EXPECT_EQ(accessAt(table_), os::Access::kNone);
  EXPECT_EQ(accessAt(table_ + 5 * kBlock), os::Access::kReadWrite);
  EXPECT_EQ(digests(*machine_), 2u) << "one comparison, and one description before";
}

TEST_F(UnverifiedBlocks, AreComparedAheadByAnEarlyFetch) {
  Manager& manager = machine_->manager();
  bump(5);
  ASSERT_TRUE(manager.startFetch(table_, kBytes).ok());
  EXPECT_EQ(manager.fetchNext(), Manager::EarlyStep::kWaits);
  machine_->fake().runAll();
  while (manager.fetchNext() != Manager::EarlyStep::kIdle) {
  }
  machine_->verify();
  EXPECT_THAT(fetches(*machine_, table_), ElementsAre(copyOut(table_, kBlock)));
  machine_->sync();
  machine_->expectNothingHappens([&] { expectPattern(table_, kBytes, {5}); });
}

TEST_F(UnverifiedBlocks, ThatCannotBeDescribedAreClosedByTheCall) {
  for (const Op::Kind kind : {Op::Kind::kFill, Op::Kind::kLaunch}) {
    setScene(rolling());
    Streams streams(*machine_);
    machine_->sync();
    expectPattern(table_, kBytes);
    table_[2 * kBlock] = pattern(2 * kBlock);
    table_[3 * kBlock] = pattern(3 * kBlock);
    machine_->fake().failNext(kind, 1, adsmErrorSystem);
    streams.launch(NativeStream{1}, table_ + 3 * kBlock);
    EXPECT_EQ(accessAt(table_ + kBlock), os::Access::kRead);
    EXPECT_EQ(accessAt(table_ + 2 * kBlock), os::Access::kNone);
    EXPECT_EQ(accessAt(table_ + 3 * kBlock), os::Access::kNone);
    EXPECT_EQ(accessAt(table_ + 4 * kBlock), os::Access::kRead);
    EXPECT_EQ(byteAt(3 * kBlock), plus(3 * kBlock, 1));
    machine_->sync();
    expectPattern(table_, kBytes, {3 * kBlock});
  }
}

TEST_F(UnverifiedBlocks, AreClosedByTheNextSyncWhereOneCannot) {
  bump(5);
  os::failNext(os::Call::kProtect, 1, EIO);
  EXPECT_FALSE(machine_->manager().sync().ok());
  os::failNext(os::Call::kProtect, 0, 0);
  machine_->sync();
  expectPattern(table_, kBytes, {5});
}

// Where the kernel has no mappings left, the whole object is closed; and what it may still have
// open is opened by the next fault.
TEST_F(UnverifiedBlocks, AreClosedWithoutMappings) {
  machine_->sync();
  for (std::size_t block = 0; block < kBlocks; block += 2) {
    EXPECT_EQ(table_[block * kBlock], pattern(block * kBlock));
  }
  bump(2 * kBlock);
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  machine_->sync();
  os::failNext(os::Call::kProtect, 0, 0);
  expectPattern(table_, kBytes, {2 * kBlock});
}

TEST_F(UnverifiedBlocks, AreComparedAlsoWhenTheyHaveBeenJoined) {
  MachineSetup setup = rolling();
  setup.blockBytes = kPage;
  setScene(setup);
  bump(5);
  // Of these nothing need be fetched.
  std::byte* const other = machine_->allocate(kPage * 64);
  const std::uint64_t joined = stats().coarsenings.value();
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  other[0] = std::byte{1};
  os::failNext(os::Call::kProtect, 0, 0);
  machine_->verify();
  EXPECT_GT(stats().coarsenings.value(), joined);
  machine_->sync();
  expectPattern(table_, kBytes, {5});
}

// A result that is opened because its blocks are joined is news as much as one that is fetched.
TEST_F(UnverifiedBlocks, AreClosedWhereJoiningBlocksShowsAKernelsResult) {
  MachineSetup setup = rolling();
  setup.blockBytes = kPage;
  setScene(setup, kBlock);
  constexpr std::size_t kMany = 64;
  std::byte* const result = machine_->allocate(kMany * kPage);
  bumpBoth(table_, result + kPage);
  // Two blocks are opened without their bytes, so that nothing is fetched; then they are joined
  // with the one between them.
  for (std::byte* const at : {result, result + 2 * kPage}) {
    os::failNext(os::Call::kProtect, at == result ? 0 : 1, ENOMEM);
    ASSERT_TRUE(machine_->manager().hold(at, kPage, HoldFor::kOverwrite).ok());
    os::failNext(os::Call::kProtect, 0, 0);
    std::memset(at, 1, kPage);
    machine_->manager().unhold(at, kPage);
  }
  machine_->verify();
  EXPECT_EQ(result[kPage], std::byte{1});
  EXPECT_EQ(byteAt(0), plus(0, 1));
}

// ---- Threads

TEST_F(UnverifiedBlocks, AreReadByThreadsWhileOthersCallAndSync) {
  MachineSetup setup = rolling();
  setup.fake.run = FakeOptions::Run::kRandom;
  setScene(setup);
  const adsmKernel_t read = readingKernel(machine_->fake());
  std::atomic<bool> over{false};
  std::vector<std::thread> readers;
  for (std::size_t reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&, reader] {
      std::size_t wrong = 0;
      for (std::size_t i = reader; !over; i = (i + 4099) % kBytes) {
        wrong += table_[i] != pattern(i) ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0u);
    });
  }
  for (int round = 0; round < 100; ++round) {
    machine_->call(read, {table_});
    machine_->sync();
  }
  over = true;
  for (std::thread& reader : readers) {
    reader.join();
  }
}

// Whoever holds may wait for the thread that acquires, through a pipe for instance.
TEST_F(UnverifiedBlocks, ThatAreHeldMakeNoAcquireWait) {
  bump(5);
  ASSERT_TRUE(machine_->manager().hold(table_, 10, HoldFor::kRead).ok());
  machine_->sync();
  EXPECT_EQ(byteAt(5), plus(5, 1));
  machine_->manager().unhold(table_, 10);
}

}  // namespace
}  // namespace gmac::testing
