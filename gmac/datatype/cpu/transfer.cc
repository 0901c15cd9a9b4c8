// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/cpu/transfer.h"

#include <algorithm>
#include <array>

#include "gmac/datatype/cpu/cpu_copies.h"
#include "gmac/datatype/cpu/cpu_engine.h"

namespace gmac::datatype {
namespace {

using std::int64_t;

// `count` pieces of `bytes` bytes each.
struct Pieces {
  std::byte* to;
  int64_t toStride;
  const std::byte* from;
  int64_t fromStride;
  int64_t bytes;
  int64_t count;
};

// The processor does not foresee pieces that are further apart than a line.
template <std::size_t kBytes>
void copyPieces(const Pieces& pieces, CopyFunction copy) {
  const bool farFrom = std::abs(pieces.fromStride) >= kFarStride;
  const bool farTo = std::abs(pieces.toStride) >= kFarStride;
  std::byte* to = pieces.to;
  const std::byte* from = pieces.from;
  for (int64_t i = 0; i < pieces.count; ++i) {
    if (farFrom) {
      __builtin_prefetch(from + kAhead * pieces.fromStride, 0);
    }
    if (farTo) {
      __builtin_prefetch(to + kAhead * pieces.toStride, 1);
    }
    if constexpr (kBytes == 0) {
      copyAny(to, from, pieces.bytes, copy);
    } else {
      copyFixed<kBytes>(to, from);
    }
    to += pieces.toStride;
    from += pieces.fromStride;
  }
}

#if defined(__x86_64__)
// Whole cache lines, a line a move: what is written whole need not be read first.
template <std::size_t kBytes>
__attribute__((target("avx512f"))) void copyWholeLines(const Pieces& pieces, CopyFunction) {
  constexpr std::size_t kMoves = kBytes / sizeof(__m512i);
  constexpr int64_t kLinesAhead = 8;
  std::byte* to = pieces.to;
  const std::byte* from = pieces.from;
  for (int64_t i = 0; i < pieces.count; ++i) {
    for (std::size_t line = 0; line < kBytes; line += sizeof(__m512i)) {
      __builtin_prefetch(from + kLinesAhead * pieces.fromStride + line, 0);
      __builtin_prefetch(to + kLinesAhead * pieces.toStride + line, 1);
    }
    __m512i values[kMoves];
    for (std::size_t move = 0; move < kMoves; ++move) {
      values[move] = _mm512_loadu_si512(reinterpret_cast<const __m512i*>(from) + move);
    }
    for (std::size_t move = 0; move < kMoves; ++move) {
      _mm512_storeu_si512(reinterpret_cast<__m512i*>(to) + move, values[move]);
    }
    to += pieces.toStride;
    from += pieces.fromStride;
  }
}
#endif

using CopyPieces = void (*)(const Pieces&, CopyFunction);

CopyPieces copiesOf(int64_t bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    switch (bytes) {
      case 64:
        return &copyWholeLines<64>;
      case 128:
        return &copyWholeLines<128>;
      case 256:
        return &copyWholeLines<256>;
      default:
        break;
    }
  }
#endif
  switch (bytes) {
#define GMAC_PIECES_OF(width) \
  case width:                 \
    return &copyPieces<width>
    GMAC_PIECES_OF(1);
    GMAC_PIECES_OF(2);
    GMAC_PIECES_OF(4);
    GMAC_PIECES_OF(8);
    GMAC_PIECES_OF(12);
    GMAC_PIECES_OF(16);
    GMAC_PIECES_OF(24);
    GMAC_PIECES_OF(32);
    GMAC_PIECES_OF(48);
    GMAC_PIECES_OF(64);
#undef GMAC_PIECES_OF
    default:
      return &copyPieces<0>;
  }
}

// Where the part is one piece; its offset.
bool contiguous(const Layout& layout, int64_t offset, int64_t bytes, int64_t* start) {
  const PieceCursor::Run run = PieceCursor(layout, offset).run();
  *start = run.offset;
  return run.bytes >= bytes;
}

// How many pieces of `width` bytes a run has that begin at equal distances, and the distance.
struct Cut {
  int64_t count;
  int64_t stride;
};
Cut cutInto(const PieceCursor::Run& run, int64_t width) {
  return run.bytes == width ? Cut{run.count, run.stride} : Cut{run.bytes / width, width};
}

// Where fewer pieces of lists than these are alike, short ones are packed and unpacked by way of
// the first-level cache: to find out where two of them overlap takes longer than to copy them.
constexpr int64_t kFewAlike = 8;
constexpr int64_t kShortPiece = 256;
constexpr std::size_t kBuffer = 4096;

// Pieces that follow each other in packed order, as one side has them.
struct ListedPieces {
  const Block* blocks;
  int64_t place;
  int64_t offset(int64_t i) const { return place + blocks[i].offset; }
  int64_t bytes(int64_t i) const { return blocks[i].bytes; }
};
struct EqualPieces {
  PieceCursor::Run run;
  int64_t offset(int64_t i) const { return run.offset + i * run.stride; }
  int64_t bytes(int64_t) const { return run.bytes; }
};

// Copies pieces as long as both sides' are alike and end within `bytes`; at most `count`. Returns
// how many those were, and takes their bytes from `bytes`.
template <typename To, typename From>
int64_t copyAlike(const To& to, std::byte* target, const From& from, const std::byte* source,
                  int64_t count, int64_t* bytes, CopyFunction copy) {
  int64_t i = 0;
  int64_t left = *bytes;
  for (; i < count && to.bytes(i) == from.bytes(i) && from.bytes(i) <= left; ++i) {
    copyAny(target + to.offset(i), source + from.offset(i), from.bytes(i), copy);
    left -= from.bytes(i);
  }
  *bytes = left;
  return i;
}

void skip(PieceCursor& cursor, const PieceCursor::List& list, const PieceCursor::Run& run,
          int64_t pieces) {
  if (list.count > 0) {
    cursor.skipBlocks(pieces);
  } else {
    cursor.skip(pieces * run.bytes);
  }
}

}  // namespace

