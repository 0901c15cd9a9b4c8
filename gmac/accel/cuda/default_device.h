// SPDX-License-Identifier: Apache-2.0
//
// The device of whoever has not chosen one: of the runtime where the thread that starts it has no
// context, and of a program that uses CUDA without cudaSetDevice(). It is the first one unless
// GMAC_DEVICE or, in MPI programs, the process's number on its host says otherwise. Thread-safe;
// starts nothing.
#ifndef GMAC_ACCEL_CUDA_DEFAULT_DEVICE_H_
#define GMAC_ACCEL_CUDA_DEFAULT_DEVICE_H_

#include "gmac/base/status.h"

namespace gmac::accel::cuda {

// This is one of several processes on a host, which share its devices: from now on each has the one
// that its local rank, which launchers tell by the environment, gives it in turn.
void spreadByLocalRank() noexcept;

// Whether anything says which device it is.
bool hasDefaultDevice() noexcept;

// Its number among the `visible` (1 or more) devices that the driver sees. Fails where GMAC_DEVICE
// names none of them. Said once at level info when the local rank decides.
Result<int> defaultDevice(int visible);

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_DEFAULT_DEVICE_H_
