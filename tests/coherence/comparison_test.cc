// SPDX-License-Identifier: Apache-2.0
//
// Objects that kernels seldom write: what is fetched of them, that what a kernel does write is
// never missed, and what happens where comparing is impossible or not worth it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/manager_fixture.h"
#include "tests/support/read_mostly.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using accel::NativeStream;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using namespace read_mostly;

// ---- Under every protocol, on every mirror, with work that runs at any time

class Comparison : public ::testing::TestWithParam<MachineSetup> {};

TEST_P(Comparison, WhatACallHasNotWrittenIsNotFetched) {
  for (const FakeOptions::Run run :
       {FakeOptions::Run::kDeferred, FakeOptions::Run::kEager, FakeOptions::Run::kRandom}) {
    MachineSetup setup = GetParam();
    setup.fake.run = run;
    ManagerUnderTest machine(setup);
    std::byte* const table = makeTable(machine);
    for (int round = 0; round < 3; ++round) {
      machine.sync();
      expectPattern(table, kBytes);
      EXPECT_THAT(fetches(machine, table), IsEmpty());
      machine.call(readingKernel(machine.fake()), {table});
    }
  }
}

TEST_P(Comparison, TheByteThatAKernelWroteIsSeenAndOnlyItsBlockIsFetched) {
  for (const FakeOptions::Run run :
       {FakeOptions::Run::kDeferred, FakeOptions::Run::kEager, FakeOptions::Run::kRandom}) {
    MachineSetup setup = GetParam();
    setup.fake.run = run;
    ManagerUnderTest machine(setup);
    std::byte* const table = makeTable(machine);
    machine.sync();
    expectPattern(table, kBytes);
    const adsmKernel_t bump = bumpingKernel(machine.fake());
    const std::vector<std::size_t> places = {0, kBytes - 1, kBytes / 2, 3 * kBlock + 17};
    for (std::size_t i = 0; i < places.size(); ++i) {
      machine.call(bump, {table + places[i]});
      machine.fake().clearLog();
      machine.sync();
      expectPattern(table, kBytes, {places.begin(), places.begin() + static_cast<long>(i) + 1});
      std::size_t bytes = 0;
      for (const Op& fetch : fetches(machine, table)) {
        bytes += fetch.bytes;
      }
      const std::size_t block = machine.manager().protocol().wholeObjects()
                                    ? kBytes
                                    : std::min(machine.setup().blockBytes, kBytes);
      EXPECT_LE(bytes, block) << places[i];
      EXPECT_GT(bytes, 0u) << places[i];
    }
  }
}

TEST_P(Comparison, WhatTheCpuWritesBetweenCallsReachesTheKernelAndIsCompared) {
  ManagerUnderTest machine(GetParam());
  std::byte* const table = makeTable(machine);
  const adsmKernel_t bump = bumpingKernel(machine.fake());
  std::uint8_t expected = static_cast<std::uint8_t>(table[kBlock]);
  for (int round = 0; round < 5; ++round) {
    table[kBlock] = static_cast<std::byte>(++expected);
    machine.call(bump, {table + kBlock});
    ++expected;
    machine.sync();
    EXPECT_EQ(static_cast<std::uint8_t>(table[kBlock]), expected);
    table[kBlock] = static_cast<std::byte>(++expected);
    machine.call(readingKernel(machine.fake()), {table});
    EXPECT_EQ(static_cast<std::uint8_t>(table[kBlock]), expected);
  }
  EXPECT_EQ(table[kBlock + 1], pattern(kBlock + 1));
}

TEST_P(Comparison, AKernelThatPutsEverythingBackIsNotNoticed) {
  ManagerUnderTest machine(GetParam());
  std::byte* const table = makeTable(machine);
  const adsmKernel_t twice =
      machine.fake().kernel("twice", 1, [&fake = machine.fake()](const LaunchShape&, void** args) {
        auto* const data = fake.argument<std::uint8_t>(args, 0);
        data[9] = static_cast<std::uint8_t>(data[9] + 1);
        data[9] = static_cast<std::uint8_t>(data[9] - 1);
      });
  machine.call(twice, {table});
  machine.sync();
  expectPattern(table, kBytes);
  EXPECT_THAT(fetches(machine, table), IsEmpty());
}

