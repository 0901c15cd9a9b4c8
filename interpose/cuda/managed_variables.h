// SPDX-License-Identifier: Apache-2.0
//
// __managed__ variables on a device whose managed memory the CPU may not use while the device works
// (concurrentManagedAccess is 0). They are memory of the program's image, real managed memory
// beside the shared objects, which the driver closes for the CPU when work begins and opens when
// the program waits. The runtime's own copies are such work, of which the program knows nothing. So
// a CPU access to a closed variable waits for the device, as long as any access may
// (GMAC_WAIT_LIMIT), and is tried again.
#ifndef GMAC_INTERPOSE_CUDA_MANAGED_VARIABLES_H_
#define GMAC_INTERPOSE_CUDA_MANAGED_VARIABLES_H_

#include <cuda.h>

#include <cstddef>

namespace gmac::interpose {

// CPU accesses to the variable wait from now on, for work of the calling thread's context.
// CUDA_ERROR_OUT_OF_MEMORY: there is no memory to note it. Thread-safe.
CUresult awaitVariable(CUlibrary library, CUdeviceptr address, std::size_t bytes) noexcept;

// The library's variables are no more. Thread-safe.
void forgetVariables(CUlibrary library) noexcept;

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_CUDA_MANAGED_VARIABLES_H_
