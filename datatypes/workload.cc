// SPDX-License-Identifier: Apache-2.0
#include "datatypes/workload.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <memory>

#include "datatypes/pattern.h"

namespace datatypes {
namespace {

constexpr std::int64_t kDouble = 8;
constexpr std::int64_t kBurst = 64;

// Irregular, but the same in every run.
std::uint64_t scatter(std::int64_t index) {
  return patternWord(static_cast<std::uint64_t>(index)) >> 32;
}

// The type whose multiples the given bytes are, the widest up to 8.
Type elementFor(std::int64_t bytes) { return bytes % 8 == 0 ? Type::bytes8() : Type::bytes4(); }
std::int64_t elementBytes(std::int64_t bytes) { return bytes % 8 == 0 ? 8 : 4; }

// First row of column j of the triangle with steps of `stair` columns.
std::int64_t firstRow(std::int64_t column, std::int64_t stair) { return column / stair * stair; }

}  // namespace

std::string sizeText(std::int64_t bytes) {
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  const auto text = [&](std::int64_t unit, const char* name) {
    return bytes % unit == 0 ? fmt::format("{} {}", bytes / unit, name)
                             : fmt::format("{:.1f} {}", static_cast<double>(bytes) / unit, name);
  };
  return bytes < kMiB ? text(kKiB, "KiB") : text(kMiB, "MiB");
}

Workload contiguous(std::int64_t bytes) {
  Workload result;
  result.name = "contiguous";
  result.size = sizeText(bytes);
  result.bytes = result.extent = bytes;
  result.type = [=] { return Type::contiguous(bytes / kDouble, Type::bytes8()); };
  result.pieces = [=](const PieceVisitor& visit) { visit(0, bytes); };
  result.hand = {HandKernel::kContiguous, bytes, 0, 0, {}};
  result.copies = {{0, 0, bytes, 1, 1, bytes, bytes}};
  return result;
}

Workload vector(std::int64_t blockBytes, std::int64_t stride, std::int64_t bytes) {
  const std::int64_t count = bytes / blockBytes;
  Workload result;
  result.name = fmt::format("vector {} B @ {} B", blockBytes, stride);
  result.size = sizeText(bytes);
  result.bytes = count * blockBytes;
  result.extent = (count - 1) * stride + blockBytes;
  result.type = [=] {
    return Type::hvector(count, blockBytes / elementBytes(blockBytes), stride,
                         elementFor(blockBytes));
  };
  result.pieces = [=](const PieceVisitor& visit) {
    for (std::int64_t i = 0; i < count; ++i) visit(i * stride, blockBytes);
  };
  result.hand = {HandKernel::kVector, count, blockBytes, stride, {}};
  result.copies = {{0, 0, blockBytes, count, 1, stride, stride * count}};
  return result;
}

Workload subMatrix(std::int64_t n) {
  Workload result = vector(n * kDouble, 2 * n * kDouble, n * n * kDouble);
  result.name = "submatrix";
  result.size = fmt::format("N = {}", n);
  result.type = [=] { return Type::subarray({n, 2 * n}, {n, n}, {0, 0}, Type::bytes8()); };
  return result;
}

Workload stairTriangle(std::int64_t n, std::int64_t stair) {
  Workload result;
  result.name = stair == 1 ? "triangle" : fmt::format("stair triangle, steps of {}", stair);
  result.size = fmt::format("N = {}", n);
  for (std::int64_t column = 0; column < n; ++column) {
    result.bytes += (n - firstRow(column, stair)) * kDouble;
  }
  result.extent = n * n * kDouble;
  result.type = [=] {
    std::vector<std::int64_t> lengths;
    std::vector<std::int64_t> displacements;
    for (std::int64_t column = 0; column < n; ++column) {
      lengths.push_back(n - firstRow(column, stair));
      displacements.push_back(column * n + firstRow(column, stair));
    }
    return Type::indexed(lengths, displacements, Type::bytes8());
  };
  result.pieces = [=](const PieceVisitor& visit) {
    for (std::int64_t column = 0; column < n; ++column) {
      const std::int64_t first = firstRow(column, stair);
      visit((column * n + first) * kDouble, (n - first) * kDouble);
    }
  };
  result.hand = {HandKernel::kTriangle, n, stair, 0, {}};
  return result;
}

Workload triangle(std::int64_t n) { return stairTriangle(n, 1); }

Workload triangleVariant(std::int64_t n, std::int64_t variant) {
  // In the last column, above the diagonal and not next to what comes before in packed order.
  const std::int64_t last = (n - 1) * n + 1 + variant % (n - 2);
  const Workload whole = triangle(n);
  Workload result = whole;
  result.type = [=] {
    std::vector<std::int64_t> lengths;
    std::vector<std::int64_t> displacements;
    for (std::int64_t column = 0; column < n; ++column) {
      lengths.push_back(n - column);
      displacements.push_back(column == n - 1 ? last : column * n + column);
    }
    return Type::indexed(lengths, displacements, Type::bytes8());
  };
  result.pieces = [=](const PieceVisitor& visit) {
    for (std::int64_t column = 0; column < n - 1; ++column) {
      visit((column * n + column) * kDouble, (n - column) * kDouble);
    }
    visit(last * kDouble, kDouble);
  };
  return result;
}

Workload subarray4d(std::int64_t side) {
  constexpr std::int64_t kSide = 64;
  constexpr std::int64_t kPlane = kSide * kSide * kDouble;
  Workload result;
  result.name = "4-D subarray of 64^4";
  result.size = fmt::format("side {}", side);
  result.bytes = side * side * side * side * kDouble;
  result.extent = kSide * kSide * kPlane;
  result.type = [=] {
    return Type::subarray({kSide, kSide, kSide, kSide}, {side, side, side, side}, {0, 0, 0, 0},
                          Type::bytes8());
  };
  result.pieces = [=](const PieceVisitor& visit) {
    for (std::int64_t w = 0; w < side; ++w) {
      for (std::int64_t z = 0; z < side; ++z) {
        for (std::int64_t y = 0; y < side; ++y) {
          visit((w * kSide + z) * kPlane + y * kSide * kDouble, side * kDouble);
        }
      }
    }
  };
  result.hand = {HandKernel::kSubarray4d, side, 0, 0, {}};
  for (std::int64_t w = 0; w < side; ++w) {
    result.copies.push_back({w * kSide * kPlane, w * side * side * side * kDouble, side * kDouble,
                             side, side, kSide * kDouble, kPlane});
  }
  return result;
}

Workload indexed(std::int64_t blockBytes, std::int64_t bytes) {
  constexpr std::int64_t kSlot = 512;
  const std::int64_t count = bytes / blockBytes;
  // A regular pattern would be a vector, and would be packed as one. The slot's last place stays
  // free: neighbours would join, and the blocks no longer be equal.
  const auto offset = [=](std::int64_t i) {
    const auto places = static_cast<std::uint64_t>(kSlot / blockBytes - 1);
    return i * kSlot + static_cast<std::int64_t>(scatter(i) % places) * blockBytes;
  };
  Workload result;
  result.name = fmt::format("indexed, {} B blocks", blockBytes);
  result.size = sizeText(bytes);
  result.bytes = count * blockBytes;
  result.extent = count * kSlot;
  result.type = [=] {
    std::vector<std::int64_t> displacements;
    for (std::int64_t i = 0; i < count; ++i) displacements.push_back(offset(i) / kDouble);
    return Type::indexedBlock(blockBytes / kDouble, displacements, Type::bytes8());
  };
  result.pieces = [=](const PieceVisitor& visit) {
    for (std::int64_t i = 0; i < count; ++i) visit(offset(i), blockBytes);
  };
  result.hand = {HandKernel::kIndexed, count, blockBytes, 0, {}};
  for (std::int64_t i = 0; i < count; ++i) {
    result.hand.displacements.push_back(static_cast<std::int32_t>(offset(i) / kDouble));
  }
  return result;
}

Workload indexedPairs(std::int64_t pairs) {
  constexpr std::int64_t kSlot = 512;
  constexpr std::int64_t kWide = 128;
  // The narrow block within the slot's first quarter, the wide one in one of the other three; none
  // touches another.
  const auto narrow = [=](std::int64_t i) {
    return i * kSlot + static_cast<std::int64_t>(1 + scatter(2 * i) % 14) * kDouble;
  };
  const auto wide = [=](std::int64_t i) {
    return i * kSlot + kWide + static_cast<std::int64_t>(scatter(2 * i + 1) % 3) * kWide;
  };
  Workload result;
  result.name = "indexed, 8 and 128 B in turn";
  result.size = fmt::format("{} pairs", pairs);
  result.bytes = pairs * (kDouble + kWide);
  result.extent = pairs * kSlot;
  result.type = [=] {
    std::vector<std::int64_t> lengths;
    std::vector<std::int64_t> displacements;
    for (std::int64_t i = 0; i < pairs; ++i) {
      lengths.insert(lengths.end(), {1, kWide / kDouble});
      displacements.insert(displacements.end(), {narrow(i) / kDouble, wide(i) / kDouble});
    }
    return Type::indexed(lengths, displacements, Type::bytes8());
  };
  result.pieces = [=](const PieceVisitor& visit) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      visit(narrow(i), kDouble);
      visit(wide(i), kWide);
    }
  };
  result.hand = {HandKernel::kIndexedPairs, pairs, 0, 0, {}};
  for (std::int64_t i = 0; i < pairs; ++i) {
    result.hand.displacements.push_back(static_cast<std::int32_t>(narrow(i) / kDouble));
    result.hand.displacements.push_back(static_cast<std::int32_t>(wide(i) / kDouble));
  }
  return result;
}

