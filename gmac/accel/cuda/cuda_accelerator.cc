// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/cuda_accelerator.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "gmac/accel/cuda/default_device.h"
#include "gmac/accel/cuda/driver.h"
#include "gmac/accel/cuda/mapped_memory.h"
#include "gmac/accel/cuda/stream_accelerator.h"

namespace gmac::accel {

namespace cuda {

namespace {

// Dynamic shared memory that a launch may use without asking.
constexpr unsigned kUnaskedSharedBytes = 48 << 10;

// Devices from that number on share memory with no other.
constexpr int kMostSharing = 64;
constexpr std::uint64_t bitOf(int device) { return std::uint64_t{1} << device; }

// In what enter() returns, beside the capture mode: the context was pushed.
constexpr std::uintptr_t kPushed = 1;

// A function of a loaded module. Thread-safe; owned by its accelerator.
class DriverKernel final : public LoadedKernel {
 public:
  DriverKernel(const adsmKernelDesc_t& desc, CUmodule module, CUfunction function)
      : desc(desc), module(module), function(function) {}

  const adsmKernelDesc_t& desc;
  const CUmodule module;
  const CUfunction function;
  std::atomic<unsigned> sharedBytes{
      kUnaskedSharedBytes};  // the most that the function has been allowed
};

// The Driver API in one context. As DeviceCalls says.
class DriverCalls final : public DeviceCalls {
 public:
  explicit DriverCalls(const Driver& driver) : driver_(driver) {}

  ~DriverCalls() override { DriverCalls::close(); }

  bool reopens() const noexcept override { return true; }

  void close() noexcept override {
    if (context_.load() == nullptr) return;
    const Reentry inside;
    if (!health_.lost()) {
      const DeviceScope scope(*this);
      for (const auto& [image, module] : modules_)
        static_cast<void>(check(driver_.cuModuleUnload, module));
    }
    modules_.clear();
    // Also that of a lost device: it is counted.
    if (retained_) driver_.cuDevicePrimaryCtxRelease(device_);
    retained_ = false;
    context_.store(nullptr);
  }

  // In the calling thread's context, else in the primary one of the device that it had, or of the
  // default one.
  Status open() override {
    const Reentry inside;
    int count = 0;
    if (!check(driver_.cuDeviceGetCount, &count).ok() || count == 0) {
      return gmac::fail(adsmErrorNoAccelerator, "the CUDA driver sees no device");
    }
    CUcontext current = nullptr;
    GMAC_TRY(check(driver_.cuCtxGetCurrent, &current));
    CUdevice device = device_;
    if (current != nullptr && driver_.cuCtxGetDevice(&device) != CUDA_SUCCESS) {
      current = nullptr;  // one that has ended may still be the thread's
      device = device_;
    }
    if (current == nullptr && deviceName_.empty()) {
      const Result<int> number = defaultDevice(count);
      if (!number.ok()) return number.status();
      GMAC_TRY(check(driver_.cuDeviceGet, &device, *number));
    }
    device_ = device;
    if (!deviceName_.empty()) return chooseContext(current);
    char name[256] = {};
    GMAC_TRY(check(driver_.cuDeviceGetName, name, static_cast<int>(sizeof name), device));
    deviceName_ = name;
    int unified = 0;
    GMAC_TRY(check(driver_.cuDeviceGetAttribute, &unified, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
                   device));
    unifiedAddresses_ = unified != 0;
    return chooseContext(current);
  }

