// SPDX-License-Identifier: Apache-2.0
//
// Where the bytes of a datatype lie: flattened and canonical. What engines read; they know nothing
// of how a type was written.
#ifndef GMAC_DATATYPE_LAYOUT_H_
#define GMAC_DATATYPE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gmac/adsm_datatype.h"
#include "gmac/status.h"

namespace gmac::datatype {

// `count` repetitions, `stride` bytes apart.
struct Dim {
  std::int64_t count;
  std::int64_t stride;
  friend bool operator==(const Dim&, const Dim&) = default;
};

// A contiguous piece, `offset` bytes from the base.
using Block = adsmBlock_t;

// Offsets [first, last) from the base.
struct Bounds {
  std::int64_t first = 0;
  std::int64_t last = 0;
  friend bool operator==(const Bounds&, const Bounds&) = default;
};

// Role: the bytes of a type in packed order: for every index of `dims` (the last varies fastest),
// for every entry of `blocks`: `bytes` bytes at the sum of index x stride plus the entry's offset.
// A value, immutable once made; no locks; not for the fault handler (it allocates).
//
//   empty:      no blocks
//   contiguous: one block, no dims
//   strided:    one block, dims.size() dims
//   list:       two or more blocks (no two neighbours join), dims.size() >= 0 repetitions around
//
// Canonical: two layouts that name the same bytes in the same order are equal. The form follows
// from the function that gives each packed position its offset, and from nothing else: what is
// contiguous is one block; what is not, but repeats with a period of p packed bytes (p divides all;
// the offsets of one period are the first one's plus a multiple of one stride) becomes a dim around
// its smallest period, which is then treated likewise. Such a period may end inside a contiguous
// piece: the last block of one repetition and the first of the next may touch.
class Layout {
 public:
  Layout() = default;
  // Canonicalises. Entries of dims with count 0, and blocks of 0 bytes, are allowed.
  // adsmErrorInvalidValue when bytes or bounds leave 63 bits, or a count or block is negative.
  // O(dims + blocks).
  static Result<Layout> make(const std::vector<Dim>& dims, std::vector<Block> blocks);

  const std::vector<Dim>& dims() const { return dims_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  // Packed bytes of everything; of one pass over `blocks`.
  std::int64_t bytes() const { return bytes_; }
  std::int64_t listBytes() const { return listBytes_; }
  // How many entries there are, over all repetitions. Pieces that touch across two repetitions
  // count as two; see pieces.h for them joined.
  std::int64_t blockCount() const { return blockCount_; }
  // starts()[i]: packed bytes before blocks()[i], and listBytes() behind the last (a prefix sum);
  // for lists only, else empty.
  const std::vector<std::int64_t>& starts() const { return starts_; }
  // Bytes of every entry of `blocks`, where they are all alike; else 0.
  std::int64_t blockBytes() const { return blockBytes_; }
  // The bytes that are named lie in these.
  Bounds bounds() const { return bounds_; }
  // Of the part [offset, offset + bytes) in packed order; O(dims + log blocks) and never too small.
  // Exact but for parts of lists whose blocks do not ascend.
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

 private:
  // Shifts and repeats this canonical form, whose sums are not made yet, and makes them.
  Result<Layout> finished(const std::vector<Dim>& dims, std::int64_t offset) &&;
  // Repeats all there is; false when that would not fit.
  bool surround(Dim dim);
  // Fills in what follows from dims_ and blocks_; false when it leaves 63 bits.
  bool measure();
  // Bounds of the part [from, to) of one index of the first `level` dims; all of it inside.
  Bounds part(std::size_t level, std::int64_t from, std::int64_t to) const;
  Bounds listPart(std::int64_t from, std::int64_t to) const;

  std::vector<Dim> dims_;
  std::vector<Block> blocks_;
  std::vector<std::int64_t> starts_;
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
  bool ascending_ = true;  // the blocks: each ends before the next begins
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_LAYOUT_H_
