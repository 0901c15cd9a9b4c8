// SPDX-License-Identifier: Apache-2.0
//
// The parameters of the pack kernels: plain structures that the CPU fills in and the kernels read.
// For the CPU's compiler and for nvcc.
//
// An operation copies the part [begin, end) of the packed bytes, counted in elements: words of the
// kernel's width, or bytes for the word mover. The packed side holds element e at `packed` + e x
// width; the forms below differ in where the strided side holds it.
#ifndef GMAC_DATATYPE_KERNELS_PACK_PARAMS_H_
#define GMAC_DATATYPE_KERNELS_PACK_PARAMS_H_

#include <cstdint>

#ifdef __CUDACC__
#define GMAC_HOST_DEVICE __host__ __device__ __forceinline__
#define GMAC_UNROLL _Pragma("unroll")
#else
#define GMAC_HOST_DEVICE inline
#define GMAC_UNROLL
#endif

namespace gmac::datatype {

// The threads of a warp.
inline constexpr std::uint32_t kGroup = 32;

// Dimensions that a launch can carry.
inline constexpr int kMaxDims = 8;
// Pieces of a list that can travel in the launch.
inline constexpr int kShortListPieces = 120;
// A thread of the aligned movers issues this many loads before its first store.
inline constexpr int kUnroll = 4;
// A thread of the word mover packs or unpacks so many bytes at a time. Where all pieces have the
// same length it unpacks a window: so many aligned bytes of the strided side, as far as they belong
// to the piece.
inline constexpr std::uint32_t kGatheredBytes = 16;
inline constexpr std::uint32_t kScatteredBytes = 8;
// The largest thread block of most kernels, and of the heavy ones, which need more registers: the
// word movers and the kernels of lists in units. A multiprocessor of 2048 threads holds two.
inline constexpr std::uint32_t kMaxThreads = 1024;
inline constexpr std::uint32_t kMaxHeavyThreads = 640;
// Tiles are this many elements high and wide.
inline constexpr int kTile = 32;
inline constexpr int kTileThreads = 256;
// The largest index that a kernel divides.
inline constexpr std::uint32_t kMaxDividend = (1U << 31) - 1;

// Divides x < 2^31 by a number that all threads share, with one multiplication (Granlund and
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

// Which caches should keep the bytes that an operation reads.
enum class Caching : std::uint8_t {
  kUsual,
  kNowhere,      // a pack that reads and writes more than caches hold
  kSecondLevel,  // a pack of short rows, whose lines the second level may hold
};

// The part to copy, in whole elements, and both sides' addresses of element 0. The part may begin
// and end within an element: it also has the last `head` bytes of element begin - 1 and the first
// `tail` bytes of element `end`.
struct Part {
  std::uint64_t strided;
  std::uint64_t packed;
  std::uint32_t begin;
  std::uint32_t end;
  std::uint8_t head;
  std::uint8_t tail;
  std::uint8_t unrolled;  // 1: threads have more than one element
  Caching caching;
  // The operation's bytes of the strided side lie in [first, last). The word mover reads whole
  // aligned words only inside of it; the others do not look at it.
  std::uint64_t first;
  std::uint64_t last;
  Divisor windows;  // of a piece, where all have the same length; for the word mover's unpack
};

struct DimParams {
  Divisor count;
  std::int64_t stride;  // bytes
};

// One contiguous piece.
struct LineParams {
  Part part;
};

// Pieces of equal length in N dimensions, the fastest first. The last one's count is not used.
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
  std::uint32_t lastUnit;   // one past the last
  Divisor unitsOfList;
  std::uint32_t unit;        // elements of a unit
  std::uint32_t scale;       // bytes that a table's offset or start stands for
  std::uint32_t startScale;  // elements that a start stands for is start << startScale
  std::uint64_t units;       // address of the pieces' numbers, 4 bytes each
  std::uint64_t pieces;      // address of (start, offset) pairs of 4 or, for wide lists, 8 bytes
  std::uint32_t dimCount;
  DimParams dims[kMaxDims];
};

// Elements whose neighbours in memory lie far apart in packed order: moved through tiles in shared
// memory, so that both sides are accessed in order. `across` is the dimension of neighbours in
// memory, `along` the fastest in packed order.
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

#endif  // GMAC_DATATYPE_KERNELS_PACK_PARAMS_H_