  std::unique_ptr<DeviceCalls> another() const override {
    return std::make_unique<DriverCalls>(driver_);
  }
  Status bind(std::uintptr_t context) override {
    const Reentry inside;
    context_.store(reinterpret_cast<CUcontext>(context));
    const DeviceScope scope(*this);
    CUdevice device = 0;
    if (const Status known = check(driver_.cuCtxGetDevice, &device); !known.ok()) {
      context_.store(nullptr);
      return known;
    }
    device_ = device;
    return {};
  }
  Status openPrimary(int device) override {
    const Reentry inside;
    device_ = device;
    Result<std::string> name = nameOf(device);
    if (!name.ok()) return name.status();
    deviceName_ = std::move(*name);
    return chooseContext(nullptr);
  }
  bool primaryIsActive(int device) const noexcept override {
    const Reentry inside;
    unsigned flags = 0;
    int active = 0;
    return driver_.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
           active != 0;
  }
  Result<std::string> nameOf(int device) const override {
    const Reentry inside;
    char name[256] = {};
    const CUresult result = driver_.cuDeviceGetName(name, static_cast<int>(sizeof name), device);
    if (result == CUDA_SUCCESS) return std::string(name);
    return gmac::fail(adsmErrorSystem, "{}({}): {}", driver_.cuDeviceGetName.name, device,
                      words(result));
  }
  std::string busAddressOf(int device) const override {
    const Reentry inside;
    return driver_.busAddressOf(device);
  }
  Result<MemoryRoom> roomOf(int device) override {
    const Reentry inside;
    CUcontext primary = nullptr;
    GMAC_TRY(check(driver_.cuDevicePrimaryCtxRetain, &primary, device));
    MemoryRoom room;
    Status asked = check(driver_.cuCtxPushCurrent, primary);
    if (asked.ok()) {
      asked = check(driver_.cuMemGetInfo, &room.free, &room.total);
      CUcontext popped = nullptr;
      driver_.cuCtxPopCurrent(&popped);
    }
    driver_.cuDevicePrimaryCtxRelease(device);
    if (!asked.ok()) return asked;
    return room;
  }
  int deviceNumber() const noexcept override { return device_.load(); }
  bool reachedFrom(int device) const noexcept override {
    const int own = device_.load();
    if (device == own) return true;
    if (own >= kMostSharing || device < 0 || device >= kMostSharing) return false;
    std::uint64_t together = sharing_.load();
    if ((together & bitOf(own)) == 0) {
      together = bitOf(own);
      const int last = std::min(visibleDevices(), kMostSharing);
      for (int other = 0; other < last; ++other) {
        if (reachesAll(other, together)) together |= bitOf(other);
      }
      sharing_ = together;
    }
    return (together & bitOf(device)) != 0;
  }
  int visibleDevices() const noexcept override {
    int count = 0;
    return driver_.cuDeviceGetCount(&count) == CUDA_SUCCESS ? count : 1;
  }
  int currentDevice() const noexcept override {
    CUdevice device = 0;
    return driver_.cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
  }

  std::string_view name() const noexcept override { return "cuda"; }
  std::string_view deviceName() const noexcept override { return deviceName_; }
  bool unifiedAddresses() const noexcept override { return unifiedAddresses_; }
  std::uintptr_t nativeContext() const noexcept override {
    return reinterpret_cast<std::uintptr_t>(context_.load(std::memory_order_relaxed));
  }
  int primaryDevice() const noexcept override { return retained_.load() ? device_.load() : -1; }

  std::uintptr_t enter() noexcept override {
    // The runtime's calls are no part of what the application captures, and must not spoil it.
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    driver_.cuThreadExchangeStreamCaptureMode(&mode);
    const auto token = static_cast<std::uintptr_t>(mode) << 1;
    CUcontext current = nullptr;
    driver_.cuCtxGetCurrent(&current);
    const CUcontext context = context_.load(std::memory_order_relaxed);
    if (current == context) return token;
    return driver_.cuCtxPushCurrent(context) == CUDA_SUCCESS ? token | kPushed : token;
  }
  void leave(std::uintptr_t token) noexcept override {
    CUcontext popped = nullptr;
    if ((token & kPushed) != 0) driver_.cuCtxPopCurrent(&popped);
    auto mode = static_cast<CUstreamCaptureMode>(token >> 1);
    driver_.cuThreadExchangeStreamCaptureMode(&mode);
  }

