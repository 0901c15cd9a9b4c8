// SPDX-License-Identifier: Apache-2.0
//
// Blocks that are open in part: which bytes move, and that no byte is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"
#include "tests/support/pattern.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using coherence::HoldFor;
constexpr accel::Placement kSameAddress = accel::Placement::kSameAddress;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kBlock = 64 * kKiB;
constexpr std::size_t kWindow = 4 * kPage;
constexpr std::size_t kBlocks = 8;
constexpr std::size_t kBytes = kBlocks * kBlock;

MachineSetup windows(std::size_t rollingSize = 100) {
  MachineSetup setup;
  setup.blockBytes = kBlock;
  setup.windowBytes = kWindow;
  setup.rollingSize = rollingSize;
  return setup;
}

// An object that the CPU has filled with the pattern and a call has taken.
class Windows : public ::testing::Test {
 protected:
  Windows() { start(windows()); }
  void start(const MachineSetup& setup, std::size_t bytes = kBytes) {
    machine_.reset();
    machine_ = std::make_unique<Machine>(setup);
    // (The last kernels run when the machine goes.)
    bump_ = fake().kernel("bump", 1, [fake = &fake()](const LaunchShape&, void** args) {
      ++*fake->argument<std::uint8_t>(args, 0);
    });
    read_ = fake().kernel("read", 1, [](const LaunchShape&, void**) {});
    a_ = machine_->allocate(bytes);
    fillWithPattern(a_, bytes);
    machine_->call(read_, {a_});
    fake().clearLog();
    windows_ = stats().windows.value();
    outgrown_ = stats().windowsOutgrown.value();
  }
  FakeAccelerator& fake() { return machine_->fake(); }
  CoherentMemory& objects() { return machine_->objects(); }
  coherence::MemoryPort& memory() { return machine_->memory(); }
  coherence::WorkPort& work() { return machine_->work(); }
  std::byte* window(std::size_t block, std::size_t number) {
    return a_ + block * kBlock + number * kWindow;
  }
  // Copies since the last time that somebody asked.
  std::vector<Op> copies() {
    std::vector<Op> found = fake().copies();
    fake().clearLog();
    return found;
  }
  void bump(const std::byte* at) { machine_->call(bump_, {at}); }
  std::uint64_t opened() const { return stats().windows.value() - windows_; }
  std::uint64_t outgrown() const { return stats().windowsOutgrown.value() - outgrown_; }
  // The values that a kernel, and the CPU after it, find.
  void expectPattern(const std::vector<std::pair<std::size_t, std::byte>>& changed = {}) {
    testing::expectPattern(*machine_, a_, kBytes, changed);
  }

  std::unique_ptr<Machine> machine_;
  adsmKernel_t bump_ = nullptr;
  adsmKernel_t read_ = nullptr;
  std::byte* a_ = nullptr;
  std::uint64_t windows_ = 0;
  std::uint64_t outgrown_ = 0;
};

TEST_F(Windows, ASmallReadFetchesItsWindowAlone) {
  EXPECT_EQ(window(3, 2)[7], pattern(3 * kBlock + 2 * kWindow + 7));
  EXPECT_THAT(copies(), ElementsAre(copyOut(window(3, 2), kWindow)));
  machine_->verify();
  EXPECT_EQ(accessAt(window(3, 2)), os::Access::kRead);
  EXPECT_EQ(accessAt(window(3, 2) + kWindow - 1), os::Access::kRead);
  EXPECT_EQ(accessAt(window(3, 2) - 1), os::Access::kNone);
  EXPECT_EQ(accessAt(window(3, 3)), os::Access::kNone);
  bump(a_);
  EXPECT_THAT(copies(), IsEmpty());
  EXPECT_EQ(accessAt(window(3, 2)), os::Access::kNone);
}

TEST_F(Windows, AKernelAndTheCpuPassAByteInWindows) {
  std::byte* const at = window(5, 1) + 9;
  std::uint8_t value = 0;
  *at = std::byte{0};
  for (int round = 0; round < 20; ++round) {
    bump(at);
    EXPECT_EQ(static_cast<std::uint8_t>(*at), ++value);
    *at = static_cast<std::byte>(++value);
  }
  bump(at);
  std::vector<Op> expected;
  for (int round = 0; round < 21; ++round) {
    expected.push_back(copyOut(window(5, 1), kWindow));
    expected.push_back(copyIn(window(5, 1), kWindow));
  }
  EXPECT_EQ(copies(), expected);
  expectPattern({{5 * kBlock + kWindow + 9, static_cast<std::byte>(value + 1)}});
}