// The accelerator's bytes are then those of an older digest, and the CPU's are not.
TEST_P(Comparison, AKernelThatUndoesTheCpusWriteIsNoticed) {
  ManagerUnderTest machine(GetParam());
  std::byte* const table = makeTable(machine);
  const adsmKernel_t bump = bumpingKernel(machine.fake());
  for (int round = 0; round < 3; ++round) {
    machine.sync();
    expectPattern(table, kBytes);
    table[kBlock] = static_cast<std::byte>(static_cast<std::uint8_t>(pattern(kBlock)) - 1);
    machine.call(bump, {table + kBlock});
  }
  machine.sync();
  expectPattern(table, kBytes);
}

INSTANTIATE_TEST_SUITE_P(Setups, Comparison, ::testing::ValuesIn(everySetup()),
                         [](const auto& info) { return nameOf(info.param); });

// ---- How it is done

TEST(Comparisons, CallsWithoutAccessesBetweenThemCostNothing) {
  ManagerUnderTest machine(rolling());
  std::byte* const table = makeTable(machine);
  machine.fake().clearLog();
  for (int round = 0; round < 10; ++round) {
    machine.call(readingKernel(machine.fake()), {table});
    machine.sync();
  }
  EXPECT_EQ(digests(machine), 0u) << "described before the first call, compared by nobody yet";
  expectPattern(table, kBytes);
  EXPECT_EQ(digests(machine), 1u) << "one comparison serves all blocks";
  machine.call(readingKernel(machine.fake()), {table});
  EXPECT_EQ(digests(machine), 1u) << "what has not changed is still described";
}

TEST(Comparisons, WithoutTheHintEverythingIsFetched) {
  ManagerUnderTest machine(rolling());
  std::byte* const table = makeTable(machine);
  machine.sync();
  expectPattern(table, kBytes);
  EXPECT_THAT(fetches(machine, table), IsEmpty());
  advise(machine, table, false);
  machine.call(readingKernel(machine.fake()), {table});
  machine.sync();
  expectPattern(table, kBytes);
  EXPECT_THAT(fetches(machine, table), SizeIs(kBlocks));
  advise(machine, table);
  machine.call(readingKernel(machine.fake()), {table});
  machine.fake().clearLog();
  machine.sync();
  expectPattern(table, kBytes);
  EXPECT_THAT(fetches(machine, table), IsEmpty()) << "the hint came again";
}

TEST(Comparisons, AWriteWhileTheHintIsWithdrawnIsSeen) {
  ManagerUnderTest machine(rolling());
  std::byte* const table = makeTable(machine);
  advise(machine, table, false);
  machine.call(bumpingKernel(machine.fake()), {table + 5});
  advise(machine, table);
  machine.call(readingKernel(machine.fake()), {table});
  machine.sync();
  expectPattern(table, kBytes, {5});
}

TEST(Comparisons, SeveralChangedBlocksAreFetchedAndTheOthersAreNot) {
  ManagerUnderTest machine(rolling());
  std::byte* const table = makeTable(machine);
  const adsmKernel_t bump = bumpingKernel(machine.fake());
  machine.call(bump, {table + 4 * kBlock});
  machine.call(bump, {table + 11 * kBlock + 1});
  machine.call(bump, {table + 12 * kBlock - 1});
  machine.call(bump, {table + 20 * kBlock + 100});
  machine.fake().clearLog();
  machine.sync();
  expectPattern(table, kBytes, {4 * kBlock, 11 * kBlock + 1, 12 * kBlock - 1, 20 * kBlock + 100});
  EXPECT_THAT(fetches(machine, table),
              ElementsAre(copyOut(table + 4 * kBlock, kBlock), copyOut(table + 11 * kBlock, kBlock),
                          copyOut(table + 20 * kBlock, kBlock)));
}

