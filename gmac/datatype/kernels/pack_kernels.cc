// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/kernels/pack_kernels.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

#include "gmac/datatype/kernels/arrival_bodies.h"
#include "gmac/datatype/kernels/pack_kernels_fatbin.h"
#include "gmac/datatype/kernels/pack_shapes.h"
#include "gmac/datatype/kernels/transfer_bodies.h"

namespace gmac::datatype {
namespace {

// One thread block after the other thread: nothing that these kernels do depends on the order.
template <typename S, int W, bool kPack>
void runOnHost(const adsmThreadBlock_t* block, void** args) {
  const auto& params = *static_cast<const typename S::Params*>(args[0]);
  for (std::uint32_t thread = 0; thread < block->blockDim.x; ++thread) {
    S::template run<W, kPack, Tuning<>>(
        params, {block->blockIdx.x, thread, block->gridDim.x, block->blockDim.x});
  }
}

template <int W, bool kPack>
void runTilesOnHost(const adsmThreadBlock_t* block, void** args) {
  const auto& params = *static_cast<const TileParams*>(args[0]);
  TileRow<W> tile[kTile];
  for (std::uint32_t number = block->blockIdx.x; number < params.tiles;
       number += block->gridDim.x) {
    for (std::uint32_t thread = 0; thread < kTileThreads; ++thread) {
      runTilePhase<W, kPack, true, Tuning<>>(params, tile, number, thread);
    }
    for (std::uint32_t thread = 0; thread < kTileThreads; ++thread) {
      runTilePhase<W, kPack, false, Tuning<>>(params, tile, number, thread);
    }
  }
}

template <typename S, int W>
void transferOnHost(const adsmThreadBlock_t* block, void** args) {
  const auto& params = *static_cast<const typename S::Params*>(args[0]);
  for (std::uint32_t thread = 0; thread < block->blockDim.x; ++thread) {
    S::template run<W>(params, {block->blockIdx.x, thread, block->gridDim.x, block->blockDim.x});
  }
}

// Waits for a fragment as a device's kernel does; false: it does not come.
bool waitFor(const ArrivalParams& params, std::uint32_t fragment, std::uint32_t* told) {
  using Clock = std::chrono::steady_clock;
  auto* const words = reinterpret_cast<ArrivalWords*>(params.words);
  const auto until = Clock::now() + std::chrono::nanoseconds(fragment == 0 ? params.firstPatience
                                                                           : params.patience);
  while (!hasArrived(*told, fragment)) {
    if (isLastWord(*told) || Clock::now() > until) return false;
    *told = std::atomic_ref(words->arrived).load(std::memory_order_acquire);
  }
  return true;
}

// Here block 0 does all: blocks run one after the other.
template <int W>
void unpackArrivingOnHost(const adsmThreadBlock_t* block, void** args) {
  const auto& params = *static_cast<const ArrivalParams*>(args[0]);
  if (block->blockIdx.x != 0) return;
  auto* const words = reinterpret_cast<ArrivalWords*>(params.words);
  std::uint32_t told = 0;
  std::uint32_t chunk = 0;
  for (std::uint32_t fragment = 0; fragment < params.fragments && waitFor(params, fragment, &told);
       ++fragment) {
    for (const std::uint32_t end = chunk + chunksOf(params, fragment); chunk < end; ++chunk) {
      for (std::uint32_t thread = 0; thread < block->blockDim.x; ++thread) {
        unpackChunk<W>(params, chunk, {0, thread, 1, block->blockDim.x});
      }
    }
    std::atomic_ref(words->unpacked[fragment % params.slots])
        .store(fragment + 1, std::memory_order_release);
  }
}

using Kernel = accel::BuiltInKernel;

constexpr std::array<Kernel, kAllKernels> makeTable() {
  std::array<Kernel, kAllKernels> table{};
  const auto slot = [&](Shape shape, int width, int direction) -> Kernel& {
    const int number =
        kernelNumber({shape, static_cast<std::uint8_t>(width), static_cast<Direction>(direction)});
    return table[static_cast<std::size_t>(number)];
  };
#define GMAC_PACK_ENTRY(shape, width)                                                             \
  slot(Shape::k##shape, width, 0) = {"gmacPack" #shape "_" #width, sizeof(shapes::shape::Params), \
                                     runOnHost<shapes::shape, width, true>};                      \
  slot(Shape::k##shape, width, 1) = {"gmacUnpack" #shape "_" #width,                              \
                                     sizeof(shapes::shape::Params),                               \
                                     runOnHost<shapes::shape, width, false>};
#define GMAC_PACK_ENTRIES(shape) GMAC_PACK_FLAT_MOVERS(GMAC_PACK_ENTRY, shape)
  GMAC_PACK_FLAT_SHAPES(GMAC_PACK_ENTRIES)
#undef GMAC_PACK_ENTRIES
#undef GMAC_PACK_ENTRY
#define GMAC_PACK_PACED_ENTRY(shape, width)                                                 \
  slot(Shape::k##shape, width, 0) = {"gmacPack" #shape "_" #width, sizeof(PacedRowsParams), \
                                     runOnHost<shapes::shape, width, true>};
  GMAC_PACK_PACED_MOVERS(GMAC_PACK_PACED_ENTRY)
#undef GMAC_PACK_PACED_ENTRY
#define GMAC_PACK_TILE_ENTRY(shape, width)                                               \
  slot(Shape::k##shape, width, 0) = {"gmacPack" #shape "_" #width, sizeof(TileParams),   \
                                     runTilesOnHost<width, true>};                       \
  slot(Shape::k##shape, width, 1) = {"gmacUnpack" #shape "_" #width, sizeof(TileParams), \
                                     runTilesOnHost<width, false>};
  GMAC_PACK_TILE_MOVERS(GMAC_PACK_TILE_ENTRY)
#undef GMAC_PACK_TILE_ENTRY
#define GMAC_TRANSFER_ENTRY(shape, width)                                             \
  table[static_cast<std::size_t>(kernelNumber({TransferShape::k##shape, width}))] = { \
      "gmacTransfer" #shape "_" #width, sizeof(transfers::shape::Params),             \
      transferOnHost<transfers::shape, width>};
  GMAC_TRANSFER_KERNELS(GMAC_TRANSFER_ENTRY)
#undef GMAC_TRANSFER_ENTRY
#define GMAC_ARRIVAL_ENTRY(width)                                           \
  table[static_cast<std::size_t>(kernelNumber(ArrivalKernelId{width}))] = { \
      "gmacUnpackArriving_" #width, sizeof(ArrivalParams), unpackArrivingOnHost<width>};
  GMAC_ARRIVAL_KERNELS(GMAC_ARRIVAL_ENTRY)
#undef GMAC_ARRIVAL_ENTRY
  return table;
}

constexpr std::array<Kernel, kAllKernels> kTable = makeTable();

const Kernel& kernel(int number) noexcept { return kTable[static_cast<std::size_t>(number)]; }

}  // namespace

bool kernelExists(int number) noexcept { return kernel(number).name != nullptr; }
const char* kernelName(int number) noexcept { return kernel(number).name; }
std::size_t kernelParamBytes(int number) noexcept { return kernel(number).paramBytes; }
adsmHostKernel_t kernelOnHost(int number) noexcept { return kernel(number).host; }
const accel::BuiltInKernels& packKernels() noexcept {
  static const accel::BuiltInKernels kAll{kTable, gmac_datatype_kernels_pack_kernels_fatbin};
  return kAll;
}

}  // namespace gmac::datatype