TEST_F(Windows, AnAccessOutsideFetchesTheRestAndKeepsWhatWasWritten) {
  window(2, 1)[5] = std::byte{99};
  (void)copies();
  EXPECT_EQ(window(2, 3)[0], pattern(2 * kBlock + 3 * kWindow));
  EXPECT_THAT(copies(), ElementsAre(copyOut(window(2, 0), kWindow),
                                    copyOut(window(2, 2), kBlock - 2 * kWindow)));
  EXPECT_EQ(window(2, 1)[5], std::byte{99});
  EXPECT_EQ(outgrown(), 1u);
  machine_->verify();
  EXPECT_EQ(accessAt(window(2, 0)), os::Access::kReadWrite);
  bump(a_);
  EXPECT_THAT(copies(), ElementsAre(copyIn(window(2, 0), kBlock)));
  expectPattern({{2 * kBlock + kWindow + 5, std::byte{99}}, {0, static_cast<std::byte>(2)}});
}

TEST_F(Windows, AWriteOutsideWhatWasOnlyReadMakesTheBlockDirty) {
  EXPECT_EQ(*window(2, 0), pattern(2 * kBlock));
  (void)copies();
  *window(2, 3) = std::byte{1};
  EXPECT_THAT(copies(), ElementsAre(copyOut(window(2, 1), kBlock - kWindow)));
  bump(window(2, 0));
  EXPECT_THAT(copies(), ElementsAre(copyIn(window(2, 0), kBlock)));
  expectPattern(
      {{2 * kBlock + 3 * kWindow, std::byte{1}},
       {2 * kBlock, static_cast<std::byte>(pattern(2 * kBlock)) == std::byte{255}
                        ? std::byte{0}
                        : static_cast<std::byte>(static_cast<unsigned>(pattern(2 * kBlock)) + 1)}});
}

TEST_F(Windows, AReaderInOrderOpensFewOfThem) {
  for (int call = 0; call < 60; ++call) {
    bump(a_);
    for (std::size_t i = 0; i < kBytes; i += kPage) {
      (void)*const_cast<volatile std::byte*>(a_ + i);
    }
  }
  EXPECT_LE(opened(), 7u);
  EXPECT_EQ(opened(), outgrown());
}

TEST_F(Windows, TheLastOfAShortBlockIsShort) {
  MachineSetup setup = windows();
  start(setup, kBlock + 6 * kPage);
  EXPECT_EQ(window(1, 1)[kPage], pattern(kBlock + kWindow + kPage));
  EXPECT_THAT(copies(), ElementsAre(copyOut(window(1, 1), 2 * kPage)));
  machine_->verify();
}

TEST_F(Windows, OfMovedPagesAreNoSmallerThanCopiesMayBe) {
  MachineSetup setup = windows();
  setup.fake.movedPages = true;
  setup.blockBytes = kMiB;
  start(setup, 2 * kMiB);
  a_[kMiB + 3 * kBlock + 1] = std::byte{7};
  bump(a_);
  EXPECT_THAT(copies(), ElementsAre(copyOut(a_ + kMiB + 3 * kBlock, kBlock),
                                    copyIn(a_ + kMiB + 3 * kBlock, kBlock)));
}

TEST_F(Windows, DoNotExistUnderTheProtocolsOfWholeObjects) {
  for (const char* protocol : {"lazy", "batch"}) {
    MachineSetup setup = windows();
    setup.protocol = protocol;
    start(setup);
    window(3, 1)[4] = std::byte{5};
    EXPECT_THAT(copies(), ElementsAre(copyOut(a_, kBytes))) << protocol;
    bump(a_);
    EXPECT_THAT(copies(), ElementsAre(copyIn(a_, kBytes))) << protocol;
    EXPECT_EQ(opened(), 0u);
  }
}