TEST(Comparisons, ManySmallBlocksComeBackInPieces) {
  MachineSetup setup = rolling();
  setup.blockBytes = kPage;
  ManagerUnderTest machine(setup);
  constexpr std::size_t kMany = 9000;  // more than one arrival has
  std::byte* const table = makeTable(machine, kMany * kPage);
  const adsmKernel_t bump = bumpingKernel(machine.fake());
  const std::vector<std::size_t> places = {4095 * kPage, 4096 * kPage, 8999 * kPage + 4095};
  for (const std::size_t place : places) {
    machine.call(bump, {table + place});
  }
  machine.fake().clearLog();
  machine.sync();
  for (std::size_t block = 0; block < kMany; ++block) {
    ASSERT_EQ(table[block * kPage + 1], pattern(block * kPage + 1)) << block;
  }
  for (const std::size_t place : places) {
    EXPECT_EQ(static_cast<std::uint8_t>(table[place]),
              static_cast<std::uint8_t>(static_cast<std::uint8_t>(pattern(place)) + 1));
  }
  EXPECT_THAT(fetches(machine, table, kMany * kPage), SizeIs(3));
}

TEST(Comparisons, SmallObjectsAreFetchedAsEver) {
  ManagerUnderTest machine(rolling());
  std::byte* const small = machine.allocate(256);
  std::byte* const neighbour = machine.allocate(256);
  advise(machine, small);
  small[0] = std::byte{1};
  neighbour[0] = std::byte{2};
  machine.call(bumpingKernel(machine.fake()), {small});
  machine.call(bumpingKernel(machine.fake()), {neighbour});
  machine.fake().clearLog();
  EXPECT_EQ(small[0], std::byte{2});
  EXPECT_EQ(neighbour[0], std::byte{3});
  EXPECT_EQ(digests(machine), 0u);
}

TEST(Comparisons, AHintThatIsWrongAgainAndAgainIsDropped) {
  ManagerUnderTest machine(rolling());
  std::byte* const table = makeTable(machine);
  const adsmKernel_t writeAll = machine.fake().kernel(
      "writeAll", 1, [&fake = machine.fake()](const LaunchShape&, void** args) {
        auto* const data = fake.argument<std::uint8_t>(args, 0);
        for (std::size_t i = 0; i < kBytes; i += kBlock) {
          ++data[i];
        }
      });
  std::uint8_t expected = static_cast<std::uint8_t>(pattern(0));
  const auto round = [&] {
    machine.call(writeAll, {table});
    machine.sync();
    EXPECT_EQ(static_cast<std::uint8_t>(table[0]), ++expected);
    for (std::size_t i = 1; i < kBlocks; ++i) {
      ASSERT_NE(table[i * kBlock], pattern(i * kBlock));
    }
  };
  for (int i = 0; i < 8; ++i) {
    round();
  }
  machine.fake().clearLog();
  round();
  EXPECT_EQ(digests(machine), 0u);
  advise(machine, table);
  machine.call(readingKernel(machine.fake()), {table});
  EXPECT_EQ(digests(machine), 1u) << "advised again";
}

// ---- Streams of the application's own

TEST(Comparisons, WorkOnStreamsComesAfterTheDigestsAndBeforeTheComparison) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    MachineSetup setup = rolling();
    setup.fake.run = seed == 1 ? FakeOptions::Run::kDeferred : FakeOptions::Run::kRandom;
    setup.fake.seed = seed;
    SCOPED_TRACE(seed);
    ManagerUnderTest machine(setup);
    Streams streams(machine);
    std::byte* const table = machine.allocate(kBytes);
    advise(machine, table);
    for (std::size_t i = 0; i < kBytes; ++i) {
      table[i] = pattern(i);
    }
    streams.launch(NativeStream{1}, table + 7);
    streams.launch(NativeStream{2}, table + 5 * kBlock);
    streams.acquire();
    expectPattern(table, kBytes, {7, 5 * kBlock});
    machine.fake().clearLog();
    streams.launch(NativeStream{2}, nullptr);
    streams.launch(NativeStream{1}, nullptr);
    streams.acquire();
    expectPattern(table, kBytes, {7, 5 * kBlock});
    EXPECT_THAT(fetches(machine, table), IsEmpty());
  }
}

