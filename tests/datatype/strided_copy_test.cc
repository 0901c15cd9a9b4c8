// SPDX-License-Identifier: Apache-2.0
//
// Which pairs of layouts one strided copy does, and where its rows lie.
#include "gmac/datatype/engine/strided_copy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "gmac/accel/commands.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::datatype {
namespace {

using accel::StridedCopy;
using std::int64_t;

Layout made(const std::vector<Dim>& dims, const std::vector<Block>& blocks) {
  const auto layout = Layout::make(dims, blocks);
  EXPECT_TRUE(layout.ok());
  return *layout;
}

// The offsets of a layout's bytes, in packed order; of one side of a copy, in the copy's.
std::vector<int64_t> bytesOf(const Layout& layout) {
  std::vector<int64_t> offsets;
  layout.forEach(0, layout.bytes(), [&](int64_t at, int64_t, int64_t bytes) {
    for (int64_t i = 0; i < bytes; ++i) offsets.push_back(at + i);
  });
  return offsets;
}
std::vector<int64_t> bytesOf(const StridedCopy& copy, const StridedCopy::Side& side) {
  std::vector<int64_t> offsets;
  for (int64_t slice = 0; slice < copy.slices; ++slice) {
    for (int64_t row = 0; row < copy.rows; ++row) {
      for (int64_t i = 0; i < copy.rowBytes; ++i) {
        offsets.push_back(static_cast<int64_t>(side.address) + slice * side.slicePitch +
                          row * side.pitch + i);
      }
    }
  }
  return offsets;
}

// It moves each byte to the place that has the same number in packed order, and devices take it.
void expectMoves(const StridedCopy& copy, const Layout& target, const Layout& source) {
  EXPECT_EQ(bytesOf(copy, copy.target), bytesOf(target));
  EXPECT_EQ(bytesOf(copy, copy.source), bytesOf(source));
  for (const StridedCopy::Side& side : {copy.target, copy.source}) {
    EXPECT_GE(side.pitch, copy.rowBytes);
    EXPECT_EQ(side.slicePitch % side.pitch, 0);
    EXPECT_GE(side.slicePitch, copy.rows * side.pitch);
  }
}

TEST(StridedCopies, TakeEqualRowsWhateverTheirDistances) {
  const Layout contiguous = made({}, {{64, 96}});
  const Layout rows = made({{12, 40}}, {{16, 8}});
  const Layout wide = made({{12, 100}}, {{0, 8}});
  const Layout slices = made({{3, 320}, {4, 32}}, {{8, 8}});
  const Layout apart = made({{3, 1200}, {4, 50}}, {{0, 8}});
  const Layout all[] = {contiguous, rows, wide, slices, apart};
  for (const Layout& target : all) {
    for (const Layout& source : all) {
      const auto copy = stridedCopy(target, source);
      ASSERT_TRUE(copy.has_value()) << target.describe() << " from " << source.describe();
      expectMoves(*copy, target, source);
    }
  }
}

TEST(StridedCopies, RefuseWhatTheyCannotDo) {
  const Layout rows = made({{12, 40}}, {{0, 8}});
  const Layout longer = made({{6, 40}}, {{0, 16}});
  const Layout more = made({{13, 40}}, {{0, 8}});
  const Layout list = made({}, {{0, 8}, {20, 40}, {100, 48}});
  const Layout four = made({{2, 1000}, {2, 400}, {3, 40}}, {{0, 8}});
  const Layout overlapping = made({{12, 4}}, {{0, 8}});
  const Layout crooked = made({{3, 321}, {4, 32}}, {{0, 8}});
  const Layout otherSlices = made({{4, 320}, {3, 32}}, {{0, 8}});
  const Layout slices = made({{3, 320}, {4, 32}}, {{0, 8}});
  for (const Layout& other : {longer, more, list, four, overlapping, crooked}) {
    EXPECT_FALSE(stridedCopy(rows, other).has_value()) << other.describe();
    EXPECT_FALSE(stridedCopy(other, rows).has_value()) << other.describe();
  }
  EXPECT_FALSE(stridedCopy(slices, otherSlices).has_value());
  for (const Layout& none : {list, four, overlapping, crooked}) {
    EXPECT_FALSE(gridOf(none).has_value()) << none.describe();
  }
}

TEST(StridedCopies, AreRightOrRefusedForRandomLayouts) {
  std::mt19937_64 random(7);
  const auto below = [&](int64_t end) {
    return static_cast<int64_t>(random() % static_cast<std::uint64_t>(end));
  };
  int64_t taken = 0;
  for (int step = 0; step < 20000; ++step) {
    constexpr int64_t kRowBytes[] = {4, 8, 12};
    const int64_t row = kRowBytes[below(3)];
    const auto side = [&] {
      const int64_t pitch = row - 2 + below(8);
      std::vector<Dim> dims;
      if (below(3) != 0) dims.push_back({1 + below(4), 4 * pitch + below(2) * below(pitch)});
      if (below(4) != 0) dims.push_back({1 + below(6), pitch});
      return made(dims, {{below(20), row}});
    };
    const Layout target = side();
    const Layout source = side();
    if (const auto copy = stridedCopy(target, source)) {
      expectMoves(*copy, target, source);
      ++taken;
    }
  }
  EXPECT_GT(taken, 500);
}

}  // namespace
}  // namespace gmac::datatype
