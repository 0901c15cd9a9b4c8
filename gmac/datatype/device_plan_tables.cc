// SPDX-License-Identifier: Apache-2.0
//
// What the tables of long lists hold.
#include <algorithm>
#include <bit>

#include "gmac/datatype/device_numbers.h"
#include "gmac/datatype/device_plan.h"

namespace gmac::datatype {

// Entries of the first array of a marked list: marks and numbers in turn.
void DevicePlan::writeMarks(std::uint64_t from, std::uint64_t to, std::uint32_t* out) const {
  const std::int64_t bytes = std::int64_t{scale_} * kMarkedWords;
  const std::size_t end = layout_.blocks().size();
  // The first piece that begins with the first mark's bytes or behind.
  const std::int64_t at = static_cast<std::int64_t>(from / 2) * bytes;
  std::size_t piece = end;
  if (at < layout_.listBytes()) {
    piece = layout_.blockAt(at);
    piece += layout_.startOf(piece) < at ? 1 : 0;
  }
  for (std::uint64_t entry = from; entry < to;) {
    const std::int64_t first = static_cast<std::int64_t>(entry / 2) * bytes;
    const auto before = static_cast<std::uint32_t>(piece);
    std::uint32_t marks = 0;
    for (; piece != end && layout_.startOf(piece) < first + bytes; ++piece)
      marks |= 1U << ((layout_.startOf(piece) - first) / scale_);
    if (entry % 2 == 0) {
      out[entry++ - from] = marks;
      if (entry == to) break;
    }
    out[entry++ - from] = before;
  }
}

void DevicePlan::writeUnits(std::uint64_t from, std::uint64_t to, void* out) const {
  auto* const entries = static_cast<std::uint32_t*>(out);
  if (shape_ == Shape::kMarkedList) {
    writeMarks(from, to, entries);
    return;
  }
  const std::uint64_t last = layout_.blocks().size() - 1;
  if (from >= to) return;
  const auto at = [&](std::uint64_t unit) { return static_cast<std::int64_t>(unit) * unitBytes_; };
  // The last piece that begins at or before the unit's first byte.
  std::uint64_t piece = at(from) < layout_.listBytes() ? layout_.blockAt(at(from)) : last;
  for (std::uint64_t unit = from; unit < to; ++unit) {
    while (piece < last && layout_.startOf(piece + 1) <= at(unit)) ++piece;
    entries[unit - from] = static_cast<std::uint32_t>(piece);
  }
}

void DevicePlan::writePieces(std::uint64_t from, std::uint64_t to, void* out) const {
  const auto& blocks = layout_.blocks();
  const int shift = std::countr_zero(scale_);
  const auto write = [&]<typename Entry>(Entry* entries) {
    for (std::uint64_t i = from; i < to; ++i) {
      const bool end = i == blocks.size();
      auto offset = end ? Entry{0} : static_cast<Entry>((blocks[i].offset - lowest_) >> shift);
      if (shape_ == Shape::kMarkedList) offset -= static_cast<Entry>(layout_.startOf(i) >> shift);
      if (inUnits()) *entries++ = static_cast<Entry>(layout_.startOf(i) >> shift);
      *entries++ = offset;
    }
  };
  if (wide_) {
    write(static_cast<std::uint64_t*>(out));
  } else {
    write(static_cast<std::uint32_t*>(out));
  }
}

std::int64_t DevicePlan::bytesWithin(std::uint64_t pieces) const {
  if (pieces >= table_.pieces) return layout_.listBytes();
  if (shape_ == Shape::kEvenList) return static_cast<std::int64_t>(pieces) * pieceBytes_;
  if (pieces == 0) return 0;
  if (shape_ == Shape::kMarkedList) return layout_.startOf(pieces);
  return layout_.startOf(pieces - 1) / unitBytes_ * unitBytes_;
}

std::uint64_t DevicePlan::unitsWithin(std::int64_t bytes) const {
  if (table_.units == 0 || bytes == 0) return 0;
  if (shape_ == Shape::kMarkedList) {
    return static_cast<std::uint64_t>(2 * ceilDivide(bytes, std::int64_t{scale_} * kMarkedWords));
  }
  return static_cast<std::uint64_t>(ceilDivide(bytes, unitBytes_)) + 1;
}

}  // namespace gmac::datatype
