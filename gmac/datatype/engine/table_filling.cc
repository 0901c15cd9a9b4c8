// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/table_filling.h"

#include <algorithm>

namespace gmac::datatype {
namespace {

// Bytes of a step. The first step lets a kernel start early; larger later ones amortise their
// copies and launches. The last step's kernel runs when the CPU has nothing left to write, so steps
// do not grow for ever. (On an H200 half and twice of these were slower; a table of 160 KiB took
// the same time in one step.)
constexpr std::uint64_t kFirstStep = std::uint64_t{128} << 10;
constexpr std::uint64_t kLargestStep = std::uint64_t{256} << 10;
// Smaller tables take one step.
constexpr std::uint64_t kMinDivided = 2 * kFirstStep;
// Launches begin at multiples of it in packed order, so that no two of them share a line.
constexpr std::int64_t kLine = 128;

}  // namespace

TableFilling::TableFilling(Tables& tables, const DevicePlan& plan)
    : tables_(tables),
      plan_(plan),
      alone_(tables.filling_),
      stepBytes_(plan.table().bytes < kMinDivided ? kMinDivided : kFirstStep) {}

TableFilling::~TableFilling() {
  if (table_.bytes != 0) {
    tables_.release(table_);
  }
}

Status TableFilling::begin() {
  auto place = tables_.place(plan_.table().bytes);
  if (!place.ok()) {
    return place.status();
  }
  table_ = *place;
  return {};
}

// Entries are written piece by piece into pinned memory and copied from there.
template <typename Write>
Status TableFilling::copy(std::uint64_t from, std::uint64_t to, std::size_t entryBytes,
                          std::uint64_t at, const Write& write) {
  const std::uint64_t most = Tables::kBufferBytes / entryBytes;
  while (from < to) {
    const std::uint64_t end = std::min(to, from + most);
    auto buffer = tables_.nextBuffer();
    if (!buffer.ok()) {
      return buffer.status();
    }
    write(from, end, (*buffer)->memory);
    auto ticket = tables_.device_.accelerator().copyIn(
        accel::DeviceAddress{table_.address + at + from * entryBytes}, (*buffer)->memory,
        (end - from) * entryBytes, {});
    if (!ticket.ok()) {
      return ticket.status();
    }
    (*buffer)->reader = *ticket;
    table_.filled = *ticket;
    from = end;
  }
  return {};
}

Result<std::int64_t> TableFilling::step() {
  const DevicePlan::Table& shape = plan_.table();
  // So many pieces that they and their units have about the step's bytes.
  const std::uint64_t pieces = std::min(
      shape.pieces, pieces_ + std::max<std::uint64_t>(shape.pieces * stepBytes_ / shape.bytes, 1));
  const std::int64_t bytes = plan_.bytesWithin(pieces);
  const std::uint64_t units =
      pieces == shape.pieces ? shape.units : std::max(units_, plan_.unitsWithin(bytes));
  GMAC_TRY(copy(
      units_, units, sizeof(std::uint32_t), 0,
      [&](std::uint64_t from, std::uint64_t to, void* out) { plan_.writeUnits(from, to, out); }));
  GMAC_TRY(copy(
      pieces_, pieces, shape.pieceBytes, shape.piecesAt,
      [&](std::uint64_t from, std::uint64_t to, void* out) { plan_.writePieces(from, to, out); }));
  units_ = units;
  pieces_ = pieces;
  stepBytes_ = std::min(2 * stepBytes_, kLargestStep);
  return complete() ? bytes : bytes / kLine * kLine;
}

void TableFilling::keep() {
  tables_.add(plan_, table_);
  table_ = {};
}

}  // namespace gmac::datatype
