// SPDX-License-Identifier: Apache-2.0
//
// The locators of the pack kernels, one for each shape: they compute where elements lie on the
// strided side. For the CPU's compiler and for nvcc.
#ifndef GMAC_DATATYPE_KERNELS_PACK_LOCATORS_H_
#define GMAC_DATATYPE_KERNELS_PACK_LOCATORS_H_

#include <cstdint>

#include "gmac/datatype/kernels/pack_params.h"
#include "gmac/datatype/kernels/pack_words.h"

namespace gmac::datatype {

// prepare<W>(e) loads the table's entries about element e; offset(prepared) is the element's offset
// in bytes, and left(prepared) the number of elements from it to the end of its piece. With two
// steps, a thread issues many loads before it needs the first result. Locators of pieces of one
// length (kEvenPieces) also know the piece of an element and the elements of a piece.

struct LineLocator {
  static constexpr bool kEvenPieces = true;
  const LineParams& p;
  struct Prepared {
    std::int64_t at;
    std::uint32_t left;
  };
  template <int W>
  GMAC_HOST_DEVICE Prepared prepare(std::uint32_t e) const {
    return {static_cast<std::int64_t>(e) * W, p.part.end + 1 - e};
  }
  GMAC_HOST_DEVICE std::uint32_t pieceOf(std::uint32_t) const { return 0; }
  GMAC_HOST_DEVICE std::uint32_t ofPiece() const { return kMaxDividend; }
  GMAC_HOST_DEVICE std::int64_t offset(const Prepared& prepared) const { return prepared.at; }
  GMAC_HOST_DEVICE std::uint32_t left(const Prepared& prepared) const { return prepared.left; }
};

template <int N>
struct RowsLocator {
  static constexpr bool kEvenPieces = true;
  const RowsParams<N>& p;
  GMAC_HOST_DEVICE std::uint32_t pieceOf(std::uint32_t e) const { return p.piece.quotient(e); }
  GMAC_HOST_DEVICE std::uint32_t ofPiece() const { return p.piece.divisor; }
  using Prepared = LineLocator::Prepared;
  template <int W>
  GMAC_HOST_DEVICE Prepared prepare(std::uint32_t e) const {
    std::uint32_t rest = p.piece.quotient(e);
    const std::uint32_t inPiece = e - rest * p.piece.divisor;
    std::int64_t offset = static_cast<std::int64_t>(inPiece) * W;
    GMAC_UNROLL
    for (int d = 0; d + 1 < N; ++d) {
      const std::uint32_t next = p.dims[d].count.quotient(rest);
      offset += (rest - next * p.dims[d].count.divisor) * p.dims[d].stride;
      rest = next;
    }
    return {offset + rest * p.dims[N - 1].stride, p.piece.divisor - inPiece};
  }
  GMAC_HOST_DEVICE std::int64_t offset(const Prepared& prepared) const { return prepared.at; }
  GMAC_HOST_DEVICE std::uint32_t left(const Prepared& prepared) const { return prepared.left; }
};

// The offset of repetition `index` in the dimensions, the fastest first.
GMAC_HOST_DEVICE std::int64_t offsetInDims(const DimParams* dims, std::uint32_t dimCount,
                                           std::uint32_t index) {
  if (dimCount == 0) return 0;
  std::int64_t offset = 0;
  for (std::uint32_t d = 0; d + 1 < dimCount; ++d) {
    const std::uint32_t next = dims[d].count.quotient(index);
    offset += (index - next * dims[d].count.divisor) * dims[d].stride;
    index = next;
  }
  return offset + index * dims[dimCount - 1].stride;
}

struct AnyRowsLocator {
  static constexpr bool kEvenPieces = true;
  const AnyRowsParams& p;
  GMAC_HOST_DEVICE std::uint32_t pieceOf(std::uint32_t e) const { return p.piece.quotient(e); }
  GMAC_HOST_DEVICE std::uint32_t ofPiece() const { return p.piece.divisor; }
  using Prepared = LineLocator::Prepared;
  template <int W>
  GMAC_HOST_DEVICE Prepared prepare(std::uint32_t e) const {
    const std::uint32_t rest = p.piece.quotient(e);
    const std::uint32_t inPiece = e - rest * p.piece.divisor;
    return {static_cast<std::int64_t>(inPiece) * W + offsetInDims(p.dims, p.dimCount, rest),
            p.piece.divisor - inPiece};
  }
  GMAC_HOST_DEVICE std::int64_t offset(const Prepared& prepared) const { return prepared.at; }
  GMAC_HOST_DEVICE std::uint32_t left(const Prepared& prepared) const { return prepared.left; }
};

// kRepeated: the list is repeated in dimensions around it.
template <bool kRepeated>
struct EvenListLocator {
  static constexpr bool kEvenPieces = true;
  const EvenListParams& p;
  GMAC_HOST_DEVICE std::uint32_t pieceOf(std::uint32_t e) const { return p.piece.quotient(e); }
  GMAC_HOST_DEVICE std::uint32_t ofPiece() const { return p.piece.divisor; }
  struct Prepared {
    std::uint32_t entry;
    std::uint32_t left;
    std::int64_t at;
  };
  template <int W>
  GMAC_HOST_DEVICE Prepared prepare(std::uint32_t e) const {
    std::uint32_t piece = p.piece.quotient(e);
    const std::uint32_t inPiece = e - piece * p.piece.divisor;
    std::int64_t at = static_cast<std::int64_t>(inPiece) * W;
    if constexpr (kRepeated) {
      const std::uint32_t repetition = p.pieces.quotient(piece);
      piece -= repetition * p.pieces.divisor;
      at += offsetInDims(p.dims, p.dimCount, repetition);
    }
    return {tableEntry<std::uint32_t>(p.offsets, piece), p.piece.divisor - inPiece, at};
  }
  GMAC_HOST_DEVICE std::int64_t offset(const Prepared& prepared) const {
    return prepared.at + static_cast<std::int64_t>(std::uint64_t{prepared.entry} * p.scale);
  }
  GMAC_HOST_DEVICE std::uint32_t left(const Prepared& prepared) const { return prepared.left; }
};

struct ShortListLocator {
  static constexpr bool kEvenPieces = false;
  const ShortListParams& p;
  const ShortPiece* table;  // p.table, or a copy that all lanes of a warp read fast
  using Prepared = LineLocator::Prepared;
  template <int W>
  GMAC_HOST_DEVICE Prepared prepare(std::uint32_t e) const {
    const std::uint32_t repetition = p.list.quotient(e);
    const std::uint32_t inList = e - repetition * p.list.divisor;
    std::uint32_t low = 0;
    std::uint32_t high = p.pieces;
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      if (table[middle].start <= inList) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return {static_cast<std::int64_t>(inList - table[low].start) * W +
                static_cast<std::int64_t>(std::uint64_t{table[low].offset} * p.scale) +
                offsetInDims(p.dims, p.dimCount, repetition),
            table[low + 1].start - inList};
  }
  GMAC_HOST_DEVICE std::int64_t offset(const Prepared& prepared) const { return prepared.at; }
  GMAC_HOST_DEVICE std::uint32_t left(const Prepared& prepared) const { return prepared.left; }
};

// kRepeated: the list is repeated in dimensions around it.
template <bool kRepeated>
struct MarkedListLocator {
  static constexpr bool kEvenPieces = false;
  const MarkedListParams& p;
  struct Prepared {
    std::int32_t away;   // words
    std::uint32_t left;  // to the next mark, or to the end of the entry of marks
    std::int64_t at;
  };
  template <int W>
  GMAC_HOST_DEVICE Prepared prepare(std::uint32_t e) const {
    std::uint32_t inList = e;
    std::int64_t at = 0;
    if constexpr (kRepeated) {
      const std::uint32_t repetition = p.list.quotient(e);
      inList -= repetition * p.list.divisor;
      at = offsetInDims(p.dims, p.dimCount, repetition);
    }
    const std::uint32_t word = inList >> p.wordShift;
    const auto marks = tableEntry<std::uint64_t>(p.marks, word / kMarkedWords);
    const auto begins = static_cast<std::uint32_t>(marks);
    const std::uint32_t bit = word % kMarkedWords;
    const std::uint32_t upTo = (2U << bit) - 1;
    const std::uint32_t piece =
        static_cast<std::uint32_t>(marks >> 32) + populationOf(begins & upTo) - 1;
    const std::uint32_t later = begins & ~upTo;
    // Not beyond the end of the list: the next repetition lies elsewhere.
    const std::uint32_t next = later != 0 ? populationOf((later & (~later + 1)) - 1) : kMarkedWords;
    const std::uint32_t more = ((word - bit + next) << p.wordShift) - inList;
    const std::uint32_t ofList = p.list.divisor - inList;
    return {static_cast<std::int32_t>(tableEntry<std::uint32_t>(p.offsets, piece)),
            more < ofList ? more : ofList, at + static_cast<std::int64_t>(inList) * W};
  }
  GMAC_HOST_DEVICE static std::uint32_t populationOf(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
    return static_cast<std::uint32_t>(__popc(bits));
#else
    return static_cast<std::uint32_t>(__builtin_popcount(bits));
#endif
  }
  GMAC_HOST_DEVICE std::int64_t offset(const Prepared& prepared) const {
    return prepared.at + std::int64_t{prepared.away} * p.scale;
  }
  GMAC_HOST_DEVICE std::uint32_t left(const Prepared& prepared) const { return prepared.left; }
};

// For the elements of one unit, counted from its beginning.
template <typename Entry>
struct UnitLocator {
  static constexpr bool kEvenPieces = false;
  const LongListParams& p;
  std::uint64_t begin;       // the unit's first element, in its list
  std::int64_t repetition;   // offset, bytes
  std::uint32_t firstPiece;  // the pieces that the unit has elements of: [firstPiece, lastPiece]
  std::uint32_t lastPiece;
  // As the table has them: decoded, they would take twice the registers.
  struct Prepared {
    std::uint32_t e;
    Entry start;
    Entry end;
    Entry offset;
    int width;
  };
  GMAC_HOST_DEVICE Entry start(std::uint32_t piece) const {
    return tableEntry<Entry>(p.pieces, std::uint64_t{piece} * 2);
  }
  GMAC_HOST_DEVICE std::uint64_t elements(Entry start) const {
    return static_cast<std::uint64_t>(start) << p.startScale;
  }
  template <int W>
  GMAC_HOST_DEVICE Prepared prepare(std::uint32_t e) const {
    const std::uint64_t inList = begin + e;
    std::uint32_t low = firstPiece;
    // All threads make the same number of steps; a step beyond the end stops at the last piece.
    for (std::uint32_t step = firstStep(); step != 0; step /= 2) {
      const std::uint32_t there = low + step < lastPiece ? low + step : lastPiece;
      if (elements(start(there)) <= inList) low = there;
    }
    return {e, start(low), start(low + 1), tableEntry<Entry>(p.pieces, std::uint64_t{low} * 2 + 1),
            W};
  }
  // The greatest power of two that does not exceed the number of pieces after the first.
  GMAC_HOST_DEVICE std::uint32_t firstStep() const {
    const std::uint32_t others = lastPiece - firstPiece;
    if (others == 0) return 0;
#ifdef __CUDA_ARCH__
    return 1U << (31 - __clz(static_cast<int>(others)));
#else
    return 1U << (31 - __builtin_clz(others));
#endif
  }
  GMAC_HOST_DEVICE std::int64_t offset(const Prepared& prepared) const {
    return static_cast<std::int64_t>((begin + prepared.e - elements(prepared.start)) *
                                         static_cast<std::uint64_t>(prepared.width) +
                                     static_cast<std::uint64_t>(prepared.offset) * p.scale) +
           repetition;
  }
  GMAC_HOST_DEVICE std::uint32_t left(const Prepared& prepared) const {
    const std::uint64_t more = elements(prepared.end) - (begin + prepared.e);
    return more < kMaxDividend ? static_cast<std::uint32_t>(more) : kMaxDividend;
  }
};

// For a unit that lies in one piece: a contiguous copy.
struct OnePieceLocator {
  std::uint32_t end;
  using Prepared = LineLocator::Prepared;
  template <int W>
  GMAC_HOST_DEVICE Prepared prepare(std::uint32_t e) const {
    return {static_cast<std::int64_t>(e) * W, end - e};
  }
  GMAC_HOST_DEVICE std::int64_t offset(const Prepared& prepared) const { return prepared.at; }
  GMAC_HOST_DEVICE std::uint32_t left(const Prepared& prepared) const { return prepared.left; }
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_KERNELS_PACK_LOCATORS_H_
