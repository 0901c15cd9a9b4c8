// SPDX-License-Identifier: Apache-2.0
#include "parboil/host_kernel.h"

#include "parboil/tpacf/tpacf.h"

namespace parboil::tpacf {

float hostEdges[kBins + 1];

namespace {

// How many edges are at or below the squared chord from (x, y, z) to each of kThreads points. All
// edges are compared: more than a search would, but the vector units do it.
PARBOIL_HOST_KERNEL void findEdges(float x, float y, float z, const float* tileX,
                                   const float* tileY, const float* tileZ,
                                   std::int32_t* edgesBelow) {
  float chords[kThreads];
  for (std::size_t j = 0; j < kThreads; ++j) {
    const float dx = x - tileX[j];
    const float dy = y - tileY[j];
    const float dz = z - tileZ[j];
    chords[j] = dx * dx + dy * dy + dz * dz;
    edgesBelow[j] = 0;
  }
  for (const float edge : hostEdges) {
    for (std::size_t j = 0; j < kThreads; ++j) edgesBelow[j] += chords[j] >= edge ? 1 : 0;
  }
}

}  // namespace

void countBlock(const adsmThreadBlock_t* block, void** args) {
  const float* sets = argument<const float*>(args, 0);
  unsigned long long* histogram =
      argument<unsigned long long*>(args, 1) + std::size_t{block->blockIdx.x} * kBins;
  const std::size_t points = argument<std::uint32_t>(args, 2);
  const auto randomSets = argument<std::uint32_t>(args, 3);
  const Pairing pair = pairingOf(block->blockIdx.x, randomSets);
  const float* first = sets + 3 * points * pair.first;
  const float* second = sets + 3 * points * pair.second;
  const std::size_t rows = std::size_t{block->blockIdx.y} * kThreads;

  std::uint32_t counts[kBins + 2] = {};  // by the number of edges at or below the chord
  std::int32_t edgesBelow[kThreads];
  for (std::size_t i = rows; i < rows + kThreads; ++i) {
    const float x = first[i];
    const float y = first[points + i];
    const float z = first[2 * points + i];
    // Within one set every pair once: those of a later second point.
    const std::size_t from = pair.first == pair.second ? i + 1 : 0;
    for (std::size_t tile = from / kThreads * kThreads; tile < points; tile += kThreads) {
      const float* tileX = second + tile;
      findEdges(x, y, z, tileX, tileX + points, tileX + 2 * points, edgesBelow);
      for (std::size_t j = tile < from ? from - tile : 0; j < kThreads; ++j)
        ++counts[edgesBelow[j]];
    }
  }
  for (unsigned k = 0; k < kBins; ++k)
    __atomic_fetch_add(&histogram[k], counts[k + 1], __ATOMIC_RELAXED);
}

}  // namespace parboil::tpacf
