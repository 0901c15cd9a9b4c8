// SPDX-License-Identifier: Apache-2.0
//
// The kernels written by hand: each for one layout, as a careful CUDA programmer writes it: the
// widest loads that the layout allows, several in flight in every thread, 32-bit index arithmetic,
// shifts where sizes are powers of two, coalesced stores.
#ifndef GMAC_DATATYPES_HAND_KERNELS_H_
#define GMAC_DATATYPES_HAND_KERNELS_H_

#include <cuda_runtime.h>

#include "datatypes/hand.h"

namespace datatypes {

// Launches the kernel of `hand`; `displacements` are in device memory.
cudaError_t launchHand(const Hand& hand, void* to, const void* from,
                       const std::int32_t* displacements, cudaStream_t stream);

}  // namespace datatypes

#endif  // GMAC_DATATYPES_HAND_KERNELS_H_
