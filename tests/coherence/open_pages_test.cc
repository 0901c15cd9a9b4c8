// SPDX-License-Identifier: Apache-2.0
//
// One page of what the CPU has of a block is open: that the rest comes without a copy, and that no
// byte is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/window_policy.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"
#include "tests/support/pattern.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using coherence::HoldFor;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kBlock = 512 * kKiB;
constexpr std::size_t kWindow = 64 * kKiB;
constexpr std::size_t kBytes = 4 * kBlock;

MachineSetup pages(std::size_t blockBytes = kBlock) {
  MachineSetup setup;
  setup.blockBytes = blockBytes;
  setup.windowBytes = kWindow;
  setup.rollingSize = 100;
  setup.opensPages = true;
  return setup;
}

// An object that the CPU has filled with the pattern and a call has taken.
class OpenPages : public ::testing::Test {
 protected:
  OpenPages() { start(pages()); }
  void start(const MachineSetup& setup) {
    machine_.reset();
    machine_ = std::make_unique<Machine>(setup);
    bump_ = fake().kernel("bump", 1, [fake = &fake()](const LaunchShape&, void** args) {
      ++*fake->argument<std::uint8_t>(args, 0);
    });
    read_ = fake().kernel("read", 1, [](const LaunchShape&, void**) {});
    a_ = machine_->allocate(kBytes);
    fillWithPattern(a_, kBytes);
    machine_->call(read_, {a_});
    fake().clearLog();
  }
  FakeAccelerator& fake() { return machine_->fake(); }
  CoherentMemory& objects() { return machine_->objects(); }
  coherence::MemoryPort& memory() { return machine_->memory(); }
  static std::size_t offset(std::size_t page) { return kBlock + 2 * kWindow + page * kPage; }
  // A page of one window, or of one small block.
  std::byte* page(std::size_t number) { return a_ + offset(number); }
  static std::uint8_t load(const std::byte* at) {
    return *reinterpret_cast<const volatile std::uint8_t*>(at);
  }
  static void store(std::byte* at, std::uint8_t value) {
    *reinterpret_cast<volatile std::uint8_t*>(at) = value;
  }
  std::vector<Op> copies() {
    std::vector<Op> found = fake().copies();
    fake().clearLog();
    return found;
  }
  void bump(const std::byte* at) { machine_->call(bump_, {at}); }
  // Which pages of the window are open, and how far.
  void expectOpen(std::size_t first, std::size_t last, os::Access access) {
    machine_->verify();
    for (std::size_t i = 0; i < kWindow / kPage; ++i) {
      EXPECT_EQ(accessAt(page(i)), i >= first && i < last ? access : os::Access::kNone) << i;
    }
    EXPECT_EQ(accessAt(page(0) - 1), os::Access::kNone);
    EXPECT_EQ(accessAt(page(kWindow / kPage)), os::Access::kNone);
  }
  void expectPattern(const std::vector<std::pair<std::size_t, std::byte>>& changed = {}) {
    testing::expectPattern(*machine_, a_, kBytes, changed);
  }
  static void* setBytes(void* to, int value, std::size_t bytes) {
    return std::memset(to, value, bytes);
  }
  static void* moveBytes(void* to, const void* from, std::size_t bytes) {
    return std::memmove(to, from, bytes);
  }
  static std::uint64_t faults() { return stats().readFaults.value() + stats().writeFaults.value(); }

  std::unique_ptr<Machine> machine_;
  adsmKernel_t bump_ = nullptr;
  adsmKernel_t read_ = nullptr;
  std::byte* a_ = nullptr;
};

TEST_F(OpenPages, AnAccessOpensItsPageAloneAndCopiesTheWindow) {
  EXPECT_EQ(page(3)[7], pattern(offset(3) + 7));
  EXPECT_THAT(copies(), ElementsAre(copyOut(page(0), kWindow)));
  expectOpen(3, 4, os::Access::kRead);
  bump(a_);
  EXPECT_THAT(copies(), IsEmpty());
  expectOpen(0, 0, os::Access::kNone);
}

