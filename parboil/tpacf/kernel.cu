// SPDX-License-Identifier: Apache-2.0
#include "parboil/tpacf/tpacf.h"

using parboil::tpacf::kBins;
using parboil::tpacf::kThreads;
using parboil::tpacf::kWarp;
using parboil::tpacf::kWarps;

__constant__ float tpacfEdges[kBins + 1];

// Every thread has a histogram of its own in shared memory, laid out so that the lanes of a warp
// never meet in a bank: most pairs fall into few bins, where atomic counters would queue.
extern "C" __global__ void __launch_bounds__(parboil::tpacf::kThreads)
    tpacfCount(const float* sets, unsigned long long* histograms, std::uint32_t points,
               std::uint32_t randomSets) {
  __shared__ std::uint32_t counts[kWarps][kBins][kWarp];
  __shared__ float edges[kBins + 1];
  __shared__ float tileX[kThreads];
  __shared__ float tileY[kThreads];
  __shared__ float tileZ[kThreads];
  const parboil::tpacf::Pairing pair = parboil::tpacf::pairingOf(blockIdx.x, randomSets);
  const float* first = sets + 3 * static_cast<std::size_t>(points) * pair.first;
  const float* second = sets + 3 * static_cast<std::size_t>(points) * pair.second;
  const std::uint32_t i = blockIdx.y * kThreads + threadIdx.x;
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned lane = threadIdx.x % kWarp;

  for (unsigned k = 0; k < kBins; ++k) counts[warp][k][lane] = 0;
  if (threadIdx.x <= kBins) edges[threadIdx.x] = tpacfEdges[threadIdx.x];
  const float x = first[i];
  const float y = first[points + i];
  const float z = first[2 * static_cast<std::size_t>(points) + i];
  // Within one set every pair once: those of a later second point.
  const bool sameSet = pair.first == pair.second;

  for (std::uint32_t tile = sameSet ? blockIdx.y * kThreads : 0; tile < points; tile += kThreads) {
    __syncthreads();
    tileX[threadIdx.x] = second[tile + threadIdx.x];
    tileY[threadIdx.x] = second[points + tile + threadIdx.x];
    tileZ[threadIdx.x] = second[2 * static_cast<std::size_t>(points) + tile + threadIdx.x];
    __syncthreads();
    const float outermost = edges[kBins];
    const unsigned from = sameSet && tile <= i ? min(i + 1 - tile, kThreads) : 0;
#pragma unroll 4
    for (unsigned j = from; j < kThreads; ++j) {
      const float dx = x - tileX[j];
      const float dy = y - tileY[j];
      const float dz = z - tileZ[j];
      const float chord = dx * dx + dy * dy + dz * dz;
      if (chord >= outermost) continue;
      // From the top, where most pairs are.
      int bin = static_cast<int>(kBins) - 1;
      while (bin >= 0 && chord < edges[bin]) --bin;
      if (bin >= 0) ++counts[warp][bin][lane];
    }
  }
  __syncthreads();
  if (threadIdx.x < kBins) {
    unsigned long long sum = 0;
    for (unsigned w = 0; w < kWarps; ++w) {
      // Each thread starts at another lane, again for the banks.
      for (unsigned l = 0; l < kWarp; ++l) sum += counts[w][threadIdx.x][(l + threadIdx.x) % kWarp];
    }
    atomicAdd(&histograms[static_cast<std::size_t>(blockIdx.x) * kBins + threadIdx.x], sum);
  }
}

namespace parboil::tpacf {

const void* countSymbol() { return reinterpret_cast<const void*>(&tpacfCount); }
const void* edgesSymbol() { return &tpacfEdges; }

}  // namespace parboil::tpacf
