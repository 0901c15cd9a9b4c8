// SPDX-License-Identifier: Apache-2.0
#include "exchange/layout_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "tests/exchange/random_layout.h"

namespace gmac::testing {
namespace {

using datatype::Layout;
using exchange::decode;
using exchange::encode;
using exchange::hashOf;
using exchange::LayoutHash;
using exchange::LayoutReader;
using exchange::LayoutTable;

TEST(LayoutBytes, BringLayoutsBack) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 3000; ++round) {
    const Layout layout =
        randomLayout(random, 1 + static_cast<std::int64_t>(random() % 5000)).layout;
    const auto bytes = encode(layout);
    const auto back = decode(bytes);
    ASSERT_TRUE(back.ok()) << lastErrorText();
    ASSERT_EQ(*back, layout) << layout.describe();
    ASSERT_EQ(back->bytes(), layout.bytes());
  }
  const auto empty = decode(encode(Layout()));
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(*empty, Layout());
}

TEST(LayoutBytes, OfRegularLayoutsAreFewerThan200) {
  const auto four = Layout::make({{7, 1 << 30}, {9, 1 << 20}, {11, 1 << 12}, {13, 100}}, {{8, 40}});
  ASSERT_TRUE(four.ok());
  ASSERT_EQ(four->dims().size(), 4u);
  EXPECT_LT(encode(*four).size(), 200u);
  // Of a list of blocks that are alike, 8 bytes a block.
  std::vector<datatype::Block> blocks;
  for (std::int64_t i = 0; i < 1000; ++i) {
    blocks.push_back({i * i * 16, 8});
  }
  EXPECT_LT(encode(*Layout::make({}, blocks)).size(), 8100u);
}

TEST(LayoutBytes, OthersAreRefused) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 2000; ++round) {
    auto bytes = encode(randomLayout(random, 1 + static_cast<std::int64_t>(random() % 300)).layout);
    EXPECT_FALSE(decode(std::span(bytes).first(random() % bytes.size())).ok());
    // A changed bit may make another layout, of which all is checked, or none.
    bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << random() % 8);
    const auto other = decode(bytes);
    if (other.ok()) {
      EXPECT_GE(other->bytes(), 0);
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode(bytes).ok());
  }
}

// Where each byte of a layout's part is, by its place in packed order.
void addPlaces(const Layout& layout, std::int64_t first, std::int64_t bytes,
               std::vector<std::int64_t>& places) {
  layout.forEach(first, bytes, [&](std::int64_t offset, std::int64_t, std::int64_t length) {
    for (std::int64_t i = 0; i < length; ++i) {
      places.push_back(offset + i);
    }
  });
}

TEST(LayoutBytes, OfListsAreReadPartByPart) {
  std::mt19937_64 random(3);
  int lists = 0;
  for (int round = 0; round < 3000; ++round) {
    const Layout layout =
        randomLayout(random, 1 + static_cast<std::int64_t>(random() % 3000)).layout;
    const auto bytes = encode(layout);
    LayoutReader reader(bytes);
    if (!LayoutReader::reads(layout)) {
      const auto part = reader.next(bytes.size());
      // (One of one block is a list as well, to a reader.)
      EXPECT_TRUE(!part.ok() || layout.dims().empty());
      continue;
    }
    ++lists;
    std::vector<std::int64_t> places;
    for (std::size_t there = 0;;) {
      const auto part = reader.next(there);
      ASSERT_TRUE(part.ok()) << lastErrorText();
      if (!part->has_value()) {
        if (there == bytes.size()) break;
        there += std::min<std::size_t>(1 + random() % 100, bytes.size() - there);
        continue;
      }
      ASSERT_EQ((*part)->first, static_cast<std::int64_t>(places.size()));
      addPlaces((*part)->layout, (*part)->first, (*part)->last - (*part)->first, places);
      for (auto at = static_cast<std::size_t>((*part)->first); at < places.size(); ++at) {
        ASSERT_GE(places[at], (*part)->bounds.first);
        ASSERT_LT(places[at], (*part)->bounds.last);
      }
    }
    std::vector<std::int64_t> expected;
    addPlaces(layout, 0, layout.bytes(), expected);
    ASSERT_EQ(places, expected) << layout.describe();
  }
  EXPECT_GT(lists, 100);
}

