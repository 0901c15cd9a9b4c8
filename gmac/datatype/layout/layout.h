// SPDX-License-Identifier: Apache-2.0
//
// The offsets of a datatype's bytes, flattened and canonical. Engines read only this, and do not
// know how a type was constructed.
#ifndef GMAC_DATATYPE_LAYOUT_LAYOUT_H_
#define GMAC_DATATYPE_LAYOUT_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gmac/base/status.h"
#include "gmac/datatype/layout/block_list.h"

namespace gmac::datatype {

// `count` repetitions, `stride` bytes apart.
struct Dim {
  std::int64_t count;
  std::int64_t stride;
  friend bool operator==(const Dim&, const Dim&) = default;
};

// The bytes of a type in packed order: for every index of `dims` (the last varies fastest),
// for every entry of `blocks`: `bytes` bytes at the sum of index x stride plus the entry's offset.
// A value, immutable once made; no locks; not for the fault handler (it allocates). Copies share
// their lists.
//
//   empty:      no blocks
//   contiguous: one block, no dims
//   strided:    one block, dims.size() dims
//   list:       two or more blocks (no two neighbours join), dims.size() >= 0 repetitions around
//
// Canonical: two layouts that name the same bytes in the same order are equal. The form follows
// only from the function that maps each packed position to its offset. A contiguous type is one
// block; one that is not contiguous, but repeats with a period of p packed bytes (p divides all;
// the offsets of one period are the first one's plus a multiple of one stride) becomes a dim around
// its smallest period, which is then treated likewise. Such a period may end inside a contiguous
// piece: the last block of one repetition and the first of the next may touch.
class Layout {
 public:
  Layout() = default;
  // Canonicalises. Entries of dims with count 0, and blocks of 0 bytes, are allowed.
  // adsmErrorInvalidValue when bytes or bounds leave 63 bits, or a count or block is negative.
  // O(dims + blocks).
  static Result<Layout> make(const std::vector<Dim>& dims, const std::vector<Block>& blocks);
  // A layout of the list alone; it shares the list if that is canonical already.
  static Result<Layout> make(BlockListPtr list);

  const std::vector<Dim>& dims() const { return dims_; }
  // Valid as long as the layout; stable addresses.
  std::span<const Block> blocks() const {
    return list_ != nullptr ? std::span<const Block>(list_->blocks)
                            : std::span<const Block>(&one_, one_.bytes > 0 ? 1 : 0);
  }
  // Packed bytes of everything, and of one pass over `blocks`.
  std::int64_t bytes() const { return bytes_; }
  std::int64_t listBytes() const { return listBytes_; }
  // The number of entries over all repetitions. Pieces that touch across two repetitions
  // count as two; see pieces.h for them joined.
  std::int64_t blockCount() const { return blockCount_; }
  // Bytes of an entry on average, rounded down; 0 if there is none.
  std::int64_t meanBlockBytes() const { return blockCount_ > 0 ? bytes_ / blockCount_ : 0; }
  // Packed bytes before blocks()[block] in one pass; listBytes() for one past the last block.
  std::int64_t startOf(std::size_t block) const {
    return starts_ != nullptr ? starts_[static_cast<std::ptrdiff_t>(block)]
                              : static_cast<std::int64_t>(block) * blockBytes_;
  }
  // The block that has byte `packed` of one pass, 0 <= packed < listBytes(). O(log blocks).
  std::size_t blockAt(std::int64_t packed) const;
  // Bytes of every entry of `blocks` if all are equal; else 0.
  std::int64_t blockBytes() const { return blockBytes_; }
  // All bytes of the layout lie within.
  Bounds bounds() const { return bounds_; }
  // Bounds of the part [offset, offset + bytes) in packed order; O(dims + log blocks), never too
  // small. Exact but for parts of lists whose blocks do not ascend.
  Bounds boundsOf(std::int64_t offset, std::int64_t bytes) const;

  // This layout for every index of `dims` (the last varies fastest), `offset` bytes further on.
  // adsmErrorInvalidValue as for make(). O(dims + blocks).
  Result<Layout> arranged(const std::vector<Dim>& dims, std::int64_t offset) const;
  // The layout of `count` elements, `extent` bytes apart.
  Result<Layout> repeated(std::int64_t count, std::int64_t extent) const;

  // Calls `piece(offset from the base, packed offset, bytes)` for every entry of the part
  // [offset, offset + bytes) in packed order; entries at its ends are cut. For tests, plain copies
  // and plans; not for the CPU engine's inner loops.
  void forEach(std::int64_t offset, std::int64_t bytes,
               const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& piece) const;

  // e.g. "strided 8 B x 4096 @ 512".
  std::string describe() const;

  friend bool operator==(const Layout& a, const Layout& b);
  // Whether this is the other, or a copy of it: equal, and they share a list if they have one.
  // O(dims).
  bool isCopyOf(const Layout& other) const;

 private:
  // Takes over the blocks, and adds dims around their smallest periods.
  void fold(BlockListPtr list);
  // Shifts and repeats this canonical form, which has no sums yet, and computes them.
  Result<Layout> finished(const std::vector<Dim>& dims, std::int64_t offset) &&;
  bool shift(std::int64_t offset);
  // Repeats the whole; false if that leaves 63 bits.
  bool surround(Dim dim);
  void sumUp();
  // Computes all that follows from dims_ and blocks(); false if it leaves 63 bits.
  bool measure();
  // Bounds of the part [from, to) of one index of the first `level` dims; all of it inside.
  Bounds part(std::size_t level, std::int64_t from, std::int64_t to) const;
  Bounds listPart(std::int64_t from, std::int64_t to) const;

  std::vector<Dim> dims_;
  Block one_{0, 0};    // the only block; without bytes if there is none
  BlockListPtr list_;  // two blocks or more; else nullptr
  // startOf() of lists whose blocks differ in length; else nullptr.
  std::shared_ptr<const std::int64_t[]> starts_;
  // For one index of the first i dims: packed bytes and bounds; dims_.size() + 1 entries, the last
  // are the list's.
  struct Level {
    std::int64_t bytes;
    Bounds bounds;
  };
  std::vector<Level> levels_;
  std::int64_t bytes_ = 0;
  std::int64_t listBytes_ = 0;
  std::int64_t blockCount_ = 0;
  std::int64_t blockBytes_ = 0;
  Bounds bounds_;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_LAYOUT_LAYOUT_H_
