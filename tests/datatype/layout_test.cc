// SPDX-License-Identifier: Apache-2.0
//
// Layouts: the same bytes in the same order have one form, the smallest, however they were written.
#include "gmac/datatype/layout/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmac/base/status.h"
#include "gmac/datatype/layout/pieces.h"
#include "gmac/datatype/layout/touched.h"
#include "gmac/datatype/types/registry.h"
#include "tests/datatype/recipe.h"

namespace gmac::datatype {

// The text of a failed comparison.
void PrintTo(const Layout& layout, std::ostream* out) {  // NOLINT: GoogleTest's name
  *out << layout.describe() << " [";
  for (std::size_t i = 0; i < std::min<std::size_t>(layout.blocks().size(), 8); ++i) {
    *out << " " << layout.blocks()[i].offset << "+" << layout.blocks()[i].bytes;
  }
  *out << " ]";
}

void PrintTo(const Bounds& bounds, std::ostream* out) {  // NOLINT: GoogleTest's name
  *out << "[" << bounds.first << ", " << bounds.last << ")";
}

namespace {

using std::int64_t;
using Offsets = std::vector<int64_t>;

Layout made(const std::vector<Dim>& dims, const std::vector<Block>& blocks) {
  auto layout = Layout::make(dims, blocks);
  EXPECT_TRUE(layout.ok()) << lastErrorText();
  return layout.ok() ? *layout : Layout();
}

// The offset of every packed byte, read block by block and dim by dim.
Offsets offsetsOf(const Layout& layout) {
  Offsets bases = {0};
  for (const Dim& dim : layout.dims()) {
    Offsets next;
    for (const int64_t base : bases) {
      for (int64_t i = 0; i < dim.count; ++i) next.push_back(base + i * dim.stride);
    }
    bases = std::move(next);
  }
  Offsets offsets;
  for (const int64_t base : bases) {
    for (const Block& block : layout.blocks()) {
      for (int64_t i = 0; i < block.bytes; ++i) offsets.push_back(base + block.offset + i);
    }
  }
  return offsets;
}

// Random recipes whose bytes are few enough to be looked at one by one.
class RandomLayouts : public ::testing::Test {
 protected:
  RandomLayouts() : random_(testSeed()) {}

  // The next one, and the offsets of its bytes.
  Layout next() {
    const Recipe recipe = randomRecipe(random_, {3, 600});
    text_ = text(recipe);
    offsets_ = typeMapOf(recipe).byteOffsets();
    const adsmType_t type = typeOf(recipe);
    EXPECT_EQ(adsmTypeCommit(type), adsmSuccess) << lastErrorText();
    Layout layout = (*committed(type))->layout;
    if (recipe.constructor != Constructor::kPrimitive) {
      EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
    }
    return layout;
  }

