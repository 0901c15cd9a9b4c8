// SPDX-License-Identifier: Apache-2.0
//
// An operation submitted again from its cached launch: right for every shape, and refused where
// something that it depends on has changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gmac/coherence/shared_ranges.h"
#include "gmac/datatype/engine/engine.h"
#include "tests/datatype/direct_accelerator.h"
#include "tests/datatype/irregular.h"

namespace gmac::datatype {
namespace {

using std::int64_t;
using testing::DirectAccelerator;
using testing::irregular;

PreparedPtr prepare(const std::vector<Dim>& dims, const std::vector<Block>& blocks) {
  auto layout = Layout::make(dims, blocks);
  EXPECT_TRUE(layout.ok()) << lastErrorText();
  return std::make_shared<const Prepared>(
      std::make_shared<const Committed>(Committed{*layout, 0, 0, layout->bytes()}));
}

constexpr std::size_t kTables = std::size_t{1} << 20;

class Relaunch : public ::testing::Test {
 protected:
  void SetUp() override { engine_ = std::make_unique<Engine>(accelerator_, kTables); }

  // From now on the operation is a pack or unpack of all of it.
  void use(PreparedPtr prepared, Direction direction = Direction::kPack) {
    prepared_ = std::move(prepared);
    const Layout& layout = prepared_->layout();
    ASSERT_EQ(layout.bounds().first, 0);
    strided_ = {room_.data(), static_cast<std::size_t>(layout.bounds().last)};
    packed_ = {room_.data() + room_.size() / 2, static_cast<std::size_t>(layout.bytes())};
    ASSERT_LT(strided_.size(), room_.size() / 4);
    operation_ = {};
    operation_.direction = direction;
    operation_.prepared = prepared_.get();
    operation_.strided = strided_.data();
    operation_.packed = packed_.data();
    operation_.bytes = layout.bytes();
    operation_.bounds = layout.bounds();
  }
  // Both sides anew, the source's bytes from `seed` on.
  void fill(int seed) {
    auto& source = operation_.packs() ? strided_ : packed_;
    auto& target = operation_.packs() ? packed_ : strided_;
    for (std::size_t i = 0; i < source.size(); ++i) {
      source[i] = static_cast<std::byte>((i * 7 + static_cast<std::size_t>(seed)) % 251);
    }
    std::fill(target.begin(), target.end(), std::byte{255});
  }
  // Every byte where it belongs, and no other one written.
  void expectMoved() {
    std::vector<std::byte> strided(strided_.size(), std::byte{255});
    std::vector<std::byte> packed(packed_.begin(), packed_.end());
    prepared_->layout().forEach(0, operation_.bytes, [&](int64_t at, int64_t in, int64_t bytes) {
      for (int64_t i = 0; i < bytes; ++i) {
        packed[static_cast<std::size_t>(in + i)] = strided_[static_cast<std::size_t>(at + i)];
        strided[static_cast<std::size_t>(at + i)] = packed_[static_cast<std::size_t>(in + i)];
      }
    });
    EXPECT_TRUE(std::equal(packed_.begin(), packed_.end(), packed.begin()));
    if (!operation_.packs()) {
      EXPECT_TRUE(std::equal(strided_.begin(), strided_.end(), strided.begin()));
    }
  }
  void run() {
    fill(1);
    auto outcome = engine_->run(operation_, cached_);
    ASSERT_TRUE(outcome.ok()) << lastErrorText();
    expectMoved();
  }
  // Whether it was done; then it was right.
  bool relaunch() {
    fill(2);
    const std::size_t before = accelerator_.launches();
    accel::Ticket ticket;
    auto done = engine_->relaunch(cached_, operation_.stream, &ticket);
    EXPECT_TRUE(done.ok()) << lastErrorText();
    EXPECT_EQ(accelerator_.launches() - before, *done ? 1U : 0U);
    if (*done) {
      expectMoved();
    }
    return *done;
  }

