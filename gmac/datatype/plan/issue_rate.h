// SPDX-License-Identifier: Apache-2.0
//
// The rate of loads at which a device's memory delivers the most short rows that lie far apart.
#ifndef GMAC_DATATYPE_PLAN_ISSUE_RATE_H_
#define GMAC_DATATYPE_PLAN_ISSUE_RATE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace gmac::datatype {

// DRAM opens a row of its own for almost every short row that a pack reads. When it gets more
// requests than it can open rows for, its throughput falls. A few threads that issue their loads in
// order, at the rate that the memory sustains, read a fifth to a third more (measured on an H200,
// docs/datatypes_results.md). A value; all zero: the rate is not known, and loads are not paced.
struct IssueRate {
  static constexpr std::int64_t kMinStride = 256;  // bytes; nearer rows are bound by bandwidth
  static constexpr std::int64_t kMaxStride = 512;  // beyond, pacing gains little
  static constexpr std::int64_t kMaxRow = 32;      // bytes
  static constexpr std::int64_t kLine = 64;        // the least that is read for a row, bytes

  std::uint32_t multiprocessors = 0;
  // Of each multiprocessor, for a row and for a byte that is read or written.
  double cyclesPerRow = 0;
  double cyclesPerByte = 0;

  // True if almost every such row lies in a DRAM row of its own.
  static bool opensRows(std::int64_t rowBytes, std::int64_t stride) {
    return rowBytes <= kMaxRow && std::abs(stride) >= kMinStride;
  }
  // Cycles from one request of a multiprocessor for `rows` rows to its next; 0: do not wait.
  std::uint32_t interval(double rows, std::int64_t rowBytes) const {
    if (multiprocessors == 0 || cyclesPerRow == 0 || cyclesPerByte == 0) return 0;
    return static_cast<std::uint32_t>(std::lround(
        rows * std::max(cyclesPerRow, cyclesPerByte * static_cast<double>(kLine + rowBytes))));
  }
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_PLAN_ISSUE_RATE_H_
