// SPDX-License-Identifier: Apache-2.0
//
// Calls that list parts of objects: which bytes move, what is closed, and what waits for what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "gmac/coherence/ledger.h"
#include "gmac/coherence/memory_port.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kBlock = 64 * kKiB;

class Ranges : public ::testing::Test {
 protected:
  static MachineSetup rolling() {
    MachineSetup setup;
    setup.protocol = "rolling";
    setup.blockBytes = kBlock;
    setup.rollingSize = 100;
    return setup;
  }

  // An object of which only the accelerator has the bytes.
  std::byte* allocateInvalid(std::size_t bytes) {
    std::byte* const object = machine_.allocate(bytes);
    machine_.call(nothing_, {});
    machine_.sync();
    machine_.fake().clearLog();
    return object;
  }

  Machine machine_{rolling()};
  adsmKernel_t nothing_ = machine_.fake().kernel("nothing", 0, [](const LaunchShape&, void**) {});
  // Adds one to a byte.
  adsmKernel_t add_ = machine_.fake().kernel("add", 1, [this](const LaunchShape&, void** args) {
    auto* const byte = machine_.fake().argument<unsigned char>(args, 0);
    *byte = static_cast<unsigned char>(*byte + 1);
  });
};

const std::set<Op::Kind> kMoves = {Op::Kind::kCopyIn, Op::Kind::kCopyOut, Op::Kind::kLaunch};

TEST_F(Ranges, OnlyTheirBlocksAreFlushedAndClosed) {
  std::byte* const a = machine_.allocate(8 * kBlock);
  for (const int block : {0, 2, 3, 6}) a[block * kBlock] = std::byte{1};
  machine_.fake().clearLog();
  machine_.callRanges(nothing_, {}, {{a + 2 * kBlock, 2 * kBlock, adsmWrite}});
  EXPECT_THAT(machine_.fake().log(kMoves), ElementsAre(copyIn(a + 2 * kBlock, 2 * kBlock),
                                                       Op{Op::Kind::kLaunch, 0, 0, "nothing"}));
  for (const int block : {0, 6}) {
    EXPECT_EQ(accessAt(a + block * kBlock), os::Access::kReadWrite) << block;
  }
  for (const int block : {2, 3}) EXPECT_EQ(accessAt(a + block * kBlock), os::Access::kNone);
  EXPECT_EQ(accessAt(a + kBlock), os::Access::kRead) << "current on both sides, as it was";
}

TEST_F(Ranges, ABlockOfWhichTheyHaveAByteCountsAsAWhole) {
  std::byte* const a = machine_.allocate(4 * kBlock);
  for (const int block : {0, 1, 2, 3}) a[block * kBlock] = std::byte{1};
  machine_.fake().clearLog();
  machine_.callRanges(nothing_, {}, {{a + 2 * kBlock - 1, 2, adsmWrite}});
  EXPECT_THAT(machine_.fake().copies(), ElementsAre(copyIn(a + kBlock, 2 * kBlock)));
}

TEST_F(Ranges, OnesThatAreOnlyReadStayReadable) {
  std::byte* const a = machine_.allocate(4 * kBlock);
  for (const int block : {0, 1, 2}) a[block * kBlock] = std::byte{1};
  machine_.fake().clearLog();
  machine_.callRanges(nothing_, {}, {{a, 1, adsmRead}, {a + kBlock, kBlock, adsmReadWrite}});
  EXPECT_THAT(machine_.fake().copies(), ElementsAre(copyIn(a, kBlock), copyIn(a + kBlock, kBlock)));
  EXPECT_EQ(accessAt(a), os::Access::kRead);
  EXPECT_EQ(accessAt(a + kBlock), os::Access::kNone);
  EXPECT_EQ(accessAt(a + 2 * kBlock), os::Access::kReadWrite);
}

TEST_F(Ranges, NoBytesMeanTheWholeObject) {
  std::byte* const a = machine_.allocate(4 * kBlock);
  std::byte* const b = machine_.allocate(4 * kBlock);
  for (std::byte* const object : {a, b}) object[0] = object[3 * kBlock] = std::byte{1};
  machine_.fake().clearLog();
  machine_.callRanges(nothing_, {}, {{a + kBlock, 0, adsmWrite}, {b, 1, adsmWrite}});
  EXPECT_THAT(machine_.fake().copies(),
              ElementsAre(copyIn(a, kBlock), copyIn(a + 3 * kBlock, kBlock), copyIn(b, kBlock)));
}

