// SPDX-License-Identifier: Apache-2.0
//
// The description of the kernel addVectors (kernels.h) for the runtime.
#ifndef GMAC_BENCH_ADD_VECTORS_H_
#define GMAC_BENCH_ADD_VECTORS_H_

#include <cstddef>

#include "gmac/api/adsm.h"

namespace gmac::bench {

inline constexpr unsigned kAddThreads = 256;  // of a block

// Parameters: float* sum, const float* a, const float* b, std::size_t count. Lives as long as the
// process.
const adsmKernelDesc_t& addVectorsKernel();

// The blocks that `count` elements take.
inline adsmDim_t addVectorsGrid(std::size_t count) {
  return {static_cast<unsigned>((count + kAddThreads - 1) / kAddThreads), 1, 1};
}

}  // namespace gmac::bench

#endif  // GMAC_BENCH_ADD_VECTORS_H_
