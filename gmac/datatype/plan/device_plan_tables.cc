// SPDX-License-Identifier: Apache-2.0
//
// The contents of the tables of long lists.
#include <algorithm>
#include <bit>
#include <limits>

#include "gmac/datatype/plan/device_numbers.h"
#include "gmac/datatype/plan/device_plan.h"

namespace gmac::datatype {

// Entries of the first array of a marked list: marks and numbers in turn.
void DevicePlan::writeMarks(std::uint64_t from, std::uint64_t to, std::uint32_t* out) const {
  const auto blocks = layout_.blocks();
  const int shift = std::countr_zero(scale_);
  const std::int64_t bytes = std::int64_t{scale_} * kMarkedWords;
  // The first piece that begins at or after the first mark's bytes, and its start.
  std::int64_t first = static_cast<std::int64_t>(from / 2) * bytes;
  std::size_t piece = blocks.size();
  std::int64_t start = layout_.listBytes();
  if (first < start) {
    piece = layout_.blockAt(first);
    piece += layout_.startOf(piece) < first ? 1 : 0;
    start = layout_.startOf(piece);
  }
  for (std::uint64_t entry = from; entry < to; first += bytes) {
    const auto before = static_cast<std::uint32_t>(piece);
    std::uint32_t marks = 0;
    for (; start < first + bytes && piece < blocks.size(); ++piece) {
      marks |= 1U << ((start - first) >> shift);
      start += blocks[piece].bytes;
    }
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
  // The last piece that begins at or before the unit's first byte, and the start of the next one.
  const std::int64_t unitBytes = unitBytes_;
  std::int64_t at = static_cast<std::int64_t>(from) * unitBytes;
  std::uint64_t piece = at < layout_.listBytes() ? layout_.blockAt(at) : last;
  const auto nextStart = [&] {
    return piece < last ? layout_.startOf(piece + 1) : std::numeric_limits<std::int64_t>::max();
  };
  std::int64_t next = nextStart();
  for (std::uint64_t unit = from; unit < to; ++unit, at += unitBytes) {
    while (next <= at) {
      ++piece;
      next = nextStart();
    }
    entries[unit - from] = static_cast<std::uint32_t>(piece);
  }
}

void DevicePlan::writePieces(std::uint64_t from, std::uint64_t to, void* out) const {
  // A device waits while long tables are written, so values are read once.
  const auto blocks = layout_.blocks();
  const std::uint64_t end = std::min<std::uint64_t>(to, blocks.size());
  const std::int64_t lowest = lowest_;
  const int shift = std::countr_zero(scale_);
  const auto write = [&]<typename Entry>(Entry* entries) {
    const auto place = [&](std::uint64_t i) {
      return static_cast<Entry>((blocks[i].offset - lowest) >> shift);
    };
    if (shape_ == Shape::kEvenList) {
      for (std::uint64_t i = from; i < end; ++i) *entries++ = place(i);
      return;
    }
    std::int64_t start = layout_.startOf(from);
    if (shape_ == Shape::kMarkedList) {
      for (std::uint64_t i = from; i < end; ++i) {
        *entries++ = static_cast<Entry>(place(i) - static_cast<Entry>(start >> shift));
        start += blocks[i].bytes;
      }
      return;
    }
    for (std::uint64_t i = from; i < end; ++i) {
      *entries++ = static_cast<Entry>(start >> shift);
      *entries++ = place(i);
      start += blocks[i].bytes;
    }
    if (end < to) {
      *entries++ = static_cast<Entry>(start >> shift);
      *entries++ = 0;
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
