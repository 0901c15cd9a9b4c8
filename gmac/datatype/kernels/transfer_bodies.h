// SPDX-License-Identifier: Apache-2.0
//
// The bodies of the transfer kernels, written once for the device and for the `host` accelerator. A
// kernel reads where one side's locator says and writes where the other's does: no byte lies
// anywhere between. Consecutive threads take consecutive elements in packed order, which is that of
// neither memory, but ascends in both for most layouts. For the CPU's compiler and for nvcc.
#ifndef GMAC_DATATYPE_KERNELS_TRANSFER_BODIES_H_
#define GMAC_DATATYPE_KERNELS_TRANSFER_BODIES_H_

#include <cstdint>

#include "gmac/datatype/kernels/pack_bodies.h"
#include "gmac/datatype/kernels/pack_locators.h"
#include "gmac/datatype/kernels/pack_words.h"
#include "gmac/datatype/kernels/transfer_params.h"

namespace gmac::datatype {

// Where an element lies, and the elements from it to the end of its piece.
struct Spot {
  std::uint64_t at;
  std::uint32_t left;
};

// Element `i` of a transfer; -1: the one before the first.
template <int N>
struct RowsSide {
  const RowsParams<N>& p;
  template <int W>
  GMAC_HOST_DEVICE Spot spot(std::int32_t i) const {
    const RowsLocator<N> locator{p};
    const auto prepared = locator.template prepare<W>(p.part.begin + static_cast<std::uint32_t>(i));
    return {p.part.strided + static_cast<std::uint64_t>(locator.offset(prepared)),
            locator.left(prepared)};
  }
};

struct AnySide {
  const AnySideParams& p;
  const ShortPiece* table;  // of a short list

  template <int W>
  GMAC_HOST_DEVICE Spot spot(std::int32_t i) const {
    const std::uint32_t e = p.rows.part.begin + static_cast<std::uint32_t>(i);
    switch (p.form) {
      case SideForm::kRows:
        return found<W>(AnyRowsLocator{p.rows}, e);
      case SideForm::kEvenList:
        return p.even.dimCount == 0 ? found<W>(EvenListLocator<false>{p.even}, e)
                                    : found<W>(EvenListLocator<true>{p.even}, e);
      case SideForm::kShortList:
        return found<W>(ShortListLocator{p.list, table}, e);
      case SideForm::kMarkedList:
        return p.marked.dimCount == 0 ? found<W>(MarkedListLocator<false>{p.marked}, e)
                                      : found<W>(MarkedListLocator<true>{p.marked}, e);
      case SideForm::kLongList:
        return ofUnit<std::uint32_t, W>(i);
      case SideForm::kWideList:
        break;
    }
    return ofUnit<std::uint64_t, W>(i);
  }

