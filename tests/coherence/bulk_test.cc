// SPDX-License-Identifier: Apache-2.0
//
// Bulk copies and fills: on which side they run, which bytes move for them, and that they never
// fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kBlock = 64 * kKiB;

using Bytes = std::vector<std::byte>;

const std::set<Op::Kind> kMoves = {Op::Kind::kCopyIn, Op::Kind::kCopyOut, Op::Kind::kCopyWithin,
                                   Op::Kind::kFill};

Op copyWithin(const void* to, const void* from, std::size_t bytes) {
  return {Op::Kind::kCopyWithin,
          reinterpret_cast<std::uintptr_t>(to),
          bytes,
          {},
          reinterpret_cast<std::uintptr_t>(from)};
}

Op filled(const void* to, std::size_t bytes) {
  return {Op::Kind::kFill, reinterpret_cast<std::uintptr_t>(to), bytes, {}};
}

Bytes pattern(std::size_t bytes, unsigned seed) {
  Bytes made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    made[i] = static_cast<std::byte>(i * 31 + (i >> 9) + seed);
  }
  return made;
}

MachineSetup rolling() {
  MachineSetup setup;
  setup.protocol = "rolling";
  setup.blockBytes = kBlock;
  setup.rollingSize = 100;
  return setup;
}

enum class States { kDirty, kReadOnly, kInvalid, kMixed };
constexpr States kAllStates[] = {States::kDirty, States::kReadOnly, States::kInvalid,
                                 States::kMixed};

// A machine whose objects' blocks can be put into states, and their contents checked on both
// sides. Not thread-safe.
class BulkMachine {
 public:
  explicit BulkMachine(const MachineSetup& setup) : machine_(setup) {
    nothing_ = fake().kernel("nothing", 0, [](const LaunchShape&, void**) {});
    write_ = fake().kernel("write", 2, [this](const LaunchShape&, void** args) {
      const Bytes bytes = pattern(*static_cast<std::size_t*>(args[1]), 77);
      std::memcpy(fake().argument<std::byte>(args, 0), bytes.data(), bytes.size());
    });
  }

  FakeAccelerator& fake() { return machine_.fake(); }
  coherence::MemoryPort& memory() { return machine_.memory(); }
  Machine& machine() { return machine_; }
  std::byte* allocate(std::size_t bytes) { return machine_.allocate(bytes); }
  void callNothing() { machine_.call(nothing_, {}); }
  void callWrite(std::byte* object, std::size_t bytes) {
    machine_.callUsing(write_, {object, reinterpret_cast<const void*>(bytes)},
                       {{object, adsmWrite}});
  }

  // Afterwards the object's blocks are in the states (as far as the protocol knows them) and its
  // bytes are those returned.
  Bytes prepare(std::byte* object, std::size_t bytes, States states) {
    Bytes contents(bytes);
    switch (states) {
      case States::kDirty:
        contents = pattern(bytes, 1);
        std::memcpy(object, contents.data(), bytes);
        break;
      case States::kReadOnly:
        contents = pattern(bytes, 2);
        std::memcpy(object, contents.data(), bytes);
        machine_.callUsing(nothing_, {}, {{object, adsmRead}});
        break;
      case States::kInvalid:
      case States::kMixed:
        contents = pattern(bytes, 77);
        callWrite(object, bytes);
        break;
    }
    if (states == States::kMixed) {
      for (std::size_t i = 1; i < bytes; i += kBlock + kBlock / 2) {
        if (i % 2 == 0) {
          object[i] = contents[i] = std::byte{1};
        } else {
          EXPECT_EQ(object[i], contents[i]);
        }
      }
    }
    return contents;
  }

  // Checks the bytes that the CPU and kernels see. The kernels' side comes first, because the CPU's
  // look fetches.
  void expect(std::byte* object, const Bytes& contents) {
    machine_.verify();
    machine_.callUsing(nothing_, {}, {{object, adsmRead}});
    fake().runAll();
    EXPECT_TRUE(std::equal(contents.begin(), contents.end(), fake().at(object)))
        << "the accelerator has other bytes";
    EXPECT_TRUE(std::equal(contents.begin(), contents.end(), object)) << "the CPU has other bytes";
    machine_.verify();
  }

