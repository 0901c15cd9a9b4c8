// SPDX-License-Identifier: Apache-2.0
#include "exchange/bench/layouts.h"

#include <fmt/core.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <utility>

#include "gmac/base/status.h"

namespace gmac::exchange::bench {

using datatype::Block;
using datatype::Dim;
using datatype::Layout;

namespace {

constexpr std::int64_t kFloat = 4;
constexpr std::int64_t kDouble = 8;

}  // namespace

Layout layoutOf(const std::vector<Dim>& dims, const std::vector<Block>& blocks) {
  Result<Layout> made = Layout::make(dims, blocks);
  if (!made.ok()) {
    throw std::runtime_error(fmt::format("a layout cannot be: {}", lastErrorText()));
  }
  return std::move(*made);
}

Layout contiguous(std::int64_t bytes) { return layoutOf({}, {{0, bytes}}); }

Layout vectorOf(std::int64_t blockBytes, std::int64_t stride, std::int64_t bytes) {
  return layoutOf({{bytes / blockBytes, stride}}, {{0, blockBytes}});
}

Layout scattered(std::int64_t pieceBytes, std::int64_t bytes) {
  std::mt19937_64 random(7);
  const std::int64_t unit = std::min(pieceBytes, kDouble);
  std::vector<Block> pieces;
  std::int64_t offset = 0;
  for (std::int64_t packed = 0; packed < bytes; packed += pieceBytes) {
    pieces.push_back({offset, pieceBytes});
    const auto most = static_cast<std::uint64_t>(2 * pieceBytes / unit - 1);
    offset += pieceBytes + unit * (1 + static_cast<std::int64_t>(random() % most));
  }
  return layoutOf({}, pieces);
}

Layout milc(std::int64_t side) {
  const std::int64_t plane = side * side / 2 * 3 * 2 * kFloat;
  const std::int64_t half = side * side * plane;
  return layoutOf({{2, half}, {side, side * plane}}, {{0, plane}});
}

Layout wrf(std::int64_t width) {
  constexpr std::int64_t kHalo = 3;
  constexpr std::int64_t kLevels = 27;
  constexpr std::int64_t kRows = 16;
  constexpr std::int64_t kFields = 5;
  const std::int64_t row = (width + 2 * kHalo) * kFloat;
  const std::int64_t field = kRows * kLevels * row;
  return layoutOf({{kFields, field}, {2, kLevels * row}, {kLevels, row}},
                  {{kHalo * kFloat, width * kFloat}});
}

Layout nasZ(std::int64_t row, std::int64_t rows) {
  const std::int64_t stride = (row + 2) * kDouble;
  return layoutOf({{rows, stride}}, {{stride + kDouble, row * kDouble}});
}

Layout nasX(std::int64_t n) {
  const std::int64_t row = (n + 2) * kDouble;
  return layoutOf({{n, (n + 2) * row}, {n, row}}, {{(n + 3) * row + kDouble, kDouble}});
}

Layout specfem(std::int64_t points) {
  std::mt19937_64 random(11);
  std::vector<Block> blocks;
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < points; ++i) {
    offset += 3 * kFloat * (1 + static_cast<std::int64_t>(random() % 8));
    blocks.push_back({offset, 3 * kFloat});
  }
  return layoutOf({}, blocks);
}

Layout subMatrix(std::int64_t n) { return vectorOf(n * kDouble, 2 * n * kDouble, n * n * kDouble); }

Layout triangle(std::int64_t n) {
  std::vector<Block> columns;
  for (std::int64_t column = 0; column < n; ++column) {
    columns.push_back({(column * n + column) * kDouble, (n - column) * kDouble});
  }
  return layoutOf({}, columns);
}

Layout transposed(std::int64_t n) {
  return layoutOf({{n, kDouble}, {n, n * kDouble}}, {{0, kDouble}});
}

std::string sizeText(std::int64_t bytes) {
  return bytes < kKiB   ? fmt::format("{} B", bytes)
         : bytes < kMiB ? fmt::format("{:.4g} KiB", static_cast<double>(bytes) / kKiB)
                        : fmt::format("{:.4g} MiB", static_cast<double>(bytes) / kMiB);
}

}  // namespace gmac::exchange::bench
