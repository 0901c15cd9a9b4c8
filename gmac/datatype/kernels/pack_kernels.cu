// SPDX-License-Identifier: Apache-2.0
//
// The pack kernels as a module: gmacPackSHAPE_WIDTH, gmacUnpackSHAPE_WIDTH,
// gmacTransferSHAPE_WIDTH and gmacUnpackArriving_WIDTH.
#include "gmac/datatype/kernels/arrival_bodies.h"
#include "gmac/datatype/kernels/pack_shapes.h"
#include "gmac/datatype/kernels/transfer_bodies.h"

namespace gmac::datatype {

template <int W, bool kPack, typename T>
__device__ __forceinline__ void runTiles(const TileParams& p) {
  __shared__ TileRow<W> tile[kTile];
  for (std::uint32_t number = blockIdx.x; number < p.tiles; number += gridDim.x) {
    runTilePhase<W, kPack, true, T>(p, tile, number, threadIdx.x);
    __syncthreads();
    runTilePhase<W, kPack, false, T>(p, tile, number, threadIdx.x);
    __syncthreads();
  }
}

}  // namespace gmac::datatype

// Multiprocessors of the other generations hold fewer than 2048 threads.
#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ == 800 || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200))
#define GMAC_PACK_RESIDENT 2
#else
#define GMAC_PACK_RESIDENT 1
#endif
#define GMAC_PACK_BOUNDS(shape, width) \
  __launch_bounds__(gmac::datatype::shapes::shape::kThreads<width>, GMAC_PACK_RESIDENT)
#define GMAC_PACK_KERNEL(shape, width)                                                             \
  extern "C" __global__ void GMAC_PACK_BOUNDS(shape, width)                                        \
      gmacPack##shape##_##width(const __grid_constant__ gmac::datatype::shapes::shape::Params p) { \
    gmac::datatype::shapes::shape::run<width, true, gmac::datatype::Tuning<>>(                     \
        p, {blockIdx.x, threadIdx.x, gridDim.x, blockDim.x});                                      \
  }                                                                                                \
  extern "C" __global__ void GMAC_PACK_BOUNDS(shape, width) gmacUnpack##shape##_##width(           \
      const __grid_constant__ gmac::datatype::shapes::shape::Params p) {                           \
    gmac::datatype::shapes::shape::run<width, false, gmac::datatype::Tuning<>>(                    \
        p, {blockIdx.x, threadIdx.x, gridDim.x, blockDim.x});                                      \
  }
#define GMAC_PACK_KERNELS(shape) GMAC_PACK_FLAT_MOVERS(GMAC_PACK_KERNEL, shape)
GMAC_PACK_FLAT_SHAPES(GMAC_PACK_KERNELS)

#define GMAC_PACK_PACED_KERNEL(shape, width)                                                       \
  extern "C" __global__ void GMAC_PACK_BOUNDS(shape, width)                                        \
      gmacPack##shape##_##width(const __grid_constant__ gmac::datatype::shapes::shape::Params p) { \
    gmac::datatype::shapes::shape::run<width, true, gmac::datatype::Tuning<>>(                     \
        p, {blockIdx.x, threadIdx.x, gridDim.x, blockDim.x});                                      \
  }
GMAC_PACK_PACED_MOVERS(GMAC_PACK_PACED_KERNEL)

#define GMAC_PACK_TILE_KERNEL(shape, width)                                               \
  extern "C" __global__ void __launch_bounds__(gmac::datatype::kTileThreads)              \
      gmacPack##shape##_##width(const __grid_constant__ gmac::datatype::TileParams p) {   \
    gmac::datatype::runTiles<width, true, gmac::datatype::Tuning<>>(p);                   \
  }                                                                                       \
  extern "C" __global__ void __launch_bounds__(gmac::datatype::kTileThreads)              \
      gmacUnpack##shape##_##width(const __grid_constant__ gmac::datatype::TileParams p) { \
    gmac::datatype::runTiles<width, false, gmac::datatype::Tuning<>>(p);                  \
  }
GMAC_PACK_TILE_MOVERS(GMAC_PACK_TILE_KERNEL)

#define GMAC_TRANSFER_KERNEL(shape, width)                                                 \
  extern "C" __global__ void __launch_bounds__(gmac::datatype::transfers::shape::kThreads) \
      gmacTransfer##shape##_##width(                                                       \
          const __grid_constant__ gmac::datatype::transfers::shape::Params p) {            \
    gmac::datatype::transfers::shape::run<width>(                                          \
        p, {blockIdx.x, threadIdx.x, gridDim.x, blockDim.x});                              \
  }
GMAC_TRANSFER_KERNELS(GMAC_TRANSFER_KERNEL)

// They have half of a multiprocessor's registers at most: other kernels begin beside them, such as
// packs for the other way, on which the other process's arrival waits.
#define GMAC_ARRIVAL_KERNEL(width)                                                            \
  extern "C" __global__ void __launch_bounds__(gmac::datatype::kArrivalThreads, 2)            \
      gmacUnpackArriving_##width(const __grid_constant__ gmac::datatype::ArrivalParams p) {   \
    gmac::datatype::arrival::run<width>(p, {blockIdx.x, threadIdx.x, gridDim.x, blockDim.x}); \
  }
GMAC_ARRIVAL_KERNELS(GMAC_ARRIVAL_KERNEL)
