// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/link_costs.h"

#include <algorithm>

#include "gmac/datatype/engine/strided_copy.h"

namespace gmac::datatype {
namespace {

using std::int64_t;

// In microseconds, and bytes per microsecond; measured between two NVIDIA H100s, and two H200s,
// with 18 lanes of NVLink (docs/results.md). Of both methods the link's share is the same, so the
// choice holds for others.
constexpr double kEngine = 9.0;         // a copy by the engine, until it has ended
constexpr double kEngineRow = 3.35e-4;  // each of its rows
// Where other work has just used much memory: 64 MiB, every fourth row of 128 B and more. (350e3 in
// messages that follow each other; a kernel has that always.)
constexpr double kEngineRate = 160e3;
constexpr double kKernel = 11.9;  // a kernel, until it has ended
constexpr double kKernelRate = 350e3;
constexpr double kLinkRate = 392e3;
// The link moves so many bytes at a time.
constexpr int64_t kSector = 32;

// Bytes that cross the link when a kernel loads the rows.
double loadedBytes(const Grid& grid) {
  const int64_t row = (grid.rowBytes + kSector - 1) / kSector * kSector;
  return static_cast<double>(grid.rows * grid.slices * std::min(grid.pitch, row));
}

}  // namespace

adsmMethod_t methodOverLink(const Layout& to, const Layout& from, int64_t offset, int64_t bytes) {
  const auto isLine = [](const Layout& layout) {
    return layout.dims().empty() && layout.blocks().size() == 1;
  };
  if (isLine(to) && isLine(from)) {
    return adsmMethodCopy;
  }
  const auto copy = offset == 0 && bytes == to.bytes() && bytes == from.bytes()
                        ? stridedCopy(to, from)
                        : std::nullopt;
  if (!copy) {
    return adsmMethodKernel;
  }
  const auto all = static_cast<double>(bytes);
  const auto rows = static_cast<double>(copy->rows * copy->slices);
  const double engine = kEngine + std::max(rows * kEngineRow, all / kEngineRate);
  const double kernel =
      kKernel + std::max(all / kKernelRate, loadedBytes(*gridOf(from)) / kLinkRate);
  return engine <= kernel ? adsmMethodCopy2d : adsmMethodKernel;
}

}  // namespace gmac::datatype
