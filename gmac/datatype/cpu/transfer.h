// SPDX-License-Identifier: Apache-2.0
//
// Copies from one layout to another in one pass, on the CPU.
#ifndef GMAC_DATATYPE_CPU_TRANSFER_H_
#define GMAC_DATATYPE_CPU_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "gmac/datatype/layout/layout.h"

namespace gmac::datatype {

// Copies the part [offset, offset + bytes), in packed order, of `from` relative to `source` to the
// same part of `to` relative to `target`. The part lies within both layouts, which may be of
// different form and length. The sides do not overlap; where pieces of `to` do, one of the values
// stays. One pass over memory: short pieces of lists that do not match go by way of 4 KiB on the
// stack. `copy` is for long pieces, as in CpuOptions. Thread-safe; allocates two small arrays, so
// not for the fault handler.
void transfer(const Layout& to, std::byte* target, const Layout& from, const std::byte* source,
              std::int64_t offset, std::int64_t bytes,
              void* (*copy)(void* to, const void* from, std::size_t bytes) = &std::memcpy);

// Walks through the pieces of a layout in packed order, from any offset. For the stack of one
// thread.
class PieceCursor {
 public:
  // 0 <= offset < layout.bytes(). The layout outlives the cursor.
  PieceCursor(const Layout& layout, std::int64_t offset);
  void seek(std::int64_t offset);

  // `count` pieces of `bytes` bytes, `stride` bytes apart, that follow each other in packed order;
  // the first begins at `offset` from the base.
  struct Run {
    std::int64_t offset;
    std::int64_t bytes;
    std::int64_t count;
    std::int64_t stride;
  };
  Run run() const;
  // Skips so many bytes of run(), at most all of them. Past the layout's end run() is not defined.
  void skip(std::int64_t bytes);

  // Where run() begins a block of a list: the blocks to the list's end, relative to `place` from
  // the base. Else none.
  struct List {
    const Block* blocks = nullptr;
    std::int64_t count = 0;
    std::int64_t place = 0;
  };
  List list() const;
  // Skips so many of list(), at most all of them.
  void skipBlocks(std::int64_t count);

 private:
  void nextBlock();
  void advance(std::int64_t repetitions);

  const Layout& layout_;
  const std::span<const Block> blocks_;
  std::vector<std::int64_t> index_;
  std::int64_t place_ = 0;  // of the repetition, from the base
  std::size_t block_ = 0;
  std::int64_t cut_ = 0;  // bytes of the block that are done
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_CPU_TRANSFER_H_
