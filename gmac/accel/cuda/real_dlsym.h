// SPDX-License-Identifier: Apache-2.0
//
// The dynamic linker's own dlsym, past the wrapping one that this library may export.
#ifndef GMAC_ACCEL_CUDA_REAL_DLSYM_H_
#define GMAC_ACCEL_CUDA_REAL_DLSYM_H_

namespace gmac::accel::cuda {

using Dlsym = void* (*)(void* handle, const char* name);

// Never NULL, thread-safe. Handles that depend on the caller (RTLD_NEXT) count from this library.
Dlsym realDlsym() noexcept;

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_REAL_DLSYM_H_