  void copy(void* to, const void* from, std::size_t bytes) {
    withoutFaults([&] { memory().copy(to, from, bytes, &std::memmove); });
  }
  void fill(void* to, int value, std::size_t bytes) {
    withoutFaults([&] { memory().fill(to, value, bytes, &std::memset); });
  }

 private:
  template <typename Action>
  void withoutFaults(const Action& action) {
    const std::uint64_t before = stats().readFaults.value() + stats().writeFaults.value();
    action();
    EXPECT_EQ(stats().readFaults.value() + stats().writeFaults.value() - before, 0U);
    machine_.verify();
  }

  Machine machine_;
  adsmKernel_t nothing_;
  adsmKernel_t write_;
};

// ---- Where it is done

TEST(BulkCopy, OfWhatTheAcceleratorHasIsOneCopyThere) {
  BulkMachine machine(rolling());
  std::byte* a = machine.allocate(4 * kBlock);
  std::byte* b = machine.allocate(6 * kBlock);
  const Bytes source = machine.prepare(a, 4 * kBlock, States::kInvalid);
  Bytes target = machine.prepare(b, 6 * kBlock, States::kDirty);
  machine.fake().clearLog();
  machine.copy(b + kBlock, a, 4 * kBlock);
  EXPECT_THAT(machine.fake().log(kMoves), ElementsAre(copyWithin(b + kBlock, a, 4 * kBlock)));
  EXPECT_EQ(accessAt(b + kBlock), os::Access::kNone);
  EXPECT_EQ(accessAt(b), os::Access::kReadWrite);
  std::copy(source.begin(), source.end(), target.begin() + kBlock);
  machine.expect(b, target);
  machine.expect(a, source);
}

TEST(BulkCopy, BetweenInvalidBlocksNeedsNoWholeOnes) {
  BulkMachine machine(rolling());
  std::byte* a = machine.allocate(4 * kBlock);
  std::byte* b = machine.allocate(4 * kBlock);
  const Bytes source = machine.prepare(a, 4 * kBlock, States::kInvalid);
  Bytes target = machine.prepare(b, 4 * kBlock, States::kInvalid);
  machine.fake().clearLog();
  machine.copy(b + 100, a + 333, 2 * kBlock);
  EXPECT_THAT(machine.fake().log(kMoves), ElementsAre(copyWithin(b + 100, a + 333, 2 * kBlock)));
  std::copy_n(source.begin() + 333, 2 * kBlock, target.begin() + 100);
  machine.expect(b, target);
}

TEST(BulkCopy, OfWhatOnlyTheCpuHasStaysOnTheCpu) {
  BulkMachine machine(rolling());
  std::byte* a = machine.allocate(4 * kBlock);
  std::byte* b = machine.allocate(4 * kBlock);
  const Bytes source = machine.prepare(a, 4 * kBlock, States::kDirty);
  (void)machine.prepare(b, 4 * kBlock, States::kInvalid);
  machine.fake().clearLog();
  machine.copy(b, a, 4 * kBlock);
  EXPECT_THAT(machine.fake().log(kMoves), IsEmpty());
  machine.expect(b, source);
}

TEST(BulkCopy, FromPlainMemoryFetchesOnlyWhatItLeavesInBothEndBlocks) {
  BulkMachine machine(rolling());
  std::byte* b = machine.allocate(5 * kBlock);
  Bytes target = machine.prepare(b, 5 * kBlock, States::kInvalid);
  const Bytes plain = pattern(4 * kBlock, 9);
  machine.fake().clearLog();
  machine.copy(b + 100, plain.data(), plain.size());
  EXPECT_THAT(machine.fake().log(kMoves),
              ElementsAre(copyOut(b, kBlock), copyOut(b + 4 * kBlock, kBlock)));
  std::copy(plain.begin(), plain.end(), target.begin() + 100);
  machine.expect(b, target);
}

