// SPDX-License-Identifier: Apache-2.0
//
// Allocation and release of managed memory. In a program that runs with GMAC_MANAGED=1, managed
// memory is shared objects, but for what no device has room for.
#include <cuda.h>

#include <algorithm>

#include "gmac/accel/cuda/deferred_frees.h"
#include "gmac/api/adsm.h"
#include "gmac/base/log.h"
#include "gmac/coherence/device_memory_port.h"
#include "gmac/coherence/small_heap.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "interpose/cuda/call.h"
#include "interpose/cuda/managed_objects.h"
#include "interpose/cuda/managed_variables.h"

#define GMAC_CUDA_STREAM_CALLS(X) X(cuMemFreeAsync, cuMemFreeAsync, _ptsz, 0, INT_MAX, Free)

#define GMAC_CUDA_PLAIN_CALLS(X)                                \
  X(cuMemAllocManaged, cuMemAllocManaged, 0, INT_MAX, Allocate) \
  X(cuMemFree, cuMemFree_v2, 3020, INT_MAX, Free)               \
  X(cuLibraryGetManaged, cuLibraryGetManaged, 0, INT_MAX, Variable)

namespace gmac::interpose {
namespace {

GMAC_CUDA_STREAM_CALLS(GMAC_CUDA_STREAM_TYPE)
GMAC_CUDA_PLAIN_CALLS(GMAC_CUDA_PLAIN_TYPE)

GMAC_CUDA_HELPER(cuCtxGetCurrent, cuCtxGetCurrent)

// The program learns the error from its CUDA runtime; the log tells the user the reason.
CUresult refuseAllocation(std::size_t bytes, CUresult result) noexcept {
  log(LogLevel::kError, "no managed memory of {} bytes: {}", bytes, lastErrorText());
  return result;
}

CUresult failedAllocation(std::size_t bytes) noexcept {
  const adsmError_t error = adsmLastError();
  // Errors that programs expect and handle themselves. The only argument that can be wrong is a
  // size beyond all memory.
  if (error == adsmErrorAcceleratorMemory || error == adsmErrorHostMemory ||
      error == adsmErrorInvalidValue) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const bool told =
      error == adsmErrorSystem || error == adsmErrorKernel || error == adsmErrorAcceleratorLost;
  return refuseAllocation(bytes, told ? resultOf(Status(error)) : CUDA_ERROR_NOT_SUPPORTED);
}

// Whether an allocation may be the driver's own managed memory, as in a program without this
// library: it is large, and the CPU may use such memory at any time. Pools are made like that, of
// which a program uses a little. If no device has room for it, even without other objects, it is:
// as an object it would take pinned memory of the CPU's at once, and the driver takes memory as it
// is touched. (Each question asks every device and looks at every object.)
bool mayBeTheDrivers(std::size_t bytes) noexcept {
  constexpr std::size_t kLeastAsked = std::size_t{256} << 20;
  return bytes >= kLeastAsked && deviceHas(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
}

// (The driver must not meet a fault in the application's variable.)
template <typename Real>
CUresult driversOwn(Real real, CUdeviceptr* address, std::size_t bytes, unsigned flags) {
  CUdeviceptr memory = 0;
  const CUresult result = direct(real, &memory, bytes, flags);
  if (result != CUDA_SUCCESS) return result;
  log(LogLevel::kInfo,
      "managed memory of {} bytes is the driver's own, no shared object: no device has room for it",
      bytes);
  stats().driverAllocations.add();
  *address = memory;
  return CUDA_SUCCESS;
}

struct Allocate {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUdeviceptr* address, std::size_t bytes, unsigned flags) {
    if (!coherence::deviceMemory().managedMode()) return direct(real, address, bytes, flags);
    if (address == nullptr || bytes == 0 ||
        (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto getCurrent = realOf<Call_cuCtxGetCurrent>();
    CUcontext current = nullptr;
    if (getCurrent == nullptr) return CUDA_ERROR_NOT_FOUND;
    if (const CUresult result = getCurrent(&current); result != CUDA_SUCCESS) return result;
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (mayBeTheDrivers(bytes)) {
      if (!coherence::work().ensureAccelerator().ok()) return failedAllocation(bytes);
      if (coherence::deviceMemory().reachedByCuda() &&
          coherence::deviceMemory().fitsNowhere(bytes)) {
        return driversOwn(real, address, bytes, flags);
      }
    }
    // Memory attached to the CPU gets pages of its own, so that it can stay there.
    const std::size_t wanted =
        flags == CU_MEM_ATTACH_HOST ? std::max(bytes, SmallHeap::kLargestObject + 1) : bytes;
    void* const object = adsmAlloc(wanted);
    if (object == nullptr) return failedAllocation(bytes);
    if (!coherence::deviceMemory().reachedByCuda()) {
      (void)adsmFree(object);
      (void)gmac::fail(adsmErrorNotSupported,
                       "the accelerator is not a CUDA device; leave GMAC_ACCEL unset, or cuda");
      return refuseAllocation(bytes, CUDA_ERROR_NOT_SUPPORTED);
    }
    const auto number = reinterpret_cast<std::uintptr_t>(object);
    ManagedObjects::get().add(number, bytes);
    if (flags == CU_MEM_ATTACH_HOST && attachmentIsPromise())
      (void)coherence::deviceMemory().setUsers(object, coherence::Users::kCpu, {});
    *address = number;
    return CUDA_SUCCESS;
  }
};

// A free that nothing but the CPU is needed for says what every call does after a kernel's crash.
CUresult freed(void* address) noexcept {
  const Status status(adsmFree(address));
  if (!status.ok()) return resultOf(status);
  const auto accelerator = coherence::work().ensureAccelerator();
  return resultOf(accelerator.ok() ? (*accelerator)->usable() : accelerator.status());
}

struct Free {
  // A second free of the same address is recognised also when no object lives.
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real, typename... Rest>
  static CUresult run(Real real, CUdeviceptr address, Rest... rest) {
    if (ManagedObjects::get().remove(address)) return freed(reinterpret_cast<void*>(address));
    if (!shared(cpuAddressOf(address), 1)) {
      // The driver still has it allocated.
      if (coherence::deviceMemory().isKept(address)) return CUDA_ERROR_INVALID_VALUE;
      switch (accel::cuda::beforeFree(address)) {
        case accel::cuda::Freeing::kNow:
          return direct(real, address, rest...);
        case accel::cuda::Freeing::kLater:
          return CUDA_SUCCESS;
        case accel::cuda::Freeing::kTwice:
          return CUDA_ERROR_INVALID_VALUE;
      }
    }
    if (coherence::deviceMemory().managedMode())
      return freed(reinterpret_cast<void*>(cpuAddressOf(address)));
    return refuse(adsmErrorInvalidPointer, "freeing", address, "adsmFree() does that");
  }
};

// A __managed__ variable is memory of the program's image, which the driver has placed: real
// managed memory beside the shared objects.
struct Variable {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUdeviceptr* address, std::size_t* bytes, CUlibrary library,
                      const char* name) {
    // The driver gives either one where the other is NULL.
    CUdeviceptr first = 0;
    std::size_t count = 0;
    const CUresult result = direct(real, &first, &count, library, name);
    if (result != CUDA_SUCCESS) return result;
    if (!deviceHas(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)) {
      if (const CUresult noted = awaitVariable(library, first, count); noted != CUDA_SUCCESS) {
        return noted;
      }
    }
    if (address != nullptr) *address = first;
    if (bytes != nullptr) *bytes = count;
    return CUDA_SUCCESS;
  }
};

}  // namespace

GMAC_CUDA_TABLE(cudaManagedMemory, GMAC_CUDA_STREAM_CALLS, GMAC_CUDA_PLAIN_CALLS)

}  // namespace gmac::interpose