TEST_F(Windows, ACallThatOnlyReadsLeavesThemReadable) {
  window(4, 2)[1] = std::byte{77};
  (void)copies();
  machine_->callUsing(read_, {a_}, {{a_, adsmRead}});
  EXPECT_THAT(copies(), ElementsAre(copyIn(window(4, 2), kWindow)));
  EXPECT_EQ(accessAt(window(4, 2)), os::Access::kRead);
  machine_->expectNothingHappens([&] { EXPECT_EQ(window(4, 2)[1], std::byte{77}); });
  window(4, 2)[1] = std::byte{78};
  bump(a_);
  EXPECT_THAT(copies(), ElementsAre(copyIn(window(4, 2), kWindow)));
  expectPattern({{4 * kBlock + 2 * kWindow + 1, std::byte{78}}, {0, std::byte{2}}});
}

// Closing all of an object splits no mapping: so no blocks need be joined.
TEST_F(Windows, ACallClosesTheWholeObjectWhereMappingsRunOut) {
  const std::uint64_t joined = stats().coarsenings.value();
  window(4, 2)[1] = std::byte{77};
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  bump(a_);
  EXPECT_FALSE(os::injectionArmed());
  os::failNext(os::Call::kProtect, 0, 0);
  EXPECT_EQ(stats().coarsenings.value(), joined);
  EXPECT_EQ(accessAt(window(4, 2)), os::Access::kNone);
  expectPattern({{4 * kBlock + 2 * kWindow + 1, std::byte{77}}, {0, std::byte{2}}});
}

TEST_F(Windows, ACallThatOnlyReadsClosesTheDirtyBlockAfterOne) {
  window(4, 2)[1] = std::byte{77};
  window(5, 0)[1] = std::byte{77};
  window(5, 3)[1] = std::byte{77};
  ASSERT_EQ(accessAt(window(4, 1)), os::Access::kNone);
  ASSERT_EQ(accessAt(window(5, 1)), os::Access::kReadWrite);
  machine_->callUsing(read_, {a_}, {{a_, adsmRead}});
  EXPECT_EQ(accessAt(window(4, 2)), os::Access::kRead);
  EXPECT_EQ(accessAt(window(5, 1)), os::Access::kRead);
  window(5, 1)[1] = std::byte{78};
  expectPattern({{4 * kBlock + 2 * kWindow + 1, std::byte{77}},
                 {5 * kBlock + 1, std::byte{77}},
                 {5 * kBlock + 3 * kWindow + 1, std::byte{77}},
                 {5 * kBlock + kWindow + 1, std::byte{78}}});
}

// The call reads the window's bytes, and waits for their flush: no wait for writers covers that.
TEST_F(Windows, AnOverwriteWaitsForTheFlushOfWhatACallReads) {
  window(4, 2)[1] = std::byte{77};
  std::byte seen{};
  const adsmKernel_t look = fake().kernel("look", 1, [&](const LaunchShape&, void** args) {
    seen = *fake().argument<std::byte>(args, 0);
  });
  machine_->callUsing(look, {window(4, 2) + 1}, {{a_, adsmRead}});
  ASSERT_TRUE(memory().hold(window(4, 0), kBlock, HoldFor::kOverwrite).ok()) << lastErrorText();
  std::memset(window(4, 0), 5, kBlock);
  memory().unhold(window(4, 0), kBlock);
  machine_->sync();
  EXPECT_EQ(seen, std::byte{77});
  machine_->verify();
}

TEST_F(Windows, AreEvictedAlone) {
  start(windows(1));
  (void)copies();
  window(1, 1)[0] = std::byte{1};
  window(5, 2)[0] = std::byte{2};
  EXPECT_THAT(copies(), ElementsAre(copyOut(window(1, 1), kWindow), copyOut(window(5, 0), kBlock),
                                    copyIn(window(1, 1), kWindow)));
  machine_->verify();
  EXPECT_EQ(accessAt(window(1, 1)), os::Access::kRead);
  const std::uint64_t wasted = stats().evictionsWasted.value();
  window(1, 1)[1] = std::byte{3};  // evicts the other one
  EXPECT_EQ(stats().evictionsWasted.value(), wasted + 1);
  EXPECT_THAT(copies(), ElementsAre(copyIn(window(5, 0), kBlock)));
  EXPECT_EQ(window(1, 3)[0], pattern(kBlock + 3 * kWindow));
  bump(a_);
  expectPattern({{kBlock + kWindow, std::byte{1}},
                 {kBlock + kWindow + 1, std::byte{3}},
                 {5 * kBlock + 2 * kWindow, std::byte{2}},
                 {0, std::byte{2}}});
}