Workload structs(std::int64_t count) {
  constexpr std::int64_t kExtent = 24;
  constexpr std::int64_t kSize = 8 + 2 * 4 + 1;
  Workload result;
  result.name = "structs {double, int[2], char}";
  result.size = fmt::format("{}", count);
  result.bytes = count * kSize;
  result.extent = count * kExtent;
  result.type = [=] {
    const Type eight = Type::bytes8();
    const Type four = Type::bytes4();
    const Type one = Type::bytes1();
    const Type members = Type::structure({1, 2, 1}, {0, 8, 16}, {&eight, &four, &one});
    return Type::contiguous(count, Type::resized(members, 0, kExtent));
  };
  result.pieces = [=](const PieceVisitor& visit) {
    for (std::int64_t i = 0; i < count; ++i) visit(i * kExtent, kSize);
  };
  result.hand = {HandKernel::kStructs, count, 0, 0, {}};
  return result;
}

Workload transposed(std::int64_t n) {
  Workload result;
  result.name = "transpose";
  result.size = fmt::format("N = {}", n);
  result.bytes = result.extent = n * n * kDouble;
  result.type = [=] {
    const Type column = Type::hvector(n, 1, n * kDouble, Type::bytes8());
    return Type::contiguous(n, Type::resized(column, 0, kDouble));
  };
  result.pieces = [=](const PieceVisitor& visit) {
    for (std::int64_t column = 0; column < n; ++column) {
      for (std::int64_t row = 0; row < n; ++row) visit((row * n + column) * kDouble, kDouble);
    }
  };
  result.hand = {HandKernel::kTranspose, n, 0, 0, {}};
  return result;
}

