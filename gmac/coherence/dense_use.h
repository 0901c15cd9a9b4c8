// SPDX-License-Identifier: Apache-2.0
//
// Which accesses open the neighbours of a small block, too.
//
// A fault costs as much as a copy of tens of KiB. Small blocks move little for a program that
// touches a few bytes here and there, and cost one that uses all of its data a fault for each of
// them, in whatever order it comes. So accesses are looked at by pieces of 64 KiB and by groups of
// 2 MiB, the default block:
//
//  - A piece is in dense use once a quarter of its blocks are open, and three at least. The access
//    that shows it opens the rest.
//  - A group is in dense use once more than half of it is open. The access that shows it opens the
//    rest, and gives the group a credit: the next kCredit times that all of it was closed, the
//    first access opens all of it. Then it must show its use again.
//
// An access that writes counts the blocks that are open for writing, and writes have a credit of
// their own, since what they open is flushed.
//
// The bound. Touches that are far apart show nothing and move no byte more. (Where one block in 16
// is touched, at random, one piece in 60 has a quarter of its blocks among them.) Without a credit
// a program moves at most eight times the bytes of the blocks that it touches: four times where it
// touches a quarter of each piece, and twice that where such pieces are just more than half of each
// group; and what it has not touched costs less than the faults that came before. What a credit
// opens is wasted at most kCredit times for each time that the group was in dense use.
#ifndef GMAC_COHERENCE_DENSE_USE_H_
#define GMAC_COHERENCE_DENSE_USE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gmac/coherence/block_index.h"

namespace gmac {

// Of one object; guarded like that. Looks at the blocks of one group, allocates nothing once made.
class DenseUse {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{64} << 10;
  static constexpr std::size_t kGroupBytes = std::size_t{2} << 20;
  static constexpr std::uint8_t kCredit = 3;

  // Never shows any.
  DenseUse() = default;
  // Throws std::bad_alloc.
  DenseUse(std::size_t bytes, std::size_t blockBytes)
      : blockBytes_(blockBytes),
        blocks_((bytes + blockBytes - 1) / blockBytes),
        credits_(blockBytes <= kPieceBytes ? (bytes + kGroupBytes - 1) / kGroupBytes : 0) {}

  // The blocks that an access to a closed one is to open, as far as they are closed. `isOpen(i)`: a
  // block is open, to accesses that write if `write`; false for that of the access.
  template <typename IsOpen>
  BlockRange around(BlockIndex index, bool write, IsOpen isOpen) {
    const BlockRange alone{index, index + 1};
    if (credits_.empty()) {
      return alone;
    }
    const BlockRange piece = around(index, kPieceBytes);
    const BlockRange group = around(index, kGroupBytes);
    Credit& credit = credits_[static_cast<std::size_t>(group.begin) * blockBytes_ / kGroupBytes];
    std::uint8_t& left = write ? credit.writes : credit.reads;
    const auto count = [&](BlockRange range, std::size_t most) {
      std::size_t open = 0;
      for (BlockIndex i = range.begin; i < range.end && open < most; i = i + 1) {
        open += isOpen(i) ? 1 : 0;
      }
      return open;
    };
    if (left > 0 && count(group, 1) == 0) {
      --left;
      return group;
    }
    const std::size_t pieceBlocks = piece.end - piece.begin;
    const std::size_t quarter =
        std::min(pieceBlocks, std::max<std::size_t>(3, (pieceBlocks + 3) / 4));
    if (count(piece, quarter) + 1 < quarter) {
      return alone;
    }
    const std::size_t half = (group.end - group.begin) / 2;
    if (pieceBlocks + count({group.begin, piece.begin}, half + 1) +
            count({piece.end, group.end}, half + 1) <=
        half) {
      return piece;
    }
    left = kCredit;
    return group;
  }

  // The blocks of the group of a block.
  BlockRange group(BlockIndex index) const {
    return credits_.empty() ? BlockRange{index, index + 1} : around(index, kGroupBytes);
  }

 private:
  struct Credit {
    std::uint8_t reads = 0;
    std::uint8_t writes = 0;
  };

  BlockRange around(BlockIndex index, std::size_t bytes) const {
    const std::size_t each = bytes / blockBytes_;
    const std::size_t begin = static_cast<std::size_t>(index) / each * each;
    return {BlockIndex{begin}, BlockIndex{std::min(begin + each, blocks_)}};
  }

  std::size_t blockBytes_ = 1;
  std::size_t blocks_ = 0;
  std::vector<Credit> credits_;  // one a group
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_DENSE_USE_H_