// ---- Holds and bulk operations

TEST_F(Windows, AHoldInsideOneIsOpenAndIsNotEvicted) {
  start(windows(1));
  ASSERT_TRUE(memory().hold(window(1, 1) + 5, 100, HoldFor::kWrite).ok()) << lastErrorText();
  EXPECT_THAT(copies(), ElementsAre(copyOut(window(1, 1), kWindow)));
  machine_->verify();
  window(6, 0)[0] = std::byte{9};
  machine_->verify();
  EXPECT_EQ(accessAt(window(1, 1)), os::Access::kReadWrite);
  // Another thread needs the rest: what is held stays open.
  std::thread([&] { EXPECT_EQ(window(1, 3)[3], pattern(kBlock + 3 * kWindow + 3)); }).join();
  machine_->verify();
  EXPECT_EQ(accessAt(window(1, 1)), os::Access::kReadWrite);
  std::memset(window(1, 1) + 5, 1, 100);
  memory().unhold(window(1, 1) + 5, 100);
  EXPECT_EQ(window(1, 1)[104], std::byte{1});
  machine_->verify();
}

TEST_F(Windows, AHoldOverTheEdgeHasAllBytes) {
  for (const HoldFor purpose : {HoldFor::kRead, HoldFor::kWrite, HoldFor::kOverwrite}) {
    bump(a_);
    EXPECT_EQ(window(2, 1)[0], pattern(2 * kBlock + kWindow));
    ASSERT_TRUE(memory().hold(window(2, 2) - 10, 20, purpose).ok()) << lastErrorText();
    machine_->verify();
    for (std::byte* at = window(2, 2) - 10; at < window(2, 2) + 10; ++at) {
      EXPECT_EQ(*at, pattern(static_cast<std::size_t>(at - a_)));
      EXPECT_GE(accessAt(at),
                purpose == HoldFor::kRead ? os::Access::kRead : os::Access::kReadWrite);
    }
    memory().unhold(window(2, 2) - 10, 20);
    machine_->verify();
  }
}

TEST_F(Windows, OverwritingABlockFetchesNoneOfIt) {
  window(2, 1)[0] = std::byte{1};
  (void)copies();
  ASSERT_TRUE(memory().hold(window(2, 0), kBlock, HoldFor::kOverwrite).ok());
  EXPECT_THAT(copies(), IsEmpty());
  std::memset(window(2, 0), 3, kBlock);
  memory().unhold(window(2, 0), kBlock);
  bump(window(2, 1));
  EXPECT_THAT(copies(), ElementsAre(copyIn(window(2, 0), kBlock)));
  EXPECT_EQ(window(2, 1)[0], std::byte{4});
  // The same by a bulk operation.
  bump(a_);
  window(3, 1)[0] = std::byte{1};
  (void)copies();
  const std::vector<std::byte> plain(kBlock, std::byte{6});
  memory().copy(window(3, 0), plain.data(), kBlock, &std::memmove);
  EXPECT_THAT(copies(), IsEmpty());
  machine_->verify();
  bump(window(3, 1));
  EXPECT_EQ(window(3, 1)[0], std::byte{7});
  EXPECT_EQ(window(3, 3)[0], std::byte{6});
}

TEST_F(Windows, ASmallCopyTakesAWindow) {
  std::array<std::byte, 45> out{};
  memory().copy(out.data(), window(1, 1) + 100, out.size(), &std::memmove);
  EXPECT_THAT(copies(), ElementsAre(copyOut(window(1, 1), kWindow)));
  EXPECT_EQ(out[44], pattern(kBlock + kWindow + 144));
  const std::array<std::byte, 45> in{};
  memory().copy(window(1, 1) + 100, in.data(), in.size(), &std::memmove);
  machine_->verify();
  bump(a_);
  EXPECT_THAT(copies(), ElementsAre(copyIn(window(1, 1), kWindow)));
  memory().copy(window(2, 1), in.data(), in.size(), &std::memmove);
  EXPECT_THAT(copies(), ElementsAre(copyOut(window(2, 1), kWindow)));
  EXPECT_EQ(window(1, 1)[100], std::byte{0});
  EXPECT_EQ(window(2, 1)[44], std::byte{0});
}

