// SPDX-License-Identifier: Apache-2.0
#include "parboil/host_kernel.h"

#include <algorithm>
#include <cmath>

#include "parboil/cp/cp.h"

namespace parboil::cp {

PlaneAtom hostAtoms[kSliceAtoms];

namespace {

constexpr unsigned kWidth = kThreadsX * kPointsPerThread;

// One row of a thread block's points, whatever the row's end: the caller keeps what lies inside the
// plane.
PARBOIL_HOST_KERNEL void addRow(float* sums, float x0, float y, float spacing,
                                const PlaneAtom* atoms, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    const float dy = y - atoms[i].y;
    const float dyz2 = dy * dy + atoms[i].dz2;
    const float offset = x0 - atoms[i].x;
    const float charge = atoms[i].charge;
    for (unsigned k = 0; k < kWidth; ++k) {
      const float dx = offset + spacing * static_cast<float>(static_cast<int>(k));
      sums[k] += charge / std::sqrt(dx * dx + dyz2);
    }
  }
}

}  // namespace

void potentialBlock(const adsmThreadBlock_t* block, void** args) {
  float* potential = argument<float*>(args, 0);
  const auto points = argument<unsigned>(args, 1);
  const auto spacing = argument<float>(args, 2);
  const auto count = argument<unsigned>(args, 3);
  const unsigned column = block->blockIdx.x * kWidth;
  const unsigned row = block->blockIdx.y * block->blockDim.y;
  for (unsigned y = row; y < std::min(row + block->blockDim.y, points); ++y) {
    float sums[kWidth] = {};
    addRow(sums, spacing * static_cast<float>(column), spacing * static_cast<float>(y), spacing,
           hostAtoms, count);
    for (unsigned k = 0; k < std::min(kWidth, points - column); ++k) {
      potential[std::size_t{y} * points + column + k] += sums[k];
    }
  }
}

}  // namespace parboil::cp
