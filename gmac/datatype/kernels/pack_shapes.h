// SPDX-License-Identifier: Apache-2.0
//
// The list of pack kernels: every shape of the strided side with every mover. The device's module
// and the functions of the `host` accelerator are both generated from it.
#ifndef GMAC_DATATYPE_KERNELS_PACK_SHAPES_H_
#define GMAC_DATATYPE_KERNELS_PACK_SHAPES_H_

#include "gmac/datatype/kernels/pack_bodies.h"

// X(shape): a type below. Not Tile, which works in two phases.
#define GMAC_PACK_FLAT_SHAPES(X) \
  X(Line)                        \
  X(Rows1)                       \
  X(Rows2) X(Rows3) X(AnyRows) X(EvenList) X(ShortList) X(LongList) X(WideList) X(MarkedList)

// X(shape, width): all movers of a shape; width 0 is the word mover.
#define GMAC_PACK_FLAT_MOVERS(X, shape) \
  X(shape, 0) X(shape, 1) X(shape, 2) X(shape, 4) X(shape, 8) X(shape, 16)
#define GMAC_PACK_PACED_MOVERS(X) X(PacedRows, 4) X(PacedRows, 8) X(PacedRows, 16)
#define GMAC_PACK_TILE_MOVERS(X) X(Tile, 1) X(Tile, 2) X(Tile, 4) X(Tile, 8) X(Tile, 16)

namespace gmac::datatype::shapes {

// The largest thread block, by mover.
struct Flat {
  template <int W>
  static constexpr std::uint32_t kThreads = W == 0 ? kMaxHeavyThreads : kMaxThreads;
};
struct Units {
  template <int W>
  static constexpr std::uint32_t kThreads = kMaxHeavyThreads;
};

#define GMAC_PACK_SIMPLE_SHAPE(shape, ParamsType, LocatorType)          \
  struct shape : Flat {                                                 \
    using Params = ParamsType;                                          \
    template <int W, bool kPack, typename T>                            \
    static GMAC_HOST_DEVICE void run(const Params& p, Place place) {    \
      runFlat<LocatorType, W, kPack, T>(LocatorType{p}, p.part, place); \
    }                                                                   \
  };
GMAC_PACK_SIMPLE_SHAPE(Line, LineParams, LineLocator)
GMAC_PACK_SIMPLE_SHAPE(Rows1, RowsParams<1>, RowsLocator<1>)
GMAC_PACK_SIMPLE_SHAPE(Rows2, RowsParams<2>, RowsLocator<2>)
GMAC_PACK_SIMPLE_SHAPE(Rows3, RowsParams<3>, RowsLocator<3>)
GMAC_PACK_SIMPLE_SHAPE(AnyRows, AnyRowsParams, AnyRowsLocator)
#undef GMAC_PACK_SIMPLE_SHAPE

struct EvenList : Flat {
  using Params = EvenListParams;
  template <int W, bool kPack, typename T>
  static GMAC_HOST_DEVICE void run(const Params& p, Place place) {
    if (p.dimCount == 0) {
      runFlat<EvenListLocator<false>, W, kPack, T>(EvenListLocator<false>{p}, p.part, place);
    } else {
      runFlat<EvenListLocator<true>, W, kPack, T>(EvenListLocator<true>{p}, p.part, place);
    }
  }
};

struct ShortList : Flat {
  using Params = ShortListParams;
  template <int W, bool kPack, typename T>
  static GMAC_HOST_DEVICE void run(const Params& p, Place place) {
#ifdef __CUDA_ARCH__
    // Reads of different kernel parameters by one warp are serialised; those of shared memory are
    // not.
    __shared__ ShortPiece table[kShortListPieces + 1];
    for (std::uint32_t i = place.thread; i <= p.pieces; i += place.threads) table[i] = p.table[i];
    __syncthreads();
#else
    const ShortPiece* const table = p.table;
#endif
    runFlat<ShortListLocator, W, kPack, T>(ShortListLocator{p, table}, p.part, place);
  }
};

struct MarkedList : Flat {
  using Params = MarkedListParams;
  template <int W, bool kPack, typename T>
  static GMAC_HOST_DEVICE void run(const Params& p, Place place) {
    if (p.dimCount == 0) {
      runFlat<MarkedListLocator<false>, W, kPack, T>(MarkedListLocator<false>{p}, p.part, place);
    } else {
      runFlat<MarkedListLocator<true>, W, kPack, T>(MarkedListLocator<true>{p}, p.part, place);
    }
  }
};

struct LongList : Units {
  using Params = LongListParams;
  template <int W, bool kPack, typename T>
  static GMAC_HOST_DEVICE void run(const Params& p, Place place) {
    runUnits<std::uint32_t, W, kPack, T>(p, place);
  }
};

struct WideList : Units {
  using Params = LongListParams;
  template <int W, bool kPack, typename T>
  static GMAC_HOST_DEVICE void run(const Params& p, Place place) {
    runUnits<std::uint64_t, W, kPack, T>(p, place);
  }
};

struct PacedRows {
  using Params = PacedRowsParams;
  template <int W>
  static constexpr std::uint32_t kThreads = kMaxThreads;
  template <int W, bool kPack, typename T>
  static GMAC_HOST_DEVICE void run(const Params& p, Place place) {
    static_assert(kPack);
    using Locator = RowsLocator<1>;
#ifdef __CUDA_ARCH__
    if (p.rows.part.caching == Caching::kSecondLevel) {
      runPaced<Locator, W, PastFirstLevel, true>(Locator{p.rows}, p, place);
    } else {
      // Any cache hint on the loads loses what pacing gains: 64 MiB of 16 B rows took 118 to 130 us
      // instead of 90 on an H200.
      runPaced<Locator, W, Tuning<Hint::kNone, Hint::kOnce>, false>(Locator{p.rows}, p, place);
    }
#else
    runFlat<Locator, W, kPack, T>(Locator{p.rows}, p.rows.part, place);
#endif
  }
};

struct Tile {
  using Params = TileParams;
};

}  // namespace gmac::datatype::shapes

#endif  // GMAC_DATATYPE_KERNELS_PACK_SHAPES_H_