TEST_F(Windows, FillsBesideThemLoseNeitherSide) {
  (void)*const_cast<volatile std::byte*>(window(1, 1));
  memory().fill(window(1, 3), 5, 10, &std::memset);  // of what only the accelerator has
  machine_->verify();
  EXPECT_EQ(window(1, 3)[9], std::byte{5});
  EXPECT_EQ(window(1, 3)[10], pattern(kBlock + 3 * kWindow + 10));
  bump(a_);
  window(4, 1)[0] = std::byte{1};
  memory().fill(window(4, 3), 5, 10, &std::memset);
  machine_->verify();
  EXPECT_EQ(window(4, 1)[0], std::byte{1});
  EXPECT_EQ(window(4, 3)[9], std::byte{5});
  EXPECT_EQ(window(4, 3)[10], pattern(4 * kBlock + 3 * kWindow + 10));
  bump(window(4, 1));
  EXPECT_EQ(window(4, 1)[0], std::byte{2});
}

TEST_F(Windows, CopiesOnTheAcceleratorTakeWhatTheCpuWrote) {
  window(1, 1)[0] = std::byte{200};
  memory().copy(a_ + 3 * kBlock, a_ + kBlock, kBlock, &std::memmove);
  machine_->verify();
  EXPECT_EQ(a_[3 * kBlock + kWindow], std::byte{200});
  EXPECT_EQ(a_[3 * kBlock + kWindow + 1], pattern(kBlock + kWindow + 1));
  EXPECT_EQ(a_[3 * kBlock], pattern(kBlock));
}

// ---- Hints, device work, and where bytes are current

TEST_F(Windows, AreFlushedAndCompletedEarlyWhenAskedFor) {
  window(1, 1)[0] = std::byte{200};
  (void)copies();
  ASSERT_TRUE(memory().startFlush(a_, kBytes).ok());
  EXPECT_THAT(copies(), ElementsAre(copyIn(window(1, 1), kWindow)));
  EXPECT_EQ(accessAt(window(1, 1)), os::Access::kRead);
  machine_->verify();
  ASSERT_TRUE(memory().startFetch(window(1, 1), kWindow + 1).ok());
  fake().runAll();
  while (objects().fetchNext() == EarlyStep::kMoved) {
  }
  machine_->verify();
  EXPECT_THAT(copies(), ElementsAre(copyOut(window(1, 0), kWindow),
                                    copyOut(window(1, 2), kBlock - 2 * kWindow)));
  machine_->expectNothingHappens([&] {
    EXPECT_EQ(window(1, 0)[0], pattern(kBlock));
    EXPECT_EQ(window(1, 1)[0], std::byte{200});
  });
}

TEST_F(Windows, SayWhereEachByteIsCurrent) {
  using coherence::Current;
  const auto prefix = [&](const std::byte* at) {
    const auto left = static_cast<std::size_t>(a_ + kBytes - at);
    const coherence::Place place = memory().placeOf(at, left);
    return std::pair(place.current,
                     std::min(left, place.end - reinterpret_cast<std::uintptr_t>(at)));
  };
  window(1, 1)[0] = std::byte{1};
  EXPECT_EQ(prefix(a_), std::pair(Current::kAccelerator, kBlock + kWindow));
  EXPECT_EQ(prefix(window(1, 1) + 1), std::pair(Current::kCpu, kWindow - 1));
  EXPECT_EQ(prefix(window(1, 2)), std::pair(Current::kAccelerator, kBytes - kBlock - 2 * kWindow));
  machine_->callUsing(read_, {a_}, {{a_, adsmRead}});
  EXPECT_EQ(prefix(window(1, 1)), std::pair(Current::kBoth, kWindow));
}