  Result<std::uintptr_t> allocate(std::size_t bytes) override {
    CUdeviceptr address = 0;
    GMAC_TRY(check(driver_.cuMemAlloc, &address, bytes));
    return static_cast<std::uintptr_t>(address);
  }
  Status release(std::uintptr_t address) override {
    return check(driver_.cuMemFree, CUdeviceptr{address});
  }
  Status exportMemory(std::uintptr_t address, MemoryHandle* handle) override {
    CUipcMemHandle made{};
    static_assert(sizeof made == sizeof *handle);
    GMAC_TRY(
        checkAs(adsmErrorNotSupported, driver_.cuIpcGetMemHandle, &made, CUdeviceptr{address}));
    std::memcpy(handle->data(), &made, sizeof made);
    return {};
  }
  Result<std::uintptr_t> importMemory(const MemoryHandle& handle) override {
    CUipcMemHandle given{};
    std::memcpy(&given, handle.data(), sizeof given);
    CUdeviceptr address = 0;
    const CUresult result =
        driver_.cuIpcOpenMemHandle(&address, given, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result == CUDA_SUCCESS) return static_cast<std::uintptr_t>(address);
    return failAs(adsmErrorNotSupported, result, driver_.cuIpcOpenMemHandle.name,
                  "another process's memory");
  }
  Status releaseImport(std::uintptr_t address) override {
    return check(driver_.cuIpcCloseMemHandle, CUdeviceptr{address});
  }
  Result<std::uintptr_t> startOfAllocation(std::uintptr_t address) override {
    CUdeviceptr start = 0;
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
    void* value = &start;
    GMAC_TRY(checkAs(adsmErrorInvalidValue, driver_.cuPointerGetAttributes, 1u, &attribute, &value,
                     CUdeviceptr{address}));
    return static_cast<std::uintptr_t>(start);
  }
  Result<void*> allocateHost(std::size_t bytes) override {
    void* address = nullptr;
    GMAC_TRY(checkAs(adsmErrorHostMemory, driver_.cuMemHostAlloc, &address, bytes, 0u));
    return address;
  }
  Status releaseHost(void* address) override { return check(driver_.cuMemFreeHost, address); }
  Status registerHost(void* address, std::size_t bytes, bool everywhere) override {
    return checkAs(adsmErrorHostMemory, driver_.cuMemHostRegister, address, bytes,
                   everywhere ? unsigned{CU_MEMHOSTREGISTER_PORTABLE} : 0u);
  }
  Status unregisterHost(void* address) override {
    return check(driver_.cuMemHostUnregister, address);
  }

  Result<Stream> createStream() override {
    CUstream stream = nullptr;
    GMAC_TRY(check(driver_.cuStreamCreate, &stream, static_cast<unsigned>(CU_STREAM_NON_BLOCKING)));
    return stream;
  }
  Status destroyStream(Stream stream) override { return check(driver_.cuStreamDestroy, stream); }
  Result<Event> createEvent() override {
    CUevent event = nullptr;
    GMAC_TRY(check(driver_.cuEventCreate, &event, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING)));
    return event;
  }
  Status destroyEvent(Event event) override { return check(driver_.cuEventDestroy, event); }

  Status copyIn(std::uintptr_t to, const void* from, std::size_t bytes, Stream stream) override {
    return check(driver_.cuMemcpyHtoDAsync, CUdeviceptr{to}, from, bytes, stream);
  }
  Status copyOut(void* to, std::uintptr_t from, std::size_t bytes, Stream stream) override {
    return check(driver_.cuMemcpyDtoHAsync, to, CUdeviceptr{from}, bytes, stream);
  }
  Status copyWithin(std::uintptr_t to, std::uintptr_t from, std::size_t bytes,
                    Stream stream) override {
    return check(driver_.cuMemcpyDtoDAsync, CUdeviceptr{to}, CUdeviceptr{from}, bytes, stream);
  }
  Status fill(std::uintptr_t to, unsigned char value, std::size_t bytes, Stream stream) override {
    return check(driver_.cuMemsetD8Async, CUdeviceptr{to}, value, bytes, stream);
  }

