// SPDX-License-Identifier: Apache-2.0
//
// Private memory in place of shared memory: what is kept, and what is pinned.
#include "mpi/staging_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
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
  // Whatever is kept goes for two ranges of all that may be.
  static void empty() {
    const StagingMemory one(StagingMemory::kLongest);
    use(StagingMemory::kLongest);
  }
  void SetUp() override {
    empty();
    refuses = false;
    asked = 0;
  }
};

// So that a message which another process's kernel copies is in as few pages as it can be.
TEST_F(Staging, EveryRangeBeginsAtAPage) {
  std::vector<StagingMemory> ranges;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{5000}, kMiB}) {
    for (int i = 0; i < 4; ++i) {
      const StagingMemory& made = ranges.emplace_back(bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(made.data()) % 4096, 0U) << bytes;
    }
  }
}

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
  empty();
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

// Long messages long ago keep no room from short ones now: SetUp() has left two.
TEST_F(Staging, WhatWasFreedLastIsKept) {
  constexpr std::size_t kEighth = StagingMemory::kKeptBytes / 8;
  std::byte* const eighth = use(kEighth);
  std::byte* const quarter = use(2 * kEighth);
  EXPECT_EQ(use(kEighth), eighth);
  EXPECT_EQ(use(2 * kEighth), quarter);
  EXPECT_EQ(pinned.count(eighth) + pinned.count(quarter), 2U);
  // Both fit with a half, and one of them with another quarter as well.
  use(4 * kEighth);
  EXPECT_EQ(pinned.count(eighth) + pinned.count(quarter), 2U);
  {
    const StagingMemory one(2 * kEighth);
    const StagingMemory two(2 * kEighth);
    EXPECT_EQ(one.data(), quarter);
  }
  EXPECT_EQ(pinned.count(eighth), 0U) << "freed first";
  EXPECT_EQ(pinned.count(quarter), 1U);
}

// Whose pages the system may have taken meanwhile.
TEST(LargeRanges, AreFoundAgain) {
  LargeRanges ranges(64 * kMiB);
  const LargeRanges::Range first = ranges.take(20 * kMiB - 1);
  EXPECT_EQ(first.bytes, 20 * kMiB);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.data) % (2 * kMiB), 0U);
  const LargeRanges::Range other = ranges.take(20 * kMiB);
  EXPECT_NE(other.data, first.data);
  std::memset(first.data, 1, first.bytes);
  std::memset(other.data, 2, other.bytes);
  ranges.free(other);
  ranges.free(first);
  EXPECT_EQ(ranges.take(15 * kMiB).data, first.data);
  EXPECT_NE(ranges.take(7 * kMiB).data, other.data) << "more than twice as long";
  EXPECT_NE(ranges.take(21 * kMiB).data, other.data) << "too short";
  const LargeRanges::Range again = ranges.take(20 * kMiB);
  EXPECT_EQ(again.data, other.data);
  std::memset(again.data, 3, again.bytes);
}

// Whether it is mapped.
bool isThere(const std::byte* data) {
  unsigned char resident = 0;
  return mincore(const_cast<std::byte*>(data), 4096, &resident) == 0;
}

TEST(LargeRanges, ThatWereFreedLastAreKept) {
  LargeRanges ranges(40 * kMiB);
  std::array<LargeRanges::Range, 3> all{};
  for (LargeRanges::Range& one : all) one = ranges.take(16 * kMiB);
  for (const LargeRanges::Range& one : all) ranges.free(one);
  EXPECT_FALSE(isThere(all[0].data));
  EXPECT_TRUE(isThere(all[1].data));
  EXPECT_TRUE(isThere(all[2].data));
  const LargeRanges::Range larger = ranges.take(60 * kMiB);
  ranges.free(larger);
  EXPECT_FALSE(isThere(larger.data)) << "more than is kept";
}

TEST(LargeRanges, AreNotKeptWhereAddressesAreLimited) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  LargeRanges ranges(64 * kMiB);
  const LargeRanges::Range range = ranges.take(16 * kMiB);
  rlimit limited = before;
  limited.rlim_cur = std::min(before.rlim_max, rlim_t{1} << 46);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  ranges.free(range);
  EXPECT_FALSE(isThere(range.data));
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
}

TEST(LargeRanges, AreNoMemoryWhereThereIsNone) {
  LargeRanges ranges(64 * kMiB);
  ranges.free(ranges.take(16 * kMiB));
  EXPECT_EQ(ranges.take(std::size_t{1} << 50).data, nullptr);
  EXPECT_NE(ranges.take(16 * kMiB).data, nullptr);
}

TEST_F(Staging, ALongRangeIsUsedAgain) {
  std::byte* const first = use(StagingMemory::kLongest + 1);
  EXPECT_EQ(use(StagingMemory::kLongest + 100), first);
  EXPECT_EQ(asked, 0) << "the system cannot take pinned pages";
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
