// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/small_heap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/seed.h"

namespace gmac {
namespace {

using ::testing::HasSubstr;

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

// Hands out address ranges that are not memory: touching one would crash the test. Regions are 256
// bytes off any coarser alignment, and neighbours touch.
class FakeSource : public RegionSource {
 public:
  Result<void*> acquire(std::size_t bytes) override {
    if (failAcquire) return fail(adsmErrorAcceleratorMemory, "no region today");
    std::uintptr_t start = 0x100000100;
    while (live.contains(start)) start += SmallHeap::kRegionBytes;
    EXPECT_EQ(bytes, SmallHeap::kRegionBytes);
    live.insert(start);
    ++acquired;
    return reinterpret_cast<void*>(start);
  }
  Status release(void* region) override {
    EXPECT_EQ(live.erase(number(region)), 1u);
    ++released;
    return failRelease ? fail(adsmErrorSystem, "a loss") : Status();
  }

  void clear(void* at, std::size_t bytes) override { cleared.emplace_back(number(at), bytes); }

  std::set<std::uintptr_t> live;
  std::vector<std::pair<std::uintptr_t, std::size_t>> cleared;
  bool failAcquire = false;
  bool failRelease = false;
  int acquired = 0;
  int released = 0;
};

class SmallHeapTest : public ::testing::Test {
 protected:
  void* allocate(std::size_t bytes) {
    auto address = heap.allocate(bytes);
    EXPECT_TRUE(address.ok()) << lastErrorText();
    return address.ok() ? *address : nullptr;
  }
  void* at(void* address, std::ptrdiff_t offset) {
    return reinterpret_cast<void*>(number(address) + static_cast<std::uintptr_t>(offset));
  }