  Status record(Event event, Stream stream) override {
    return check(driver_.cuEventRecord, event, stream);
  }
  int tryRecord(Event event, Stream stream) noexcept override {
    return driver_.cuEventRecord(event, stream);
  }
  Status streamWait(Stream stream, Event event) override {
    return check(driver_.cuStreamWaitEvent, stream, event, 0u);
  }
  bool writesWords() noexcept override {
    int writes = 0;
    return driver_.cuStreamWriteValue64.function != nullptr &&
           driver_.cuDeviceGetAttribute(&writes, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                                        device_) == CUDA_SUCCESS &&
           writes != 0;
  }
  Result<std::uintptr_t> deviceAddressOf(void* registered) override {
    CUdeviceptr address = 0;
    GMAC_TRY(check(driver_.cuMemHostGetDevicePointer, &address, registered, 0u));
    return std::uintptr_t{address};
  }
  int writeWord(std::uintptr_t address, std::uint64_t value, Stream stream) noexcept override {
    return driver_.cuStreamWriteValue64(stream, CUdeviceptr{address}, value,
                                        static_cast<unsigned>(CU_STREAM_WRITE_VALUE_DEFAULT));
  }
  bool capturing(Stream stream) noexcept override {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return driver_.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
  }
  int query(Event event) noexcept override { return driver_.cuEventQuery(event); }
  Status queryFailed(int code, Event event) noexcept override {
    return failAs(adsmErrorSystem, code, driver_.cuEventQuery.name, ArgumentText(event).view());
  }

  Result<std::unique_ptr<LoadedKernel>> load(const adsmKernelDesc_t& desc) override {
    if (desc.cudaImage == nullptr) return missingImplementation(desc, "cudaImage", name());
    if (desc.cudaName == nullptr) return missingImplementation(desc, "cudaName", name());
    Result<CUmodule> module = moduleOf(desc);
    if (!module.ok()) return module.status();
    CUfunction function = nullptr;
    const CUresult result = driver_.cuModuleGetFunction(&function, *module, desc.cudaName);
    if (result == CUDA_ERROR_NOT_FOUND) {
      return gmac::fail(adsmErrorNoImplementation, "kernel {}: the image at {} has no function {}",
                        desc.name, desc.cudaImage, desc.cudaName);
    }
    if (result != CUDA_SUCCESS) return kernelFailed(result, driver_.cuModuleGetFunction.name, desc);
    return std::unique_ptr<LoadedKernel>(std::make_unique<DriverKernel>(desc, *module, function));
  }

  Status launch(LoadedKernel& loaded, const LaunchShape& shape, void** args,
                Stream stream) override {
    auto& kernel = static_cast<DriverKernel&>(loaded);
    if (shape.sharedBytes > UINT_MAX / 2) {
      return gmac::fail(adsmErrorLaunch,
                        "kernel {}: {} bytes of shared memory are more than any device has",
                        kernel.desc.name, shape.sharedBytes);
    }
    const auto sharedBytes = static_cast<unsigned>(shape.sharedBytes);
    if (sharedBytes > kernel.sharedBytes.load(std::memory_order_relaxed)) {
      GMAC_TRY(checkAs(adsmErrorLaunch, driver_.cuFuncSetAttribute, kernel.function,
                       CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                       static_cast<int>(sharedBytes)));
      kernel.sharedBytes.store(sharedBytes, std::memory_order_relaxed);
    }
    const CUresult result = driver_.cuLaunchKernel(
        kernel.function, shape.grid.x, shape.grid.y, shape.grid.z, shape.block.x, shape.block.y,
        shape.block.z, sharedBytes, stream, args, nullptr);
    if (result == CUDA_SUCCESS) return Status();
    return failAs(adsmErrorLaunch, result, driver_.cuLaunchKernel.name,
                  describeLaunch(kernel.desc, shape).view());
  }

