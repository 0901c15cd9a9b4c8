// SPDX-License-Identifier: Apache-2.0
//
// require() for the CUDA runtime's errors; for the programs with explicit copies only.
#ifndef GMAC_PARBOIL_REQUIRE_CUDA_H_
#define GMAC_PARBOIL_REQUIRE_CUDA_H_

#include <cuda_runtime.h>

#include <string>

#include "parboil/require.h"

namespace parboil {

inline void require(cudaError_t error) {
  if (error != cudaSuccess) {
    throw Failure(std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error));
  }
}

// The shape of a call, as a launch takes it.
inline dim3 cudaDim(adsmDim_t dim) { return {dim.x, dim.y, dim.z}; }

}  // namespace parboil

#endif  // GMAC_PARBOIL_REQUIRE_CUDA_H_