 private:
  template <int W, typename Locator>
  GMAC_HOST_DEVICE Spot found(const Locator& locator, std::uint32_t e) const {
    const auto prepared = locator.template prepare<W>(e);
    return {p.rows.part.strided + static_cast<std::uint64_t>(locator.offset(prepared)),
            locator.left(prepared)};
  }
  // Each element finds its own unit: consecutive ones share it, and the entries of the table.
  template <typename Entry, int W>
  GMAC_HOST_DEVICE Spot ofUnit(std::int32_t i) const {
    const LongListParams& list = p.units;
    const std::uint64_t e = list.begin + static_cast<std::uint64_t>(std::int64_t{i});
    const std::uint64_t repetition = list.dimCount == 0 ? 0 : e / list.list;
    const std::uint64_t inList = e - repetition * list.list;
    const bool small = inList >> 32 == 0;
    const std::uint64_t unit =
        small ? static_cast<std::uint32_t>(inList) / list.unit : inList / list.unit;
    const std::uint64_t begin = unit * list.unit;
    const UnitLocator<Entry> locator{
        list, begin, offsetInDims(list.dims, list.dimCount, static_cast<std::uint32_t>(repetition)),
        tableEntry<std::uint32_t>(list.units, unit),
        tableEntry<std::uint32_t>(list.units, unit + 1)};
    return found<W>(locator, static_cast<std::uint32_t>(inList - begin));
  }
};

// Copies a payload byte of each of the ends' elements.
template <int W, typename Source, typename Target>
GMAC_HOST_DEVICE void transferEnds(const Source& source, const Target& target,
                                   const TransferPart& part, Place place) {
  if constexpr (W > 1) {
    const std::uint32_t ends = std::uint32_t{part.head} + part.tail;
    if (place.block != 0) return;
    for (std::uint32_t end = place.thread; end < ends; end += place.threads) {
      const bool head = end < part.head;
      const std::int32_t i = head ? -1 : static_cast<std::int32_t>(part.elements);
      const std::uint32_t byte =
          head ? static_cast<std::uint32_t>(W) - part.head + end : end - part.head;
      store<1, Hint::kNone>(target.template spot<W>(i).at + byte,
                            load<1, Hint::kNone>(source.template spot<W>(i).at + byte));
    }
  }
}

// Sides that are not aligned to each other: elements are bytes. A thread takes up to 8 of them,
// which end where the first piece's aligned words of the target would, and may lie in several
// pieces of either side.
template <typename Source, typename Target>
GMAC_HOST_DEVICE void transferBytes(const Source& source, const Target& target,
                                    const Part& sourcePart, const TransferPart& part, Place place) {
  constexpr std::uint32_t kBytes = kScatteredBytes;
  if (part.elements == 0) return;
  const auto skip = static_cast<std::uint32_t>(target.template spot<1>(0).at & (kBytes - 1));
  const std::uint32_t words = (part.elements + skip + kBytes - 1) / kBytes;
  const std::uint32_t step = place.blocks * place.threads;
  for (std::uint32_t w = place.block * place.threads + place.thread; w < words; w += step) {
    const std::uint32_t next = (w + 1) * kBytes - skip;
    const std::uint32_t end = next < part.elements ? next : part.elements;
    for (std::uint32_t at = w == 0 ? 0 : w * kBytes - skip; at < end;) {
      const Spot from = source.template spot<1>(static_cast<std::int32_t>(at));
      const Spot to = target.template spot<1>(static_cast<std::int32_t>(at));
      std::uint32_t take = end - at;
      if (from.left < take) take = from.left;
      if (to.left < take) take = to.left;
      storeBytes<Hint::kNone>(
          to.at, take, loadBytes<Hint::kNone>(from.at, take, sourcePart.first, sourcePart.last));
      at += take;
    }
  }
}

// W is the mover, 0 the one for bytes.
template <int W, typename Source, typename Target>
GMAC_HOST_DEVICE void transferPart(const Source& source, const Target& target,
                                   const Part& sourcePart, const TransferPart& part, Place place) {
  if constexpr (W == 0) {
    transferBytes(source, target, sourcePart, part, place);
  } else {
    transferEnds<W>(source, target, part, place);
    // With more elements than threads, each thread has several loads under way.
    const std::uint32_t step = place.blocks * place.threads;
    const std::uint32_t each = part.elements > step ? kLoadsUnderWay : 1;
    const std::uint64_t round = std::uint64_t{step} * each;
    for (std::uint64_t first = std::uint64_t{place.block} * place.threads * each + place.thread;
         first < part.elements; first += round) {
      Word<W> value[kLoadsUnderWay];
      std::uint64_t to[kLoadsUnderWay];
      GMAC_UNROLL for (std::uint32_t k = 0; k < kLoadsUnderWay; ++k) {
        const std::uint64_t i = first + std::uint64_t{k} * place.threads;
        if (k < each && i < part.elements) {
          const auto element = static_cast<std::int32_t>(i);
          // (Both addresses before the load: the target's table is read beside the source's.)
          const std::uint64_t from = source.template spot<W>(element).at;
          to[k] = target.template spot<W>(element).at;
          value[k] = load<W, Hint::kNone>(from);
        }
      }
      GMAC_UNROLL for (std::uint32_t k = 0; k < kLoadsUnderWay; ++k) {
        const std::uint64_t i = first + std::uint64_t{k} * place.threads;
        if (k < each && i < part.elements) store<W, Hint::kNone>(to[k], value[k]);
      }
    }
  }
}

namespace transfers {

// The shapes of transfer kernels.
struct Rows1 {
  using Params = Rows1TransferParams;
  static constexpr std::uint32_t kThreads = kMaxThreads;
  template <int W>
  static GMAC_HOST_DEVICE void run(const Params& p, Place place) {
    transferPart<W>(RowsSide<1>{p.source}, RowsSide<1>{p.target}, p.source.part, p.part, place);
  }
};

struct Rows3 {
  using Params = Rows3TransferParams;
  static constexpr std::uint32_t kThreads = kMaxThreads;
  template <int W>
  static GMAC_HOST_DEVICE void run(const Params& p, Place place) {
    transferPart<W>(RowsSide<3>{p.source}, RowsSide<3>{p.target}, p.source.part, p.part, place);
  }
};

struct Any {
  using Params = AnyTransferParams;
  static constexpr std::uint32_t kThreads = kMaxHeavyThreads;
  template <int W>
  static GMAC_HOST_DEVICE void run(const Params& p, Place place) {
#ifdef __CUDA_ARCH__
    // Reads of different kernel parameters by one warp are serialised; those of shared memory are
    // not.
    __shared__ ShortPiece sourceTable[kShortListPieces + 1];
    __shared__ ShortPiece targetTable[kShortListPieces + 1];
    copyTable(p.source, sourceTable, place);
    copyTable(p.target, targetTable, place);
    __syncthreads();
#else
    const ShortPiece* const sourceTable = p.source.list.table;
    const ShortPiece* const targetTable = p.target.list.table;
#endif
    transferPart<W>(AnySide{p.source, sourceTable}, AnySide{p.target, targetTable},
                    p.source.rows.part, p.part, place);
  }

 private:
#ifdef __CUDA_ARCH__
  static __device__ __forceinline__ void copyTable(const AnySideParams& side, ShortPiece* table,
                                                   Place place) {
    if (side.form != SideForm::kShortList) return;
    for (std::uint32_t i = place.thread; i <= side.list.pieces; i += place.threads) {
      table[i] = side.list.table[i];
    }
  }
#endif
};

}  // namespace transfers

// X(shape, width): all transfer kernels.
#define GMAC_TRANSFER_MOVERS(X, shape) \
  X(shape, 0) X(shape, 1) X(shape, 2) X(shape, 4) X(shape, 8) X(shape, 16)
#define GMAC_TRANSFER_KERNELS(X) \
  GMAC_TRANSFER_MOVERS(X, Rows1) \
  GMAC_TRANSFER_MOVERS(X, Rows3) \
  GMAC_TRANSFER_MOVERS(X, Any)

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_KERNELS_TRANSFER_BODIES_H_