TEST_F(Ranges, TheCpuWaitsForTheCallsThatMayWriteTheBlock) {
  std::byte* const a = allocateInvalid(8 * kBlock);
  machine_.callRanges(add_, {a}, {{a, kBlock, adsmReadWrite}});
  machine_.callRanges(add_, {a + 4 * kBlock}, {{a + 4 * kBlock, kBlock, adsmReadWrite}});
  machine_.callRanges(add_, {a + kBlock}, {{a + kBlock, kBlock, adsmReadWrite}});
  ASSERT_EQ(machine_.fake().pending(), 3u);
  // No call writes this one.
  EXPECT_EQ(a[2 * kBlock], std::byte{0});
  a[3 * kBlock] = std::byte{7};
  EXPECT_EQ(machine_.fake().pending(), 3u) << "an access to another block waits for no call";
  EXPECT_EQ(a[4 * kBlock], std::byte{1});
  EXPECT_EQ(machine_.fake().pending(), 1u) << "for its own call and those before it on the queue";
  EXPECT_EQ(a[0], std::byte{1});
  EXPECT_EQ(machine_.fake().pending(), 1u);
  EXPECT_EQ(a[kBlock], std::byte{1});
  EXPECT_EQ(machine_.fake().pending(), 0u);
  machine_.verify();
}

// A flush must not reach a call that reads the old bytes, in whatever order the queues run.
TEST(RangesInAnyOrder, AFlushFollowsTheCallsThatReadItsBlock) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    MachineSetup setup;
    setup.protocol = "rolling";
    setup.blockBytes = kBlock;
    setup.rollingSize = 100;
    setup.fake.run = FakeOptions::Run::kRandom;
    setup.fake.seed = seed;
    Machine machine(setup);
    std::byte* const a = machine.allocate(4 * kBlock);
    a[0] = a[2 * kBlock] = std::byte{1};
    std::vector<unsigned char> seen;
    const adsmKernel_t look =
        machine.fake().kernel("look", 1, [&](const LaunchShape&, void** args) {
          seen.push_back(*machine.fake().argument<unsigned char>(args, 0));
        });
    machine.callRanges(look, {a}, {{a, kBlock, adsmRead}});
    machine.callRanges(look, {a + 2 * kBlock}, {{a + 2 * kBlock, kBlock, adsmRead}});
    a[0] = std::byte{2};
    machine.callRanges(look, {a}, {{a, kBlock, adsmRead}});
    machine.sync();
    EXPECT_THAT(seen, ElementsAre(1, 1, 2)) << "seed " << seed;
  }
}

// The kernel of a part that would be read ahead may still be running.
TEST(RangesReadAhead, DoesNotFetchWhatACallMayBeWriting) {
  constexpr int kBlocks = 32;
  constexpr int kWritten = 20;
  MachineSetup setup;
  setup.protocol = "rolling";
  setup.blockBytes = kBlock;
  setup.rollingSize = 100;
  setup.readAheadBytes = 8 * kBlock;
  Machine machine(setup);
  const adsmKernel_t nothing =
      machine.fake().kernel("nothing", 0, [](const LaunchShape&, void**) {});
  const adsmKernel_t set = machine.fake().kernel("set", 1, [&](const LaunchShape&, void** args) {
    *machine.fake().argument<unsigned char>(args, 0) = 9;
  });
  std::byte* const a = machine.allocate(kBlocks * kBlock);
  machine.call(nothing, {});
  machine.sync();
  std::byte* const written = a + kWritten * kBlock;
  machine.callRanges(set, {written}, {{written, kBlock, adsmReadWrite}});
  machine.fake().clearLog();
  for (int block = 0; block < kWritten; ++block) EXPECT_EQ(a[block * kBlock], std::byte{0});
  EXPECT_EQ(machine.fake().pending(), 1u);
  EXPECT_LT(machine.fake().copies().size(), std::size_t{kWritten}) << "some came ahead";
  EXPECT_EQ(*written, std::byte{9});
  machine.verify();
}

// More calls than the ledger keeps apart.
TEST_F(Ranges, ManyCallsInFlightAreAllWaitedFor) {
  constexpr std::size_t kCalls = 3 * DeviceUses::kMaxParts;
  std::byte* const a = allocateInvalid(kCalls * kBlock);
  for (std::size_t i = 0; i < kCalls; ++i) {
    machine_.callRanges(add_, {a + i * kBlock}, {{a + i * kBlock, 1, adsmReadWrite}});
  }
  for (std::size_t i = 0; i < kCalls; ++i) {
    ASSERT_EQ(a[i * kBlock], std::byte{1}) << i;
  }
}

