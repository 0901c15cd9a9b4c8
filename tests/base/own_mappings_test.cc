// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/own_mappings.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace gmac {
namespace {

constexpr std::size_t kBytes = 4096;

// Addresses that nothing is at.
std::byte* place(std::size_t number) {
  return reinterpret_cast<std::byte*>((std::size_t{1} << 40) + 2 * number * kBytes);
}

bool met(std::size_t number) { return own_mappings::meets(place(number) + 10, 1); }

TEST(OwnMappings, AsManyAreGuardedAsThereAre) {
  constexpr std::size_t kCount = 500;
  for (std::size_t i = 0; i < kCount; ++i) own_mappings::add(place(i), kBytes);
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(met(i)) << i;
    EXPECT_FALSE(own_mappings::meets(place(i) + kBytes, kBytes)) << "between " << i << " and next";
  }
  for (std::size_t i = 0; i < kCount; i += 2) own_mappings::remove(place(i));
  for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(met(i), i % 2 == 1) << i;
  for (std::size_t i = 0; i < kCount; i += 2) own_mappings::add(place(i), kBytes);
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(met(i)) << i;
    own_mappings::remove(place(i));
    EXPECT_FALSE(met(i)) << i;
  }
}

TEST(OwnMappings, ThreadsAddAtOnce) {
  constexpr std::size_t kEach = 300;
  std::atomic<int> missing{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, first = 1000 * (t + 1)] {
      for (std::size_t i = first; i < first + kEach; ++i) own_mappings::add(place(i), kBytes);
      for (std::size_t i = first; i < first + kEach; ++i) missing += met(i) ? 0 : 1;
      for (std::size_t i = first; i < first + kEach; ++i) own_mappings::remove(place(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(missing, 0);
}

}  // namespace
}  // namespace gmac
