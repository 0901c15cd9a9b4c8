// SPDX-License-Identifier: Apache-2.0
//
// The bodies of the pack kernels, written once for the device and for the `host` accelerator, as
// functions of a thread's place in its launch. For the CPU's compiler and for nvcc.
//
// A kernel is a locator (where does element e lie on the strided side) and a mover (how are
// elements copied). Consecutive threads take consecutive elements in packed order, so that accesses
// to the packed side are always coalesced, and those to the strided side as far as the layout
// allows.
#ifndef GMAC_DATATYPE_KERNELS_PACK_BODIES_H_
#define GMAC_DATATYPE_KERNELS_PACK_BODIES_H_

#include <cstdint>
#include <type_traits>

#include "gmac/datatype/kernels/pack_locators.h"
#include "gmac/datatype/kernels/pack_params.h"
#include "gmac/datatype/kernels/pack_words.h"

namespace gmac::datatype {

// A thread's place.
struct Place {
  std::uint32_t block;
  std::uint32_t thread;
  std::uint32_t blocks;
  std::uint32_t threads;
};

// Choices of a kernel; the defaults were the fastest on an H200.
template <Hint kLoad = Hint::kNone, Hint kStore = Hint::kNone, int kLoads = kUnroll>
struct Tuning {
  static constexpr Hint kLoadHint = kLoad;
  static constexpr Hint kStoreHint = kStore;
  static constexpr int kLoadsInFlight = kLoads;
};

// For short rows whose lines the second level may hold. Loads that bypass the first level hit the
// second more often, both after another pack of the rows and after a kernel that wrote everything
// between them (docs/datatypes_results.md).
using PastFirstLevel = Tuning<Hint::kNoFirstLevel>;

// ---- Movers of elements that are aligned on both sides.

template <int W, bool kPack, typename T>
GMAC_HOST_DEVICE Word<W> fetch(std::uint64_t strided, std::uint64_t packed) {
  return load<W, T::kLoadHint>(kPack ? strided : packed);
}
template <int W, bool kPack, typename T>
GMAC_HOST_DEVICE void put(std::uint64_t strided, std::uint64_t packed, Word<W> v) {
  store<W, T::kStoreHint>(kPack ? packed : strided, v);
}

// Copies N elements first, first + step, ...; unless kAll, only those before `end`. All loads are
// issued before the first store, so that the memory latency is paid once.
template <typename Locator, int W, bool kPack, typename T, int N, bool kAll>
GMAC_HOST_DEVICE void moveSome(const Locator& locator, std::uint64_t strided, std::uint64_t packed,
                               std::uint32_t first, std::uint32_t step, std::uint32_t end) {
  typename Locator::Prepared prepared[N] = {};
  Word<W> v[N] = {};
  GMAC_UNROLL
  for (int i = 0; i < N; ++i) {
    const std::uint32_t e = first + static_cast<std::uint32_t>(i) * step;
    if (kAll || e < end) prepared[i] = locator.template prepare<W>(e);
  }
  GMAC_UNROLL
  for (int i = 0; i < N; ++i) {
    const std::uint32_t e = first + static_cast<std::uint32_t>(i) * step;
    if (kAll || e < end) {
      v[i] = fetch<W, kPack, T>(strided + static_cast<std::uint64_t>(locator.offset(prepared[i])),
                                packed + std::uint64_t{e} * W);
    }
  }
  GMAC_UNROLL
  for (int i = 0; i < N; ++i) {
    const std::uint32_t e = first + static_cast<std::uint32_t>(i) * step;
    if (kAll || e < end) {
      put<W, kPack, T>(strided + static_cast<std::uint64_t>(locator.offset(prepared[i])),
                       packed + std::uint64_t{e} * W, v[i]);
    }
  }
}

// The bytes of a part at its two ends that are not whole elements.
template <typename Locator, int W, bool kPack>
GMAC_HOST_DEVICE void moveEnds(const Locator& locator, const Part& part, Place place) {
  if constexpr (W > 1) {
    const std::uint32_t ends = std::uint32_t{part.head} + part.tail;
    if (place.block != 0 || place.thread >= ends) return;
    const bool head = place.thread < part.head;
    const std::uint32_t e = head ? part.begin - 1 : part.end;
    const std::uint32_t byte =
        head ? static_cast<std::uint32_t>(W) - part.head + place.thread : place.thread - part.head;
    const std::uint64_t at =
        part.strided + static_cast<std::uint64_t>(locator.offset(locator.template prepare<W>(e))) +
        byte;
    using Bytes = Tuning<>;
    const std::uint64_t packed = part.packed + std::uint64_t{e} * W + byte;
    put<1, kPack, Bytes>(at, packed, fetch<1, kPack, Bytes>(at, packed));
  }
}

template <typename Locator, int W, bool kPack, typename T>
GMAC_HOST_DEVICE void moveWhole(const Locator& locator, const Part& part, Place place) {
  if (part.unrolled == 0) {
    const std::uint32_t step = place.blocks * place.threads;
    for (std::uint32_t e = part.begin + place.block * place.threads + place.thread; e < part.end;
         e += step) {
      moveSome<Locator, W, kPack, T, 1, true>(locator, part.strided, part.packed, e, 0, part.end);
    }
    return;
  }
  constexpr std::uint32_t kLoads = T::kLoadsInFlight;
  const std::uint32_t span = place.threads * kLoads;
  std::uint32_t begin = part.begin + place.block * span;
  for (; begin + span <= part.end; begin += place.blocks * span) {
    moveSome<Locator, W, kPack, T, kLoads, true>(locator, part.strided, part.packed,
                                                 begin + place.thread, place.threads, part.end);
  }
  if (begin < part.end) {
    moveSome<Locator, W, kPack, T, kLoads, false>(locator, part.strided, part.packed,
                                                  begin + place.thread, place.threads, part.end);
  }
}

template <typename Locator, int W, bool kPack, typename T>
GMAC_HOST_DEVICE void moveElements(const Locator& locator, const Part& part, Place place) {
  moveEnds<Locator, W, kPack>(locator, part, place);
  constexpr bool kRows1 = std::is_same_v<Locator, RowsLocator<1>>;
  if (W == 16 && kPack && part.caching == Caching::kNowhere && part.unrolled == 0) {
    moveWhole<Locator, W, kPack, Tuning<Hint::kNoFirstLevel, Hint::kOnce>>(locator, part, place);
  } else if (W >= 4 && kPack && kRows1 && part.caching == Caching::kSecondLevel) {
    moveWhole<Locator, W, kPack, PastFirstLevel>(locator, part, place);
  } else {
    moveWhole<Locator, W, kPack, T>(locator, part, place);
  }
}

// ---- The word mover, for sides that are not aligned to each other: elements are bytes. It writes
// the contiguous side in aligned words and gathers their bytes from any address.

// Packs up to 16 bytes, which may come from several pieces.
template <typename Locator, typename T>
GMAC_HOST_DEVICE void gatherWord(const Locator& locator, const Part& part, std::uint64_t packed,
                                 std::uint32_t e, std::uint32_t bytes) {
  Word16 v{0, 0};
  for (std::uint32_t done = 0; done < bytes;) {
    const auto prepared = locator.template prepare<1>(e + done);
    const std::uint64_t at = part.strided + static_cast<std::uint64_t>(locator.offset(prepared));
    const std::uint32_t left = locator.left(prepared);
    const std::uint32_t take = left < bytes - done ? left : bytes - done;
    const Word16 more = loadUpTo16<T::kLoadHint>(at, take, part.first, part.last);
    if (done == 0) {
      v = more;
    } else if (done < 8) {
      v.low |= more.low << (8 * done);
      v.high |= more.high << (8 * done) | more.low >> (64 - 8 * done);
    } else {
      v.high |= more.low << (8 * done - 64);
    }
    done += take;
  }
  if (bytes == 16 && (packed & 15) == 0) {
    store<16, T::kStoreHint>(packed, v);
    return;
  }
  storeBytes<T::kStoreHint>(packed, bytes < 8 ? bytes : 8, v.low);
  if (bytes > 8) storeBytes<T::kStoreHint>(packed + 8, bytes - 8, v.high);
}

// Unpacks up to 8 bytes.
template <typename Locator, typename T>
GMAC_HOST_DEVICE void scatterWord(const Locator& locator, const Part& part, std::uint64_t packed,
                                  std::uint32_t e, std::uint32_t bytes) {
  const std::uint64_t v = loadBytes<T::kLoadHint>(packed, bytes, 0, bytes == 8 ? ~0ULL : 0);
  for (std::uint32_t done = 0; done < bytes;) {
    const auto prepared = locator.template prepare<1>(e + done);
    const std::uint64_t at = part.strided + static_cast<std::uint64_t>(locator.offset(prepared));
    const std::uint32_t left = locator.left(prepared);
    const std::uint32_t take = left < bytes - done ? left : bytes - done;
    storeBytes<T::kStoreHint>(at, take, v >> (8 * done));
    done += take;
  }
}

// Unpacks windows in the order of the strided side: neighbouring threads write neighbouring words,
// and only the ends of a piece need narrower stores.
template <typename Locator, typename T>
GMAC_HOST_DEVICE void scatterWindows(const Locator& locator, const Part& part, std::uint32_t thread,
                                     std::uint32_t threads) {
  constexpr std::uint64_t kBytes = kScatteredBytes;
  const std::uint64_t first = part.packed + part.begin;
  const std::uint64_t last = part.packed + part.end;
  const std::uint32_t windows = part.windows.divisor;
  const std::uint32_t end = (locator.pieceOf(part.end - 1) + 1) * windows;
  for (std::uint32_t w = locator.pieceOf(part.begin) * windows + thread; w < end; w += threads) {
    const std::uint32_t piece = part.windows.quotient(w);
    const std::uint32_t e = piece * locator.ofPiece();
    const std::uint64_t at =
        part.strided + static_cast<std::uint64_t>(locator.offset(locator.template prepare<1>(e)));
    const std::uint64_t window = (at & ~(kBytes - 1)) + (w - piece * windows) * kBytes;
    // In packed order, as 64 bits: a piece may seem to end beyond all elements.
    const std::uint64_t pieceEnd = std::uint64_t{e} + locator.ofPiece();
    std::uint64_t from = window < at ? e : e + (window - at);
    std::uint64_t to = e + (window + kBytes - at);
    if (from < part.begin) from = part.begin;
    if (to > pieceEnd) to = pieceEnd;
    if (to > part.end) to = part.end;
    if (from >= to) continue;
    const auto bytes = static_cast<std::uint32_t>(to - from);
    const std::uint64_t v = loadBytes<T::kLoadHint>(part.packed + from, bytes, first, last);
    storeBytes<T::kStoreHint>(at + (from - e), bytes, v);
  }
}

// Thread `thread` of `threads` takes its words of the elements [begin, end); element e lies at
// packed + e.
template <typename Locator, bool kPack, typename T>
GMAC_HOST_DEVICE void moveWords(const Locator& locator, const Part& part, std::uint64_t packed,
                                std::uint32_t begin, std::uint32_t end, std::uint32_t thread,
                                std::uint32_t threads) {
  constexpr std::uint32_t kBytes = kPack ? kGatheredBytes : kScatteredBytes;
  const auto skip = static_cast<std::uint32_t>((packed + begin) & (kBytes - 1));
  const std::uint32_t words = (end - begin + skip + kBytes - 1) / kBytes;
  for (std::uint32_t w = thread; w < words; w += threads) {
    const std::uint32_t from = w == 0 ? begin : begin + w * kBytes - skip;
    const std::uint32_t next = begin + (w + 1) * kBytes - skip;
    const std::uint32_t to = next < end ? next : end;
    if constexpr (kPack) {
      gatherWord<Locator, T>(locator, part, packed + from, from, to - from);
    } else {
      scatterWord<Locator, T>(locator, part, packed + from, from, to - from);
    }
  }
}

// ---- Kernels: W is the mover, 0 the word mover.

template <typename Locator, int W, bool kPack, typename T>
GMAC_HOST_DEVICE void runFlat(const Locator& locator, const Part& part, Place place) {
  if constexpr (W == 0) {
    if (part.begin >= part.end) return;
    if constexpr (!kPack && Locator::kEvenPieces) {
      scatterWindows<Locator, T>(locator, part, place.block * place.threads + place.thread,
                                 place.blocks * place.threads);
    } else {
      moveWords<Locator, kPack, T>(locator, part, part.packed, part.begin, part.end,
                                   place.block * place.threads + place.thread,
                                   place.blocks * place.threads);
    }
  } else {
    moveElements<Locator, W, kPack, T>(locator, part, place);
  }
}

#ifdef __CUDA_ARCH__
// Copies elements in groups of 32: block b takes the groups b, b + blocks, ... Each group has a
// time to be issued, `interval` cycles after the one before it. The block's warps take groups in
// that order, so that a warp whose loads are late delays no other. All multiprocessors request
// neighbouring rows at about the same time; that matters as much as the rate for finding DRAM rows
// open.
// kAhead: a warp takes its next group while the loads of this one are in flight, else after they
// have arrived. Taking it ahead starts it sooner, but a warp that memory delays then issues its
// next group late and out of order.
template <typename Locator, int W, typename T, bool kAhead>
__device__ __forceinline__ void runPaced(const Locator& locator, const PacedRowsParams& p,
                                         Place place) {
  const Part& part = p.rows.part;
  __shared__ std::uint32_t taken;
  __shared__ long long begin;
  moveEnds<Locator, W, true>(locator, part, place);
  if (place.thread == 0) {
    taken = 0;
    begin = clock64();
  }
  __syncthreads();
  const std::uint32_t lane = place.thread % kGroup;
  const std::uint32_t groups = (part.end - part.begin + kGroup - 1) / kGroup;
  const auto take = [&] {
    std::uint32_t turn = 0;
    if (lane == 0) turn = atomicAdd(&taken, 1U);
    return __shfl_sync(~0U, turn, 0);
  };
  for (std::uint32_t turn = take();;) {
    const std::uint32_t group = turn * place.blocks + place.block;
    if (group >= groups) return;
    const std::uint32_t e = part.begin + group * kGroup + lane;
    const std::uint64_t packed = part.packed + std::uint64_t{e} * W;
    std::uint64_t strided =
        part.strided + static_cast<std::uint64_t>(locator.offset(locator.template prepare<W>(e)));
    asm volatile("" : "+l"(strided));  // computed here, not after the wait
    const long long at = begin + static_cast<long long>(turn) * p.interval;
    while (clock64() < at) {
    }
    Word<W> v{};
    if (e < part.end) v = fetch<W, true, T>(strided, packed);
    if (kAhead) turn = take();
    if (e < part.end) put<W, true, T>(strided, packed, v);
    if (!kAhead) turn = take();
  }
}
#endif

// Copies the elements [begin, end) of a unit with one warp, N loads in flight for each thread.
// Element 0 lies at `packed`, and on the other side where the locator says, relative to `strided`.
template <typename Locator, int W, bool kPack, typename T, int N>
GMAC_HOST_DEVICE void moveUnit(const Locator& locator, std::uint64_t strided, std::uint64_t packed,
                               std::uint32_t begin, std::uint32_t end, std::uint32_t lane) {
  constexpr std::uint32_t kSpan = kGroup * N;
  for (; begin + kSpan <= end; begin += kSpan) {
    moveSome<Locator, W, kPack, T, N, true>(locator, strided, packed, begin + lane, kGroup, end);
  }
  if (begin < end) {
    moveSome<Locator, W, kPack, T, N, false>(locator, strided, packed, begin + lane, kGroup, end);
  }
}

// The same where both sides are contiguous: if the two sides are equally misaligned, in words of 16
// bytes, with the ends in elements.
template <int W, bool kPack, typename T>
GMAC_HOST_DEVICE void moveRun(std::uint64_t strided, std::uint64_t packed, std::uint32_t begin,
                              std::uint32_t end, std::uint32_t lane) {
  constexpr int kLoads = T::kLoadsInFlight;
  if constexpr (W >= 4 && W < 16) {
    if (((strided ^ packed) & 15) == 0) {
      constexpr std::uint32_t kOfWide = 16 / W;
      const auto skip =
          static_cast<std::uint32_t>((0 - (packed + std::uint64_t{begin} * W)) & 15) / W;
      const std::uint32_t wideBegin = begin + skip < end ? begin + skip : end;
      const std::uint32_t wide = (end - wideBegin) / kOfWide;
      const std::uint32_t wideEnd = wideBegin + wide * kOfWide;
      moveUnit<OnePieceLocator, 16, kPack, T, kLoads>(
          OnePieceLocator{wide}, strided + std::uint64_t{wideBegin} * W,
          packed + std::uint64_t{wideBegin} * W, 0, wide, lane);
      const std::uint32_t head = wideBegin - begin;
      if (lane < head + (end - wideEnd)) {
        const std::uint32_t e = lane < head ? begin + lane : wideEnd + (lane - head);
        moveSome<OnePieceLocator, W, kPack, T, 1, true>(OnePieceLocator{end}, strided, packed, e, 0,
                                                        end);
      }
      return;
    }
  }
  moveUnit<OnePieceLocator, W, kPack, T, (W < 16 ? 2 : 1) * kLoads>(OnePieceLocator{end}, strided,
                                                                    packed, begin, end, lane);
}

template <typename Entry, int W, bool kPack, typename T>
GMAC_HOST_DEVICE void runUnits(const LongListParams& p, Place place) {
  constexpr int kWidth = W == 0 ? 1 : W;
  const std::uint32_t groups = place.blocks * (place.threads / kGroup);
  const std::uint32_t lane = place.thread % kGroup;
  for (std::uint32_t u =
           p.firstUnit + place.block * (place.threads / kGroup) + place.thread / kGroup;
       u < p.lastUnit; u += groups) {
    const std::uint32_t repetition = p.unitsOfList.quotient(u);
    const std::uint32_t unit = u - repetition * p.unitsOfList.divisor;
    const std::uint64_t inList = std::uint64_t{unit} * p.unit;
    const std::uint64_t listBegin = repetition * p.list;
    const std::uint64_t unitBegin = listBegin + inList;
    std::uint64_t unitEnd = unitBegin + p.unit;
    if (unitEnd > listBegin + p.list) unitEnd = listBegin + p.list;
    const std::uint64_t from = unitBegin < p.begin ? p.begin : unitBegin;
    const std::uint64_t to = unitEnd < p.end ? unitEnd : p.end;
    const UnitLocator<Entry> locator{p, inList, offsetInDims(p.dims, p.dimCount, repetition),
                                     tableEntry<std::uint32_t>(p.units, unit),
                                     tableEntry<std::uint32_t>(p.units, unit + 1)};
    const std::uint64_t packed = p.part.packed + unitBegin * kWidth;
    if constexpr (W != 0) {
      // The ends that are not whole elements belong to the first threads of the units around them.
      const bool headHere = p.part.head != 0 && p.begin - 1 >= unitBegin && p.begin - 1 < unitEnd;
      const bool tailHere = p.part.tail != 0 && p.end >= unitBegin && p.end < unitEnd;
      if (headHere || tailHere) {
        Part ends{};
        ends.strided = p.part.strided;
        ends.packed = packed;
        ends.begin = static_cast<std::uint32_t>(headHere ? p.begin - unitBegin : 0);
        ends.end = static_cast<std::uint32_t>(tailHere ? p.end - unitBegin : 0);
        ends.head = headHere ? p.part.head : std::uint8_t{0};
        ends.tail = tailHere ? p.part.tail : std::uint8_t{0};
        moveEnds<UnitLocator<Entry>, W, kPack>(locator, ends, {0, lane, 1, kGroup});
      }
    }
    if (from >= to) continue;
    const auto first = static_cast<std::uint32_t>(from - unitBegin);
    const auto end = static_cast<std::uint32_t>(to - unitBegin);
    if constexpr (W == 0) {
      moveWords<UnitLocator<Entry>, kPack, T>(locator, p.part, packed, first, end, lane, kGroup);
    } else if (locator.firstPiece == locator.lastPiece) {
      const std::int64_t at = locator.offset(locator.template prepare<W>(0));
      moveRun<W, kPack, T>(p.part.strided + static_cast<std::uint64_t>(at), packed, first, end,
                           lane);
    } else {
      moveUnit<UnitLocator<Entry>, W, kPack, T, T::kLoadsInFlight>(locator, p.part.strided, packed,
                                                                   first, end, lane);
    }
  }
}

// The tile kernel has two phases with a barrier between them: it fills the tile in the order of the
// side that is read, and empties it in the order of the other.
template <int W>
using TileRow = Word<W>[kTile + 1];  // padded against bank conflicts

// Copies, without the tile, the bytes of an element that is partly inside of the part.
template <int W, bool kPack>
GMAC_HOST_DEVICE void moveTileEnds(const TileParams& p, std::int64_t e, std::uint64_t strided,
                                   std::uint64_t packed) {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  if (e == p.begin - 1) {
    from = static_cast<std::uint32_t>(W) - p.part.head;
    to = W;
  } else if (e == p.end) {
    to = p.part.tail;
  }
  for (; from < to; ++from) {
    put<1, kPack, Tuning<>>(strided + from, packed + from,
                            fetch<1, kPack, Tuning<>>(strided + from, packed + from));
  }
}

// Where a tile begins.
struct TilePlace {
  std::uint32_t across;  // of the two dimensions
  std::uint32_t along;
  std::uint64_t strided;  // address of its first element
  std::int64_t element;   // the number of it
};
GMAC_HOST_DEVICE TilePlace placeOfTile(const TileParams& p, std::uint32_t number) {
  const std::uint32_t row = p.tilesAlong.quotient(number);
  const std::uint32_t along = (number - row * p.tilesAlong.divisor) * kTile;
  std::uint32_t index = p.tilesAcross.quotient(row);
  const std::uint32_t across = (row - index * p.tilesAcross.divisor) * kTile;
  std::int64_t strided = across * p.across.stride + along * p.along.stride;
  std::int64_t element = across * p.across.packedStride + along * p.along.packedStride;
  for (std::uint32_t d = 0; d < p.dimCount; ++d) {
    std::uint32_t here = index;
    if (d + 1 < p.dimCount) {
      const std::uint32_t next = p.dims[d].count.quotient(index);
      here = index - next * p.dims[d].count.divisor;
      index = next;
    }
    strided += here * p.dims[d].stride;
    element += here * p.packedStrides[d];
  }
  return {across, along, p.part.strided + static_cast<std::uint64_t>(strided), element};
}

// kWhole: every element of the tile exists and lies inside of the part.
template <int W, bool kPack, bool kFill, typename T, bool kWhole>
GMAC_HOST_DEVICE void moveTile(const TileParams& p, TileRow<W>* tile, const TilePlace& place,
                               std::uint32_t thread) {
  // Lanes run over neighbours in memory while the strided side is accessed, and over neighbours in
  // packed order while the packed side is.
  constexpr bool kLanesAcross = kPack == kFill;
  constexpr int kSteps = kTile / (kTileThreads / kTile);
  const std::uint32_t lane = thread % kTile;
  Word<W> v[kSteps] = {};
  GMAC_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    const std::uint32_t slow =
        thread / kTile + static_cast<std::uint32_t>(step) * (kTileThreads / kTile);
    const std::uint32_t i = kLanesAcross ? lane : slow;
    const std::uint32_t j = kLanesAcross ? slow : lane;
    const std::int64_t e = place.element + i * p.across.packedStride + j * p.along.packedStride;
    const std::uint64_t strided =
        place.strided + static_cast<std::uint64_t>(i * p.across.stride + j * p.along.stride);
    const std::uint64_t packed = p.part.packed + static_cast<std::uint64_t>(e) * W;
    if constexpr (!kWhole) {
      if (place.across + i >= p.across.count || place.along + j >= p.along.count) continue;
      if (e < p.begin || e >= p.end) {
        if (kFill) moveTileEnds<W, kPack>(p, e, strided, packed);
        continue;
      }
    }
    if constexpr (kFill) {
      v[step] = fetch<W, kPack, T>(strided, packed);
    } else {
      put<W, kPack, T>(strided, packed, tile[j][i]);
    }
  }
  if constexpr (kFill) {
    GMAC_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      const std::uint32_t slow =
          thread / kTile + static_cast<std::uint32_t>(step) * (kTileThreads / kTile);
      tile[kLanesAcross ? slow : lane][kLanesAcross ? lane : slow] = v[step];
    }
  }
}

template <int W, bool kPack, bool kFill, typename T>
GMAC_HOST_DEVICE void runTilePhase(const TileParams& p, TileRow<W>* tile, std::uint32_t number,
                                   std::uint32_t thread) {
  const TilePlace place = placeOfTile(p, number);
  const std::int64_t last =
      place.element + (kTile - 1) * (p.across.packedStride + p.along.packedStride);
  const bool whole = place.across + kTile <= p.across.count &&
                     place.along + kTile <= p.along.count && place.element >= p.begin &&
                     last < p.end;
  if (whole) {
    moveTile<W, kPack, kFill, T, true>(p, tile, place, thread);
  } else {
    moveTile<W, kPack, kFill, T, false>(p, tile, place, thread);
  }
}

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_KERNELS_PACK_BODIES_H_
