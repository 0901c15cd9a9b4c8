// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_ACCEL_CUDA_CUDA_ACCELERATOR_H_
#define GMAC_ACCEL_CUDA_CUDA_ACCELERATOR_H_

#include <memory>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"

namespace gmac::accel {

// The `cuda` accelerator: the Driver API in the calling thread's current context, else in the
// primary context of the first device. The CUDA runtime uses a device's primary context; a program
// that has made a context of its own must keep it as long as there are objects.
// adsmErrorNoAccelerator, with the reason, where there is no driver or no device.
Result<std::unique_ptr<Accelerator>> makeCudaAccelerator();

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_CUDA_CUDA_ACCELERATOR_H_