PieceCursor::PieceCursor(const Layout& layout, int64_t offset)
    : layout_(layout), blocks_(layout.blocks()), index_(layout.dims().size()) {
  seek(offset);
}

void PieceCursor::seek(int64_t offset) {
  const std::vector<Dim>& dims = layout_.dims();
  int64_t repetition = offset / layout_.listBytes();
  const int64_t within = offset - repetition * layout_.listBytes();
  place_ = 0;
  for (std::size_t i = dims.size(); i-- > 0;) {
    index_[i] = repetition % dims[i].count;
    repetition /= dims[i].count;
    place_ += index_[i] * dims[i].stride;
  }
  block_ = layout_.blockAt(within);
  cut_ = within - layout_.startOf(block_);
}

PieceCursor::Run PieceCursor::run() const {
  const Block& block = blocks_[block_];
  Run run{place_ + block.offset + cut_, block.bytes - cut_, 1, block.bytes};
  if (blocks_.size() == 1 && cut_ == 0 && !index_.empty()) {
    run.count = layout_.dims().back().count - index_.back();
    run.stride = layout_.dims().back().stride;
  }
  return run;
}

// By repetitions of which the innermost dim has so many left.
void PieceCursor::advance(int64_t repetitions) {
  const std::vector<Dim>& dims = layout_.dims();
  std::size_t dim = dims.size();
  for (int64_t steps = repetitions; dim-- > 0; steps = 1) {
    place_ += steps * dims[dim].stride;
    index_[dim] += steps;
    if (index_[dim] < dims[dim].count) {
      return;
    }
    place_ -= dims[dim].count * dims[dim].stride;
    index_[dim] = 0;
  }
}

