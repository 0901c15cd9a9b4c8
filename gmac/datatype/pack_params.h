// SPDX-License-Identifier: Apache-2.0
//
// What travels with a launch of a pack kernel: plain structures that the CPU fills and the kernels
// read. For the CPU's compiler and for nvcc.
//
// An operation copies the part [begin, end) of the packed bytes, counted in elements: words of the
// kernel's width, or bytes for the word mover. The packed side holds element e at `packed` + e x
// width; where the strided side holds it is what the forms below differ in.
#ifndef GMAC_DATATYPE_PACK_PARAMS_H_
#define GMAC_DATATYPE_PACK_PARAMS_H_

#include <cstdint>

#ifdef __CUDACC__
#define GMAC_HOST_DEVICE __host__ __device__ __forceinline__
#define GMAC_UNROLL _Pragma("unroll")
#else
#define GMAC_HOST_DEVICE inline
#define GMAC_UNROLL
#endif

namespace gmac::datatype {

// Threads that work together: a warp.
inline constexpr std::uint32_t kGroup = 32;

// Dimensions that a launch can carry.
inline constexpr int kMaxDims = 8;
// Pieces of a list that can travel in the launch.
inline constexpr int kShortListPieces = 120;
// A thread of the aligned movers has this many loads under way before its first store.
inline constexpr int kUnroll = 4;
// What a thread of the word mover packs or unpacks at a time. Where all pieces are of the same
// length it unpacks a window: as many aligned bytes of the strided side, or what of them belongs to
// the piece.
inline constexpr std::uint32_t kGatheredBytes = 16;
inline constexpr std::uint32_t kScatteredBytes = 8;
// Of a block: of most kernels, and of those that need more registers, which are the word movers and
// the kernels of lists in units. Two such blocks have room on a multiprocessor of 2048 threads.
inline constexpr std::uint32_t kMostThreads = 1024;
inline constexpr std::uint32_t kMostHeavyThreads = 640;
// Tiles are this many elements high and wide.
inline constexpr int kTile = 32;
inline constexpr int kTileThreads = 256;
// Of indices that kernels divide.
inline constexpr std::uint32_t kMaxDividend = (1U << 31) - 1;

// x / d for a d that is the same in all threads, x < 2^31, by a multiplication (Granlund and
// Montgomery, "Division by Invariant Integers using Multiplication", with one bit less to divide).
struct Divisor {
  std::uint32_t divisor;
  std::uint32_t magic;
  std::uint32_t shift;