TEST(BulkCopy, OfAWholeObjectFetchesNothingWhateverItsSize) {
  for (const char* protocol : {"batch", "lazy", "rolling"}) {
    MachineSetup setup = rolling();
    setup.protocol = protocol;
    BulkMachine machine(setup);
    const std::size_t bytes = 3 * kBlock + 777;  // no object has the pages after it
    std::byte* b = machine.allocate(bytes);
    (void)machine.prepare(b, bytes, States::kInvalid);
    const Bytes plain = pattern(bytes, 9);
    machine.fake().clearLog();
    machine.copy(b, plain.data(), bytes);
    EXPECT_THAT(machine.fake().log(kMoves), IsEmpty()) << protocol;
    machine.expect(b, plain);
  }
}

TEST(BulkCopy, ToPlainMemoryIsOneFetch) {
  BulkMachine machine(rolling());
  std::byte* a = machine.allocate(8 * kBlock);
  const Bytes source = machine.prepare(a, 8 * kBlock, States::kInvalid);
  Bytes plain(6 * kBlock);
  machine.fake().clearLog();
  machine.copy(plain.data(), a + kBlock, plain.size());
  EXPECT_THAT(machine.fake().log(kMoves), ElementsAre(copyOut(a + kBlock, 6 * kBlock)));
  EXPECT_TRUE(std::equal(plain.begin(), plain.end(), source.begin() + kBlock));
  EXPECT_EQ(accessAt(a + kBlock), os::Access::kRead);
}

TEST(BulkFill, OfInvalidBlocksIsOneFillOnTheAccelerator) {
  BulkMachine machine(rolling());
  std::byte* a = machine.allocate(4 * kBlock);
  Bytes contents = machine.prepare(a, 4 * kBlock, States::kInvalid);
  machine.fake().clearLog();
  machine.fill(a + 5, 0x5a, 3 * kBlock);
  EXPECT_THAT(machine.fake().log(kMoves), ElementsAre(filled(a + 5, 3 * kBlock)));
  std::fill_n(contents.begin() + 5, 3 * kBlock, std::byte{0x5a});
  machine.expect(a, contents);
}

TEST(BulkFill, OfWhatTheCpuHasStaysOnTheCpu) {
  for (const States states : {States::kDirty, States::kReadOnly}) {
    BulkMachine machine(rolling());
    std::byte* a = machine.allocate(4 * kBlock);
    (void)machine.prepare(a, 4 * kBlock, states);
    machine.fake().clearLog();
    machine.fill(a, 3, 4 * kBlock);
    EXPECT_THAT(machine.fake().log(kMoves), IsEmpty());
    EXPECT_EQ(accessAt(a), os::Access::kReadWrite);
    machine.expect(a, Bytes(4 * kBlock, std::byte{3}));
  }
}

TEST(BulkFill, OfPagesThatTheCpuNeverTouchedMakesNone) {
  BulkMachine machine(rolling());
  std::byte* a = machine.allocate(16 * kMiB);
  machine.fake().clearLog();
  machine.fill(a, 3, 16 * kMiB);
  EXPECT_THAT(machine.fake().log(kMoves), ElementsAre(filled(a, 16 * kMiB)));
  EXPECT_EQ(machine.fake().livePins(), 0U);
  machine.expect(a, Bytes(16 * kMiB, std::byte{3}));
}

TEST(BulkFill, GoesPartByPartWhereTheBytesAre) {
  BulkMachine machine(rolling());
  std::byte* a = machine.allocate(5 * kBlock);
  (void)machine.prepare(a, 5 * kBlock, States::kInvalid);
  a[2 * kBlock] = std::byte{1};
  machine.fake().clearLog();
  machine.fill(a, 3, 5 * kBlock);
  EXPECT_THAT(machine.fake().log(kMoves),
              ElementsAre(filled(a, 2 * kBlock), filled(a + 3 * kBlock, 2 * kBlock)));
  EXPECT_EQ(accessAt(a + 2 * kBlock), os::Access::kReadWrite);
  machine.expect(a, Bytes(5 * kBlock, std::byte{3}));
}

// ---- Overlap

