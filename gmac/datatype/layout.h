// SPDX-License-Identifier: Apache-2.0
//
// Where the bytes of a datatype lie: flattened and canonical. What engines read; they know nothing
// of how a type was written.
#ifndef GMAC_DATATYPE_LAYOUT_H_
#define GMAC_DATATYPE_LAYOUT_H_

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
};

// Role: the bytes of a type in packed order: for every index of `dims` (the last varies fastest),
// for every entry of `blocks`: `bytes` bytes at the sum of index x stride plus the entry's offset.
// A value, immutable once made; no locks. Canonical: two layouts that name the same bytes in the
// same order are equal.
//
//   empty:      no blocks
//   contiguous: one block, no dims
//   strided:    one block, dims.size() dims
//   list:       two or more blocks (no two neighbours join), dims.size() >= 0 repetitions around
class Layout {
 public:
  Layout() = default;
  // Canonicalises. Entries of dims with count 0, and blocks of 0 bytes, are allowed.
  // adsmErrorInvalidValue when bytes or bounds leave 63 bits.
  static Result<Layout> make(std::vector<Dim> dims, std::vector<Block> blocks);

  const std::vector<Dim>& dims() const { return dims_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  // Packed bytes of everything; of one pass over `blocks`.
  std::int64_t bytes() const { return bytes_; }
  std::int64_t listBytes() const { return listBytes_; }
  // How many contiguous pieces there are.
  std::int64_t blockCount() const { return blockCount_; }
  // starts()[i]: packed bytes before blocks()[i], and listBytes() behind the last (a prefix sum);
  // for lists only, else empty.
  const std::vector<std::int64_t>& starts() const { return starts_; }
  // The bytes that are named lie in these.
  Bounds bounds() const { return bounds_; }
  // Of the part [offset, offset + bytes) in packed order; O(dims + log blocks) and never too small,
  // exact for whole rows of dims.
  Bounds boundsOf(std::int64_t offset, std::int64_t bytes) const;

  // The layout of `count` elements, `extent` bytes apart.
  Result<Layout> repeated(std::int64_t count, std::int64_t extent) const;

  // Calls `piece(offset from the base, packed offset, bytes)` for every contiguous piece of the
  // part [offset, offset + bytes) in packed order. For tests, plain copies and plans; not for the
  // CPU engine's inner loops.
  void forEach(std::int64_t offset, std::int64_t bytes,
               const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& piece) const;

  // e.g. "strided 8 B x 4096 @ 512 B".
  std::string describe() const;

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  std::vector<Dim> dims_;
  std::vector<Block> blocks_;
  std::vector<std::int64_t> starts_;
  std::int64_t bytes_ = 0;
  std::int64_t listBytes_ = 0;
  std::int64_t blockCount_ = 0;
  Bounds bounds_;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_LAYOUT_H_