Workload nestedVector(std::int64_t bytes) {
  constexpr std::int64_t kBlock = 16;
  constexpr std::int64_t kBlocks = 8;
  constexpr std::int64_t kInnerStride = 32;
  constexpr std::int64_t kOuterStride = 512;
  const std::int64_t count = bytes / (kBlock * kBlocks);
  Workload result;
  result.name = "vector of vectors";
  result.size = sizeText(bytes);
  result.bytes = count * kBlock * kBlocks;
  result.extent = count * kOuterStride;
  result.type = [=] {
    const Type inner = Type::hvector(kBlocks, kBlock / kDouble, kInnerStride, Type::bytes8());
    return Type::hvector(count, 1, kOuterStride, inner);
  };
  result.pieces = [=](const PieceVisitor& visit) {
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t j = 0; j < kBlocks; ++j) {
        visit(i * kOuterStride + j * kInnerStride, kBlock);
      }
    }
  };
  result.hand = {HandKernel::kNestedVector, count, 0, 0, {}};
  return result;
}

Workload face(Face which, std::int64_t n) {
  const std::int64_t row = n * kDouble;
  Workload result;
  switch (which) {
    case Face::kXy:
      result = contiguous(n * row);
      break;
    case Face::kXz:
      result = vector(row, n * row, n * row);
      break;
    case Face::kYz:
      result = vector(kDouble, row, n * row);
      break;
  }
  const char* const names[] = {"face XY", "face XZ", "face YZ"};
  result.name = names[static_cast<int>(which)];
  result.size = fmt::format("{}^3", n);
  result.extent = n * n * row;
  result.type = [=] {
    const std::array<std::array<std::int64_t, 3>, 3> parts = {{{1, n, n}, {n, 1, n}, {n, n, 1}}};
    const auto& part = parts[static_cast<std::size_t>(which)];
    return Type::subarray({n, n, n}, {part.begin(), part.end()}, {0, 0, 0}, Type::bytes8());
  };
  return result;
}

std::vector<std::byte> packedPattern(const Workload& workload) {
  std::vector<std::byte> packed(static_cast<std::size_t>(workload.bytes));
  std::byte* to = packed.data();
  workload.pieces([&](std::int64_t offset, std::int64_t bytes) {
    fillPattern(to, offset, bytes);
    to += bytes;
  });
  assert(to == packed.data() + packed.size());
  return packed;
}

std::int64_t burstBytes(const Workload& workload) {
  std::vector<std::uint64_t> seen(static_cast<std::size_t>(workload.extent / kBurst / 64 + 1));
  workload.pieces([&](std::int64_t offset, std::int64_t bytes) {
    for (std::int64_t burst = offset / kBurst; burst <= (offset + bytes - 1) / kBurst; ++burst) {
      seen[static_cast<std::size_t>(burst / 64)] |= std::uint64_t{1} << (burst % 64);
    }
  });
  std::int64_t bursts = 0;
  for (const std::uint64_t word : seen) bursts += std::popcount(word);
  return bursts * kBurst;
}

std::int64_t pieceCount(const Workload& workload) {
  std::int64_t count = 0;
  workload.pieces([&](std::int64_t, std::int64_t) { ++count; });
  return count;
}

}  // namespace datatypes
