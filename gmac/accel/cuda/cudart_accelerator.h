// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_ACCEL_CUDA_CUDART_ACCELERATOR_H_
#define GMAC_ACCEL_CUDA_CUDART_ACCELERATOR_H_

#include <memory>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"

namespace gmac::accel {

// The `cudart` accelerator: the CUDA runtime in which the application's __global__ functions are
// registered, on the calling thread's current device. That runtime is the one that adsmUseCudart()
// named, else a shared one that the process has loaded. adsmErrorNoAccelerator, with the reason,
// where there is none or it finds no device.
Result<std::unique_ptr<Accelerator>> makeCudartAccelerator();

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_CUDA_CUDART_ACCELERATOR_H_