TEST(Comparisons, AKernelThatNeedNotBeWaitedForIsNotWaitedFor) {
  ManagerUnderTest machine(rolling());
  Streams streams(machine);
  std::byte* const table = makeTable(machine);
  machine.sync();
  ASSERT_TRUE(machine.manager().setUsers(table, Object::Users::kOneStream, NativeStream{1}).ok());
  streams.launch(NativeStream{1}, table + 3);
  bool ran = false;
  const coherence::DeviceRange everything{nullptr, 0, true};
  ASSERT_TRUE(machine.manager().beginDeviceWork(NativeStream{2}, {&everything, 1}).ok());
  machine.fake().submit(NativeStream{2}, [&ran] { ran = true; });
  ASSERT_TRUE(machine.manager().endDeviceWork(NativeStream{2}, true).ok());
  machine.fake().clearLog();
  streams.acquire();
  expectPattern(table, kBytes, {3});
  EXPECT_FALSE(ran) << "stream 2 does not use the table";
  EXPECT_EQ(digests(machine), 0u) << "a digest might wait for the kernel; a copy does not";
  machine.sync();
}

TEST(Comparisons, CopiesOfTheApplicationIntoTheObjectAreSeen) {
  ManagerUnderTest machine(rolling());
  std::byte* const table = makeTable(machine);
  machine.sync();
  expectPattern(table, kBytes);
  const coherence::DeviceRange range{table + 10, 1, true};
  ASSERT_TRUE(machine.manager().beginDeviceWork(NativeStream{1}, {&range, 1}).ok());
  machine.fake().submit(NativeStream{1}, [&machine, table] {
    ++*reinterpret_cast<std::uint8_t*>(machine.fake().at(table + 10));
  });
  ASSERT_TRUE(machine.manager().endDeviceWork(NativeStream{1}, true).ok());
  expectPattern(table, kBytes, {10});
}

TEST(Comparisons, AFillOnTheAcceleratorAfterTheComparisonIsSeen) {
  ManagerUnderTest machine(rolling());
  std::byte* const table = makeTable(machine);
  machine.sync();
  EXPECT_EQ(table[0], pattern(0));
  ASSERT_EQ(digests(machine), 1u) << "all blocks were compared, one was opened";
  machine.manager().fill(table + 10 * kBlock, 0xEE, kBlock, &std::memset);
  EXPECT_EQ(table[10 * kBlock + 5], std::byte{0xEE});
  EXPECT_EQ(table[11 * kBlock + 5], pattern(11 * kBlock + 5));
}

// ---- What goes wrong

TEST(Comparisons, AnyStepMayFailAndNothingIsMissed) {
  for (const Op::Kind kind :
       {Op::Kind::kFill, Op::Kind::kLaunch, Op::Kind::kCopyWithin, Op::Kind::kCopyOut}) {
    for (int n = 1; n <= 3; ++n) {
      SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + ", number " + std::to_string(n));
      ManagerUnderTest machine(rolling());
      Streams streams(machine);
      std::byte* const table = machine.allocate(kBytes);
      advise(machine, table);
      for (std::size_t i = 0; i < kBytes; ++i) {
        table[i] = pattern(i);
      }
      // The first copy out is the comparison's own; the others are fetches, whose failure is fatal.
      if (kind == Op::Kind::kCopyOut && n > 1) {
        continue;
      }
      machine.fake().failNext(kind, n, adsmErrorSystem);
      // The block that is read first is the one whose comparison fails.
      streams.launch(NativeStream{1}, table);
      streams.acquire();
      expectPattern(table, kBytes, {0});
      streams.launch(NativeStream{1}, table);
      streams.acquire();
      expectPattern(table, kBytes, {0, 0});
      streams.launch(NativeStream{1}, table + 3 * kBlock);
      streams.acquire();
      expectPattern(table, kBytes, {0, 0, 3 * kBlock});
      machine.fake().failNext(kind, 0, adsmSuccess);
    }
  }
}

