// SPDX-License-Identifier: Apache-2.0
//
// Private memory in place of shared memory: what is kept, and what is pinned.
#include "mpi/staging_memory.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace gmac::mpi {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::map<void*, std::size_t> pinned;
bool refuses = false;
int asked = 0;

constexpr StagingMemory::Pinning kPinning = {
    [](void* memory, std::size_t bytes) {
      ++asked;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 4096, 0U);
      EXPECT_EQ(bytes % 4096, 0U);
      return !refuses && pinned.emplace(memory, bytes).second;
    },
    [](void* memory, std::size_t bytes) {
      EXPECT_EQ(pinned[memory], bytes);
      pinned.erase(memory);
    }};

// Uses memory of that size once; where it was.
std::byte* use(std::size_t bytes) {
  StagingMemory memory(bytes);
  std::memset(memory.data(), 1, bytes);
  memory.pin(kPinning);
  return memory.data();
}

class Staging : public ::testing::Test {
 protected:
  // Whatever is kept goes for one range of all that may be.
  void SetUp() override {
    use(StagingMemory::kKeptBytes);
    refuses = false;
    asked = 0;
  }
};

TEST_F(Staging, MemoryIsUsedAgain) {
  std::byte* const first = use(3 * kMiB);
  EXPECT_EQ(use(4 * kMiB), first) << "sizes are powers of two";
  const StagingMemory one(3 * kMiB);
  const StagingMemory other(3 * kMiB);
  EXPECT_EQ(one.data(), first);
  EXPECT_NE(other.data(), first);
}

TEST_F(Staging, MemoryThatIsUsedAgainIsPinnedOnceAndUnpinnedAtItsEnd) {
  std::byte* const first = use(8 * kMiB);
  EXPECT_EQ(asked, 0) << "one message is not worth it";
  use(8 * kMiB);
  EXPECT_EQ(pinned.count(first), 1U);
  use(8 * kMiB);
  EXPECT_EQ(asked, 1);
  use(StagingMemory::kKeptBytes);
  EXPECT_EQ(pinned.count(first), 0U);
}

TEST_F(Staging, LittleMemoryIsNotPinned) {
  for (int i = 0; i < 3; ++i) use(StagingMemory::kLeastPinned / 2);
  for (int i = 0; i < 3; ++i) use(10);
  EXPECT_EQ(asked, 0);
}

TEST_F(Staging, ARefusalIsTakenForAnAnswer) {
  refuses = true;
  for (int i = 0; i < 4; ++i) use(2 * kMiB);
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(pinned.empty());
}

// A long message long ago keeps no room from short ones now: SetUp() has left one.
TEST_F(Staging, WhatWasFreedLastIsKept) {
  constexpr std::size_t kEighth = StagingMemory::kKeptBytes / 8;
  std::byte* const eighth = use(kEighth);
  std::byte* const quarter = use(2 * kEighth);
  EXPECT_EQ(use(kEighth), eighth);
  EXPECT_EQ(use(2 * kEighth), quarter);
  EXPECT_EQ(pinned.size(), 2U);
  // Both fit with a half, and one of them with another quarter as well.
  use(4 * kEighth);
  EXPECT_EQ(pinned.size(), 2U);
  {
    const StagingMemory one(2 * kEighth);
    const StagingMemory two(2 * kEighth);
    EXPECT_EQ(one.data(), quarter);
  }
  EXPECT_EQ(pinned.count(eighth), 0U) << "freed first";
  EXPECT_EQ(pinned.count(quarter), 1U);
}

TEST_F(Staging, MoreThanMayBeKeptIsGivenBack) {
  use(StagingMemory::kKeptBytes + 1);
  use(StagingMemory::kKeptBytes + 1);
  EXPECT_EQ(asked, 0);
  EXPECT_TRUE(pinned.empty());
}

// Two ranges of a few bytes, one after the other, on a thread of its own.
bool usesAgain() {
  bool again = false;
  std::thread([&] {
    std::byte* const first = use(10);
    again = use(StagingMemory::kLeastRoom) == first;
  }).join();
  return again;
}

TEST_F(Staging, FewBytesAreKeptByTheThreadThatFreesThem) {
  std::byte* const here = use(10);
  std::thread([&] { EXPECT_NE(use(10), here); }).join();
  EXPECT_EQ(use(10), here);
  EXPECT_TRUE(usesAgain());
}

TEST_F(Staging, FewBytesMayBeFreedByAnotherThread) {
  std::vector<StagingMemory> many(1000);
  std::set<std::byte*> addresses;
  for (StagingMemory& one : many) {
    one = StagingMemory(10);
    std::memset(one.data(), 1, StagingMemory::kLeastRoom);
    addresses.insert(one.data());
  }
  EXPECT_EQ(addresses.size(), many.size());
  std::thread([&] { many.clear(); }).join();
  const StagingMemory one(10);
  EXPECT_TRUE(addresses.contains(one.data())) << "more than a thread keeps are everybody's";
}

// A destructor of a thread's own may free memory after that thread has given back what it kept.
TEST_F(Staging, FewBytesMayBeUsedWhileAThreadEnds) {
  struct AtTheEnd {
    ~AtTheEnd() {
      for (int i = 0; i < 3; ++i) use(10);
    }
    int first = 0;
  };
  std::thread([] {
    thread_local AtTheEnd end;  // before what the memory registers: so its destructor runs later
    end.first = 1;
    use(10);
  }).join();
  EXPECT_TRUE(usesAgain());
}

TEST_F(Staging, NothingAndTooMuchAreNoCrash) {
  EXPECT_NE(StagingMemory(0).data(), nullptr);
  EXPECT_EQ(StagingMemory(SIZE_MAX).data(), nullptr);
  StagingMemory moved(kMiB);
  std::byte* const data = moved.data();
  StagingMemory target;
  target = std::move(moved);
  EXPECT_EQ(target.data(), data);
}

}  // namespace
}  // namespace gmac::mpi
