// SPDX-License-Identifier: Apache-2.0
//
// In an object of very many blocks, the cost of a call depends on its open blocks only.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <memory>

#include "gmac/coherence/block_table.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/protocols/protocol.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;

// Counts what is asked of it.
class Counted final : public Protocol {
 public:
  Counted(std::unique_ptr<Protocol> protocol, std::size_t* questions)
      : protocol_(std::move(protocol)), questions_(questions) {}

  std::string_view name() const noexcept override { return protocol_->name(); }
  Transition on(State state, Event event) const noexcept override {
    ++*questions_;
    return protocol_->on(state, event);
  }
  State initial() const noexcept override { return protocol_->initial(); }
  bool wholeObjects() const noexcept override { return protocol_->wholeObjects(); }
  void allocated() noexcept override { protocol_->allocated(); }
  void freed() noexcept override { protocol_->freed(); }
  void becameDirty(Block& block) noexcept override { protocol_->becameDirty(block); }
  void leftDirty(Block& block) noexcept override { protocol_->leftDirty(block); }
  void evicted(Block& block) noexcept override { protocol_->evicted(block); }
  void released(Block& block) noexcept override { protocol_->released(block); }
  void dropped(Block& block) noexcept override { protocol_->dropped(block); }
  void called() noexcept override { protocol_->called(); }
  Block* evictionCandidate(std::size_t flushing) noexcept override {
    return protocol_->evictionCandidate(flushing);
  }

 private:
  const std::unique_ptr<Protocol> protocol_;
  std::size_t* const questions_;
};

std::size_t residentBytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t size = 0;
  std::size_t resident = 0;
  file >> size >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

constexpr std::size_t kBlocks = std::size_t{4} << 20;
constexpr std::size_t kBytes = kBlocks * kPage;  // 16 GiB
// A look at every group, and at every block of a few.
constexpr std::size_t kFewQuestions = 8 * (kBlocks / BlockTable::kGroup + BlockTable::kGroup);

class OpenBlocks : public ::testing::Test {
 protected:
  OpenBlocks() {
    CoherenceOptions options;
    options.blockBytes = kPage;
    options.populateAhead = false;
    auto made = CoherentMemory::make(
        fake_, std::make_unique<Counted>(makeRollingProtocol({.step = 100}), &questions_), options);
    EXPECT_TRUE(made.ok()) << lastErrorText();
    objects_ = std::move(*made);
    nothing_ = fake_.kernel("nothing", 0, [](const LaunchShape&, void**) {});
  }

  std::byte* allocate() {
    auto address = objects_->allocate(kBytes, accel::Placement::kSameAddress);
    EXPECT_TRUE(address.ok()) << lastErrorText();
    return static_cast<std::byte*>(*address);
  }
  void touch(std::byte* address) {
    EXPECT_TRUE(objects_->memory().hold(address, 1, true).ok()) << lastErrorText();
    *address = std::byte{1};
    objects_->memory().unhold(address, 1);
  }
  // The questions that a call asks the protocol.
  std::size_t call(std::optional<std::span<const adsmUse_t>> uses = std::nullopt) {
    const std::size_t before = questions_;
    EXPECT_TRUE(objects_->call(nothing_, {{1, 1, 1}, {1, 1, 1}, 0}, nullptr, uses).ok())
        << lastErrorText();
    return questions_ - before;
  }
  void verify() { EXPECT_TRUE(objects_->verify().ok()) << lastErrorText(); }

  FakeAccelerator fake_;
  std::size_t questions_ = 0;
  std::unique_ptr<CoherentMemory> objects_;
  adsmKernel_t nothing_ = nullptr;
};

TEST_F(OpenBlocks, ACallOnAnObjectThatNobodyHasUsedLooksAtItsGroupsOnly) {
  [[maybe_unused]] const std::size_t before = residentBytes();
  std::byte* const a = allocate();
  const adsmUse_t reads = {a, adsmRead};
  EXPECT_LE(call(std::span(&reads, 1)), kFewQuestions);
  verify();
  EXPECT_LE(call(), kFewQuestions);
  verify();
  EXPECT_LE(call(), 8u) << "nothing is open";
#ifndef __SANITIZE_THREAD__  // whose own memory of them is as large
  EXPECT_LE(residentBytes() - before, kBytes / 64 / 16) << "blocks take memory when they are used";
#endif
  EXPECT_TRUE(objects_->free(a).ok());
}

TEST_F(OpenBlocks, ACallLooksAtTheBlocksThatAreOpenHoweverFarApart) {
  std::byte* const a = allocate();
  (void)call();
  for (int round = 0; round < 3; ++round) {
    touch(a);
    touch(a + kBytes / 2);
    touch(a + kBytes - 1);
    verify();
    fake_.clearLog();
    EXPECT_LE(call(), kFewQuestions);
    EXPECT_EQ(fake_.copies().size(), 3u);
    verify();
  }
  EXPECT_TRUE(objects_->free(a).ok());
}

TEST(BlockTable, MakesTheBlocksOfAGroupWhenOneIsAskedFor) {
  BlockTable table(nullptr, 2 * BlockTable::kGroup + 1, State::kReadOnly);
  EXPECT_FALSE(table.made(0));
  table.setRest(BlockTable::kGroup, State::kInvalid);
  EXPECT_TRUE(table.closed(BlockTable::kGroup));
  EXPECT_FALSE(table.closed(0));
  EXPECT_EQ(table[0].state, State::kReadOnly);
  EXPECT_TRUE(table.made(BlockTable::kGroup - 1));
  EXPECT_FALSE(table.made(BlockTable::kGroup));
  EXPECT_EQ(table[2 * BlockTable::kGroup - 1].state, State::kInvalid);
  EXPECT_TRUE(table.closed(BlockTable::kGroup));
  EXPECT_EQ(table[2 * BlockTable::kGroup].state, State::kReadOnly);
  EXPECT_EQ(table.groupEnd(2 * BlockTable::kGroup), 2 * BlockTable::kGroup + 1);
}

TEST(BlockTable, KnowsWhetherABlockOfAGroupIsOpen) {
  BlockTable table(nullptr, 2 * BlockTable::kGroup, State::kInvalid);
  Block& block = table.writable(BlockTable::kGroup + 3);
  EXPECT_TRUE(table.closed(BlockTable::kGroup));
  block.state = State::kDirty;
  table.changed(block, State::kInvalid);
  EXPECT_FALSE(table.closed(BlockTable::kGroup));
  EXPECT_TRUE(table.closed(0));
  block.state = State::kReadOnly;
  table.changed(block, State::kDirty);
  EXPECT_FALSE(table.closed(BlockTable::kGroup));
  block.state = State::kInvalid;
  table.changed(block, State::kReadOnly);
  EXPECT_TRUE(table.closed(BlockTable::kGroup));
}

}  // namespace
}  // namespace gmac::testing