  std::mt19937_64 random_;
  std::string text_;
  Offsets offsets_;
};

TEST_F(RandomLayouts, NameTheBytesOfTheirTypeMap) {
  for (int i = 0; i < 2000 && !HasFailure(); ++i) {
    const Layout layout = next();
    SCOPED_TRACE(text_);
    EXPECT_EQ(offsetsOf(layout), offsets_) << layout.describe();
    EXPECT_EQ(layout.bytes(), static_cast<int64_t>(offsets_.size()));
  }
}

TEST_F(RandomLayouts, AreTheSameHoweverTheirBytesAreWritten) {
  for (int i = 0; i < 2000 && !HasFailure(); ++i) {
    const Layout layout = next();
    SCOPED_TRACE(text_);
    // Byte by byte; and cut anywhere, with empty blocks between.
    std::vector<Block> bytes;
    std::vector<Block> cut;
    for (const int64_t offset : offsets_) {
      bytes.push_back({offset, 1});
      if (!cut.empty() && cut.back().offset + cut.back().bytes == offset && random_() % 4 != 0) {
        ++cut.back().bytes;
      } else {
        if (random_() % 4 == 0) cut.push_back({static_cast<int64_t>(random_() % 99), 0});
        cut.push_back({offset, 1});
      }
    }
    EXPECT_EQ(made({}, bytes), layout);
    EXPECT_EQ(made({{1, 12345}}, cut), layout);
  }
}

// Whether the offsets repeat after `period`, each time by the same stride.
bool repeats(const Offsets& offsets, std::size_t first, std::size_t length, std::size_t period) {
  const int64_t stride = offsets[first + period] - offsets[first];
  for (std::size_t i = first; i + period < first + length; ++i) {
    if (offsets[i + period] - offsets[i] != stride) return false;
  }
  return true;
}

// By trying every divisor of what is left.
TEST_F(RandomLayouts, HaveTheSmallestPeriods) {
  for (int i = 0; i < 2000 && !HasFailure(); ++i) {
    const Layout layout = next();
    SCOPED_TRACE(text_);
    std::vector<Dim> dims;
    std::size_t length = offsets_.size();
    for (;;) {
      bool contiguous = true;
      for (std::size_t k = 1; k < length; ++k) {
        contiguous = contiguous && offsets_[k] == offsets_[0] + static_cast<int64_t>(k);
      }
      std::size_t period = 1;
      while (period < length && (length % period != 0 || !repeats(offsets_, 0, length, period))) {
        ++period;
      }
      if (contiguous || period >= length) break;
      dims.push_back({static_cast<int64_t>(length / period), offsets_[period] - offsets_[0]});
      length = period;
    }
    EXPECT_EQ(layout.dims(), dims) << layout.describe();
    EXPECT_EQ(layout.listBytes(), static_cast<int64_t>(length));
  }
}

TEST_F(RandomLayouts, SayTheBoundsOfTheirParts) {
  for (int i = 0; i < 500 && !HasFailure(); ++i) {
    const Layout layout = next();
    SCOPED_TRACE(text_);
    if (offsets_.empty()) continue;
    for (int k = 0; k < 40; ++k) {
      const auto from = static_cast<std::size_t>(random_() % offsets_.size());
      const auto to = from + 1 + static_cast<std::size_t>(random_() % (offsets_.size() - from));
      const auto [low, high] =
          std::minmax_element(offsets_.begin() + static_cast<std::ptrdiff_t>(from),
                              offsets_.begin() + static_cast<std::ptrdiff_t>(to));
      const Bounds exact{*low, *high + 1};
      const Bounds said =
          layout.boundsOf(static_cast<int64_t>(from), static_cast<int64_t>(to - from));
      EXPECT_LE(said.first, exact.first);
      EXPECT_GE(said.last, exact.last);
      if (layout.blocks().size() == 1) {
        EXPECT_EQ(said, exact);
      }
    }
    const auto [low, high] = std::minmax_element(offsets_.begin(), offsets_.end());
    EXPECT_EQ(layout.bounds(), (Bounds{*low, *high + 1}));
    EXPECT_EQ(layout.boundsOf(0, layout.bytes()), layout.bounds());
  }
}

TEST_F(RandomLayouts, AreWalkedInParts) {
  for (int i = 0; i < 500 && !HasFailure(); ++i) {
    const Layout layout = next();
    SCOPED_TRACE(text_);
    for (int k = 0; k < 20; ++k) {
      const auto from = static_cast<std::size_t>(random_() % (offsets_.size() + 1));
      const auto length = static_cast<std::size_t>(random_() % (offsets_.size() + 3));
      const std::size_t to = std::min(offsets_.size(), from + length);
      Offsets walked;
      int64_t next = static_cast<int64_t>(from);
      layout.forEach(static_cast<int64_t>(from), static_cast<int64_t>(length),
                     [&](int64_t offset, int64_t packed, int64_t bytes) {
                       EXPECT_EQ(packed, next);
                       EXPECT_GT(bytes, 0);
                       next += bytes;
                       for (int64_t b = 0; b < bytes; ++b) walked.push_back(offset + b);
                     });
      EXPECT_EQ(walked, Offsets(offsets_.begin() + static_cast<std::ptrdiff_t>(from),
                                offsets_.begin() + static_cast<std::ptrdiff_t>(to)));
    }
  }
}

TEST_F(RandomLayouts, AreRepeatedAsTheirBytesAre) {
  for (int i = 0; i < 500 && !HasFailure(); ++i) {
    const Layout layout = next();
    SCOPED_TRACE(text_);
    const auto count = static_cast<int64_t>(random_() % 5);
    // Often such that the end of one touches the next.
    const Bounds bounds = layout.bounds();
    const int64_t extent = random_() % 2 == 0 ? bounds.last - bounds.first
                                              : static_cast<int64_t>(random_() % 100) - 30;
    std::vector<Block> blocks;
    for (int64_t k = 0; k < count; ++k) {
      for (const int64_t offset : offsets_) blocks.push_back({offset + k * extent, 1});
    }
    auto repeated = layout.repeated(count, extent);
    ASSERT_TRUE(repeated.ok()) << lastErrorText();
    EXPECT_EQ(*repeated, made({}, blocks)) << count << " x " << extent;
  }
}

TEST(Layouts, FoldNestedProgressionsOfBlocks) {
  // Rows of 3, planes of 2, each as one list.
  std::vector<Block> blocks;
  for (int64_t plane = 0; plane < 2; ++plane) {
    for (int64_t row = 0; row < 4; ++row) {
      for (int64_t i = 0; i < 3; ++i) blocks.push_back({plane * 1000 + row * 100 + i * 10, 4});
    }
  }
  EXPECT_EQ(made({}, blocks), made({{2, 1000}, {4, 100}, {3, 10}}, {{0, 4}}));
  EXPECT_EQ(made({}, blocks).describe(), "strided 4 B x 3 @ 10 x 4 @ 100 x 2 @ 1000");
}

// An array of {double; char; (padding); double}: the last member of one touches the first of the
// next.
TEST(Layouts, KnowTheMeanLengthOfTheirBlocks) {
  EXPECT_EQ(Layout().meanBlockBytes(), 0);
  EXPECT_EQ(made({{0, 8}}, {{0, 4}}).meanBlockBytes(), 0);
  EXPECT_EQ(made({}, {{8, 100}}).meanBlockBytes(), 100);
  EXPECT_EQ(made({{5, 64}}, {{0, 16}}).meanBlockBytes(), 16);
  EXPECT_EQ(made({{5, 64}}, {{0, 16}, {20, 5}, {40, 1}}).meanBlockBytes(), 7);
}

TEST(Layouts, StayStructsWhereRepetitionsTouch) {
  const Layout structs = made({{1000, 24}}, {{0, 9}, {16, 8}});
  ASSERT_EQ(structs.dims(), (std::vector<Dim>{{1000, 24}}));
  ASSERT_EQ(structs.blocks().size(), 2U);
  std::vector<Block> joined = {{0, 9}};
  for (int64_t i = 0; i + 1 < 1000; ++i) joined.push_back({i * 24 + 16, 17});
  joined.push_back({999 * 24 + 16, 8});
  EXPECT_EQ(made({}, joined), structs);
  EXPECT_EQ(pieceCount(structs), 1001);
  Block pieces[3];
  ASSERT_EQ(readPieces(structs, 499, 3, pieces), 3);
  EXPECT_EQ(pieces[0].offset, 498 * 24 + 16);
  EXPECT_EQ(pieces[0].bytes, 17);
}

BlockListPtr listOf(const std::vector<Block>& blocks) {
  BlockListBuilder builder;
  for (const Block& block : blocks) EXPECT_TRUE(builder.add(block));
  return builder.finish();
}

// A long list is not copied: not by a commit, nor by what repeats it.
TEST(Layouts, KnowWhetherAPartHasABytesInARange) {
  std::mt19937_64 random(20261124);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  int64_t hits = 0;
  int64_t misses = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<Dim> dims;
    for (int64_t d = below(4); d > 0; --d) dims.push_back({1 + below(4), below(120) - 40});
    std::vector<Block> blocks;
    for (int64_t b = 1 + below(4); b > 0; --b) blocks.push_back({below(200) - 50, 1 + below(9)});
    const Layout layout = made(dims, blocks);
    const Offsets offsets = offsetsOf(layout);
    const int64_t offset = below(layout.bytes());
    const int64_t bytes = 1 + below(layout.bytes() - offset);
    const int64_t first =
        layout.bounds().first - 10 + below(layout.bounds().last - layout.bounds().first + 20);
    const Bounds range{first, first + 1 + below(12)};
    const bool wanted =
        std::any_of(offsets.begin() + offset, offsets.begin() + offset + bytes,
                    [&](int64_t at) { return at >= range.first && at < range.last; });
    ASSERT_EQ(touches(layout, offset, bytes, range), wanted)
        << "round " << round << ": " << layout.describe() << ", the part from " << offset << " of "
        << bytes << ", in [" << range.first << ", " << range.last << ")";
    ++(wanted ? hits : misses);
  }
  EXPECT_GT(hits, 500);
  EXPECT_GT(misses, 500);
}

// Blocks far apart, each of many: answered from the dims, without a walk.
TEST(Layouts, KnowWithoutAWalkWhatLiesInTheirGaps) {
  constexpr int64_t kMany = int64_t{1} << 40;
  const Layout layout = made({{kMany, 8}, {2, kMany * 16}}, {{0, 4}});
  EXPECT_FALSE(touches(layout, 0, layout.bytes(), {kMany * 8, kMany * 16}));
  EXPECT_FALSE(touches(layout, 0, layout.bytes(), {44, 48}));
  EXPECT_TRUE(touches(layout, 0, layout.bytes(), {44, 49}));
  EXPECT_TRUE(touches(layout, 0, layout.bytes(), {kMany * 16 + 3, kMany * 16 + 4}));
}

TEST(Layouts, ShareListsThatAreCanonical) {
  const BlockListPtr even = listOf({{0, 8}, {24, 8}, {40, 8}});
  const BlockListPtr uneven = listOf({{0, 8}, {24, 12}, {0, 9}});
  for (const BlockListPtr& list : {even, uneven}) {
    const auto layout = Layout::make(list);
    ASSERT_TRUE(layout.ok());
    EXPECT_EQ(layout->blocks().data(), list->blocks.data());
    EXPECT_EQ(*layout, made({}, list->blocks)) << "made again, and so another list";
    const auto repeated = layout->repeated(3, 1000);
    ASSERT_TRUE(repeated.ok());
    EXPECT_EQ(repeated->blocks().data(), list->blocks.data());
    EXPECT_EQ(repeated->startOf(2), list->blocks[0].bytes + list->blocks[1].bytes);
    EXPECT_EQ(repeated->blockAt(8), 1U);
    // Moved, it is another, and the first stays as it was.
    const auto moved = layout->arranged({}, 100);
    ASSERT_TRUE(moved.ok());
    EXPECT_EQ(moved->blocks()[1].offset, 124);
    EXPECT_EQ(layout->blocks()[1].offset, 24);
    EXPECT_EQ(moved->bounds(), (Bounds{100, layout->bounds().last + 100}));
  }
}

TEST(BlockLists, KnowTheirBlocks) {
  const BlockListPtr even = listOf({{0, 8}, {24, 0}, {24, 4}, {28, 4}, {40, 8}});
  EXPECT_EQ(even->blocks.size(), 3U) << "without what is empty, and neighbours joined";
  EXPECT_EQ(even->blockBytes, 8);
  EXPECT_EQ(even->bytes, 24);
  EXPECT_TRUE(even->ascending);
  EXPECT_EQ(even->bounds, (Bounds{0, 48}));
  // Joined at the end, at the beginning and between, a block is unlike the others.
  EXPECT_EQ(listOf({{0, 8}, {24, 8}, {40, 8}, {48, 1}})->blockBytes, 0);
  EXPECT_EQ(listOf({{0, 8}, {8, 1}, {24, 8}, {40, 8}})->blockBytes, 0);
  EXPECT_EQ(listOf({{0, 8}, {24, 8}, {32, 1}, {40, 8}})->blockBytes, 0);
  EXPECT_FALSE(listOf({{0, 8}, {7, 8}})->ascending);
  EXPECT_FALSE(listOf({{100, 8}, {0, 8}})->ascending);
  EXPECT_EQ(listOf({{100, 8}, {0, 8}})->bounds, (Bounds{0, 108}));
  EXPECT_TRUE(listOf({})->blocks.empty());
}

TEST(Layouts, AreEmptyWithoutBytes) {
  EXPECT_EQ(made({}, {}), Layout());
  EXPECT_EQ(made({{3, 8}}, {{5, 0}, {9, 0}}), Layout());
  EXPECT_EQ(made({{3, 8}, {0, 8}}, {{5, 4}}), Layout());
  EXPECT_EQ(Layout().describe(), "empty");
  EXPECT_EQ(Layout().boundsOf(0, 10), Bounds{});
  EXPECT_EQ(pieceCount(Layout()), 0);
}

TEST(Layouts, RefuseWhatDoesNotFit) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const auto refused = [](const std::vector<Dim>& dims, const std::vector<Block>& blocks) {
    const auto layout = Layout::make(dims, blocks);
    return !layout.ok() && layout.status().code() == adsmErrorInvalidValue;
  };
  EXPECT_TRUE(refused({}, {{kMax - 3, 4}}));
  EXPECT_TRUE(refused({}, {{-kMax, 4}, {kMax - 4, 4}}));
  EXPECT_TRUE(refused({{3, kMax / 2}}, {{0, 4}}));
  EXPECT_TRUE(refused({{kMax, 0}}, {{0, 2}}));
  EXPECT_TRUE(refused({{kMax, 2}}, {{0, 2}}));
  EXPECT_TRUE(refused({{kMax, 1}}, {{1, 1}}));
  EXPECT_TRUE(refused({{-1, 1}}, {{1, 1}}));
  EXPECT_TRUE(refused({}, {{1, -1}}));
  EXPECT_FALSE(refused({{2, kMax - 3}}, {{0, 3}}));
}