TEST_F(Windows, DeviceWorkOnTheRestOfTheirBlockFindsWhatTheCpuWrote) {
  window(1, 1)[0] = std::byte{55};
  (void)copies();
  const accel::NativeStream stream{1};
  for (const bool write : {false, true}) {
    const coherence::DeviceRange range{window(1, 3), 10, write};
    ASSERT_TRUE(work().beginDeviceWork(stream, {&range, 1}).ok()) << lastErrorText();
    fake().submit(stream, [this] {
      EXPECT_EQ(fake().at(window(1, 1))[0], std::byte{55});
      fake().at(window(1, 3))[0] = std::byte{56};
    });
    ASSERT_TRUE(work().endDeviceWork(stream, true).ok()) << lastErrorText();
    machine_->verify();
  }
  EXPECT_EQ(window(1, 3)[0], std::byte{56});
  EXPECT_EQ(window(1, 1)[0], std::byte{55});
}

// ---- Failures

TEST_F(Windows, ACopyOfTheRestThatFailsLosesNothing) {
  for (const int nth : {1, 2}) {
    window(2, 1)[5] = static_cast<std::byte>(90 + nth);
    fake().failNext(Op::Kind::kCopyOut, nth, adsmErrorSystem);
    EXPECT_FALSE(memory().hold(window(2, 1), kWindow + 1, HoldFor::kRead).ok());
    machine_->verify();
    EXPECT_EQ(window(2, 1)[5], static_cast<std::byte>(90 + nth));
    bump(a_ + nth);
    EXPECT_EQ(window(2, 2)[0], pattern(2 * kBlock + 2 * kWindow));
    EXPECT_EQ(window(2, 1)[5], static_cast<std::byte>(90 + nth));
    bump(a_ + nth);
    machine_->sync();
  }
}

TEST_F(Windows, AFlushThatFailsLosesNothing) {
  window(2, 1)[5] = std::byte{90};
  fake().failNext(Op::Kind::kCopyIn, 1, adsmErrorSystem);
  EXPECT_FALSE(machine_->tryCall(bump_, {a_}).ok());
  machine_->verify();
  EXPECT_EQ(window(2, 1)[5], std::byte{90});
  window(2, 1)[6] = std::byte{91};
  bump(a_);
  expectPattern({{2 * kBlock + kWindow + 5, std::byte{90}},
                 {2 * kBlock + kWindow + 6, std::byte{91}},
                 {0, std::byte{2}}});
}

TEST_F(Windows, AreUsedByBulkOperationsAfterAFailureElsewhere) {
  window(2, 1)[0] = std::byte{1};
  os::failNext(os::Call::kProtect, 1, EACCES);
  EXPECT_FALSE(memory().hold(window(6, 1), 1, HoldFor::kWrite).ok());
  const std::byte byte{7};
  memory().copy(window(2, 1) + 1, &byte, 1, &std::memmove);
  std::byte back{};
  memory().copy(&back, window(2, 1) + 1, 1, &std::memmove);
  EXPECT_EQ(back, byte);
  machine_->verify();
}

TEST_F(Windows, AnOpeningThatFailsInTheMiddleLeavesNothingOpen) {
  for (const HoldFor purpose : {HoldFor::kRead, HoldFor::kWrite, HoldFor::kOverwrite}) {
    const bool whole = purpose == HoldFor::kOverwrite;
    os::failNext(os::Call::kProtectLate, 1, EACCES);
    EXPECT_FALSE(memory().hold(window(6, 0), whole ? kBlock : 1, purpose).ok());
    EXPECT_EQ(accessAt(window(6, 0)), os::Access::kNone);
    machine_->verify();
  }
  window(6, 0)[0] = std::byte{9};
  expectPattern({{6 * kBlock, std::byte{9}}});
}

// Where closing again fails, too.
TEST_F(Windows, ACallClosesWhatAFailureHasLeftOpen) {
  os::failNext(os::Call::kProtect, 1, EACCES);
  EXPECT_FALSE(memory().hold(window(6, 1), 1, HoldFor::kRead).ok());
  ASSERT_EQ(::mprotect(window(6, 1), kWindow, PROT_READ), 0);
  bump(window(6, 1));
  EXPECT_EQ(accessAt(window(6, 1)), os::Access::kNone);
  EXPECT_EQ(window(6, 1)[0], std::byte(std::to_integer<int>(pattern(6 * kBlock + kWindow)) + 1));
  machine_->verify();
}

