// SPDX-License-Identifier: Apache-2.0
//
// Calls that would reach shared memory and bypass the runtime: they are refused with a reason.
#include <cuda.h>

#include "gmac/api/adsm.h"
#include "interpose/cuda/call.h"

#define GMAC_CUDA_STREAM_CALLS(X) \
  X(cuMemBatchDecompressAsync, cuMemBatchDecompressAsync, _ptsz, 12060, INT_MAX, Decompress)

#define GMAC_CUDA_PLAIN_CALLS(X)                                                            \
  X(cuMemHostRegister, cuMemHostRegister_v2, 6050, INT_MAX, Register)                       \
  X(cuMemHostUnregister, cuMemHostUnregister, 4000, INT_MAX, Unregister)                    \
  X(cuMemFreeHost, cuMemFreeHost, 0, INT_MAX, FreeHost)                                     \
  X(cuIpcGetMemHandle, cuIpcGetMemHandle, 0, INT_MAX, Ipc)                                  \
  X(cuMemMap, cuMemMap, 0, INT_MAX, Mapping)                                                \
  X(cuMemUnmap, cuMemUnmap, 0, INT_MAX, Mapping)                                            \
  X(cuMemSetAccess, cuMemSetAccess, 0, INT_MAX, Mapping)                                    \
  X(cuMemAddressFree, cuMemAddressFree, 0, INT_MAX, Mapping)                                \
  X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 0, INT_MAX, Handle)           \
  X(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 0, INT_MAX, Handle)       \
  X(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, 0, INT_MAX, \
    ManyDevices)

namespace gmac::interpose {
namespace {

GMAC_CUDA_STREAM_CALLS(GMAC_CUDA_STREAM_TYPE)
// Programs may call deprecated functions.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
GMAC_CUDA_PLAIN_CALLS(GMAC_CUDA_PLAIN_TYPE)
#pragma GCC diagnostic pop

constexpr const char* kOthers = "others that use its device memory would see and leave stale bytes";

struct Register {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, void* address, std::size_t bytes, unsigned flags) {
    if (shared(cpuAddressOf(address), bytes)) {
      return refuse(adsmErrorNotSupported, "cuMemHostRegister", cpuAddressOf(address),
                    "it is reached by copies already");
    }
    return direct(real, address, bytes, flags);
  }
};

// (Pages of objects may be registered by the runtime.)
struct Unregister {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, void* address) {
    return shared(cpuAddressOf(address), 1) ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
                                            : direct(real, address);
  }
};

struct FreeHost {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, void* address) {
    if (shared(cpuAddressOf(address), 1)) {
      return refuse(adsmErrorInvalidPointer, "cuMemFreeHost", cpuAddressOf(address),
                    "adsmFree() frees it, and cudaFree() what cudaMallocManaged() gave");
    }
    return direct(real, address);
  }
};

struct Ipc {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUipcMemHandle* handle, CUdeviceptr address) {
    if (shared(cpuAddressOf(address), 1))
      return refuse(adsmErrorNotSupported, "cuIpcGetMemHandle", address, kOthers);
    return direct(real, handle, address);
  }
};

struct Mapping {
  template <ZeroStream Zero, typename Real, typename... Rest>
  static CUresult run(Real real, CUdeviceptr address, std::size_t bytes, Rest... rest) {
    if (shared(cpuAddressOf(address), bytes)) {
      return refuse(adsmErrorNotSupported, "a mapping change", address,
                    "its memory is the runtime's");
    }
    return direct(real, address, bytes, rest...);
  }
};

struct Handle {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUmemGenericAllocationHandle* handle, void* address) {
    if (shared(cpuAddressOf(address), 1)) {
      return refuse(adsmErrorNotSupported, "cuMemRetainAllocationHandle", cpuAddressOf(address),
                    kOthers);
    }
    return direct(real, handle, address);
  }

  template <ZeroStream Zero, typename Real, typename... Rest>
  static CUresult run(Real real, void* handle, CUdeviceptr address, std::size_t bytes,
                      Rest... rest) {
    if (shared(cpuAddressOf(address), bytes))
      return refuse(adsmErrorNotSupported, "cuMemGetHandleForAddressRange", address, kOthers);
    return direct(real, handle, address, bytes, rest...);
  }
};

// Kernels on several devices are refused while anything is shared: objects live on one device.
struct ManyDevices {
  template <ZeroStream Zero, typename Real, typename... Args>
  static CUresult run(Real, Args...) {
    return resultOf(gmac::fail(adsmErrorNotSupported,
                               "cuLaunchCooperativeKernelMultiDevice while there are shared "
                               "objects: they live on one device"));
  }
};

struct Decompress {
  template <ZeroStream Zero, typename Real, typename... Rest>
  static CUresult run(Real real, CUmemDecompressParams* pieces, std::size_t count, Rest... rest) {
    for (std::size_t i = 0; pieces != nullptr && i < count; ++i) {
      for (const void* end :
           {static_cast<const void*>(pieces[i].src), static_cast<const void*>(pieces[i].dst)}) {
        if (shared(cpuAddressOf(reinterpret_cast<CUdeviceptr>(end)), 1)) {
          return refuse(adsmErrorNotSupported, "cuMemBatchDecompressAsync",
                        reinterpret_cast<std::uintptr_t>(end),
                        "decompress into device memory and copy");
        }
      }
    }
    return direct(real, pieces, count, rest...);
  }
};

}  // namespace

GMAC_CUDA_TABLE(cudaRefusals, GMAC_CUDA_STREAM_CALLS, GMAC_CUDA_PLAIN_CALLS)

}  // namespace gmac::interpose
