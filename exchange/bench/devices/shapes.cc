// SPDX-License-Identifier: Apache-2.0
#include "exchange/bench/devices/shapes.h"

#include <numeric>
#include <span>

namespace gmac::exchange::bench {

using datatype::Block;
using datatype::Dim;
using datatype::Layout;

namespace {

constexpr std::int64_t kMostWordBytes = 16;
// A table has a number of 4 bytes for each unit.
constexpr std::int64_t kLeastUnitBytes = 12;

// The largest unit that divides every block and every distance of the layout.
std::int64_t unitOf(const Layout& layout) {
  std::int64_t unit = kMostWordBytes;
  for (const Block& block : layout.blocks()) {
    unit = std::gcd(std::gcd(unit, block.bytes), block.offset);
  }
  for (const Dim& dim : layout.dims()) unit = std::gcd(unit, dim.stride);
  return unit;
}

bool isTriangle(const Layout& layout) {
  constexpr std::int64_t kDouble = 8;
  const std::span<const Block> blocks = layout.blocks();
  const auto n = static_cast<std::int64_t>(blocks.size());
  if (!layout.dims().empty() || n < 2 || blocks[0].bytes != n * kDouble) return false;
  for (std::int64_t column = 0; column < n; ++column) {
    const Block& block = blocks[static_cast<std::size_t>(column)];
    if (block.bytes != (n - column) * kDouble || block.offset != (column * n + column) * kDouble) {
      return false;
    }
  }
  return true;
}

std::optional<Shape> rowsOf(const Layout& layout, std::int64_t wordBytes) {
  const Block& block = layout.blocks()[0];
  if (layout.dims().size() > Place::kMostDims) return std::nullopt;
  Shape shape;
  shape.place.kind = layout.dims().empty() ? Place::Kind::kLine : Place::Kind::kRows;
  shape.place.blockWords = static_cast<std::uint32_t>(block.bytes / wordBytes);
  shape.place.offset = block.offset / wordBytes;
  for (auto dim = layout.dims().rbegin(); dim != layout.dims().rend(); ++dim) {
    const int level = shape.place.dims++;
    shape.place.count[level] = static_cast<std::uint32_t>(dim->count);
    shape.place.stride[level] = dim->stride / wordBytes;
  }
  return shape;
}

}  // namespace

std::int64_t wordOf(const Layout& from, const Layout& to) {
  return std::gcd(unitOf(from), unitOf(to));
}

std::optional<Shape> shapeOf(const Layout& layout, std::int64_t wordBytes) {
  const std::span<const Block> blocks = layout.blocks();
  if (blocks.size() == 1) return rowsOf(layout, wordBytes);
  Shape shape;
  if (isTriangle(layout)) {
    shape.place.kind = Place::Kind::kTriangle;
    shape.place.blockWords = static_cast<std::uint32_t>(blocks.size());
    return wordBytes == 8 ? std::optional(shape) : std::nullopt;
  }
  // Points that touch are one block: split again.
  std::int64_t unit = 0;
  for (const Block& block : blocks) unit = std::gcd(unit, block.bytes);
  if (layout.dims().empty() && unit >= kLeastUnitBytes) {
    shape.place.kind = Place::Kind::kTable;
    shape.place.blockWords = static_cast<std::uint32_t>(unit / wordBytes);
    for (const Block& block : blocks) {
      for (std::int64_t at = 0; at < block.bytes; at += unit) {
        shape.table.push_back(static_cast<std::uint32_t>((block.offset + at) / wordBytes));
      }
    }
    return shape;
  }
  constexpr std::int64_t kMostPatternBytes = 4096;
  if (layout.dims().size() == 1 && layout.listBytes() <= kMostPatternBytes) {
    shape.place.kind = Place::Kind::kPattern;
    shape.place.blockWords = static_cast<std::uint32_t>(layout.listBytes() / wordBytes);
    shape.place.stride[0] = layout.dims()[0].stride / wordBytes;
    for (const Block& block : blocks) {
      for (std::int64_t at = 0; at < block.bytes; at += wordBytes) {
        shape.table.push_back(static_cast<std::uint32_t>((block.offset + at) / wordBytes));
      }
    }
    return shape;
  }
  return std::nullopt;
}

std::vector<Piece> piecesOf(const Layout& from, const Layout& to) {
  std::vector<Piece> pieces;
  from.forEach(0, from.bytes(), [&](std::int64_t at, std::int64_t packed, std::int64_t bytes) {
    to.forEach(packed, bytes, [&](std::int64_t target, std::int64_t start, std::int64_t length) {
      pieces.push_back({at + start - packed, target, length});
    });
  });
  return pieces;
}

}  // namespace gmac::exchange::bench