TEST(BulkOverlap, OnTheAcceleratorGoesInStepsAsLongAsTheDistance) {
  for (const bool backward : {false, true}) {
    BulkMachine machine(rolling());
    std::byte* a = machine.allocate(6 * kBlock);
    Bytes contents = machine.prepare(a, 6 * kBlock, States::kInvalid);
    machine.fake().clearLog();
    const std::size_t bytes = 4 * kBlock;
    const std::size_t to = backward ? 2 * kBlock : 0;
    const std::size_t from = backward ? 0 : 2 * kBlock;
    machine.copy(a + to, a + from, bytes);
    const auto first = backward ? copyWithin(a + 4 * kBlock, a + 2 * kBlock, 2 * kBlock)
                                : copyWithin(a, a + 2 * kBlock, 2 * kBlock);
    const auto second = backward ? copyWithin(a + 2 * kBlock, a, 2 * kBlock)
                                 : copyWithin(a + 2 * kBlock, a + 4 * kBlock, 2 * kBlock);
    EXPECT_THAT(machine.fake().log(kMoves), ElementsAre(first, second));
    std::memmove(contents.data() + to, contents.data() + from, bytes);
    machine.expect(a, contents);
  }
}

TEST(BulkOverlap, OfRangesThatAreCloseIsLeftToTheCpu) {
  for (const bool backward : {false, true}) {
    BulkMachine machine(rolling());
    std::byte* a = machine.allocate(4 * kBlock);
    Bytes contents = machine.prepare(a, 4 * kBlock, States::kInvalid);
    machine.fake().clearLog();
    const std::size_t bytes = 3 * kBlock;
    const std::size_t to = backward ? 10 : 0;
    const std::size_t from = backward ? 0 : 10;
    machine.copy(a + to, a + from, bytes);
    EXPECT_THAT(machine.fake().log({Op::Kind::kCopyWithin, Op::Kind::kCopyIn}), IsEmpty());
    std::memmove(contents.data() + to, contents.data() + from, bytes);
    machine.expect(a, contents);
  }
}

// ---- Order with everything else

TEST(BulkOrder, NothingWaitsForTheKernelsThatItIsQueuedBehind) {
  BulkMachine machine(rolling());
  std::byte* a = machine.allocate(2 * kBlock);
  std::byte* b = machine.allocate(2 * kBlock);
  machine.callWrite(a, 2 * kBlock);
  machine.callWrite(b, 2 * kBlock);
  machine.fake().clearLog();
  machine.copy(b, a, 2 * kBlock);
  machine.fill(a, 9, kBlock);
  EXPECT_THAT(machine.fake().log({Op::Kind::kWait}), IsEmpty());
  Bytes contents = pattern(2 * kBlock, 77);
  EXPECT_TRUE(std::equal(contents.begin(), contents.end(), b));  // without a sync
  machine.expect(b, contents);
  std::fill_n(contents.begin(), kBlock, std::byte{9});
  machine.expect(a, contents);
}

TEST(BulkOrder, AWriteOfTheCpuAfterwardsReachesOnlyLaterCopies) {
  BulkMachine machine(rolling());
  std::byte* a = machine.allocate(2 * kBlock);
  std::byte* b = machine.allocate(2 * kBlock);
  const Bytes contents = machine.prepare(a, 2 * kBlock, States::kInvalid);
  EXPECT_EQ(a[0], contents[0]);  // one block on both sides
  (void)machine.prepare(b, 2 * kBlock, States::kInvalid);
  machine.fake().runAll();
  machine.copy(b, a, 2 * kBlock);
  a[0] = ~contents[0];
  machine.callNothing();
  machine.expect(b, contents);
}

TEST(BulkOrder, ACopyOfABlockThatIsBeingEvictedGetsItsBytes) {
  MachineSetup setup = rolling();
  setup.rollingSize = 1;
  BulkMachine machine(setup);
  std::byte* a = machine.allocate(4 * kBlock);
  std::byte* b = machine.allocate(4 * kBlock);
  (void)machine.prepare(b, 4 * kBlock, States::kInvalid);
  machine.fake().runAll();
  const Bytes contents = pattern(3 * kBlock, 5);
  for (std::size_t i = 0; i < contents.size(); i += kBlock) {  // in this order
    std::memcpy(a + i, contents.data() + i, kBlock);
  }
  ASSERT_EQ(machine.fake().pending(), 2U);
  machine.fake().clearLog();
  machine.copy(b, a, 2 * kBlock);
  EXPECT_THAT(machine.fake().log({Op::Kind::kCopyWithin}),
              ElementsAre(copyWithin(b, a, 2 * kBlock)));
  // Before anything else makes the eviction arrive.
  EXPECT_TRUE(std::equal(contents.begin(), contents.begin() + 2 * kBlock, b));
  machine.expect(b, Bytes(contents.begin(), contents.begin() + 2 * kBlock));
}

