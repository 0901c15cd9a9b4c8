// SPDX-License-Identifier: Apache-2.0
#include "parboil/stencil/stencil.h"

// Each block sweeps its tile along z. The plane at hand lies in shared memory with a rim of one
// cell, the planes before and after it in registers, so that every cell is loaded once (rims
// aside).
extern "C" __global__ void __launch_bounds__(256)
    stencilStep(const float* __restrict__ current, float* __restrict__ next, unsigned nx,
                unsigned ny, unsigned nz) {
  using namespace parboil::stencil;
  __shared__ float tile[kTileY + 2][kTileX + 2];

  const unsigned x = blockIdx.x * kTileX + threadIdx.x;
  const unsigned y = blockIdx.y * kTileY + threadIdx.y;
  const unsigned firstZ = blockIdx.z * kTileZ;
  const unsigned endZ = min(firstZ + kTileZ, nz);
  const std::size_t plane = static_cast<std::size_t>(nx) * ny;
  const bool inside = x < nx && y < ny;
  const bool face = x == 0 || y == 0 || x + 1 >= nx || y + 1 >= ny;
  const unsigned tx = threadIdx.x + 1;
  const unsigned ty = threadIdx.y + 1;

  std::size_t at = firstZ * plane + static_cast<std::size_t>(y) * nx + x;
  float before = inside && firstZ > 0 ? current[at - plane] : 0.0f;
  float center = inside ? current[at] : 0.0f;
  for (unsigned z = firstZ; z < endZ; ++z, at += plane) {
    const float behind = inside && z + 1 < nz ? current[at + plane] : 0.0f;
    tile[ty][tx] = center;
    if (inside) {
      if (threadIdx.x == 0 && x > 0) tile[ty][0] = current[at - 1];
      if (threadIdx.x == kTileX - 1 && x + 1 < nx) tile[ty][kTileX + 1] = current[at + 1];
      if (threadIdx.y == 0 && y > 0) tile[0][tx] = current[at - nx];
      if (threadIdx.y == kTileY - 1 && y + 1 < ny) tile[kTileY + 1][tx] = current[at + nx];
    }
    __syncthreads();
    if (inside) {
      if (face || z == 0 || z + 1 == nz) {
        next[at] = center;
      } else {
        const float around = tile[ty][tx - 1] + tile[ty][tx + 1] + tile[ty - 1][tx] +
                             tile[ty + 1][tx] + before + behind;
        next[at] = center + kCoupling * (around - 6.0f * center);
      }
    }
    __syncthreads();
    before = center;
    center = behind;
  }
}

namespace parboil::stencil {

const void* stepSymbol() { return reinterpret_cast<const void*>(&stencilStep); }

}  // namespace parboil::stencil