// A thread that holds one block, or waits for a copy of it, keeps no call on others waiting.
TEST_F(Ranges, BlocksThatAreHeldElsewhereKeepNoCallWaiting) {
  std::byte* const a = machine_.allocate(4 * kBlock);
  ASSERT_TRUE(machine_.memory().hold(a, 1, true).ok());
  a[0] = std::byte{1};
  machine_.callRanges(add_, {a + 2 * kBlock}, {{a + 2 * kBlock, kBlock, adsmReadWrite}});
  machine_.memory().unhold(a, 1);
  machine_.sync();
  EXPECT_EQ(a[2 * kBlock], std::byte{1});
  EXPECT_EQ(a[0], std::byte{1});
}

TEST_F(Ranges, UnderWholeObjectsAPartIsAllOfIt) {
  for (const char* protocol : {"batch", "lazy"}) {
    MachineSetup setup;
    setup.protocol = protocol;
    Machine machine(setup);
    const adsmKernel_t nothing =
        machine.fake().kernel("nothing", 0, [](const LaunchShape&, void**) {});
    std::byte* const a = machine.allocate(4 * kBlock);
    a[3 * kBlock] = std::byte{1};
    machine.fake().clearLog();
    machine.callRanges(nothing, {}, {{a, 1, adsmWrite}});
    EXPECT_THAT(machine.fake().copies(), ElementsAre(copyIn(a, 4 * kBlock))) << protocol;
  }
}

TEST_F(Ranges, WrongOnesAreNamedAndChangeNothing) {
  std::byte* const a = machine_.allocate(4 * kBlock + 100);
  std::byte* const small = machine_.allocate(300);
  a[0] = small[0] = std::byte{1};
  const std::string at = fmt::format("{}", static_cast<void*>(a));
  int local = 0;
  const auto expectError = [&](std::vector<adsmRangeUse_t> uses, adsmError_t code,
                               const std::string& text) {
    machine_.expectNothingHappens(
        [&] { EXPECT_EQ(machine_.tryCallRanges(nothing_, {}, std::move(uses)).code(), code); });
    EXPECT_THAT(machine_.fake().log({Op::Kind::kLaunch}), IsEmpty());
    EXPECT_THAT(lastErrorText(), HasSubstr("adsmCallRanges"));
    EXPECT_THAT(lastErrorText(), HasSubstr(text));
  };
  expectError({{&local, 1, adsmRead}}, adsmErrorInvalidPointer,
              fmt::format("{} is in no shared object", static_cast<void*>(&local)));
  expectError({{a, 4 * kBlock + 101, adsmRead}}, adsmErrorInvalidValue,
              "262245 bytes at " + at + " leave their object, which has 262244 bytes");
  expectError({{a + kBlock, SIZE_MAX, adsmRead}}, adsmErrorInvalidValue, "leave their object");
  expectError({{a + 4 * kBlock + 100, 1, adsmRead}}, adsmErrorInvalidValue, "leave their object");
  expectError({{small + 1, 300, adsmRead}}, adsmErrorInvalidValue,
              "leave their object, which has 300 bytes");
  expectError({{a, 1, adsmAccess_t{4}}}, adsmErrorInvalidValue, "access 4 of " + at);
  expectError({{a, 0, adsmAccess_t{0}}}, adsmErrorInvalidValue, "access 0 of " + at);
  expectError({{a + 100, 100, adsmRead}, {a, 101, adsmWrite}}, adsmErrorInvalidValue,
              fmt::format("101 bytes at {} with access 2 and 100 bytes at {} with access 1 overlap",
                          static_cast<void*>(a), static_cast<void*>(a + 100)));
  // One that lies between does not hide another one that is longer.
  expectError({{a, 1000, adsmRead}, {a + 10, 10, adsmRead}, {a + 500, 1, adsmReadWrite}},
              adsmErrorInvalidValue, "overlap");
  expectError({{a, 0, adsmRead}, {a + kBlock, 1, adsmReadWrite}}, adsmErrorInvalidValue,
              "overlap (0 bytes: the whole object)");
  // The same access, other bytes of the same block, and small neighbours: all of that is allowed.
  machine_.callRanges(nothing_, {}, {{a, 1000, adsmRead}, {a + 10, 2000, adsmRead}});
  machine_.callRanges(nothing_, {}, {{a, 100, adsmRead}, {a + 100, 100, adsmWrite}});
  machine_.callRanges(nothing_, {}, {{small, 300, adsmRead}, {a + 4 * kBlock, 100, adsmWrite}});
  machine_.callRanges(nothing_, {}, {});
}

}  // namespace
}  // namespace gmac::testing