TEST(BulkOrder, AnEvictionThatIsUnderWayIsNotOverwritten) {
  MachineSetup setup = rolling();
  setup.rollingSize = 1;
  BulkMachine machine(setup);
  std::byte* a = machine.allocate(3 * kBlock);
  a[0] = a[kBlock] = std::byte{1};  // the first block is on its way
  ASSERT_EQ(machine.fake().pending(), 1U);
  const Bytes plain = pattern(3 * kBlock, 8);
  machine.copy(a, plain.data(), plain.size());
  machine.expect(a, plain);
}

TEST(BulkOrder, ACallMadeBeforeSeesTheBytesOfBefore) {
  BulkMachine machine(rolling());
  std::byte* a = machine.allocate(2 * kBlock);
  Bytes seen;
  const adsmKernel_t look = machine.fake().kernel("look", 1, [&](const LaunchShape&, void** args) {
    const std::byte* const bytes = machine.fake().argument<std::byte>(args, 0);
    seen.assign(bytes, bytes + 2 * kBlock);
  });
  const Bytes before = machine.prepare(a, 2 * kBlock, States::kDirty);
  machine.machine().callUsing(look, {a}, {{a, adsmRead}});
  ASSERT_TRUE(seen.empty());  // nor has what it reads arrived
  const Bytes plain = pattern(2 * kBlock, 6);
  machine.copy(a, plain.data(), plain.size());
  machine.expect(a, plain);
  machine.fake().runAll();
  EXPECT_TRUE(seen == before);
}

// ---- Failure

TEST(BulkFailure, NamesTheObjectTheOperationAndTheDriversWords) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        BulkMachine machine(rolling());
        std::byte* a = machine.allocate(4 * kBlock);
        std::byte* b = machine.allocate(4 * kBlock);
        (void)machine.prepare(a, 4 * kBlock, States::kInvalid);
        machine.fake().failNext(Op::Kind::kCopyWithin, 1, adsmErrorSystem);
        machine.memory().copy(b + kBlock, a, 3 * kBlock, &std::memmove);
      },
      "object 0x[0-9a-f]+ \\(262144 bytes\\), block 1: a bulk copy failed: .*injected failure of "
      "copyWithin");
}

TEST(BulkFailure, OfMappingsIsLiftedByJoiningBlocks) {
  BulkMachine machine(rolling());
  std::byte* a = machine.allocate(64 * kBlock);
  Bytes contents = machine.prepare(a, 64 * kBlock, States::kInvalid);
  const Bytes plain = pattern(kBlock, 4);
  const std::uint64_t before = stats().coarsenings.value();
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  machine.copy(a + kBlock, plain.data(), kBlock);
  EXPECT_FALSE(os::injectionArmed());
  EXPECT_EQ(stats().coarsenings.value() - before, 1U);
  std::copy(plain.begin(), plain.end(), contents.begin() + kBlock);
  machine.expect(a, contents);
}

// ---- Everything with everything

class BulkEverywhere : public ::testing::TestWithParam<MachineSetup> {};