TEST(Layouts, DescribeSizesInDecimalUnits) {
  EXPECT_EQ(made({}, {{0, 9999}, {20000, 1}}).describe(), "list of 2 blocks, 10 kB");
  EXPECT_EQ(made({}, {{0, 999600}, {2000000, 1}}).describe(), "list of 2 blocks, 1 MB");
  EXPECT_EQ(made({{4, -64}}, {{0, 1}, {5, 3}}).describe(), "list of 2 blocks, 4 B x 4 @ -64");
}

TEST(Layouts, CopiesShareTheirListAndEqualOnesNeedNot) {
  const std::vector<Block> blocks = {{0, 8}, {16, 24}, {64, 8}};
  const Layout list = *Layout::make({}, blocks);
  const std::vector<Layout> copies = {list};
  const Layout equal = *Layout::make({}, blocks);
  EXPECT_TRUE(copies[0].isCopyOf(list));
  EXPECT_TRUE(equal == list);
  EXPECT_FALSE(equal.isCopyOf(list));
  const Layout rows = *Layout::make({{4, 64}}, {{0, 8}});
  EXPECT_TRUE(rows.isCopyOf(*Layout::make({{4, 64}}, {{0, 8}}))) << "there is no list";
  EXPECT_FALSE(rows.isCopyOf(*Layout::make({{4, 64}}, {{0, 16}})));
  EXPECT_FALSE(rows.isCopyOf(*Layout::make({{5, 64}}, {{0, 8}})));
}

}  // namespace
}  // namespace gmac::datatype