  static constexpr Divisor of(std::uint32_t divisor) {
    std::uint32_t shift = 0;
    while ((std::uint64_t{1} << shift) < divisor) ++shift;
    const std::uint64_t power = std::uint64_t{1} << (31 + shift);
    return {divisor, static_cast<std::uint32_t>((power + divisor - 1) / divisor), shift};
  }
  GMAC_HOST_DEVICE std::uint32_t quotient(std::uint32_t x) const {
#ifdef __CUDA_ARCH__
    return __umulhi(x << 1, magic) >> shift;
#else
    return static_cast<std::uint32_t>((std::uint64_t{x} << 1) * magic >> 32) >> shift;
#endif
  }
};

// Where what an operation reads had better be kept.
enum class Caching : std::uint8_t {
  kUsual,
  kNowhere,      // what a pack reads and writes is more than caches hold
  kSecondLevel,  // what a pack reads: short rows, whose lines the second level may hold
};

// The part to do, in elements, and both sides' addresses of element 0. Elements are whole; the
// bytes of the part that are not lie in elements begin - 1 and end, and are few: `head` bytes at
// the end of the one, `tail` bytes at the beginning of the other.
struct Part {
  std::uint64_t strided;
  std::uint64_t packed;
  std::uint32_t begin;
  std::uint32_t end;
  std::uint8_t head;
  std::uint8_t tail;
  std::uint8_t unrolled;  // whether threads have more than one element
  Caching caching;
  // The bytes of the strided side that belong to the operation lie in [first, last) and may be read
  // in aligned words only inside of it; the word mover alone looks.
  std::uint64_t first;
  std::uint64_t last;
  Divisor windows;  // of a piece, where all are of the same length; only the word mover's unpack
};

struct DimParams {
  Divisor count;
  std::int64_t stride;  // bytes
};

// One contiguous piece.
struct LineParams {
  Part part;
};

// Pieces of equal length in N dimensions, the fastest first. Nothing is divided by the last one's
// count.
template <int N>  // 1 to 3
struct RowsParams {
  Part part;
  Divisor piece;  // elements of a piece
  DimParams dims[N];
};
// Short rows in one dimension, which each multiprocessor requests at a fixed rate: one group of 32
// threads every `interval` cycles (IssueRate).
struct PacedRowsParams {
  RowsParams<1> rows;
  std::uint32_t interval;
};
struct AnyRowsParams {
  Part part;
  Divisor piece;
  std::uint32_t dimCount;
  DimParams dims[kMaxDims];
};

// Pieces of equal length at the offsets of a table of 4 bytes each, the whole list repeated in
// dimCount dimensions, the fastest first.
struct EvenListParams {
  Part part;
  Divisor piece;
  Divisor pieces;         // of the list
  std::uint64_t offsets;  // address of the table
  std::uint32_t scale;    // an entry stands for this many bytes
  std::uint32_t dimCount;
  DimParams dims[kMaxDims];
};

// A piece of a list: elements before it, and its offset in multiples of `scale` bytes.
struct ShortPiece {
  std::uint32_t start;
  std::uint32_t offset;
};

// A list that travels in the launch, repeated.
struct ShortListParams {
  Part part;
  Divisor list;  // elements of the list
  std::uint32_t pieces;
  std::uint32_t scale;
  std::uint32_t dimCount;
  DimParams dims[kMaxDims];
  ShortPiece table[kShortListPieces + 1];  // the last one's start is the end
};

// Words of a list whose pieces are whole words, `scale` bytes each.
inline constexpr std::uint32_t kMarkedWords = 32;

// A list in device memory, repeated, whose words know their pieces without a search. Table: for
// every kMarkedWords words in packed order 4 bytes whose bit i says that a piece begins with word
// i, and the number of the pieces that begin before them, 4 bytes; for each piece its offset less
// its start, in words, 4 bytes.
struct MarkedListParams {
  Part part;
  Divisor list;           // elements of the list
  std::uint64_t marks;    // address of the first array
  std::uint64_t offsets;  // and of the second
  std::uint32_t scale;
  std::uint32_t wordShift;  // a word is 1 << wordShift elements
  std::uint32_t dimCount;
  DimParams dims[kMaxDims];
};

// A list in device memory, repeated: cut into units of equal packed size (Wu et al., section 3.2),
// which groups of 32 threads take in turn; inside of a unit each element finds its piece by a
// search over the prefix sum (Jenkins et al., section 3). Table: for each unit the number of the
// piece that it begins in, and one more for the end; for each piece its start and offset, and one
// start more.
struct LongListParams {
  Part part;            // begin and end do not count
  std::uint64_t begin;  // elements
  std::uint64_t end;
  std::uint64_t list;       // elements of the list
  std::uint32_t firstUnit;  // that the launch does, counted through all repetitions
  std::uint32_t lastUnit;   // behind the last
  Divisor unitsOfList;
  std::uint32_t unit;        // elements of a unit
  std::uint32_t scale;       // bytes that a table's offset or start stands for
  std::uint32_t startScale;  // elements that a start stands for is start << startScale
  std::uint64_t units;       // address of the pieces' numbers, 4 bytes each
  std::uint64_t pieces;      // address of (start, offset) pairs of 4 or, for wide lists, 8 bytes
  std::uint32_t dimCount;
  DimParams dims[kMaxDims];
};

// Elements whose neighbours in memory lie far apart in packed order: moved through tiles, so that
// both sides are touched in order. `across` is the dimension of neighbours in memory, `along` the
// fastest in packed order.
struct TileDim {
  std::uint32_t count;
  std::int64_t stride;        // bytes, strided side
  std::int64_t packedStride;  // elements
};
struct TileParams {
  Part part;           // begin and end do not count
  std::int64_t begin;  // elements
  std::int64_t end;
  TileDim across;
  TileDim along;
  Divisor tilesAcross;
  Divisor tilesAlong;
  std::uint32_t tiles;
  std::uint32_t dimCount;  // of the others
  DimParams dims[kMaxDims];
  std::int64_t packedStrides[kMaxDims];
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_PACK_PARAMS_H_