TEST(Comparisons, WhereTheAcceleratorCannotTellTheHintDoesNothing) {
  for (const Op::Kind kind : {Op::Kind::kLoad, Op::Kind::kAllocate, Op::Kind::kPin}) {
    ManagerUnderTest machine(rolling());
    std::byte* const table = machine.allocate(kBytes);
    machine.fake().failNext(kind, 1, adsmErrorNoImplementation);
    advise(machine, table);
    EXPECT_FALSE(machine.fake().armed());
    for (std::size_t i = 0; i < kBytes; ++i) {
      table[i] = pattern(i);
    }
    machine.call(bumpingKernel(machine.fake()), {table});
    machine.fake().clearLog();
    machine.sync();
    expectPattern(table, kBytes, {0});
    EXPECT_EQ(digests(machine), 0u);
    EXPECT_THAT(fetches(machine, table), SizeIs(kBlocks));
  }
}

TEST(Comparisons, AnObjectMayBeFreedWhileItsDigestsAreBeingMade) {
  ManagerUnderTest machine(rolling());
  std::byte* const table = makeTable(machine);
  machine.sync();
  table[0] = std::byte{99};
  machine.call(readingKernel(machine.fake()), {table});
  machine.free(table);
  EXPECT_EQ(machine.fake().liveAllocations(), 0u);
}

TEST(Comparisons, AnObjectMayBeFreedAfterALaunchThatFailed) {
  ManagerUnderTest machine(rolling());
  std::byte* const table = machine.allocate(kBytes);
  advise(machine, table);
  const coherence::DeviceRange everything{nullptr, 0, true};
  ASSERT_TRUE(machine.manager().beginDeviceWork(NativeStream{1}, {&everything, 1}).ok());
  ASSERT_TRUE(machine.manager().endDeviceWork(NativeStream{1}, false).ok());
  EXPECT_EQ(digests(machine), 1u);
  machine.free(table);
}

TEST(Comparisons, CoarserBlocksAreCompared) {
  MachineSetup setup = rolling();
  setup.blockBytes = kPage;
  ManagerUnderTest machine(setup);
  std::byte* const table = makeTable(machine);
  machine.sync();
  expectPattern(table, kBytes);
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  table[3] = pattern(3);
  os::failNext(os::Call::kProtect, 0, 0);
  machine.verify();
  for (int round = 0; round < 2; ++round) {
    machine.call(readingKernel(machine.fake()), {table});
    machine.fake().clearLog();
    machine.sync();
    expectPattern(table, kBytes);
    EXPECT_THAT(fetches(machine, table), IsEmpty());
  }
  machine.call(bumpingKernel(machine.fake()), {table + kBytes - 1});
  machine.sync();
  expectPattern(table, kBytes, {kBytes - 1});
}

// ---- Threads

TEST(Comparisons, ThreadsThatReadTheSameTableAllSeeWhatAKernelWrote) {
  ManagerUnderTest machine(rolling());
  std::byte* const table = makeTable(machine);
  const adsmKernel_t bump = bumpingKernel(machine.fake());
  std::vector<std::size_t> bumped;
  for (std::size_t round = 0; round < 20; ++round) {
    bumped.push_back(round * kBlock + round);
    machine.call(bump, {table + bumped.back()});
    machine.sync();
    std::vector<std::thread> readers;
    for (std::size_t reader = 0; reader < 4; ++reader) {
      readers.emplace_back([&, reader] {
        for (std::size_t i = 0; i < kBlocks; ++i) {
          const std::size_t at = (i * 7 + reader * 5) % kBlocks * kBlock;
          for (std::size_t byte = at; byte < at + 64; ++byte) {
            auto expected = static_cast<std::uint8_t>(pattern(byte));
            for (const std::size_t place : bumped) {
              expected = static_cast<std::uint8_t>(expected + (place == byte ? 1 : 0));
            }
            EXPECT_EQ(static_cast<std::uint8_t>(table[byte]), expected);
          }
        }
      });
    }
    for (std::thread& reader : readers) {
      reader.join();
    }
  }
}

}  // namespace
}  // namespace gmac::testing