  DirectAccelerator accelerator_;
  std::unique_ptr<Engine> engine_;
  PreparedPtr prepared_;
  // Both sides', far from each other.
  std::vector<std::byte> room_ = std::vector<std::byte>(std::size_t{32} << 20);
  std::span<std::byte> strided_;
  std::span<std::byte> packed_;
  Operation operation_;
  CachedLaunch cached_;
};

TEST_F(Relaunch, IsTheSameOperationForEveryShape) {
  const struct {
    Shape shape;
    PreparedPtr prepared;
  } kCases[] = {
      {Shape::kLine, prepare({}, {{0, 1000}})},
      {Shape::kRows1, prepare({{100, 24}}, {{0, 8}})},
      {Shape::kRows3, prepare({{3, 10000}, {4, 1000}, {5, 24}}, {{0, 8}})},
      {Shape::kTile, prepare({{64, 8}, {64, 1000}}, {{0, 8}})},
      {Shape::kShortList, prepare({}, irregular(50, 8, 5))},
      {Shape::kEvenList, prepare({}, irregular(2000, 8, 1))},
      {Shape::kMarkedList, prepare({}, irregular(2000, 4, 5))},
      {Shape::kLongList, prepare({}, irregular(2000, 1, 5))},
  };
  for (const auto& item : kCases) {
    SCOPED_TRACE(shapeName(item.shape));
    ASSERT_EQ(item.prepared->plan().shape(), item.shape);
    for (const Direction direction : {Direction::kPack, Direction::kUnpack}) {
      for (const bool streams : {false, true}) {
        use(item.prepared, direction);
        if (streams) {
          operation_.stream = accel::NativeStream{64};
        }
        run();
        ASSERT_TRUE(cached_.valid);
        EXPECT_EQ(cached_.report.launches, 1);
        EXPECT_TRUE(relaunch());
        EXPECT_TRUE(relaunch());
      }
    }
  }
}

TEST_F(Relaunch, MemoryOfAnotherKindIsAnotherOperation) {
  use(prepare({{100, 24}}, {{0, 8}}));
  run();
  ASSERT_TRUE(cached_.valid);
  for (const std::byte* side : {strided_.data(), packed_.data()}) {
    for (const accel::Memory memory : {accel::Memory::kPageable, accel::Memory::kPinned}) {
      accelerator_.setMemory(side, memory);
      EXPECT_FALSE(relaunch());
      accelerator_.setMemory(side, accel::Memory::kDevice);
      EXPECT_TRUE(relaunch());
    }
  }
}

TEST_F(Relaunch, MemoryThatHasBecomeSharedIsAnotherOperation) {
  use(prepare({{100, 24}}, {{0, 8}}));
  run();
  ASSERT_TRUE(cached_.valid);
  constexpr std::uintptr_t kGranule = shared_ranges::kGranuleBytes;
  for (const std::byte* side : {strided_.data(), packed_.data()}) {
    const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(side) / kGranule * kGranule;
    shared_ranges::add(begin, begin + kGranule);
    EXPECT_FALSE(relaunch());
    shared_ranges::remove(begin, begin + kGranule);
    EXPECT_TRUE(relaunch());
  }
}

TEST_F(Relaunch, IntoPinnedMemoryTheStreamIsWaitedForByItsOwner) {
  use(prepare({{100, 24}}, {{0, 8}}));
  accelerator_.setMemory(packed_.data(), accel::Memory::kPinned);
  operation_.method = adsmMethodKernel;
  run();
  EXPECT_FALSE(cached_.valid) << "its caller waits for it";
  operation_.stream = accel::NativeStream{64};
  run();
  ASSERT_TRUE(cached_.valid);
  EXPECT_EQ(cached_.report.bytesAcross, operation_.bytes);
  EXPECT_TRUE(relaunch());
  accelerator_.setMemory(packed_.data(), accel::Memory::kDevice);
  EXPECT_FALSE(relaunch());
}

TEST_F(Relaunch, ATableThatHasMadeRoomForOthersIsNotUsed) {
  const PreparedPtr first = prepare({}, irregular(150000, 8, 1));
  const PreparedPtr second = prepare({}, irregular(150001, 8, 1));
  ASSERT_GT(first->plan().table().bytes + second->plan().table().bytes, kTables);
  for (int turn = 0; turn < 2; ++turn) {
    use(first);
    run();
    run();
    ASSERT_TRUE(cached_.valid);
    EXPECT_TRUE(relaunch());
    const CachedLaunch before = cached_;
    use(second);
    run();
    cached_ = before;
    use(first);
    EXPECT_FALSE(relaunch());
  }
}

TEST_F(Relaunch, AFailureIsToldAndLeavesNothingPinned) {
  for (const PreparedPtr& prepared :
       {prepare({{100, 24}}, {{0, 8}}), prepare({}, irregular(2000, 8, 1))}) {
    use(prepared);
    run();
    ASSERT_TRUE(cached_.valid);
    accelerator_.failNext(DirectAccelerator::Call::kLaunch, 1);
    accel::Ticket ticket;
    auto done = engine_->relaunch(cached_, {}, &ticket);
    EXPECT_FALSE(done.ok());
    EXPECT_THAT(std::string(lastErrorText()), ::testing::HasSubstr("as was asked for"));
    EXPECT_TRUE(relaunch());
  }
}

TEST_F(Relaunch, WhatIsMoreThanOneLaunchIsNotKept) {
  use(prepare({}, irregular(200000, 8, 1)));
  run();
  EXPECT_FALSE(cached_.valid) << "launched while its table was filled";
  run();
  EXPECT_TRUE(cached_.valid);
  EXPECT_TRUE(relaunch());
  operation_.method = adsmMethodCopy2d;
  auto failed = engine_->run(operation_, cached_);
  EXPECT_FALSE(failed.ok());
  EXPECT_FALSE(cached_.valid);
}

}  // namespace
}  // namespace gmac::datatype