TEST_F(Windows, ABulkFillClosesWhatAFailureHasLeftOpen) {
  os::failNext(os::Call::kProtect, 1, EACCES);
  EXPECT_FALSE(memory().hold(window(6, 1), 1, HoldFor::kRead).ok());
  ASSERT_EQ(::mprotect(window(6, 1), kWindow, PROT_READ), 0);
  memory().fill(window(6, 0), 7, kBlock, &std::memset);
  EXPECT_EQ(accessAt(window(6, 1)), os::Access::kNone);
  EXPECT_EQ(window(6, 1)[0], std::byte{7});
  machine_->verify();
}

TEST_F(Windows, WithoutAMappingForOneTheBlockIsOpened) {
  const std::uint64_t coarsenings = stats().coarsenings.value();
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  EXPECT_EQ(window(2, 1)[5], pattern(2 * kBlock + kWindow + 5));
  machine_->verify();
  EXPECT_EQ(stats().coarsenings.value(), coarsenings);
  EXPECT_THAT(copies(), ElementsAre(copyOut(window(2, 1), kWindow), copyOut(window(2, 0), kBlock)));
  EXPECT_EQ(opened(), 0u);
}

TEST_F(Windows, WithoutAMappingForMoreOfTheBlockTheWindowIsClosedFirst) {
  EXPECT_EQ(window(2, 1)[5], pattern(2 * kBlock + kWindow + 5));
  const std::uint64_t coarsenings = stats().coarsenings.value();
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  window(2, 3)[0] = std::byte{90};
  EXPECT_FALSE(os::injectionArmed());
  machine_->verify();
  EXPECT_EQ(stats().coarsenings.value(), coarsenings);
  EXPECT_EQ(window(2, 1)[5], pattern(2 * kBlock + kWindow + 5));
  bump(a_);
  expectPattern({{2 * kBlock + 3 * kWindow, std::byte{90}}, {0, std::byte{2}}});
}

TEST_F(Windows, BlocksAreJoinedAroundThem) {
  window(2, 1)[5] = std::byte{90};
  window(6, 0)[0] = std::byte{91};
  const std::uint64_t coarsenings = stats().coarsenings.value();
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  window(4, 0)[0] = std::byte{92};
  EXPECT_EQ(stats().coarsenings.value(), coarsenings + 1);
  machine_->verify();
  EXPECT_EQ(window(2, 1)[5], std::byte{90});
  bump(a_);
  expectPattern({{2 * kBlock + kWindow + 5, std::byte{90}},
                 {6 * kBlock, std::byte{91}},
                 {4 * kBlock, std::byte{92}},
                 {0, std::byte{2}}});
}

// An object that has as many windows open as one may have, where mappings are scarce: of a limit of
// 2,000 half stay free.
class ManyWindows : public Windows {
 protected:
  static constexpr std::size_t kSmallBlock = 16 * kKiB;
  static constexpr std::size_t kMany = 257;
  ManyWindows() {
    MachineSetup setup = windows(1'000'000);
    setup.blockBytes = kSmallBlock;
    setup.windowBytes = kPage;
    setup.mappingLimit = 2000;
    start(setup, 3 * kMany * kSmallBlock);
    for (int round = 0; round < 10; ++round) {
      machine_->call(read_, {a_});
      for (std::size_t i = 0; i < kMany; ++i) {
        a_[3 * i * kSmallBlock] = static_cast<std::byte>(i);
      }
    }
    EXPECT_EQ(accessAt(a_ + 3 * (kMany - 1) * kSmallBlock + kPage), os::Access::kNone);
    other_ = machine_->allocate(2 * kMany * kSmallBlock);
    machine_->callUsing(read_, {other_}, {{other_, adsmReadWrite}});
  }
  // Opens blocks of another object, each between two that are closed, until one cannot be.
  bool openOthers() {
    for (std::size_t i = 0; i < kMany; ++i) {
      if (!memory().hold(other_ + 2 * i * kSmallBlock, kSmallBlock, HoldFor::kRead).ok()) {
        return false;
      }
      memory().unhold(other_ + 2 * i * kSmallBlock, kSmallBlock);
    }
    return true;
  }