TEST(LayoutBytes, OtherPartsAreRefused) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 2000; ++round) {
    auto bytes = encode(randomLayout(random, 1 + static_cast<std::int64_t>(random() % 300)).layout);
    bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << random() % 8);
    LayoutReader reader(bytes);
    for (;;) {
      const auto part = reader.next(bytes.size());
      if (!part.ok() || !part->has_value()) break;
      EXPECT_GE((*part)->last, (*part)->first);
    }
    EXPECT_FALSE(LayoutReader(std::span(bytes).first(bytes.size() - 1)).next(bytes.size()).ok());
  }
  EXPECT_FALSE(LayoutReader({}).next(0).ok());
}

TEST(LayoutBytes, DifferentOnesHaveDifferentHashes) {
  // All that differ in one bit or two from one another, of several lengths.
  std::set<LayoutHash> hashes;
  std::size_t many = 0;
  for (const std::size_t length : {0, 1, 8, 9, 24, 64}) {
    std::vector<std::byte> bytes(length);
    hashes.insert(hashOf(bytes));
    ++many;
    for (std::size_t a = 0; a < 8 * length; ++a) {
      for (std::size_t b = a; b < 8 * length; ++b) {
        bytes[a / 8] ^= static_cast<std::byte>(1U << a % 8);
        if (b != a) {
          bytes[b / 8] ^= static_cast<std::byte>(1U << b % 8);
        }
        hashes.insert(hashOf(bytes));
        ++many;
        bytes.assign(length, std::byte{0});
      }
    }
  }
  EXPECT_EQ(hashes.size(), many);
  // Each half alone tells them apart, too.
  std::set<std::uint64_t> halves;
  for (const LayoutHash& hash : hashes) {
    halves.insert(hash[0]);
    halves.insert(hash[1]);
  }
  EXPECT_EQ(halves.size(), 2 * many);
}

TEST(LayoutTables, KeepWhatWasUsedLast) {
  LayoutTable table(2);
  const auto layout = std::make_shared<const Layout>();
  const auto add = [&](std::uint64_t number) { table.add({number, 0}, layout); };
  const auto knows = [&](std::uint64_t number) { return table.find({number, 0}, 8) != nullptr; };
  EXPECT_FALSE(knows(1));
  add(1);
  add(2);
  add(2);
  EXPECT_TRUE(knows(1));
  add(3);
  EXPECT_TRUE(knows(1));
  EXPECT_FALSE(knows(2));
  EXPECT_TRUE(knows(3));
  EXPECT_EQ(table.counts().hits, 3u);
  EXPECT_EQ(table.counts().misses, 2u);
}

TEST(LayoutTables, KnowAnyNumberOfElementsOfATypeUntilItIsRemoved) {
  const Layout element = *Layout::make({}, {{0, 8}, {24, 8}, {100, 16}});
  const auto shared = std::make_shared<const Layout>(element);
  constexpr std::int64_t kExtent = 128;
  const auto hashed = [&](std::int64_t count) {
    return exchange::shareLayout(*element.repeated(count, kExtent))->hash;
  };
  LayoutTable table(3);
  EXPECT_EQ(table.find(hashed(1), 32), nullptr);
  table.addType(shared, kExtent);
  table.addType(shared, kExtent);
  for (const std::int64_t count : {1, 2, 7}) {
    const auto found = table.find(hashed(count), 32 * count);
    ASSERT_NE(found, nullptr) << count;
    EXPECT_TRUE(*found == *element.repeated(count, kExtent)) << count;
  }
  EXPECT_EQ(table.find(hashed(3), 31), nullptr) << "no whole number of elements";
  EXPECT_EQ(table.find(hashed(3), 64), nullptr) << "another number of elements";
  EXPECT_EQ(table.counts().hits, 3u);
  EXPECT_EQ(table.counts().misses, 3u);
  table.removeType(element, kExtent);
  EXPECT_NE(table.find(hashed(4), 128), nullptr) << "it was added twice";
  table.removeType(element, kExtent);
  EXPECT_EQ(table.find(hashed(5), 160), nullptr);
  table.removeType(element, kExtent);
}

TEST(LayoutTables, KeepTheTypesThatWereAddedLast) {
  LayoutTable table(2);
  const auto hashed = [](std::int64_t gap) {
    return exchange::shareLayout(*Layout::make({}, {{0, 8}, {gap, 8}, {100, 16}}))->hash;
  };
  for (const std::int64_t gap : {16, 24, 32}) {
    table.addType(std::make_shared<const Layout>(*Layout::make({}, {{0, 8}, {gap, 8}, {100, 16}})),
                  128);
  }
  EXPECT_EQ(table.find(hashed(16), 32), nullptr);
  EXPECT_NE(table.find(hashed(24), 32), nullptr);
  EXPECT_NE(table.find(hashed(32), 32), nullptr);
}

}  // namespace
}  // namespace gmac::testing
