// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/application_memory.h"

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "gmac/accel/cuda/driver.h"
#include "gmac/accel/cuda/real_dlsym.h"
#include "gmac/accel/cuda/reentry.h"
#include "gmac/base/loaded_library.h"

namespace gmac::accel::cuda {
namespace {

using PointerGetAttributes = decltype(::cuPointerGetAttributes)*;

// NULL until the process has loaded a driver, which then stays loaded.
PointerGetAttributes findDriver() noexcept {
  static constinit std::atomic<PointerGetAttributes> known{nullptr};
  if (const PointerGetAttributes ask = known.load(std::memory_order_acquire)) [[likely]] {
    return ask;
  }
  static constinit LoadedLibrary driver("libcuda.so.1");
  void* const library = driver.find();
  if (library == nullptr) [[likely]] {
    return nullptr;
  }
  const auto ask =
      reinterpret_cast<PointerGetAttributes>(realDlsym()(library, "cuPointerGetAttributes"));
  known.store(ask, std::memory_order_release);
  return ask;
}

// A step that a function below cannot do without.
template <typename Function, typename... Args>
Status call(const Driver& driver, const Entry<Function>& entry, Args... args) {
  const int code = static_cast<int>(entry(args...));
  return code == CUDA_SUCCESS ? Status()
                              : fail(adsmErrorSystem, "{}({}) failed with {}: {}", entry.name,
                                     ArgumentText(args...).view(), code, driver.errorText(code));
}

// The memory's context is current in the calling thread while this lives, the thread may copy
// although it captures a stream, and the hooks let its calls pass.
class Inside {
 public:
  Inside(const Driver& driver, const ApplicationMemory& memory) : driver_(driver), memory_(memory) {
    auto context = reinterpret_cast<CUcontext>(memory.context);
    CUcontext current = nullptr;
    if (context == nullptr) {
      status_ = call(driver, driver.cuDevicePrimaryCtxRetain, &context, CUdevice{memory.device});
      retained_ = status_.ok();
    }
    if (status_.ok() && (driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context)) {
      status_ = call(driver, driver.cuCtxPushCurrent, context);
      pushed_ = status_.ok();
    }
    (void)driver.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  ~Inside() {
    (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_);
    CUcontext popped = nullptr;
    if (pushed_) {
      (void)driver_.cuCtxPopCurrent(&popped);
    }
    if (retained_) {
      (void)driver_.cuDevicePrimaryCtxRelease(CUdevice{memory_.device});
    }
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  const Status& status() const { return status_; }

 private:
  const Reentry reentry_;
  const Driver& driver_;
  const ApplicationMemory& memory_;
  Status status_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool retained_ = false;
  bool pushed_ = false;
};

// `submit` puts a copy on a stream of its own.
template <typename Submit>
Status copy(const ApplicationMemory& memory, const Submit& submit) {
  const auto driver = Driver::get();
  if (!driver.ok()) {
    return driver.status();
  }
  const Inside inside(**driver, memory);
  GMAC_TRY(inside.status());
  CUstream stream = nullptr;
  GMAC_TRY(call(**driver, (*driver)->cuStreamCreate, &stream, unsigned{CU_STREAM_NON_BLOCKING}));
  Status status = submit(**driver, stream);
  if (status.ok()) {
    status = call(**driver, (*driver)->cuStreamSynchronize, stream);
  }
  (void)(*driver)->cuStreamDestroy(stream);
  return status;
}

// Whether the stream, or one that it waits for, is being captured.
bool isCaptured(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver.cuStreamIsCapturing.function(stream, &capture) != CUDA_SUCCESS ||
         capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

// `submit` puts a copy on the default stream of all.
template <typename Submit>
Result<bool> copyInOrder(const ApplicationMemory& memory, const Submit& submit) {
  const auto driver = Driver::get();
  if (!driver.ok()) {
    return driver.status();
  }
  const Inside inside(**driver, memory);
  GMAC_TRY(inside.status());
  if (isCaptured(**driver, CU_STREAM_LEGACY)) {
    return false;
  }
  GMAC_TRY(submit(**driver));
  GMAC_TRY(call(**driver, (*driver)->cuStreamSynchronize, CU_STREAM_LEGACY));
  return true;
}

// Memory that the device writes itself, which spares a quarter of the time of a short copy. For one
// thread at a time. It is the process's own, and so it stays when the context ends in which it was
// pinned: then it is memory like any other.
class Landing {
 public:
  static Landing& instance() {
    static auto* const landing = new Landing;
    return *landing;
  }
  // NULL while another thread has it.
  std::byte* take(const Driver& driver) {
    if (!mutex_.try_lock()) {
      return nullptr;
    }
    if (!std::exchange(tried_, true)) {
      // (Where that fails, copies take longer, and nothing else.)
      (void)driver.cuMemHostRegister.function(bytes_.data(), bytes_.size(),
                                              CU_MEMHOSTREGISTER_PORTABLE);
    }
    return bytes_.data();
  }
  void giveBack() { mutex_.unlock(); }

 private:
  static constexpr std::size_t kPage = 4096;
  std::mutex mutex_;  // guards what follows
  bool tried_ = false;
  alignas(kPage) std::array<std::byte, kMaxBytesInOrder> bytes_{};
};

}  // namespace

bool driverLoaded() noexcept { return findDriver() != nullptr; }

ApplicationMemory applicationMemoryAt(const void* address) noexcept {
  const PointerGetAttributes ask = findDriver();
  if (ask == nullptr) {
    return {};
  }
  const Reentry inside;
  // The plural form does not fail for addresses that it does not know. (The context is a pointer,
  // of which a driver that does not tell sets a part.)
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_CONTEXT,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  unsigned type = 0;
  std::uintptr_t context = 0;
  int device = 0;
  void* data[] = {&type, &context, &device};
  if (ask(3, attributes, data, reinterpret_cast<CUdeviceptr>(address)) != CUDA_SUCCESS ||
      type != CU_MEMORYTYPE_DEVICE) {
    return {};
  }
  return {true, context, device};
}

ApplicationAllocation allocationAt(const void* address) noexcept {
  const PointerGetAttributes ask = findDriver();
  if (ask == nullptr) {
    return {};
  }
  const Reentry inside;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                      CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                      CU_POINTER_ATTRIBUTE_BUFFER_ID};
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  unsigned long long id = 0;
  void* data[] = {&start, &bytes, &id};
  if (ask(3, attributes, data, reinterpret_cast<CUdeviceptr>(address)) != CUDA_SUCCESS ||
      start == 0 || id == 0) {
    return {};
  }
  return {static_cast<std::uintptr_t>(start), bytes, id};
}

Status copyFromApplication(const ApplicationMemory& memory, void* to, const void* device,
                           std::size_t bytes) {
  return copy(memory, [&](const Driver& driver, CUstream stream) {
    return call(driver, driver.cuMemcpyDtoHAsync, to, reinterpret_cast<CUdeviceptr>(device), bytes,
                stream);
  });
}

Status copyToApplication(const ApplicationMemory& memory, void* device, const void* from,
                         std::size_t bytes) {
  return copy(memory, [&](const Driver& driver, CUstream stream) {
    return call(driver, driver.cuMemcpyHtoDAsync, reinterpret_cast<CUdeviceptr>(device), from,
                bytes, stream);
  });
}

Result<bool> copyFromApplicationInOrder(const ApplicationMemory& memory, void* to,
                                        const void* device, std::size_t bytes) {
  std::byte* landing = nullptr;
  const Result<bool> copied = copyInOrder(memory, [&](const Driver& driver) {
    landing = bytes <= kMaxBytesInOrder ? Landing::instance().take(driver) : nullptr;
    return call(driver, driver.cuMemcpyDtoHAsync, landing != nullptr ? landing : to,
                reinterpret_cast<CUdeviceptr>(device), bytes, CU_STREAM_LEGACY);
  });
  if (landing != nullptr) {
    if (copied.ok()) std::memcpy(to, landing, bytes);
    Landing::instance().giveBack();
  }
  return copied;
}

Result<bool> copyToApplicationInOrder(const ApplicationMemory& memory, void* device,
                                      const void* from, std::size_t bytes) {
  return copyInOrder(memory, [&](const Driver& driver) {
    return call(driver, driver.cuMemcpyHtoDAsync, reinterpret_cast<CUdeviceptr>(device), from,
                bytes, CU_STREAM_LEGACY);
  });
}

Result<bool> copyOnDeviceInOrder(const ApplicationMemory& memory, void* device, const void* from,
                                 std::size_t bytes) {
  return copyInOrder(memory, [&](const Driver& driver) {
    return call(driver, driver.cuMemcpyDtoDAsync, reinterpret_cast<CUdeviceptr>(device),
                reinterpret_cast<CUdeviceptr>(from), bytes, CU_STREAM_LEGACY);
  });
}

Status freeOfApplication(void* start) {
  const auto driver = Driver::get();
  if (!driver.ok()) {
    return driver.status();
  }
  const ApplicationMemory memory = applicationMemoryAt(start);
  const Inside inside(**driver, memory);
  GMAC_TRY(inside.status());
  return call(**driver, (*driver)->cuMemFree, reinterpret_cast<CUdeviceptr>(start));
}

Status waitForDefaultStreams(const ApplicationMemory& memory) {
  const auto driver = Driver::get();
  if (!driver.ok()) {
    return driver.status();
  }
  const Inside inside(**driver, memory);
  GMAC_TRY(inside.status());
  // The stream of all waits for the thread's own. It counts as captured with any that it waits for:
  // then there is the thread's own to ask, unless it is that one. (What is captured is no work.)
  CUstream const stream =
      isCaptured(**driver, CU_STREAM_LEGACY) ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  // (To wait for a stream without work takes longer than to ask whether it has any.)
  return (stream == CU_STREAM_PER_THREAD && isCaptured(**driver, stream)) ||
                 (*driver)->cuStreamQuery(stream) == CUDA_SUCCESS
             ? Status()
             : call(**driver, (*driver)->cuStreamSynchronize, stream);
}

Status waitForApplication(const ApplicationMemory& memory) {
  const auto driver = Driver::get();
  if (!driver.ok()) {
    return driver.status();
  }
  const Inside inside(**driver, memory);
  GMAC_TRY(inside.status());
  return call(**driver, (*driver)->cuCtxSynchronize);
}

}  // namespace gmac::accel::cuda