  std::byte* other_ = nullptr;
};

TEST_F(ManyWindows, AreOpenedAgainAfterTheirFlushHasFailed) {
  fake().failNext(Op::Kind::kCopyIn, 1, adsmErrorSystem);
  ASSERT_FALSE(openOthers());
  ASSERT_EQ(accessAt(a_), os::Access::kNone);
  ASSERT_TRUE(memory().hold(a_, 1, HoldFor::kWrite).ok());
  EXPECT_EQ(accessAt(a_), os::Access::kReadWrite);
  memory().unhold(a_, 1);
  machine_->verify();
}

TEST_F(ManyWindows, AreClosedBeforeBlocksAreJoinedForWantOfMappings) {
  const std::uint64_t coarsenings = stats().coarsenings.value();
  ASSERT_TRUE(openOthers()) << lastErrorText();
  EXPECT_EQ(stats().coarsenings.value(), coarsenings);
  EXPECT_EQ(accessAt(a_), os::Access::kNone) << "its windows are closed";
  machine_->verify();
  for (std::size_t i = 0; i < kMany; ++i) {
    EXPECT_EQ(a_[3 * i * kSmallBlock], static_cast<std::byte>(i)) << i;
  }
}

TEST_F(Windows, MakeRoomForAnotherObject) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer has mappings of its own for each object";
#endif
  MachineSetup setup = windows();
  setup.mappingLimit = 2000;
  start(setup);
  std::vector<std::byte*> allocated;
  for (int i = 0; i < 400; ++i) {
    allocated.push_back(static_cast<std::byte*>(*objects().allocate(2 * kBlock, kSameAddress)));
  }
  machine_->call(read_, {a_});
  for (std::byte* const object : allocated) {
    *object = std::byte{1};
  }
  EXPECT_GE(opened(), 250u);
  for (int i = 0; i < 500; ++i) {
    const auto made = objects().allocate(2 * kBlock, kSameAddress);
    ASSERT_TRUE(made.ok()) << i << ": " << lastErrorText();
  }
  for (std::byte* const object : allocated) {
    EXPECT_EQ(*object, std::byte{1});
  }
  machine_->verify();
}

TEST_F(Windows, AChildOfForkTouchesNone) {
  window(2, 1)[5] = std::byte{90};
  EXPECT_EXIT(window(2, 1)[5] = std::byte{91}, ::testing::KilledBySignal(SIGSEGV),
              "a child of fork touched");
  EXPECT_EQ(window(2, 1)[5], std::byte{90});
}

// ---- Threads

TEST_F(Windows, AreWrittenWhileTheRestIsFetched) {
  window(2, 1)[5] = std::byte{1};
  fake().stall(Op::Kind::kCopyOut);
  auto outside = std::async(std::launch::async, [&] { return window(2, 3)[1]; });
  while (fake().stalled() == 0) {
    std::this_thread::yield();
  }
  window(2, 1)[5] = std::byte{2};
  window(2, 1)[6] = std::byte{3};
  fake().resume();
  EXPECT_EQ(outside.get(), pattern(2 * kBlock + 3 * kWindow + 1));
  machine_->verify();
  bump(a_);
  expectPattern({{2 * kBlock + kWindow + 5, std::byte{2}},
                 {2 * kBlock + kWindow + 6, std::byte{3}},
                 {0, std::byte{2}}});
}

TEST_F(Windows, ThreadsInsideAndOutsideSeeEachOthersWrites) {
  for (int round = 0; round < 50; ++round) {
    const auto value = static_cast<std::byte>(round);
    std::vector<std::thread> threads;
    for (std::size_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([=, this] { window(2, thread)[thread] = value; });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    machine_->verify();
    bump(a_);
    for (std::size_t thread = 0; thread < 4; ++thread) {
      EXPECT_EQ(window(2, thread)[thread], value) << round;
      EXPECT_EQ(window(2, thread)[10], pattern(2 * kBlock + thread * kWindow + 10));
    }
    bump(a_);
  }
}

}  // namespace
}  // namespace gmac::testing
