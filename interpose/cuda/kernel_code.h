// SPDX-License-Identifier: Apache-2.0
//
// What the code of the program's kernels says of the memory that they use (device_code/).
#ifndef GMAC_INTERPOSE_CUDA_KERNEL_CODE_H_
#define GMAC_INTERPOSE_CUDA_KERNEL_CODE_H_

#include <cuda.h>

#include <memory>

#include "gmac/device_code/pointer_uses.h"

namespace gmac::interpose {

// All are thread-safe. The uses of a kernel, or of a CUkernel as a launch takes it, on the thread's
// device; NULL: its code is not known, or does not tell. Asked for the first time, reads the code.
// Waits for no thread that is here.
std::shared_ptr<const device_code::KernelUses> usesOf(CUfunction kernel) noexcept;

// A module or a library ends, or all do.
void forgetCode(CUmodule module) noexcept;
void forgetCode(CUlibrary library) noexcept;
void forgetAllCode() noexcept;

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_CUDA_KERNEL_CODE_H_