TEST_F(OpenPages, AnAccessToAnotherPageOpensTheWindowWithoutACopy) {
  EXPECT_EQ(*page(3), pattern(offset(3)));
  (void)copies();
  EXPECT_EQ(*page(5), pattern(offset(5)));
  EXPECT_THAT(copies(), IsEmpty());
  expectOpen(0, 16, os::Access::kRead);
  store(page(4), 9);
  EXPECT_THAT(copies(), IsEmpty());
  expectOpen(0, 16, os::Access::kReadWrite);
  bump(page(4));
  EXPECT_THAT(copies(), ElementsAre(copyIn(page(0), kWindow)));
  expectPattern({{offset(4), std::byte{10}}});
}

TEST_F(OpenPages, AWriteAfterAReadOpensThePageOnly) {
  EXPECT_EQ(*page(3), pattern(offset(3)));
  (void)copies();
  store(page(3), 9);
  EXPECT_THAT(copies(), IsEmpty());
  expectOpen(3, 4, os::Access::kReadWrite);
  bump(page(3));
  EXPECT_THAT(copies(), ElementsAre(copyIn(page(0), kWindow)));
  expectPattern({{offset(3), std::byte{10}}});
}

TEST_F(OpenPages, AWriteToAnotherPageOpensTheWindow) {
  EXPECT_EQ(*page(3), pattern(offset(3)));
  store(page(8), 9);
  expectOpen(0, 16, os::Access::kReadWrite);
  bump(page(8));
  expectPattern({{offset(8), std::byte{10}}});
}

TEST_F(OpenPages, AnAccessOutsideTheWindowOpensTheBlock) {
  store(page(3), 9);
  (void)copies();
  EXPECT_EQ(page(16)[0], pattern(offset(16)));
  EXPECT_THAT(copies(), ElementsAre(copyOut(a_ + kBlock, 2 * kWindow),
                                    copyOut(page(16), kBlock - 3 * kWindow)));
  machine_->verify();
  EXPECT_EQ(accessAt(page(5)), os::Access::kReadWrite);
  bump(page(3));
  expectPattern({{offset(3), std::byte{10}}});
}

TEST_F(OpenPages, ACallThatOnlyReadsLeavesThePageReadable) {
  store(page(3), 9);
  (void)copies();
  machine_->callUsing(read_, {a_}, {{a_, adsmRead}});
  EXPECT_THAT(copies(), ElementsAre(copyIn(page(0), kWindow)));
  expectOpen(3, 4, os::Access::kRead);
  EXPECT_EQ(*page(4), pattern(offset(4)));
  EXPECT_THAT(copies(), IsEmpty());
  expectOpen(0, 16, os::Access::kRead);
}

TEST_F(OpenPages, AnEvictionCopiesTheWindow) {
  MachineSetup setup = pages();
  setup.rollingSize = 1;
  start(setup);
  store(page(3), 9);
  (void)copies();
  store(a_ + 3 * kBlock, 1);
  EXPECT_THAT(copies(), ::testing::Contains(copyIn(page(0), kWindow)));
  expectOpen(3, 4, os::Access::kRead);
  bump(page(3));
  expectPattern({{offset(3), std::byte{10}}, {3 * kBlock, std::byte{1}}});
}

TEST_F(OpenPages, AHoldOfSeveralPagesOpensThemAll) {
  EXPECT_EQ(*page(3), pattern(offset(3)));
  ASSERT_TRUE(memory().hold(page(3) + 5, 100, HoldFor::kRead).ok()) << lastErrorText();
  expectOpen(3, 4, os::Access::kRead);
  ASSERT_TRUE(memory().hold(page(2), 3 * kPage, HoldFor::kWrite).ok()) << lastErrorText();
  expectOpen(0, 16, os::Access::kReadWrite);
  memory().unhold(page(2), 3 * kPage);
  memory().unhold(page(3) + 5, 100);
  machine_->verify();
  expectPattern();
}

TEST_F(OpenPages, BytesOverABorderOfPagesOpenTheWindow) {
  ASSERT_TRUE(memory().hold(page(4) - 4, 8, HoldFor::kRead).ok()) << lastErrorText();
  expectOpen(0, 16, os::Access::kRead);
  memory().unhold(page(4) - 4, 8);
}