  Result<std::uintptr_t> constantAddress(LoadedKernel& loaded, const adsmConstant_t& constant,
                                         std::size_t bytes) override {
    const auto& kernel = static_cast<DriverKernel&>(loaded);
    CUdeviceptr address = 0;
    std::size_t size = 0;
    const CUresult result =
        driver_.cuModuleGetGlobal(&address, &size, kernel.module, constant.name);
    if (result == CUDA_ERROR_NOT_FOUND) {
      return gmac::fail(adsmErrorNoImplementation, "kernel {}: its image has no constant {}",
                        kernel.desc.name, constant.name);
    }
    if (result != CUDA_SUCCESS)
      return kernelFailed(result, driver_.cuModuleGetGlobal.name, kernel.desc);
    if (bytes > size) return constantTooSmall(kernel.desc, constant, size, bytes);
    return static_cast<std::uintptr_t>(address);
  }

 private:
  // The primary context, unless the application has made one of its own and works in that.
  Status chooseContext(CUcontext current) {
    unsigned flags = 0;
    int primaryIsActive = 0;
    if (current != nullptr) {
      GMAC_TRY(check(driver_.cuDevicePrimaryCtxGetState, device_.load(), &flags, &primaryIsActive));
      // A primary context that has been reset has the same handle when it comes again.
      if (primaryIsActive == 0 && current != primary_) {
        context_ = current;
        return {};
      }
    }
    CUcontext primary = nullptr;
    GMAC_TRY(checkAs(adsmErrorNoAccelerator, driver_.cuDevicePrimaryCtxRetain, &primary,
                     device_.load()));
    if (current != nullptr && current != primary) {
      context_ = current;
      return check(driver_.cuDevicePrimaryCtxRelease, device_.load());
    }
    context_ = primary_ = primary;
    retained_ = true;
    return {};
  }

  const char* words(int code) const noexcept override { return driver_.errorText(code); }

  Status kernelFailed(CUresult result, const char* call, const adsmKernelDesc_t& desc) noexcept {
    // A device without code in the image is a missing implementation; everything else is the
    // driver's trouble.
    const bool none = result == CUDA_ERROR_NO_BINARY_FOR_GPU ||
                      result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_INVALID_PTX ||
                      result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ||
                      result == CUDA_ERROR_INVALID_SOURCE;
    return failAs(none ? adsmErrorNoImplementation : adsmErrorSystem, result, call,
                  ShortText("kernel {}, image at {}", desc.name, desc.cudaImage).view());
  }

  // Kernels of one image share its module, and with it its constants.
  Result<CUmodule> moduleOf(const adsmKernelDesc_t& desc) {
    const std::lock_guard lock(modulesMutex_);
    if (const auto found = modules_.find(desc.cudaImage); found != modules_.end())
      return found->second;
    char log[512] = {};
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
    CUmodule module = nullptr;
    const CUresult result = driver_.cuModuleLoadDataEx(&module, desc.cudaImage, 2, options, values);
    if (result != CUDA_SUCCESS) {
      const Status status = kernelFailed(result, driver_.cuModuleLoadDataEx.name, desc);
      if (log[0] == '\0') return status;
      const std::string text = lastErrorText();
      return gmac::fail(status.code(), "{}; the compiler says: {}", text,
                        static_cast<const char*>(log));
    }
    modules_.emplace(desc.cudaImage, module);
    return module;
  }

