// SPDX-License-Identifier: Apache-2.0
//
// Analyses a layout for devices: its shape, the words that it consists of, and the table that it
// needs.
#include "gmac/datatype/plan/device_plan.h"

#include <atomic>
#include <bit>
#include <cstdlib>
#include <limits>

#include "gmac/datatype/plan/device_numbers.h"

namespace gmac::datatype {
namespace {

std::uint64_t nextIdentity() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

DevicePlan::DevicePlan(const Layout& layout, const PlanTuning& tuning)
    : layout_(layout), tuning_(tuning), identity_(nextIdentity()) {
  if (layout.blocks().empty()) return;
  for (const Dim& dim : layout.dims()) apart_ |= asBits(dim.stride);
  alignment_ = apart_;
  if (layout.blocks().size() > 1) {
    analyseList();
    return;
  }
  const Block& block = layout.blocks().front();
  lowest_ = block.offset;
  pieceBytes_ = meanPiece_ = block.bytes;
  alignment_ |= asBits(block.bytes);
  constexpr Shape kByDims[] = {Shape::kLine, Shape::kRows1, Shape::kRows2, Shape::kRows3};
  shape_ = layout.dims().size() < 4 ? kByDims[layout.dims().size()] : Shape::kAnyRows;
  constexpr std::int64_t kLine = 64;  // of memory
  if (block.bytes >= 2 * static_cast<std::int64_t>(kWidestWord)) {
    cachedMost_ = tuning_.cachedMost / (ceilDivide(block.bytes, kLine) * kLine) * block.bytes;
  }
  chooseTile();
}

void DevicePlan::analyseList() {
  const auto blocks = layout_.blocks();
  const auto pieces = static_cast<std::int64_t>(blocks.size());
  lowest_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t highest = std::numeric_limits<std::int64_t>::min();
  meanPiece_ = layout_.listBytes() / pieces;
  pieceBytes_ = blocks.front().bytes;
  std::uint64_t bits = 0;
  for (const Block& block : blocks) {
    lowest_ = std::min(lowest_, block.offset);
    highest = std::max(highest, block.offset);
    if (block.bytes != pieceBytes_) pieceBytes_ = 0;
    apart_ |= asBits(block.offset) - asBits(blocks.front().offset);
    bits |= asBits(block.bytes) | (asBits(block.offset) - asBits(blocks.front().offset));
  }
  scale_ = widthOf(bits);
  alignment_ |= bits;
  wide_ = (highest - lowest_) / scale_ > tuning_.mostNarrow ||
          layout_.listBytes() / scale_ > tuning_.mostNarrow;
  if (pieces <= kShortListPieces && !wide_ && layout_.listBytes() <= tuning_.mostElements) {
    shape_ = Shape::kShortList;
    return;
  }
  const std::uint32_t entry = wide_ ? 8 : 4;
  unitBytes_ = chooseUnit();
  if (pieceBytes_ != 0 && !wide_) {
    shape_ = Shape::kEvenList;
    table_.pieces = static_cast<std::uint64_t>(pieces);
    table_.pieceBytes = entry;
  } else if (canMark(highest - lowest_)) {
    shape_ = Shape::kMarkedList;
    table_.units = static_cast<std::uint64_t>(
        2 * ceilDivide(layout_.listBytes(), std::int64_t{scale_} * kMarkedWords));
    table_.pieces = static_cast<std::uint64_t>(pieces);
    table_.pieceBytes = entry;
  } else {
    shape_ = wide_ ? Shape::kWideList : Shape::kLongList;
    table_.units = static_cast<std::uint64_t>(ceilDivide(layout_.listBytes(), unitBytes_)) + 1;
    table_.pieces = static_cast<std::uint64_t>(pieces) + 1;
    table_.pieceBytes = 2 * entry;
  }
  table_.piecesAt = (table_.units * sizeof(std::uint32_t) + 15) / 16 * 16;
  table_.bytes = table_.piecesAt + table_.pieces * table_.pieceBytes;
}

bool DevicePlan::canMark(std::int64_t extent) const {
  const auto pieces = static_cast<std::int64_t>(layout_.blocks().size());
  // Shorter words would need too many marks.
  constexpr std::uint32_t kMinWord = 4;
  return scale_ >= kMinWord && layout_.listBytes() / pieces <= tuning_.markedMost && !wide_ &&
         layout_.listBytes() <= tuning_.mostElements &&
         extent / scale_ <= std::numeric_limits<std::int32_t>::max();
}

// The bytes that a warp has in flight at a time, for long pieces and for short ones. Warps take
// many units in turn, so that none waits long for the last.
std::int64_t DevicePlan::chooseUnit() const {
  if (tuning_.unitBytes != 0) return tuning_.unitBytes;
  const auto pieces = static_cast<std::int64_t>(layout_.blocks().size());
  return layout_.listBytes() / pieces < 1024 ? 1024 : 2048;
}

// Single words whose neighbours in memory are neighbours in another dimension than the fastest.
void DevicePlan::chooseTile() {
  const auto& dims = layout_.dims();
  if (dims.size() < 2 || dims.size() > kMaxDims) return;
  const std::int64_t bytes = pieceBytes_;
  if (bytes > static_cast<std::int64_t>(kWidestWord) || !std::has_single_bit(asBits(bytes))) return;
  if (dims.back().count < tuning_.tileLeast || std::abs(dims.back().stride) < 4 * bytes) return;
  for (std::size_t d = 0; d + 1 < dims.size(); ++d) {
    if (dims[d].count < tuning_.tileLeast || std::abs(dims[d].stride) != bytes) continue;
    across_ = static_cast<int>(d);
    shape_ = Shape::kTile;
  }
}

}  // namespace gmac::datatype