void PieceCursor::nextBlock() {
  cut_ = 0;
  if (++block_ == blocks_.size()) {
    block_ = 0;
    advance(1);
  }
}

PieceCursor::List PieceCursor::list() const {
  if (blocks_.size() < 2 || cut_ != 0) {
    return {};
  }
  return {blocks_.data() + block_, static_cast<int64_t>(blocks_.size() - block_), place_};
}

void PieceCursor::skipBlocks(int64_t count) {
  block_ += static_cast<std::size_t>(count);
  if (block_ == blocks_.size()) {
    block_ = 0;
    advance(1);
  }
}

void PieceCursor::skip(int64_t bytes) {
  const int64_t length = blocks_[block_].bytes;
  if (blocks_.size() == 1 && cut_ == 0 && bytes >= length) {
    advance(bytes / length);
    cut_ = bytes % length;
    return;
  }
  cut_ += bytes;
  if (cut_ == length) {
    nextBlock();
  }
}

void transfer(const Layout& to, std::byte* target, const Layout& from, const std::byte* source,
              int64_t offset, int64_t bytes, CopyFunction copy) {
  if (bytes <= 0) {
    return;
  }
  int64_t start = 0;
  CpuOptions options;
  options.copy = copy;
  if (contiguous(from, offset, bytes, &start)) {
    unpack(to, target, source + start, offset, bytes, options);
    return;
  }
  if (contiguous(to, offset, bytes, &start)) {
    pack(from, target + start, source, offset, bytes, options);
    return;
  }
  PieceCursor reader(from, offset);
  PieceCursor writer(to, offset);
  int64_t width = 0;
  CopyPieces copies = nullptr;
  for (int64_t left = bytes; left > 0;) {
    const PieceCursor::List inList = reader.list();
    const PieceCursor::List outList = writer.list();
    const PieceCursor::Run in = reader.run();
    const PieceCursor::Run out = writer.run();
    int64_t alike = 0;
    if (inList.count > 0 && outList.count > 0) {
      alike = copyAlike(ListedPieces{outList.blocks, outList.place}, target,
                        ListedPieces{inList.blocks, inList.place}, source,
                        std::min(inList.count, outList.count), &left, copy);
    } else if (inList.count > 0) {
      alike = copyAlike(EqualPieces{out}, target, ListedPieces{inList.blocks, inList.place}, source,
                        std::min(inList.count, out.count), &left, copy);
    } else if (outList.count > 0) {
      alike = copyAlike(ListedPieces{outList.blocks, outList.place}, target, EqualPieces{in},
                        source, std::min(in.count, outList.count), &left, copy);
    }
    if (alike > 0) {
      skip(reader, inList, in, alike);
      skip(writer, outList, out, alike);
    }
    if (alike >= kFewAlike) {
      continue;
    }
    const bool listed = inList.count > 0 || outList.count > 0;
    if (listed && std::min(in.bytes, out.bytes) < kShortPiece) {
      std::array<std::byte, kBuffer> buffer;
      const int64_t at = offset + bytes - left;
      const int64_t now = std::min<int64_t>(left, kBuffer);
      pack(from, buffer.data(), source, at, now, options);
      unpack(to, target, buffer.data(), at, now, options);
      left -= now;
      if (left > 0) {
        reader.seek(at + now);
        writer.seek(at + now);
      }
      continue;
    }
    if (alike > 0) {
      continue;
    }
    const int64_t now = std::min({in.bytes, out.bytes, left});
    const Cut inCut = cutInto(in, now);
    const Cut outCut = cutInto(out, now);
    const int64_t count = std::min({inCut.count, outCut.count, left / now});
    if (now != width) {
      width = now;
      copies = copiesOf(width);
    }
    copies({target + out.offset, outCut.stride, source + in.offset, inCut.stride, now, count},
           copy);
    reader.skip(now * count);
    writer.skip(now * count);
    left -= now * count;
  }
}

}  // namespace gmac::datatype