  FakeSource source;
  SmallHeap heap{source};
};

TEST_F(SmallHeapTest, RefusesSizesThatAreNotSmall) {
  EXPECT_EQ(heap.allocate(0).status().code(), adsmErrorInvalidValue);
  EXPECT_EQ(heap.allocate(SmallHeap::kLargestObject + 1).status().code(), adsmErrorInvalidValue);
  EXPECT_THAT(lastErrorText(), HasSubstr("32769"));
  EXPECT_EQ(heap.allocate(~std::size_t{0}).status().code(), adsmErrorInvalidValue);
  EXPECT_EQ(source.acquired, 0);
}

TEST_F(SmallHeapTest, EverySizeIsAlignedFoundAndLosesAtMostAFifthOfItsSlot) {
  for (std::size_t bytes = 1; bytes <= SmallHeap::kLargestObject; ++bytes) {
    void* const first = allocate(bytes);
    void* const second = allocate(bytes);
    ASSERT_EQ(number(first) % SmallHeap::kAlignment, 0u) << bytes;
    const auto distance = static_cast<std::ptrdiff_t>(number(second) - number(first));
    const auto slot = static_cast<std::size_t>(std::abs(distance));
    const std::size_t units = (bytes + 255) / 256 * 256;
    ASSERT_GE(slot, bytes);
    ASSERT_LE((slot - units) * 5, slot) << bytes;
    for (const std::size_t inside : {std::size_t{0}, bytes / 2, bytes - 1}) {
      const auto found = heap.find(at(first, static_cast<std::ptrdiff_t>(inside)));
      ASSERT_TRUE(found.has_value());
      ASSERT_EQ(found->start, first);
      ASSERT_EQ(found->bytes, bytes);
    }
    if (bytes < slot) {
      ASSERT_FALSE(heap.find(at(first, static_cast<std::ptrdiff_t>(bytes))));
    }
    ASSERT_TRUE(heap.free(first).ok());
    ASSERT_TRUE(heap.free(second).ok());
  }
  EXPECT_TRUE(heap.isConsistent());
  EXPECT_EQ(heap.liveObjects(), 0u);
}

// So an object reads as zero that is allocated while no other one lives.
TEST_F(SmallHeapTest, WhatWasUsedIsClearedOnceNothingLives) {
  using ::testing::IsEmpty;
  using ::testing::Pair;
  void* const first = allocate(2000);
  void* const second = allocate(2000);
  void* const page = allocate(4096);
  ASSERT_TRUE(heap.free(first).ok());
  EXPECT_EQ(allocate(2000), first);
  ASSERT_TRUE(heap.free(first).ok());
  ASSERT_TRUE(heap.free(second).ok());
  EXPECT_EQ(allocate(2000), first);
  EXPECT_THAT(source.cleared, IsEmpty()) << "others lived";
  ASSERT_TRUE(heap.free(first).ok());
  ASSERT_TRUE(heap.free(page).ok());
  EXPECT_THAT(source.cleared, IsEmpty()) << "nobody has come yet";
  void* const next = allocate(1500);
  EXPECT_THAT(source.cleared,
              ::testing::UnorderedElementsAre(Pair(number(first), 4096), Pair(number(page), 4096)));
  source.cleared.clear();
  allocate(2000);
  EXPECT_THAT(source.cleared, IsEmpty());
  ASSERT_TRUE(heap.free(next).ok());
}

TEST_F(SmallHeapTest, TellsWrongPointersInsidePointersAndDoubleFreesApart) {
  void* const object = allocate(1000);
  void* const other = allocate(1000);
  const auto expectRefused = [&](void* address, const char* words) {
    EXPECT_EQ(heap.free(address).code(), adsmErrorInvalidPointer);
    EXPECT_THAT(lastErrorText(), HasSubstr(words));
  };
  int local = 0;
  expectRefused(&local, "is no shared object's address");
  expectRefused(nullptr, "is no shared object's address");
  expectRefused(at(object, 8), "lies 8 bytes inside an object of 1000 bytes");
  expectRefused(at(object, 999), "lies 999 bytes inside");
  expectRefused(at(object, 1001), "is no shared object's address");
  expectRefused(at(other, 1024), "is no shared object's address");  // a slot never used
  ASSERT_TRUE(heap.free(object).ok());
  expectRefused(object, "double free");
  expectRefused(at(object, 8), "inside an object that was freed already");
  ASSERT_TRUE(heap.free(other).ok());
  expectRefused(other, "double free");  // in an empty slab, too
  EXPECT_TRUE(heap.isConsistent());
}

TEST_F(SmallHeapTest, WhatASlabHeldInAnotherClassIsForgotten) {
  void* const first = allocate(256);
  void* const second = allocate(256);
  void* const third = allocate(256);
  for (void* object : {first, second, third}) ASSERT_TRUE(heap.free(object).ok());
  void* const larger = allocate(512);
  ASSERT_EQ(larger, first) << "the slab was not used again, so that this test shows nothing";
  EXPECT_EQ(heap.free(at(first, 512)).code(), adsmErrorInvalidPointer);
  EXPECT_THAT(lastErrorText(), HasSubstr("is no shared object's address"));
}

TEST_F(SmallHeapTest, ManyTinyObjectsFitInLittleMore) {
  constexpr std::size_t kObjects = 131072;
  std::set<std::uintptr_t> starts;
  for (std::size_t i = 0; i < kObjects; ++i) starts.insert(number(allocate(256)));
  EXPECT_EQ(starts.size(), kObjects);
  const std::size_t beyond =
      heap.regionCount() * SmallHeap::kRegionBytes + heap.bookkeepingBytes() - kObjects * 256;
  EXPECT_LE(beyond, std::size_t{64} << 20);
  EXPECT_EQ(heap.regionCount(), kObjects * 256 / SmallHeap::kRegionBytes);
  EXPECT_TRUE(heap.isConsistent());
}

TEST_F(SmallHeapTest, KeepsOneEmptyRegionAndReleasesTheOthers) {
  std::vector<void*> objects;
  for (std::size_t i = 0; i < 3 * SmallHeap::kRegionBytes / SmallHeap::kLargestObject; ++i) {
    objects.push_back(allocate(SmallHeap::kLargestObject));
  }
  EXPECT_EQ(heap.regionCount(), 3u);
  for (void* object : objects) ASSERT_TRUE(heap.free(object).ok());
  EXPECT_EQ(heap.regionCount(), 1u);
  EXPECT_EQ(source.released, 2);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(heap.free(allocate(3000)).ok());
  EXPECT_EQ(source.acquired, 3);
  EXPECT_TRUE(heap.trim().ok());
  EXPECT_EQ(heap.regionCount(), 0u);
  EXPECT_TRUE(source.live.empty());
  EXPECT_TRUE(heap.isConsistent());
}

TEST_F(SmallHeapTest, TinyObjectsHaveRegionsOfTheirOwn) {
  const auto regionOf = [](const void* object) { return number(object) / SmallHeap::kRegionBytes; };
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> tiny;
    std::vector<void*> others;
    for (const std::size_t bytes : {4, 1024, 512, 257}) tiny.push_back(allocate(bytes));
    for (const std::size_t bytes : {1025, 32'768, 5000}) others.push_back(allocate(bytes));
    for (const void* object : tiny) EXPECT_EQ(regionOf(object), regionOf(tiny.front()));
    for (const void* object : others) EXPECT_EQ(regionOf(object), regionOf(others.front()));
    EXPECT_NE(regionOf(tiny.front()), regionOf(others.front()));
    EXPECT_TRUE(heap.isConsistent());
    for (void* object : tiny) ASSERT_TRUE(heap.free(object).ok());
    for (void* object : others) ASSERT_TRUE(heap.free(object).ok());
    EXPECT_TRUE(heap.isConsistent());
  }
  EXPECT_EQ(source.acquired, 2);
  EXPECT_EQ(heap.regionCount(), 2u) << "one of each kind is kept";
  EXPECT_TRUE(heap.trim().ok());
  EXPECT_EQ(heap.regionCount(), 0u);
}

TEST_F(SmallHeapTest, ASourceThatHasNothingLeavesEverythingAsItWas) {
  source.failAcquire = true;
  EXPECT_EQ(heap.allocate(100).status().code(), adsmErrorAcceleratorMemory);
  EXPECT_STREQ(lastErrorText(), "no region today");
  EXPECT_EQ(heap.regionCount(), 0u);
  EXPECT_TRUE(heap.isConsistent());
  source.failAcquire = false;
  EXPECT_NE(allocate(100), nullptr);
}

TEST_F(SmallHeapTest, AnErrorOfTheSourceIsToldAndTheObjectIsFreed) {
  std::vector<void*> objects;
  while (heap.regionCount() < 2) objects.push_back(allocate(SmallHeap::kLargestObject));
  void* const alone = objects.back();  // in the second region
  objects.pop_back();
  for (void* object : objects) ASSERT_TRUE(heap.free(object).ok());
  source.failRelease = true;
  EXPECT_EQ(heap.free(alone).code(), adsmErrorSystem);
  EXPECT_FALSE(heap.find(alone).has_value());
  EXPECT_EQ(heap.liveObjects(), 0u);
  EXPECT_EQ(heap.regionCount(), 1u);
  EXPECT_TRUE(heap.isConsistent());
  EXPECT_EQ(heap.trim().code(), adsmErrorSystem);
  EXPECT_EQ(heap.regionCount(), 0u);
  EXPECT_TRUE(source.live.empty());
  EXPECT_TRUE(heap.isConsistent());
}

// Random programs against a map of what must be live. GMAC_TEST_SEED repeats one.
class SmallHeapRandom : public SmallHeapTest, public ::testing::WithParamInterface<unsigned> {};

TEST_P(SmallHeapRandom, AgreesWithAnOracle) {
  const auto seed = static_cast<unsigned>(testing::seedOr(GetParam()));
  SCOPED_TRACE("GMAC_TEST_SEED=" + std::to_string(seed));
  std::printf("GMAC_TEST_SEED=%u\n", seed);
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  std::map<std::uintptr_t, std::size_t> live;  // start -> size
  std::vector<std::uintptr_t> order;
  // Grows and shrinks in waves, so that regions come and go; favours few size classes at a time.
  for (int step = 0; step < 30000; ++step) {
    const bool growing = step / 5000 % 2 == 0;
    source.failAcquire = below(4) == 0;
    source.failRelease = below(4) == 0;
    if (order.empty() || below(100) < (growing ? 70u : 30u)) {
      const std::size_t limit = std::size_t{1} << (8 + below(8));
      const std::size_t bytes = 1 + below(std::min(limit, SmallHeap::kLargestObject));
      const std::size_t regions = heap.regionCount();
      const auto address = heap.allocate(bytes);
      if (!address.ok()) {
        ASSERT_TRUE(source.failAcquire);
        ASSERT_EQ(address.status().code(), adsmErrorAcceleratorMemory);
        ASSERT_EQ(heap.regionCount(), regions);
      } else {
        const std::uintptr_t start = number(*address);
        ASSERT_EQ(start % SmallHeap::kAlignment, 0u);
        const auto region = source.live.upper_bound(start);
        ASSERT_NE(region, source.live.begin());
        ASSERT_LE(start + bytes, *std::prev(region) + SmallHeap::kRegionBytes);
        const auto after = live.lower_bound(start);
        if (after != live.end()) {
          ASSERT_LE(start + bytes, after->first) << "overlaps the next";
        }
        if (after != live.begin()) {
          ASSERT_LE(std::prev(after)->first + std::prev(after)->second, start)
              << "overlaps the one before";
        }
        live.emplace(start, bytes);
        order.push_back(start);
      }
    } else {
      const std::size_t chosen = below(order.size());
      const std::uintptr_t start = order[chosen];
      const Status freed = heap.free(reinterpret_cast<void*>(start));
      if (!freed.ok()) {
        ASSERT_TRUE(source.failRelease) << lastErrorText();
        ASSERT_EQ(freed.code(), adsmErrorSystem);
      }
      live.erase(start);
      order[chosen] = order.back();
      order.pop_back();
    }
    ASSERT_EQ(heap.liveObjects(), live.size());
    // Any address near what is or was there.
    const std::uintptr_t probe = 0x100000000 + below(8 * SmallHeap::kRegionBytes);
    const auto after = live.upper_bound(probe);
    const bool inside =
        after != live.begin() && probe < std::prev(after)->first + std::prev(after)->second;
    const auto found = heap.find(reinterpret_cast<void*>(probe));
    ASSERT_EQ(found.has_value(), inside) << probe;
    if (inside) {
      ASSERT_EQ(number(found->start), std::prev(after)->first);
      ASSERT_EQ(found->bytes, std::prev(after)->second);
    } else {
      ASSERT_EQ(heap.free(reinterpret_cast<void*>(probe)).code(), adsmErrorInvalidPointer);
    }
    if (step % 500 == 0) {
      ASSERT_TRUE(heap.isConsistent());
    }
  }
  source.failRelease = false;
  for (const std::uintptr_t start : order) {
    ASSERT_TRUE(heap.free(reinterpret_cast<void*>(start)).ok()) << lastErrorText();
  }
  EXPECT_TRUE(heap.trim().ok());
  EXPECT_TRUE(source.live.empty());
  EXPECT_TRUE(heap.isConsistent());
}

INSTANTIATE_TEST_SUITE_P(Seeds, SmallHeapRandom, ::testing::Values(1u, 2u, 3u, 20100313u));

TEST_F(SmallHeapTest, ThreadsNeverGetTheSameBytes) {
  constexpr int kThreads = 4;
  std::vector<std::vector<SmallHeap::Object>> kept(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 5000; ++i) {
        const std::size_t bytes = 1 + random() % SmallHeap::kLargestObject;
        const auto address = heap.allocate(bytes);
        ASSERT_TRUE(address.ok());
        const auto found = heap.find(*address);
        ASSERT_TRUE(found && found->start == *address && found->bytes == bytes);
        if (i % 4 == 0) {
          kept[static_cast<std::size_t>(t)].push_back(*found);
        } else {
          ASSERT_TRUE(heap.free(*address).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::map<std::uintptr_t, std::size_t> all;
  for (const auto& objects : kept) {
    for (const auto& [start, bytes] : objects) {
      ASSERT_TRUE(all.emplace(number(start), bytes).second);
    }
  }
  std::uintptr_t freeFrom = 0;
  for (const auto& [start, bytes] : all) {
    ASSERT_GE(start, freeFrom);
    freeFrom = start + bytes;
  }
  EXPECT_EQ(heap.liveObjects(), all.size());
  EXPECT_TRUE(heap.isConsistent());
}

}  // namespace
}  // namespace gmac
