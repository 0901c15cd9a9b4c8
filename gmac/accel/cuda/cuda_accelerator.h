// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_ACCEL_CUDA_CUDA_ACCELERATOR_H_
#define GMAC_ACCEL_CUDA_CUDA_ACCELERATOR_H_

#include <cstddef>
#include <memory>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/address_windows.h"
#include "gmac/base/status.h"

namespace gmac::accel {

// The `cuda` accelerator: the Driver API in the calling thread's current context, else in the
// primary context of the first device. The CUDA runtime uses a device's primary context; a program
// that has made a context of its own must keep it as long as there are objects.
// adsmErrorNoAccelerator, with the reason, where there is no driver or no device.
Result<std::unique_ptr<Accelerator>> makeCudaAccelerator();

// The same with shared addresses (shared_addresses.h): one device, whose driver reserves the
// windows that all of its memory lies in. Other accelerators may share them.
struct SharingCudaAccelerator {
  std::unique_ptr<Accelerator> accelerator;
  std::shared_ptr<AddressWindows> windows;
};
// `otherBytes`: of the others' memory, together. Also adsmErrorHostMemory: no addresses;
// adsmErrorNotSupported: the device cannot map its memory at given addresses.
Result<SharingCudaAccelerator> makeSharingCudaAccelerator(std::size_t otherBytes);

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_CUDA_CUDA_ACCELERATOR_H_
