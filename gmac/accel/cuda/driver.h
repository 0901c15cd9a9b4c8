// SPDX-License-Identifier: Apache-2.0
//
// The CUDA Driver API, found at run time, so that one binary serves machines with and without it.
#ifndef GMAC_ACCEL_CUDA_DRIVER_H_
#define GMAC_ACCEL_CUDA_DRIVER_H_

#include <cuda.h>

#include <string>

#include "gmac/accel/cuda/device_calls.h"
#include "gmac/base/status.h"

// Every driver function that the runtime uses. cuda.h renames some to the version that it declares;
// the symbol is that one.
#define GMAC_CUDA_DRIVER_FUNCTIONS(X)  \
  X(cuInit)                            \
  X(cuGetErrorString)                  \
  X(cuDeviceGet)                       \
  X(cuDeviceGetCount)                  \
  X(cuDeviceGetName)                   \
  X(cuDeviceGetAttribute)              \
  X(cuDeviceCanAccessPeer)             \
  X(cuDevicePrimaryCtxRetain)          \
  X(cuDevicePrimaryCtxGetState)        \
  X(cuDevicePrimaryCtxRelease)         \
  X(cuCtxGetCurrent)                   \
  X(cuCtxGetDevice)                    \
  X(cuCtxPushCurrent)                  \
  X(cuCtxPopCurrent)                   \
  X(cuCtxSynchronize)                  \
  X(cuThreadExchangeStreamCaptureMode) \
  X(cuMemAlloc)                        \
  X(cuMemFree)                         \
  X(cuMemGetInfo)                      \
  X(cuMemGetAllocationGranularity)     \
  X(cuMemAddressReserve)               \
  X(cuMemAddressFree)                  \
  X(cuMemCreate)                       \
  X(cuMemRelease)                      \
  X(cuMemMap)                          \
  X(cuMemUnmap)                        \
  X(cuMemSetAccess)                    \
  X(cuMemExportToShareableHandle)      \
  X(cuMemImportFromShareableHandle)    \
  X(cuIpcGetMemHandle)                 \
  X(cuIpcOpenMemHandle)                \
  X(cuIpcCloseMemHandle)               \
  X(cuMemHostAlloc)                    \
  X(cuMemFreeHost)                     \
  X(cuMemHostRegister)                 \
  X(cuMemHostGetDevicePointer)         \
  X(cuMemHostUnregister)               \
  X(cuMemcpyHtoDAsync)                 \
  X(cuMemcpyDtoHAsync)                 \
  X(cuMemcpyDtoDAsync)                 \
  X(cuMemcpy3DAsync)                   \
  X(cuMemsetD8Async)                   \
  X(cuPointerGetAttributes)            \
  X(cuStreamCreate)                    \
  X(cuStreamDestroy)                   \
  X(cuStreamSynchronize)               \
  X(cuStreamIsCapturing)               \
  X(cuStreamQuery)                     \
  X(cuStreamWaitEvent)                 \
  X(cuEventCreate)                     \
  X(cuEventDestroy)                    \
  X(cuEventRecord)                     \
  X(cuEventQuery)                      \
  X(cuModuleLoadDataEx)                \
  X(cuModuleUnload)                    \
  X(cuModuleGetFunction)               \
  X(cuModuleGetGlobal)                 \
  X(cuFuncSetAttribute)                \
  X(cuLaunchKernel)
// Those without which a driver does, too; NULL where it has none.
#define GMAC_CUDA_OPTIONAL_DRIVER_FUNCTIONS(X) X(cuStreamWriteValue64)

namespace gmac::accel::cuda {

// The table of driver functions. Immutable once loaded, so thread-safe; lives until the process
// ends (the driver's library is never unloaded); the fault handler may call through it.
class Driver {
 public:
  // The process's driver, initialised. adsmErrorNoAccelerator with the dynamic linker's or the
  // driver's own words.
  static Result<const Driver*> get();

  // The driver's text for a code; never NULL.
  const char* errorText(int code) const noexcept;
  // A device's address on the PCI bus, as Linux writes it; empty where the driver does not tell.
  std::string busAddressOf(int device) const;

#define GMAC_CUDA_MEMBER(function) Entry<decltype(::function)> function;
  GMAC_CUDA_DRIVER_FUNCTIONS(GMAC_CUDA_MEMBER)
  GMAC_CUDA_OPTIONAL_DRIVER_FUNCTIONS(GMAC_CUDA_MEMBER)
#undef GMAC_CUDA_MEMBER

 private:
  Status load();
};

// The handle of the process's libcuda.so.1, or NULL with the dynamic linker's words in dlerror().
void* driverLibrary() noexcept;

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_DRIVER_H_