TEST_F(OpenPages, ThreadsInDifferentPagesSeeEachOthersWrites) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] { store(page(4 * i), static_cast<std::uint8_t>(i + 1)); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  machine_->verify();
  bump(page(0));
  expectPattern({{offset(0), std::byte{2}},
                 {offset(4), std::byte{2}},
                 {offset(8), std::byte{3}},
                 {offset(12), std::byte{4}}});
}

// The bound of window_policy.h, with three pages of each window.
TEST_F(OpenPages, AProgramThatNeedsSeveralPagesPaysFewFaultsMore) {
  constexpr std::uint64_t kRounds = 100;
  const std::uint64_t before = faults();
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    bump(a_ + 3 * kBlock);
    (void)load(page(2));
    (void)load(page(7));
    (void)load(page(11));
  }
  EXPECT_LE(faults() - before, kRounds + 8);
}

// Two passes over many blocks, of which none knows yet that a page is not enough.
TEST_F(OpenPages, NorDoesOneThatComesBackToOtherPagesOfAllBlocks) {
  start(pages(kWindow));
  for (int round = 0; round < 8; ++round) {
    bump(a_);
    const std::uint64_t before = faults();
    for (const std::size_t number : {1, 9}) {
      for (std::size_t block = 0; block < kBytes / kWindow; block += 2) {
        (void)load(a_ + block * kWindow + number * kPage);
      }
    }
    EXPECT_LE(faults() - before, kBytes / kWindow / 2 + 2) << round;
  }
}

// Blocks that need one page in one round and two in the next, once much is known of pages that were
// enough.
TEST_F(OpenPages, NorDoesOneThatNeedsAnotherPageEverySecondTime) {
  start(pages(kWindow));
  constexpr std::uint64_t kBlocks = kBytes / kWindow;
  constexpr std::uint64_t kTurns = 200;
  const auto round = [&](bool two) {
    bump(a_);
    for (std::size_t block = 0; block < kBlocks; block += 2) {
      (void)load(a_ + block * kWindow + kPage);
      if (two) (void)load(a_ + block * kWindow + 9 * kPage);
    }
  };
  for (int i = 0; i < 100; ++i) round(false);
  const std::uint64_t before = faults();
  for (std::uint64_t turn = 0; turn < kTurns; ++turn) {
    round(false);
    round(true);
  }
  EXPECT_LE(faults() - before, kTurns * (kBlocks + kBlocks / 4 + 1) + WindowPolicy::kMaxCredit);
}

// Objects of which nothing is known take turns.
TEST_F(OpenPages, NorDoesOneOfShortLivedObjects) {
  constexpr std::uint64_t kLives = 200;
  const std::uint64_t before = faults();
  for (std::uint64_t life = 0; life < kLives; ++life) {
    std::byte* const object = machine_->allocate(kWindow);
    machine_->call(read_, {object});
    for (std::size_t at = 0; at < kWindow; at += kPage) {
      (void)load(object + at);
    }
    machine_->free(object);
  }
  EXPECT_LE(faults() - before, kLives + 10);
}

