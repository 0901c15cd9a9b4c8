// SPDX-License-Identifier: Apache-2.0
//
// How fast a device's memory had better be asked for short rows that lie apart.
#ifndef GMAC_DATATYPE_ROW_PACE_H_
#define GMAC_DATATYPE_ROW_PACE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace gmac::datatype {

// Memory opens a row of its own for almost every short row that is read. Asked for more of them
// than it can open, it does not only let the rest wait: it opens fewer. Asked by few threads, in
// order, at the rate that it can sustain, it reads a fifth to a third more (measured on an H200,
// docs/datatypes_results.md). A value; all zero: not known, or not worth it.
struct RowPace {
  static constexpr std::int64_t kLeastStride = 256;  // bytes; nearer rows lack bytes, not rows
  static constexpr std::int64_t kMostStride = 512;   // farther ones gain little
  static constexpr std::int64_t kMostRow = 32;
  static constexpr std::int64_t kLine = 64;  // bytes that are read for a row at least

  std::uint32_t multiprocessors = 0;
  // Cycles of each multiprocessor: for a row, and for a byte that is read or written.
  double row = 0;
  double byte = 0;

  // Whether almost every such row is in a row of memory of its own.
  static bool opens(std::int64_t rowBytes, std::int64_t stride) {
    return rowBytes <= kMostRow && std::abs(stride) >= kLeastStride;
  }
  // Cycles between two times at which a multiprocessor asks for `rows` of them; 0: as soon as it
  // can.
  std::uint32_t interval(double rows, std::int64_t rowBytes) const {
    if (multiprocessors == 0 || row == 0 || byte == 0) return 0;
    return static_cast<std::uint32_t>(
        std::lround(rows * std::max(row, byte * static_cast<double>(kLine + rowBytes))));
  }
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ROW_PACE_H_