  // Whether a device and each of those in the set reach each other's memory.
  bool reachesAll(int device, std::uint64_t devices) const noexcept {
    const auto reaches = [this](int from, int to) {
      int reached = 0;
      return driver_.cuDeviceCanAccessPeer(&reached, from, to) == CUDA_SUCCESS && reached != 0;
    };
    for (int other = 0; other < kMostSharing; ++other) {
      if ((devices & bitOf(other)) != 0 && other != device &&
          (!reaches(device, other) || !reaches(other, device))) {
        return false;
      }
    }
    return true;
  }

  const Driver& driver_;
  std::atomic<CUdevice> device_{0};
  mutable std::atomic<std::uint64_t> sharing_{0};  // see reachedFrom(); 0: not asked yet
  std::atomic<CUcontext> context_{nullptr};        // NULL: closed
  CUcontext primary_ = nullptr;                    // the newest that was retained
  std::atomic<bool> retained_{false};  // context_ is the primary one, and ours to release
  std::string deviceName_;
  bool unifiedAddresses_ = false;
  std::mutex modulesMutex_;
  std::unordered_map<const void*, CUmodule> modules_;  // by image
};

// By the driver, which maps device memory nowhere else.
class FromDriver final : public ReservedAddresses {
 public:
  FromDriver(const Driver& driver, CUdeviceptr address, std::size_t bytes)
      : ReservedAddresses(static_cast<std::uintptr_t>(address), bytes), driver_(driver) {
    // For device processes; where the driver's mapping does not allow it, they reserve it anew.
    (void)madvise(reinterpret_cast<void*>(begin()), bytes, MADV_DOFORK);
  }
  ~FromDriver() override {
    const Reentry inside;
    if (!forgotten()) driver_.cuMemAddressFree(CUdeviceptr{begin()}, bytes());
  }

 private:
  const Driver& driver_;
};

Result<std::unique_ptr<DriverCalls>> openCalls(const Driver& driver) {
  auto calls = std::make_unique<DriverCalls>(driver);
  GMAC_TRY(calls->open());
  return calls;
}

Result<std::shared_ptr<AddressWindows>> makeWindows(const Driver& driver, DriverCalls& calls,
                                                    std::size_t otherBytes) {
  const Result<MemoryRoom> room = calls.roomOf(calls.deviceNumber());
  if (!room.ok()) return room.status();
  const DeviceScope scope(calls);
  return AddressWindows::make(
      {.memoryBytes = room->total + otherBytes,
       .unit = MappedMemory::kPage,
       .reserve = [&](std::size_t bytes) -> Result<std::unique_ptr<ReservedAddresses>> {
         CUdeviceptr address = 0;
         GMAC_TRY(calls.checkAs(adsmErrorHostMemory, driver.cuMemAddressReserve, &address, bytes,
                                MappedMemory::kPage, CUdeviceptr{0}, 0ULL));
         return std::unique_ptr<ReservedAddresses>(
             std::make_unique<FromDriver>(driver, address, bytes));
       }});
}

}  // namespace

}  // namespace cuda

Result<std::unique_ptr<Accelerator>> makeCudaAccelerator() {
  Result<const cuda::Driver*> driver = cuda::Driver::get();
  if (!driver.ok()) return driver.status();
  auto calls = cuda::openCalls(**driver);
  if (!calls.ok()) return calls.status();
  return cuda::StreamAccelerator::make(std::move(*calls), **driver);
}

Result<SharingCudaAccelerator> makeSharingCudaAccelerator(std::size_t otherBytes) {
  Result<const cuda::Driver*> driver = cuda::Driver::get();
  if (!driver.ok()) return driver.status();
  auto calls = cuda::openCalls(**driver);
  if (!calls.ok()) return calls.status();
  auto windows = cuda::makeWindows(**driver, **calls, otherBytes);
  if (!windows.ok()) return windows.status();
  auto accelerator = cuda::StreamAccelerator::make(std::move(*calls), **driver, *windows);
  if (!accelerator.ok()) return accelerator.status();
  return SharingCudaAccelerator{std::move(*accelerator), std::move(*windows)};
}

}  // namespace gmac::accel