// A call that waits for another object keeps the thread from opening more: what is said to be open
// is open meanwhile.
TEST_F(OpenPages, WhatIsNotOpenedYetIsNotUsable) {
  std::byte* const other = machine_->allocate(kBytes);
  fillWithPattern(other, kBytes);
  machine_->call(read_, {other});
  EXPECT_EQ(*page(3), pattern(offset(3)));
  fake().stall(Op::Kind::kCopyOut);
  std::thread fetches([&] { (void)load(other); });
  while (fake().stalled() == 0) {
    std::this_thread::yield();
  }
  std::thread calls([&] { (void)machine_->tryCallUsing(read_, {other}, {{other, adsmRead}}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it waits, in all likelihood
  std::thread writes([&] { store(page(8), 9); });
  // (Whatever that one has done so far.)
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(objects().verify().ok()) << lastErrorText();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  fake().resume();
  fetches.join();
  calls.join();
  writes.join();
  machine_->verify();
  bump(page(8));
  expectPattern({{offset(8), std::byte{10}}});
}

TEST_F(OpenPages, AProgramThatNeedsOnePageFaultsNoMore) {
  constexpr std::uint64_t kRounds = 100;
  const std::uint64_t before = faults();
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    bump(a_ + 3 * kBlock);
    (void)load(page(round * 7 % 16));
    expectOpen(round * 7 % 16, round * 7 % 16 + 1, os::Access::kRead);
  }
  EXPECT_EQ(faults() - before, kRounds);
}

TEST_F(OpenPages, WhatIsReadBackOpensThePageThatTheCpuComesFor) {
  // Whether the wait has opened it.
  const auto round = [this](std::size_t other) {
    bump(a_);
    machine_->sync();
    const bool opened = accessAt(page(3)) != os::Access::kNone;
    if (opened) {
      expectOpen(other == 3 ? 3 : 0, other == 3 ? 4 : 16, os::Access::kRead);
    }
    EXPECT_EQ(load(page(3)), std::to_integer<std::uint8_t>(pattern(offset(3))));
    EXPECT_EQ(load(page(other)), std::to_integer<std::uint8_t>(pattern(offset(other))));
    machine_->verify();
    return opened;
  };
  int opened = 0;
  for (int i = 0; i < 16; ++i) {
    opened += round(3) ? 1 : 0;
  }
  EXPECT_GE(opened, 8);
  // It needs another page from now on: all are opened ahead then.
  bump(a_);
  (void)load(page(3));
  (void)load(page(6));
  for (int i = opened = 0; i < 16; ++i) {
    opened += round(6) ? 1 : 0;
  }
  EXPECT_GE(opened, 8);
}

// Blocks that are as large as a window behave like one.
TEST_F(OpenPages, OfSmallBlocks) {
  start(pages(kWindow));
  EXPECT_EQ(*page(3), pattern(offset(3)));
  EXPECT_THAT(copies(), ElementsAre(copyOut(page(0), kWindow)));
  expectOpen(3, 4, os::Access::kRead);
  store(page(3), 9);
  expectOpen(3, 4, os::Access::kReadWrite);
  EXPECT_EQ(*page(9), pattern(offset(9)));
  EXPECT_THAT(copies(), IsEmpty());
  expectOpen(0, 16, os::Access::kReadWrite);
  bump(page(3));
  EXPECT_THAT(copies(), ElementsAre(copyIn(page(0), kWindow)));
  // A neighbour is open as well, so that there are borders between open and closed pages.
  store(page(2), 5);
  store(page(16), 6);
  machine_->verify();
  bump(page(3));
  expectPattern(
      {{offset(2), std::byte{5}}, {offset(3), std::byte{11}}, {offset(16), std::byte{6}}});
}

TEST_F(OpenPages, AnObjectInTheMemoryOfAFreedOneIsZero) {
  MachineSetup setup = pages();
  setup.keptBytes = 64 * kMiB;
  setup.managed = true;
  start(setup);
  for (int life = 0; life < 8; ++life) {
    std::byte* const object = machine_->allocate(2 * kBlock);
    for (std::size_t at = 0; at < 2 * kBlock; at += kPage) {
      ASSERT_EQ(load(object + at), 0) << life << ", " << at;
    }
    machine_->call(read_, {object});
    store(object + 3 * kPage, 7);
    machine_->free(object);
  }
}

TEST_F(OpenPages, AnOpeningThatFailsLeavesWhatWasOpen) {
  store(page(3), 9);
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  EXPECT_FALSE(memory().hold(page(3), 2 * kPage, HoldFor::kWrite).ok() && os::injectionArmed());
  os::failNext(os::Call::kProtect, 0, 0);
  memory().unhold(page(3), 2 * kPage);
  machine_->verify();
  EXPECT_EQ(load(page(3)), 9);
  EXPECT_EQ(*page(4), pattern(offset(4)));
  bump(page(3));
  expectPattern({{offset(3), std::byte{10}}});
}

// What overwrites all of a block has outgrown its page.
TEST_F(OpenPages, GoOnAfterABulkFill) {
  start(pages(kWindow));
  for (int round = 0; round < 40; ++round) {
    ASSERT_TRUE(machine_->tryCall(read_, {a_}).ok());
    (void)load(a_ + kPage);
    if (round == 0) memory().fill(a_, 7, kWindow, &setBytes);
  }
  EXPECT_EQ(accessAt(a_ + kPage), os::Access::kRead);
  EXPECT_EQ(accessAt(a_), os::Access::kNone);
}

TEST_F(OpenPages, SufficeForABulkFillInThem) {
  start(pages(kWindow));
  (void)load(a_ + kPage);
  memory().fill(a_ + kPage + 8, 7, 16, &setBytes);
  EXPECT_EQ(accessAt(a_ + kPage), os::Access::kReadWrite);
  EXPECT_EQ(accessAt(a_), os::Access::kNone);
  EXPECT_EQ(load(a_ + kPage + 8), 7);
  machine_->verify();
}

// After a refusal, too.
TEST_F(OpenPages, AreTriedAgainWhereBulkCopiesAloneRead) {
  start(pages(kWindow));
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  (void)load(a_ + kPage);
  EXPECT_FALSE(os::injectionArmed());
  EXPECT_EQ(accessAt(a_), os::Access::kRead);
  std::array<std::byte, 16> to{};
  for (int round = 0; round < 1100; ++round) {
    ASSERT_TRUE(machine_->tryCall(read_, {a_}).ok());
    memory().copy(to.data(), a_ + kPage, to.size(), &moveBytes);
  }
  ASSERT_TRUE(machine_->tryCall(read_, {a_}).ok());
  (void)load(a_ + kPage);
  EXPECT_EQ(accessAt(a_), os::Access::kNone);
}

// ---- Mappings

// Of a small object of one block there is nothing to join.
TEST_F(OpenPages, WhereTheKernelHasNoMappingLeftTheWholeIsOpened) {
  std::byte* const object = machine_->allocate(kWindow);
  fillWithPattern(object, kWindow);
  machine_->call(read_, {object});
  const std::uint64_t coarsenings = stats().coarsenings.value();
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  EXPECT_EQ(object[kPage], pattern(kPage));
  EXPECT_FALSE(os::injectionArmed());
  os::failNext(os::Call::kProtect, 0, 0);
  EXPECT_EQ(accessAt(object), os::Access::kRead);
  EXPECT_EQ(accessAt(object + kWindow - 1), os::Access::kRead);
  EXPECT_EQ(stats().coarsenings.value(), coarsenings);
  machine_->verify();
  machine_->free(object);
}

// Nor of a large one, of which a window is open by one page: the page makes room for its window.
TEST_F(OpenPages, WhereTheKernelHasNoMappingLeftForMoreOfAWindowThePageIsClosedFirst) {
  std::byte* const object = machine_->allocate(kBlock);
  fillWithPattern(object, kBlock);
  machine_->call(read_, {object});
  EXPECT_EQ(object[kWindow + kPage], pattern(kWindow + kPage));
  EXPECT_EQ(accessAt(object + kWindow + 2 * kPage), os::Access::kNone);
  const std::uint64_t coarsenings = stats().coarsenings.value();
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  store(object + kWindow + 2 * kPage, 9);
  EXPECT_FALSE(os::injectionArmed());
  os::failNext(os::Call::kProtect, 0, 0);
  EXPECT_EQ(stats().coarsenings.value(), coarsenings);
  EXPECT_EQ(accessAt(object + kWindow), os::Access::kReadWrite);
  EXPECT_EQ(accessAt(object + 2 * kWindow - 1), os::Access::kReadWrite);
  EXPECT_EQ(accessAt(object), os::Access::kNone);
  EXPECT_EQ(object[kWindow + kPage], pattern(kWindow + kPage));
  EXPECT_EQ(load(object + kWindow + 2 * kPage), 9);
  machine_->verify();
  machine_->free(object);
}

// Where the process may have so many mappings. Those that the thread sanitizer makes for itself
// would count, too: without it, and under the other sanitizers, these run.
class FewMappings : public OpenPages {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the thread sanitizer's own mappings count against the limit";
#endif
  }
  // Small objects that the CPU has written.
  std::vector<std::byte*> startWith(int count, std::size_t mappings) {
    MachineSetup setup = pages();
    setup.mappingLimit = mappings;
    start(setup);
    std::vector<std::byte*> made;
    for (int i = 0; i < count; ++i) {
      made.push_back(machine_->allocate(kWindow));
      *made.back() = std::byte{1};
    }
    return made;
  }
};

// An allocation closes what it needs, not all there is.
TEST_F(FewMappings, LeaveOpenWhatAnAllocationDoesNotNeed) {
  const std::vector<std::byte*> many = startWith(401, 1300);
  for (int round = 0; round < 8; ++round) {
    ASSERT_TRUE(machine_->tryCall(read_, {a_}).ok());
    for (std::byte* const object : many) {
      ASSERT_EQ(*object, std::byte{1});
    }
  }
  EXPECT_EQ(accessAt(many.front() + kWindow - 1), os::Access::kNone);
  std::uint64_t before = 0;
  for (int round = 0; round < 100; ++round) {
    for (std::byte* const object : many) {
      ASSERT_EQ(*object, std::byte{1});
    }
    before = round == 0 ? faults() : before;
    const auto made = objects().allocate(kWindow, accel::Placement::kSameAddress);
    ASSERT_TRUE(made.ok()) << round << ": " << lastErrorText();
    ASSERT_TRUE(objects().free(*made).ok());
  }
  EXPECT_LE(faults() - before, 2 * many.size());
  machine_->verify();
}

// More pages of one object than there may be: the others' blocks are opened as a whole.
TEST_F(OpenPages, OfTooManyBlocksAreOpenedOnce) {
  MachineSetup setup = pages(kWindow);
  setup.mappingLimit = 1000;
  start(setup);
  constexpr std::size_t kBlocks = 1000;
  std::byte* const object = machine_->allocate(kBlocks * kWindow);
  // Much is known of pages that are enough.
  for (std::size_t round = 0; round < 200; ++round) {
    ASSERT_TRUE(machine_->tryCall(read_, {object}).ok());
    for (std::size_t i = 0; i < 8; ++i) {
      (void)load(object + (round % 4 * 200 + 20 * i + 7) * kWindow + 3 * kPage);
    }
  }
  ASSERT_TRUE(machine_->tryCall(read_, {object}).ok());
  const std::uint64_t before = faults();
  for (int pass = 0; pass < 12; ++pass) {
    for (std::size_t i = 0; i < kBlocks; ++i) {
      (void)load(object + i * 387 % kBlocks * kWindow + 3 * kPage);
    }
    if (pass % 3 == 2) {
      ASSERT_TRUE(machine_->tryCall(read_, {object}).ok());
    }
  }
  EXPECT_LE(faults() - before, 4 * kBlocks + kBlocks / 2);
  machine_->free(object);
}

TEST_F(FewMappings, AreGivenUpForAnotherObject) {
  const std::vector<std::byte*> small = startWith(400, 2000);
  machine_->call(read_, {a_});
  std::size_t open = 0;
  for (std::byte* const object : small) {
    EXPECT_EQ(*object, std::byte{1});
    open += accessAt(object + kWindow - 1) == os::Access::kNone ? 1 : 0;
  }
  EXPECT_GE(open, 250u);
  for (int i = 0; i < 500; ++i) {
    const auto made = objects().allocate(kWindow, accel::Placement::kSameAddress);
    ASSERT_TRUE(made.ok()) << i << ": " << lastErrorText();
  }
  for (std::byte* const object : small) {
    EXPECT_EQ(*object, std::byte{1});
  }
  machine_->verify();
}

// ---- Loans

// Another process reads the memory file, whatever of it is open here.
TEST_F(OpenPages, AreLentWithAllThatTheCpuHas) {
  std::byte* const object = machine_->allocate(kWindow);
  fillWithPattern(object, kWindow);
  machine_->call(read_, {object});
  EXPECT_EQ(object[kPage], pattern(kPage));
  EXPECT_EQ(accessAt(object), os::Access::kNone);
  coherence::Loan loan{};
  ASSERT_TRUE(memory().lend(object, kWindow, &loan));
  machine_->verify();
  EXPECT_EQ(static_cast<const std::byte*>(loan.view)[5 * kPage], pattern(5 * kPage));
  EXPECT_EQ(object[5 * kPage], pattern(5 * kPage));
  machine_->verify();
  memory().giveBack(object, kWindow);
  machine_->free(object);
}

}  // namespace
}  // namespace gmac::testing
