// SPDX-License-Identifier: Apache-2.0
//
// Lists of contiguous pieces, as types collect them and layouts share them.
#ifndef GMAC_DATATYPE_LAYOUT_BLOCK_LIST_H_
#define GMAC_DATATYPE_LAYOUT_BLOCK_LIST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gmac/api/adsm_datatype.h"

namespace gmac::datatype {

// A contiguous piece, `offset` bytes from the base.
using Block = adsmBlock_t;

// Offsets [first, last) from the base.
struct Bounds {
  std::int64_t first = 0;
  std::int64_t last = 0;
  friend bool operator==(const Bounds&, const Bounds&) = default;
};

// Blocks of a byte or more in packed order, neighbours joined, with sums over all of them. An
// immutable value that types and layouts share, because long lists are costly to copy.
struct BlockList {
  std::vector<Block> blocks;
  std::int64_t bytes = 0;
  Bounds bounds;
  std::int64_t blockBytes = 0;  // of each, where they are all alike; else 0
  bool ascending = true;        // each ends before the next begins, or where it does
};
using BlockListPtr = std::shared_ptr<const BlockList>;

// Makes a list in one pass. For the stack of one thread; not for the fault handler (it
// allocates).
class BlockListBuilder {
 public:
  void reserve(std::size_t blocks) { list_.blocks.reserve(blocks); }

  // The next block in packed order; of 0 bytes or more. False, for good, when its end or the bytes
  // of all leave 63 bits.
  bool add(Block block) {
    if (block.bytes == 0) {
      return true;
    }
    std::int64_t end = 0;
    if (__builtin_add_overflow(block.offset, block.bytes, &end) ||
        __builtin_add_overflow(list_.bytes, block.bytes, &list_.bytes)) [[unlikely]] {
      return false;
    }
    if (list_.blocks.empty()) [[unlikely]] {
      list_.bounds = {block.offset, end};
    } else {
      list_.bounds.first = std::min(list_.bounds.first, block.offset);
      list_.bounds.last = std::max(list_.bounds.last, end);
      if (end_ == block.offset) {
        list_.blocks.back().bytes += block.bytes;
        end_ = end;
        return true;
      }
      list_.ascending &= end_ < block.offset;
      unlike_ |= list_.blocks.back().bytes ^ list_.blocks.front().bytes;
    }
    list_.blocks.push_back(block);
    end_ = end;
    return true;
  }

  // The builder is empty afterwards. nullptr when the span of all leaves 63 bits.
  BlockListPtr finish();

 private:
  BlockList list_;
  std::int64_t end_ = 0;     // of the last block
  std::int64_t unlike_ = 0;  // bits in which a block's bytes, the last one's aside, are not the
                             // first one's
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_LAYOUT_BLOCK_LIST_H_
