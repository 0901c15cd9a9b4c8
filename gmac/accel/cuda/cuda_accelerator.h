// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_ACCEL_CUDA_CUDA_ACCELERATOR_H_
#define GMAC_ACCEL_CUDA_CUDA_ACCELERATOR_H_

#include <memory>

#include "gmac/accel/accelerator.h"
#include "gmac/status.h"

namespace gmac::accel {

// The `cuda` accelerator: the Driver API on the device of the calling thread's current context,
// else on the first device, in the device's primary context, which is the one that the CUDA runtime
// uses too. adsmErrorNoAccelerator, with the reason, where there is no driver or no device.
Result<std::unique_ptr<Accelerator>> makeCudaAccelerator();

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_CUDA_CUDA_ACCELERATOR_H_