TEST_P(BulkEverywhere, AgreesWithMemmoveAndMemsetAndNeverFaults) {
  const std::size_t bytes = 3 * GetParam().blockBytes + 5 * kPage + 99;
  const struct {
    std::size_t to, from, count;
  } places[] = {
      {0, 0, bytes},                                      // whole objects
      {1, 77, bytes - 200},                               // partial ends
      {GetParam().blockBytes, 3, GetParam().blockBytes},  // one whole block
      {5, 9, 100},                                        // a few bytes
  };
  for (const States target : kAllStates) {
    for (const States source : kAllStates) {
      BulkMachine machine(GetParam());
      std::byte* a = machine.allocate(bytes);
      std::byte* b = machine.allocate(bytes);
      for (const auto& place : places) {
        SCOPED_TRACE("target " + std::to_string(static_cast<int>(target)) + ", source " +
                     std::to_string(static_cast<int>(source)) + ", at " + std::to_string(place.to));
        Bytes from = machine.prepare(a, bytes, source);
        Bytes to = machine.prepare(b, bytes, target);
        machine.copy(b + place.to, a + place.from, place.count);
        std::copy_n(from.begin() + place.from, place.count, to.begin() + place.to);
        machine.expect(b, to);
        machine.expect(a, from);

        if (source != States::kDirty) {
          continue;  // the rest has no other source
        }
        // Inside one object, in both directions.
        const std::size_t count = bytes - place.to - place.from;
        for (const bool backward : {false, true}) {
          to = machine.prepare(b, bytes, target);
          const std::size_t at = backward ? place.from : place.to;
          const std::size_t other = backward ? place.to : place.from;
          machine.copy(b + at, b + other, count);
          std::memmove(to.data() + at, to.data() + other, count);
          machine.expect(b, to);
        }

        to = machine.prepare(b, bytes, target);
        machine.fill(b + place.to, 0xee, place.count);
        std::fill_n(to.begin() + place.to, place.count, std::byte{0xee});
        machine.expect(b, to);

        Bytes plain(place.count);
        from = machine.prepare(b, bytes, target);
        machine.copy(plain.data(), b + place.from, place.count);
        EXPECT_TRUE(std::equal(plain.begin(), plain.end(), from.begin() + place.from));

        plain = pattern(place.count, 41);
        to = machine.prepare(b, bytes, target);
        machine.copy(b + place.to, plain.data(), place.count);
        std::copy(plain.begin(), plain.end(), to.begin() + place.to);
        machine.expect(b, to);
        if (HasFailure()) {
          return;
        }
      }
    }
  }
}

TEST_P(BulkEverywhere, FreshObjectsAreAnyOthers) {
  const std::size_t bytes = 3 * GetParam().blockBytes + 99;
  BulkMachine machine(GetParam());
  std::byte* a = machine.allocate(bytes);
  std::byte* b = machine.allocate(bytes);
  machine.copy(b, a, bytes);
  Bytes contents(bytes);
  machine.fill(a + 10, 1, bytes - 20);
  std::fill(contents.begin() + 10, contents.end() - 10, std::byte{1});
  machine.copy(b, a, bytes);
  machine.expect(a, contents);
  machine.expect(b, contents);
}

TEST_P(BulkEverywhere, OneOperationSpansAnObjectAndThePlainMemoryBehindIt) {
  BulkMachine machine(GetParam());
  // Objects begin at multiples of 2 MiB, which leaves room after them.
  const std::size_t gap = 64 * kKiB;
  const std::size_t bytes = 2 * kMiB - gap;
  std::byte* object = nullptr;
  for (int i = 0; i < 4 && object == nullptr; ++i) {
    std::byte* const made = machine.allocate(bytes);
    if (mmap(made + bytes, gap, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == made + bytes) {
      object = made;
    }
  }
  ASSERT_NE(object, nullptr) << "no room after any object";
  for (const States states : kAllStates) {
    for (const std::ptrdiff_t distance : {4096 + 5, -4096 - 5, 128 * 1024, -128 * 1024}) {
      Bytes all = machine.prepare(object, bytes, states);
      const Bytes behind = pattern(gap, 50);
      std::copy(behind.begin(), behind.end(), object + bytes);
      all.insert(all.end(), behind.begin(), behind.end());
      const std::size_t to = distance > 0 ? static_cast<std::size_t>(distance) : 0;
      const std::size_t from = distance > 0 ? 0 : static_cast<std::size_t>(-distance);
      const std::size_t count = all.size() - to - from - 100;
      machine.copy(object + to, object + from, count);
      std::memmove(all.data() + to, all.data() + from, count);
      const auto end = all.begin() + static_cast<std::ptrdiff_t>(bytes);
      machine.expect(object, Bytes(all.begin(), end));
      EXPECT_TRUE(std::equal(end, all.end(), object + bytes));
    }
  }
  EXPECT_EQ(munmap(object + bytes, gap), 0);
}

INSTANTIATE_TEST_SUITE_P(, BulkEverywhere, ::testing::ValuesIn(everySetup()),
                         [](const auto& info) { return nameOf(info.param); });

}  // namespace
}  // namespace gmac::testing
