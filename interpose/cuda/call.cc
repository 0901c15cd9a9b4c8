// SPDX-License-Identifier: Apache-2.0
#include "interpose/cuda/call.h"

#include "gmac/accel/cuda/driver.h"
#include "gmac/accel/cuda/real_dlsym.h"
#include "gmac/base/log.h"
#include "gmac/coherence/device_memory_port.h"
#include "interpose/cuda/launch_uses.h"

namespace gmac::interpose {
namespace {

GMAC_CUDA_HELPER(cuStreamIsCapturing, cuStreamIsCapturing)
GMAC_CUDA_HELPER(cuStreamSynchronize, cuStreamSynchronize)
GMAC_CUDA_HELPER(cuStreamGetCtx, cuStreamGetCtx)
GMAC_CUDA_HELPER(cuDeviceGetCount, cuDeviceGetCount)
GMAC_CUDA_HELPER(cuCtxGetCurrent, cuCtxGetCurrent)
GMAC_CUDA_HELPER(cuCtxGetDevice, cuCtxGetDevice)
GMAC_CUDA_HELPER(cuDeviceGetAttribute, cuDeviceGetAttribute)
GMAC_CUDA_HELPER(cuPointerGetAttribute, cuPointerGetAttribute)

// Whether a stream may belong to another context than the one that the calling thread has.
bool severalContexts() noexcept {
  static const bool severalDevices = [] {
    const auto getCount = realOf<Call_cuDeviceGetCount>();
    int count = 0;
    return getCount != nullptr && getCount(&count) == CUDA_SUCCESS && count > 1;
  }();
  return severalDevices || coherence::work().knowsOtherContexts();
}

// The context of a stream; NULL where that is not to be learnt. `home`: the runtime's.
CUcontext contextOf(CUstream stream, CUcontext home) noexcept {
  const auto getCurrent = realOf<Call_cuCtxGetCurrent>();
  CUcontext context = nullptr;
  if (getCurrent == nullptr || getCurrent(&context) != CUDA_SUCCESS) return nullptr;
  const bool defaultStream = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  if (defaultStream || (context == home && !severalContexts())) return context;
  const auto getContext = realOf<Call_cuStreamGetCtx>();
  CUcontext own = nullptr;
  return getContext != nullptr && getContext(stream, &own) == CUDA_SUCCESS ? own : context;
}

// The context of a stream, where that is not the runtime's; 0: it is, or that is not to be learnt.
std::uintptr_t otherContextOf(NativeStream stream) noexcept {
  const std::uintptr_t home = coherence::work().nativeContext();
  if (home == 0) return 0;
  const auto context = reinterpret_cast<std::uintptr_t>(
      contextOf(reinterpret_cast<CUstream>(static_cast<std::uintptr_t>(stream)),
                reinterpret_cast<CUcontext>(home)));
  return context == home ? 0 : context;
}

}  // namespace

Result<NativeStream> known(NativeStream stream) noexcept {
  const std::uintptr_t context = otherContextOf(stream);
  if (context == 0) return stream;
  Result<NativeStream> number = coherence::work().streamOf(context, stream);
  // A managed-memory program knows nothing of adsmLastErrorString().
  if (!number.ok() && coherence::deviceMemory().managedMode()) {
    log(LogLevel::kError, "{}", lastErrorText());
  }
  return number;
}

NativeStream alreadyKnown(NativeStream stream) noexcept {
  if (!coherence::work().knowsOtherContexts()) {
    return otherContextOf(stream) == 0 ? stream : accel::kForeignStream;
  }
  const Result<NativeStream> number = known(stream);
  return number.ok() ? *number : accel::kForeignStream;
}

CUdeviceptr onDevice(std::uintptr_t address) noexcept {
  const std::ptrdiff_t distance =
      coherence::memory().deviceDistance(reinterpret_cast<const void*>(address));
  return address + static_cast<std::uintptr_t>(distance);
}

CUresult resultOf(Status status) noexcept {
  // The driver's own answer, where the failure is one of its.
  const int number = status.code() == lastErrorCode() ? lastErrorNumber() : 0;
  switch (status.code()) {
    case adsmSuccess:
      return CUDA_SUCCESS;
    case adsmErrorInvalidValue:
    case adsmErrorInvalidPointer:
      return CUDA_ERROR_INVALID_VALUE;
    case adsmErrorHostMemory:
    case adsmErrorAcceleratorMemory:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case adsmErrorKernel:
      return number != 0 ? static_cast<CUresult>(number) : CUDA_ERROR_LAUNCH_FAILED;
    case adsmErrorAcceleratorLost:
      return number != 0 ? static_cast<CUresult>(number) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    case adsmErrorNotSupported:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return number != 0 ? static_cast<CUresult>(number) : CUDA_ERROR_UNKNOWN;
  }
}

CUresult refuse(adsmError_t code, const char* call, std::uintptr_t address,
                const char* instead) noexcept {
  const Status status =
      gmac::fail(code, "{} of shared memory at {:#x}: {}", call, address, instead);
  // A managed-memory program knows nothing of adsmLastErrorString().
  if (coherence::deviceMemory().managedMode()) log(LogLevel::kError, "{}", lastErrorText());
  return resultOf(status);
}

void* findReal(std::atomic<void*>& slot, const char* symbol) noexcept {
  void* real = slot.load(std::memory_order_acquire);
  if (real != nullptr) return real;
  void* const library = accel::cuda::driverLibrary();
  if (library == nullptr) return nullptr;
  real = accel::cuda::realDlsym()(library, symbol);
  if (real != nullptr) slot.store(real, std::memory_order_release);
  return real;
}

bool capturing(NativeStream stream) noexcept {
  const auto isCapturing = realOf<Call_cuStreamIsCapturing>();
  if (isCapturing == nullptr) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result =
      isCapturing(reinterpret_cast<CUstream>(static_cast<std::uintptr_t>(stream)), &status);
  // The legacy stream cannot be asked while another captures; what is submitted to it then fails in
  // the driver.
  return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
         (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE);
}

bool inForeignContext() noexcept {
  const std::uintptr_t home = coherence::work().nativeContext();
  if (home == 0) return false;
  const auto getCurrent = realOf<Call_cuCtxGetCurrent>();
  CUcontext current = nullptr;
  return getCurrent != nullptr && getCurrent(&current) == CUDA_SUCCESS && current != nullptr &&
         reinterpret_cast<std::uintptr_t>(current) != home;
}

int currentDevice() noexcept {
  const auto getDevice = realOf<Call_cuCtxGetDevice>();
  CUdevice device = 0;
  return getDevice != nullptr && getDevice(&device) == CUDA_SUCCESS ? device : -1;
}

bool deviceHas(CUdevice_attribute attribute) noexcept {
  const auto getDevice = realOf<Call_cuCtxGetDevice>();
  const auto getAttribute = realOf<Call_cuDeviceGetAttribute>();
  CUdevice device = 0;
  int value = 0;
  return getDevice != nullptr && getAttribute != nullptr && getDevice(&device) == CUDA_SUCCESS &&
         getAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

bool attachmentIsPromise() noexcept {
  return coherence::deviceMemory().trustsHints() ||
         !deviceHas(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
}

CUresult waitForStream(NativeStream stream) noexcept {
  const auto wait = realOf<Call_cuStreamSynchronize>();
  return wait == nullptr ? CUDA_ERROR_NOT_FOUND
                         : wait(reinterpret_cast<CUstream>(static_cast<std::uintptr_t>(stream)));
}

namespace {

CUresult askMemoryType(CUdeviceptr address, unsigned* type) noexcept {
  const auto get = realOf<Call_cuPointerGetAttribute>();
  const Reentry inside;
  return get == nullptr ? CUDA_ERROR_NOT_FOUND
                        : get(type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
}

}  // namespace

unsigned memoryType(CUdeviceptr address) noexcept {
  unsigned type = 0;
  return askMemoryType(address, &type) == CUDA_SUCCESS ? type : 0;
}

bool driverKnows(CUdeviceptr address) noexcept {
  unsigned type = 0;
  return askMemoryType(address, &type) != CUDA_ERROR_INVALID_VALUE;
}

CUresult finishOwn(NativeStream stream) noexcept {
  // (A wait would end a capture, and what waits for the program's next store would not end.)
  if (!coherence::deviceMemory().managedMode() || coherence::captureUnderWay() ||
      coherence::openWaits()) {
    return CUDA_SUCCESS;
  }
  const Reentry inside;
  return waitForStream(stream);
}

CUresult noteFailure(CUresult result) noexcept {
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY && !inForeignContext()) {
    coherence::work().callFailed(static_cast<int>(result));
  }
  return result;
}

CUresult acquire(CUresult result, const coherence::DeviceWait& wait) noexcept {
  if (result != CUDA_SUCCESS) return noteFailure(result);
  const CUresult acquired = resultOf(coherence::work().afterDeviceWait(wait));
  fetchWantedTable();
  return acquired;
}

}  // namespace gmac::interpose
