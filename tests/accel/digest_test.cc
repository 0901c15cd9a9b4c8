// SPDX-License-Identifier: Apache-2.0
//
// What digests tell apart.
#include "gmac/accel/digest/digest.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

namespace gmac::accel::digest {
namespace {

using Words = std::vector<std::uint64_t>;
using Pair = std::pair<std::uint64_t, std::uint64_t>;

Pair digestOf(const Words& words) {
  Sums sums{};
  for (std::size_t i = 0; i < words.size(); ++i) {
    add(sums, words[i], i);
  }
  return {sums.low, sums.high};
}

TEST(Digest, AnyChangedBitChangesBothSums) {
  Words words(64);
  const Pair before = digestOf(words);
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (unsigned bit = 0; bit < 64; ++bit) {
      words[i] ^= std::uint64_t{1} << bit;
      const Pair after = digestOf(words);
      EXPECT_NE(after.first, before.first) << i << ", bit " << bit;
      EXPECT_NE(after.second, before.second) << i << ", bit " << bit;
      words[i] ^= std::uint64_t{1} << bit;
    }
  }
}

// What a plain sum, or one that knows no places, would miss.
TEST(Digest, ChangesThatMakeUpForEachOtherAreTold) {
  Words words(1000);
  std::iota(words.begin(), words.end(), 5);
  std::set<std::uint64_t> low{digestOf(words).first};
  std::set<std::uint64_t> high{digestOf(words).second};
  std::size_t variants = 1;
  const auto note = [&](const Words& variant) {
    ++variants;
    low.insert(digestOf(variant).first);
    high.insert(digestOf(variant).second);
  };
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    Words swapped = words;
    std::swap(swapped[i], swapped[i + 1]);
    note(swapped);
    Words moved = words;
    moved[i] += 1000;
    moved[i + 1] -= 1000;
    note(moved);
    Words flipped = words;
    flipped[i] ^= std::uint64_t{1} << 63;
    flipped[i + 1] ^= std::uint64_t{1} << 63;
    note(flipped);
  }
  Words shifted(words.begin() + 1, words.end());
  shifted.push_back(words.front());
  note(shifted);
  EXPECT_EQ(low.size(), variants);
  EXPECT_EQ(high.size(), variants);
}

TEST(Digest, ALaunchOfTooManyBlocksIsImpossible) {
  EXPECT_TRUE(Launch::possible(std::size_t{1} << 40, 4096));
  EXPECT_TRUE(Launch::possible(std::size_t{1} << 46, std::size_t{1} << 46));
  EXPECT_FALSE(Launch::possible(std::size_t{1} << 46, 4096));
}

}  // namespace
}  // namespace gmac::accel::digest
