// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/layout/pieces.h"

#include <algorithm>
#include <vector>

namespace gmac::datatype {
namespace {

using std::int64_t;

// One index of the first dims: what is inside of it, and whether its repetitions touch.
struct Level {
  int64_t pieces;  // of all repetitions
  int64_t within;  // of one repetition
  int64_t bytes;   // packed, of one repetition
  int64_t count;   // of repetitions
  bool touching;   // the last piece of one and the first of the next
};

// Innermost first. The list itself has blocks().size() pieces: no two of its neighbours touch.
std::vector<Level> levelsOf(const Layout& layout) {
  std::vector<Level> levels;
  levels.reserve(layout.dims().size());
  int64_t pieces = static_cast<int64_t>(layout.blocks().size());
  int64_t bytes = layout.listBytes();
  int64_t first = layout.blocks().front().offset;
  int64_t last = layout.blocks().back().offset + layout.blocks().back().bytes;
  for (std::size_t i = layout.dims().size(); i-- > 0;) {
    const Dim& dim = layout.dims()[i];
    Level level{};
    level.within = pieces;
    level.bytes = bytes;
    level.count = dim.count;
    level.touching = last == first + dim.stride;
    level.pieces = pieces * dim.count - (level.touching ? dim.count - 1 : 0);
    levels.push_back(level);
    pieces = level.pieces;
    bytes *= dim.count;
    last += (dim.count - 1) * dim.stride;
  }
  return levels;
}

// Packed bytes before piece number `piece`.
int64_t startOf(const Layout& layout, const std::vector<Level>& levels, int64_t piece) {
  int64_t start = 0;
  for (std::size_t i = levels.size(); i-- > 0;) {
    const Level& level = levels[i];
    // Where repetitions touch, the last piece of each but the last is the next one's first, and
    // begins in the earlier one.
    const int64_t each = level.within - (level.touching ? 1 : 0);
    int64_t repetition = piece / each;
    piece -= repetition * each;
    if (level.touching && piece == 0 && repetition > 0) {
      --repetition;
      piece = each;
    }
    start += repetition * level.bytes;
  }
  return start + layout.startOf(static_cast<std::size_t>(piece));
}

}  // namespace

int64_t pieceCount(const Layout& layout) {
  if (layout.blocks().empty()) {
    return 0;
  }
  const auto levels = levelsOf(layout);
  return levels.empty() ? static_cast<int64_t>(layout.blocks().size()) : levels.back().pieces;
}

int64_t readPieces(const Layout& layout, int64_t first, int64_t room, Block* pieces) {
  const int64_t count = std::min(room, pieceCount(layout) - first);
  if (count <= 0) {
    return 0;
  }
  const auto levels = levelsOf(layout);
  const int64_t start = startOf(layout, levels, first);
  const int64_t end =
      first + count == pieceCount(layout) ? layout.bytes() : startOf(layout, levels, first + count);
  int64_t written = 0;
  layout.forEach(start, end - start, [&](int64_t offset, int64_t, int64_t bytes) {
    if (written > 0 && pieces[written - 1].offset + pieces[written - 1].bytes == offset) {
      pieces[written - 1].bytes += bytes;
    } else {
      pieces[written++] = {offset, bytes};
    }
  });
  return written;
}

}  // namespace gmac::datatype
