// SPDX-License-Identifier: Apache-2.0
//
// A thread's memory of where bytes are current (gmac/coherence/memory_port.h), over a port of the
// test's own.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "gmac/coherence/memory_port.h"

namespace gmac::coherence {
namespace {

constexpr std::size_t kBlock = 4096;

// Memory in blocks, each current at one place, that counts how often it is asked.
class Blocks final : public MemoryPort {
 public:
  Blocks() : memory_(kBlocks * kBlock), before_(open(ports_)) {
    shared_ranges::add(addressOf(0), addressOf(kBlocks));
  }
  ~Blocks() {
    constexpr std::uintptr_t kGranule = shared_ranges::kGranuleBytes;
    shared_ranges::remove(addressOf(0) / kGranule * kGranule,
                          (addressOf(kBlocks) + kGranule - 1) / kGranule * kGranule);
    open(before_);
  }

  static constexpr std::size_t kBlocks = 8;
  const Ports& ports() const { return ports_; }
  std::byte* memory() { return memory_.data(); }
  void set(std::size_t block, Current current) {
    current_[block] = current;
    notePlacesChanged();
  }

  Place placeOf(const void* address, std::size_t /*bytes*/) noexcept override {
    ++asked;
    const std::size_t block = (reinterpret_cast<std::uintptr_t>(address) - addressOf(0)) / kBlock;
    return {addressOf(block), addressOf(block + 1), current_[block],
            mayBeRemembered ? placesChanged() : 0};
  }
  bool touchesShared(const void* /*address*/, std::size_t /*bytes*/) noexcept override {
    ++askedWhetherShared;
    return true;
  }
  bool inChildOfFork() const noexcept override { return inChild; }
  bool worksHere() const noexcept override { return works; }

  int asked = 0;
  int askedWhetherShared = 0;
  bool mayBeRemembered = true;
  bool inChild = false;
  bool works = false;

 private:
  std::uintptr_t addressOf(std::size_t block) const {
    return reinterpret_cast<std::uintptr_t>(memory_.data()) + block * kBlock;
  }
  std::vector<std::byte> memory_;
  Current current_[kBlocks] = {};
  const Ports ports_{*this, work(), deviceMemory()};
  const Ports& before_;
};

class RecentPlaces : public ::testing::Test {
 protected:
  Current at(std::size_t block, std::size_t bytes = 1) {
    Current current{};
    length_ = currentPrefix(blocks_.memory() + block * kBlock, bytes, &current);
    return current;
  }
  Blocks blocks_;
  std::size_t length_ = 0;
};

// A thread of the runtime's own may have the lock that the answer takes.
TEST_F(RecentPlaces, AreNotAskedForByTheRuntime) {
  blocks_.set(1, Current::kCpu);
  EXPECT_TRUE(touchesShared(blocks_.memory() + kBlock, 1));
  const int asked = blocks_.asked;
  blocks_.set(1, Current::kAccelerator);
  blocks_.works = true;
  EXPECT_FALSE(touchesShared(blocks_.memory() + kBlock, 1));
  EXPECT_EQ(blocks_.asked, asked);
  blocks_.works = false;
  EXPECT_TRUE(touchesShared(blocks_.memory() + kBlock, 1));
  EXPECT_EQ(blocks_.asked, asked + 1);
}

TEST_F(RecentPlaces, AreAskedForOnce) {
  blocks_.set(1, Current::kCpu);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(at(1, 10), Current::kCpu);
    EXPECT_EQ(length_, 10U);
    EXPECT_EQ(at(1, 3 * kBlock), Current::kCpu);
    EXPECT_EQ(length_, kBlock);
  }
  EXPECT_EQ(blocks_.asked, 1);
}

TEST_F(RecentPlaces, AreForgottenWhenSomethingChanges) {
  blocks_.set(1, Current::kCpu);
  EXPECT_EQ(at(1), Current::kCpu);
  blocks_.set(1, Current::kAccelerator);
  EXPECT_EQ(at(1), Current::kAccelerator);
  blocks_.set(2, Current::kBoth);
  EXPECT_EQ(at(1), Current::kAccelerator);
  EXPECT_EQ(blocks_.asked, 3);
}

TEST_F(RecentPlaces, AreSeveral) {
  for (int round = 0; round < 3; ++round) {
    for (std::size_t block = 0; block < 4; ++block) (void)at(block);
  }
  EXPECT_EQ(blocks_.asked, 4);
}

TEST_F(RecentPlaces, AreNotRememberedWhereThePortSaysSo) {
  blocks_.mayBeRemembered = false;
  EXPECT_EQ(at(0), at(0));
  EXPECT_EQ(blocks_.asked, 2);
}

TEST_F(RecentPlaces, SayWhatIsShared) {
  blocks_.set(0, Current::kNotShared);
  blocks_.set(1, Current::kBoth);
  const std::byte* const memory = blocks_.memory();
  EXPECT_FALSE(coherence::touchesShared(memory, kBlock));
  EXPECT_FALSE(coherence::touchesShared(memory + 100, 1));
  EXPECT_TRUE(coherence::touchesShared(memory + kBlock, kBlock));
  EXPECT_EQ(blocks_.askedWhetherShared, 0);
  // A range that goes on after a place that is not shared.
  EXPECT_TRUE(coherence::touchesShared(memory, kBlock + 1));
  EXPECT_EQ(blocks_.askedWhetherShared, 1);
}

TEST_F(RecentPlaces, OfAParentAreNotAChilds) {
  (void)at(0);
  blocks_.inChild = true;
  (void)at(0);
  EXPECT_EQ(blocks_.asked, 2);
}

TEST_F(RecentPlaces, AreEachThreadsOwn) {
  (void)at(0);
  std::thread([&] { (void)at(0); }).join();
  EXPECT_EQ(blocks_.asked, 2);
  (void)at(0);
  EXPECT_EQ(blocks_.asked, 2);
}

TEST_F(RecentPlaces, OfAnotherPortAreForgotten) {
  (void)at(0);
  {
    Blocks other;
    open(blocks_.ports());
    (void)at(0);
  }
  EXPECT_EQ(blocks_.asked, 2);
}

}  // namespace
}  // namespace gmac::coherence
