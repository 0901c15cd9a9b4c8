// SPDX-License-Identifier: Apache-2.0
#include "exchange/bench/workloads.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <stdexcept>

#include "gmac/base/status.h"

namespace gmac::exchange::bench {
namespace {

using datatype::Block;
using datatype::Dim;
using datatype::Layout;

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;
constexpr std::int64_t kFloat = 4;
constexpr std::int64_t kDouble = 8;

Layout layout(const std::vector<Dim>& dims, const std::vector<Block>& blocks) {
  Result<Layout> made = Layout::make(dims, blocks);
  if (!made.ok()) {
    throw std::runtime_error(fmt::format("a layout cannot be: {}", lastErrorText()));
  }
  return std::move(*made);
}

Layout contiguous(std::int64_t bytes) { return layout({}, {{0, bytes}}); }

// Blocks with as much space between them.
Layout vector(std::int64_t blockBytes, std::int64_t bytes) {
  return layout({{bytes / blockBytes, 2 * blockBytes}}, {{0, blockBytes}});
}

// MILC's su3_zd: the half of a t-z-y-x lattice that has one parity, a face in z of vectors of
// three complex numbers, before and behind.
Layout milc(std::int64_t side) {
  const std::int64_t plane = side * side / 2 * 3 * 2 * kFloat;
  const std::int64_t half = side * side * plane;
  return layout({{2, half}, {side, side * plane}}, {{0, plane}});
}

// WRF's y_vec: two rows in y, of all levels, of five fields; x varies fastest, and has a halo.
Layout wrf(std::int64_t width) {
  constexpr std::int64_t kHalo = 3;
  constexpr std::int64_t kLevels = 27;
  constexpr std::int64_t kRows = 16;
  constexpr std::int64_t kFields = 5;
  const std::int64_t row = (width + 2 * kHalo) * kFloat;
  const std::int64_t field = kRows * kLevels * row;
  return layout({{kFields, field}, {2, kLevels * row}, {kLevels, row}},
                {{kHalo * kFloat, width * kFloat}});
}

// A face of a grid of (n + 2)^3 doubles, without its rim. In z: rows of n. In x: single ones.
Layout nasZ(std::int64_t n) {
  const std::int64_t row = (n + 2) * kDouble;
  return layout({{n, row}}, {{row + kDouble, n * kDouble}});
}
Layout nasX(std::int64_t n) {
  const std::int64_t row = (n + 2) * kDouble;
  return layout({{n, (n + 2) * row}, {n, row}}, {{(n + 3) * row + kDouble, kDouble}});
}

// SPECFEM3D's cm: points of three floats, anywhere in a mesh.
Layout specfem(std::int64_t points) {
  std::mt19937_64 random(11);
  std::vector<Block> blocks;
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < points; ++i) {
    offset += 3 * kFloat * (1 + static_cast<std::int64_t>(random() % 8));
    blocks.push_back({offset, 3 * kFloat});
  }
  return layout({}, blocks);
}

}  // namespace

std::string sizeText(std::int64_t bytes) {
  return bytes < kKiB   ? fmt::format("{} B", bytes)
         : bytes < kMiB ? fmt::format("{:.4g} KiB", static_cast<double>(bytes) / kKiB)
                        : fmt::format("{:.4g} MiB", static_cast<double>(bytes) / kMiB);
}

std::vector<Workload> workloads() {
  std::vector<Workload> all;
  const auto add = [&](const char* group, std::string name, Layout from, Layout to,
                       double most = 0) {
    all.push_back({group, std::move(name), std::move(from), std::move(to), most});
  };
  const auto both = [&](const char* group, std::string name, const Layout& one, double most = 0) {
    add(group, std::move(name), one, one, most);
  };
  for (std::int64_t bytes = 4 * kKiB; bytes <= 64 * kMiB; bytes *= 4) {
    // From 4 MiB on: as fast as the MPI's own single copy.
    both("contiguous", "contiguous", contiguous(bytes), bytes >= 4 * kMiB ? 1 : 0);
  }
  for (std::int64_t block = 8; block <= 4 * kKiB; block *= 2) {
    both("vector", fmt::format("vector of {} B", block), vector(block, 2 * kMiB),
         block == 128 ? 0.5 : 0);
  }
  for (const std::int64_t block : {16, 128, 1024}) {
    const Layout strided = vector(block, 2 * kMiB);
    add("one-side", fmt::format("vector of {} B to contiguous", block), strided,
        contiguous(2 * kMiB));
    add("one-side", fmt::format("contiguous to vector of {} B", block), contiguous(2 * kMiB),
        strided);
  }
  for (const std::int64_t side : {8, 16, 32, 64}) {
    both("MILC_su3_zd", fmt::format("MILC_su3_zd {}^4", side), milc(side));
  }
  for (const std::int64_t width : {32, 128, 512, 2048}) {
    both("WRF_y_vec", fmt::format("WRF_y_vec of {}", width), wrf(width));
  }
  for (const std::int64_t n : {64, 128, 256, 512}) {
    both("NAS_MG_z", fmt::format("NAS_MG_z {}^2", n), nasZ(n));
  }
  for (const std::int64_t n : {32, 64, 128}) {
    both("NAS_MG_x", fmt::format("NAS_MG_x {}^2", n), nasX(n));
  }
  for (const std::int64_t points : {2000, 32000, 512000}) {
    both("SPECFEM3D_cm", fmt::format("SPECFEM3D_cm, {} points", points), specfem(points));
  }
  return all;
}

std::vector<std::string> groupNames() {
  std::vector<std::string> names;
  for (const Workload& one : workloads()) {
    if (names.empty() || names.back() != one.group) {
      names.push_back(one.group);
    }
  }
  return names;
}

}  // namespace gmac::exchange::bench
