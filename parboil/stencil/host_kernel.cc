// SPDX-License-Identifier: Apache-2.0
#include "parboil/host_kernel.h"

#include <algorithm>
#include <cstring>

#include "parboil/stencil/stencil.h"

namespace parboil::stencil {
namespace {

// Inner cells [begin, end) of one row.
PARBOIL_HOST_KERNEL void stepRow(const float* __restrict current, float* __restrict next,
                                 std::size_t begin, std::size_t end, std::size_t nx,
                                 std::size_t plane) {
  for (std::size_t i = begin; i < end; ++i) {
    const float around = current[i - 1] + current[i + 1] + current[i - nx] + current[i + nx] +
                         current[i - plane] + current[i + plane];
    next[i] = current[i] + kCoupling * (around - 6.0f * current[i]);
  }
}

}  // namespace

void stepBlock(const adsmThreadBlock_t* block, void** args) {
  const float* current = argument<const float*>(args, 0);
  float* next = argument<float*>(args, 1);
  const auto nx = argument<unsigned>(args, 2);
  const auto ny = argument<unsigned>(args, 3);
  const auto nz = argument<unsigned>(args, 4);
  const std::size_t plane = std::size_t{nx} * ny;
  const unsigned x0 = block->blockIdx.x * kTileX;
  const unsigned x1 = std::min(x0 + kTileX, nx);
  const unsigned y0 = block->blockIdx.y * kTileY;
  const unsigned y1 = std::min(y0 + kTileY, ny);
  const unsigned z0 = block->blockIdx.z * kTileZ;
  const unsigned z1 = std::min(z0 + kTileZ, nz);
  for (unsigned z = z0; z < z1; ++z) {
    for (unsigned y = y0; y < y1; ++y) {
      const std::size_t row = z * plane + std::size_t{y} * nx;
      if (z == 0 || z + 1 == nz || y == 0 || y + 1 == ny) {
        std::memcpy(next + row + x0, current + row + x0, (x1 - x0) * sizeof(float));
        continue;
      }
      if (x0 == 0) next[row] = current[row];
      if (x1 == nx) next[row + nx - 1] = current[row + nx - 1];
      stepRow(current, next, row + std::max(x0, 1u), row + std::min(x1, nx - 1), nx, plane);
    }
  }
}

}  // namespace parboil::stencil
