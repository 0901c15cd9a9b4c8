// SPDX-License-Identifier: Apache-2.0
//
// The device of the `cuda` and `cudart` accelerators.
#include <cuda.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "gmac/accel/cuda/driver.h"
#include "gmac/accel/cuda/reentry.h"
#include "gmac/datatype/devices.h"
#include "gmac/datatype/pci_link.h"
#include "gmac/os/mappings.h"

namespace gmac::datatype {
namespace {

using accel::NativeStream;
using accel::Ticket;
using accel::cuda::Driver;
using accel::cuda::Entry;

// See device.h. The first launch in a context loads the module; later launches take no lock but the
// accelerator's, and that on its own queue only.
class CudaDevice final : public Device {
 public:
  CudaDevice(accel::Accelerator& accelerator, const Driver& driver)
      : Device(accelerator), driver_(driver) {}

  Memory memoryOf(const void* address) const noexcept override {
    const accel::cuda::Reentry inside;
    // The plural form does not fail for addresses that it does not know.
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    unsigned type = 0;
    void* data = &type;
    if (driver_.cuPointerGetAttributes.function(
            1, &attribute, &data, reinterpret_cast<CUdeviceptr>(address)) != CUDA_SUCCESS ||
        type == 0) {
      return Memory::kPageable;
    }
    return type == CU_MEMORYTYPE_DEVICE ? Memory::kDevice : Memory::kPinned;
  }
  bool kernelsReachPinned() const noexcept override { return true; }
  DeviceTraits traits() const noexcept override {
    const Scope scope(*this);
    CUdevice device = 0;
    if (driver_.cuCtxGetDevice.function(&device) != CUDA_SUCCESS) {
      return {};
    }
    const auto attribute = [&](CUdevice_attribute which) {
      int value = 0;
      return driver_.cuDeviceGetAttribute.function(&value, which, device) == CUDA_SUCCESS ? value
                                                                                          : 0;
    };
    DeviceTraits traits;
    traits.multiprocessors =
        static_cast<std::uint32_t>(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    traits.cyclesPerMicrosecond = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000.0;
    // The clock is in kHz, the width in bits, and data moves on both edges of the clock.
    traits.memoryRate = 2 * (attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) / 1000.0) *
                        (attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8.0);
    std::array<char, 32> address{};
    (void)fmt::format_to_n(address.data(), address.size() - 1, "{:04x}:{:02x}:{:02x}.0",
                           attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                           attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
                           attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
    traits.linkRate = pciLinkRate(kPciDevices, address.data());
    return traits;
  }

  Result<Ticket> submit(std::optional<NativeStream> stream, DeviceWork& work) override {
    if (stream) {
      const Scope scope(*this);
      Queue queue(*this, streamOf(*stream), scope.context());
      GMAC_TRY(work.run(queue));
      return Ticket{};
    }
    struct Call {
      CudaDevice& device;
      DeviceWork& work;
    } call{*this, work};
    return accelerator().submit(
        [](void* context, NativeStream native) -> Status {
          const Call& made = *static_cast<Call*>(context);
          Queue queue = made.device.queue(native);
          return made.work.run(queue);
        },
        &call);
  }

  Result<Ticket> launch(std::optional<NativeStream> stream, const DeviceLaunch& launch) override {
    if (stream) {
      const Scope scope(*this);
      GMAC_TRY(Queue(*this, streamOf(*stream), scope.context()).launch(launch));
      return Ticket{};
    }
    struct Call {
      CudaDevice& device;
      const DeviceLaunch& launch;
    } call{*this, launch};
    return accelerator().submit(
        [](void* context, NativeStream native) -> Status {
          const Call& made = *static_cast<Call*>(context);
          return made.device.queue(native).launch(made.launch);
        },
        &call);
  }

  Status checkStream(NativeStream stream) const override {
    // The driver dereferences a stream without a check; these two numbers are streams without
    // memory.
    const auto number = static_cast<std::uintptr_t>(stream);
    if (number == reinterpret_cast<std::uintptr_t>(CU_STREAM_LEGACY) ||
        number == reinterpret_cast<std::uintptr_t>(CU_STREAM_PER_THREAD)) {
      return {};
    }
    if (number % alignof(void*) != 0 ||
        !os::readableNow(reinterpret_cast<const void*>(number), sizeof(void*))) {
      return fail(adsmErrorInvalidValue,
                  "options.stream is {:#x}, which is no CUstream: there is no such memory", number);
    }
    return {};
  }

  Status waitForStreams() override {
    const Scope scope(*this);
    return check(adsmErrorSystem, driver_.cuCtxSynchronize);
  }

  Status follow(std::optional<NativeStream> stream, Ticket ticket) override {
    if (stream) {
      return accelerator().follow(*stream, ticket);
    }
    struct Call {
      accel::Accelerator& accelerator;
      Ticket ticket;
    } call{accelerator(), ticket};
    return accelerator()
        .submit(
            [](void* context, NativeStream native) -> Status {
              const Call& made = *static_cast<Call*>(context);
              return made.accelerator.follow(native, made.ticket);
            },
            &call)
        .status();
  }

  Result<void*> allocatePinned(std::size_t bytes) override {
    const Scope scope(*this);
    void* memory = nullptr;
    GMAC_TRY(check(adsmErrorHostMemory, driver_.cuMemHostAlloc, &memory, bytes,
                   static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE)));
    return memory;
  }
  void freePinned(void* address, std::size_t) noexcept override {
    const Scope scope(*this);
    (void)driver_.cuMemFreeHost.function(address);
  }

 private:
  // Makes the accelerator's context current in the calling thread; the hooks ignore calls within.
  class Scope {
   public:
    explicit Scope(const CudaDevice& device)
        : driver_(device.driver_), context_(device.accelerator().nativeContext()) {
      const auto wanted = reinterpret_cast<CUcontext>(context_);
      CUcontext current = nullptr;
      (void)driver_.cuCtxGetCurrent.function(&current);
      pushed_ = wanted != nullptr && current != wanted &&
                driver_.cuCtxPushCurrent.function(wanted) == CUDA_SUCCESS;
    }
    ~Scope() {
      CUcontext popped = nullptr;
      if (pushed_) {
        (void)driver_.cuCtxPopCurrent.function(&popped);
      }
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

    std::uintptr_t context() const noexcept { return context_; }

   private:
    const accel::cuda::Reentry inside_;
    const Driver& driver_;
    const std::uintptr_t context_;
    bool pushed_;
  };

  template <typename Function, typename... Args>
  Status check(adsmError_t otherwise, const Entry<Function>& entry, Args... args) const noexcept {
    const int code = static_cast<int>(entry.function(args...));
    if (code == CUDA_SUCCESS) [[likely]] {
      return {};
    }
    return fail(otherwise, "{}({}) failed with {}: {}", entry.name,
                accel::cuda::ArgumentText(args...).view(), code, driver_.errorText(code));
  }

  class Queue final : public DeviceQueue {
   public:
    Queue(CudaDevice& device, CUstream stream, std::uintptr_t context)
        : device_(device), stream_(stream), context_(context) {}

    Status launch(const DeviceLaunch& launch) override {
      const int number = kernelNumber(launch.kernel);
      CUfunction function = device_.known(number, context_);
      if (function == nullptr) [[unlikely]] {
        GMAC_TRY(device_.find(number, context_, &function));
      }
      void* args[] = {const_cast<std::byte*>(launch.params)};
      const CUresult code = driver().cuLaunchKernel.function(
          function, launch.blocks, 1, 1, launch.threads, 1, 1, 0, stream_, args, nullptr);
      if (code == CUDA_SUCCESS) [[likely]] {
        return {};
      }
      return fail(adsmErrorLaunch, "cuLaunchKernel({}, {} x {} threads) failed with {}: {}",
                  kernelName(kernelNumber(launch.kernel)), launch.blocks, launch.threads,
                  static_cast<int>(code), driver().errorText(code));
    }
    Status copyIn(std::uint64_t to, const void* pinned, std::size_t bytes) override {
      return device_.check(adsmErrorSystem, driver().cuMemcpyHtoDAsync, CUdeviceptr{to}, pinned,
                           bytes, stream_);
    }
    Status copyOut(void* pinned, std::uint64_t from, std::size_t bytes) override {
      return device_.check(adsmErrorSystem, driver().cuMemcpyDtoHAsync, pinned, CUdeviceptr{from},
                           bytes, stream_);
    }
    Status copyWithin(std::uint64_t to, std::uint64_t from, std::size_t bytes) override {
      return device_.check(adsmErrorSystem, driver().cuMemcpyDtoDAsync, CUdeviceptr{to},
                           CUdeviceptr{from}, bytes, stream_);
    }
    Status copyStrided(const StridedCopy& copy) override {
      if (copy.pitch < copy.rowBytes || copy.slicePitch % copy.pitch != 0 ||
          copy.slicePitch < copy.rows * copy.pitch) {
        return fail(adsmErrorNotSupported,
                    "strided copies take rows that do not overlap, not {} bytes every {}, {} times "
                    "every {}",
                    copy.rowBytes, copy.pitch, copy.rows, copy.slicePitch);
      }
      CUDA_MEMCPY3D what{};
      what.WidthInBytes = static_cast<std::size_t>(copy.rowBytes);
      what.Height = static_cast<std::size_t>(copy.rows);
      what.Depth = static_cast<std::size_t>(copy.slices);
      const auto stridedPitch = static_cast<std::size_t>(copy.pitch);
      const auto stridedHeight = static_cast<std::size_t>(copy.slicePitch / copy.pitch);
      const CUmemorytype packedType = copy.packedOnCpu ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      if (copy.direction == Direction::kPack) {
        what.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        what.srcDevice = copy.strided;
        what.srcPitch = stridedPitch;
        what.srcHeight = stridedHeight;
        what.dstMemoryType = packedType;
        what.dstDevice = copy.packedOnCpu ? 0 : copy.packed;
        what.dstHost = copy.packedOnCpu ? reinterpret_cast<void*>(copy.packed) : nullptr;
        what.dstPitch = what.WidthInBytes;
        what.dstHeight = what.Height;
      } else {
        what.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        what.dstDevice = copy.strided;
        what.dstPitch = stridedPitch;
        what.dstHeight = stridedHeight;
        what.srcMemoryType = packedType;
        what.srcDevice = copy.packedOnCpu ? 0 : copy.packed;
        what.srcHost = copy.packedOnCpu ? reinterpret_cast<const void*>(copy.packed) : nullptr;
        what.srcPitch = what.WidthInBytes;
        what.srcHeight = what.Height;
      }
      const CUresult code = driver().cuMemcpy3DAsync.function(&what, stream_);
      if (code == CUDA_SUCCESS) {
        return {};
      }
      return fail(code == CUDA_ERROR_INVALID_VALUE ? adsmErrorNotSupported : adsmErrorSystem,
                  "cuMemcpy3DAsync({} x {} x {} bytes, {} and {} bytes apart) failed with {}: {}",
                  copy.rowBytes, copy.rows, copy.slices, copy.pitch, copy.slicePitch,
                  static_cast<int>(code), driver().errorText(code));
    }

   private:
    const Driver& driver() const { return device_.driver_; }

    CudaDevice& device_;
    const CUstream stream_;
    const std::uintptr_t context_;  // current in the calling thread
  };

  // For the callbacks of the accelerator.
  Queue queue(NativeStream stream) noexcept {
    return Queue(*this, streamOf(stream), accelerator().nativeContext());
  }

  static CUstream streamOf(NativeStream stream) noexcept {
    return reinterpret_cast<CUstream>(static_cast<std::uintptr_t>(stream));
  }

  // A kernel in `context`; nullptr: find() it first.
  CUfunction known(int number, std::uintptr_t context) const noexcept {
    return context_.load(std::memory_order_acquire) == context
               ? functions_[static_cast<std::size_t>(number)].load(std::memory_order_acquire)
               : nullptr;
  }
  // Finds it; `context` is current in the calling thread.
  [[gnu::noinline]] Status find(int number, std::uintptr_t context, CUfunction* function) {
    const std::lock_guard lock(mutex_);
    if (module_ == nullptr || context_.load() != context) {
      const void* const image = packKernelImage();
      if (image == nullptr) {
        return fail(adsmErrorNoImplementation, "built without the CUDA toolkit: no pack kernels");
      }
      CUmodule module = nullptr;
      GMAC_TRY(check(adsmErrorSystem, driver_.cuModuleLoadDataEx, &module, image, 0u,
                     static_cast<CUjit_option*>(nullptr), static_cast<void**>(nullptr)));
      for (auto& known : functions_) {
        known.store(nullptr);
      }
      module_ = module;
      context_.store(context, std::memory_order_release);
    }
    CUfunction found = nullptr;
    GMAC_TRY(check(adsmErrorNoImplementation, driver_.cuModuleGetFunction, &found, module_,
                   kernelName(number)));
    functions_[static_cast<std::size_t>(number)].store(found, std::memory_order_release);
    *function = found;
    return {};
  }

  const Driver& driver_;
  std::mutex mutex_;  // for loading
  CUmodule module_ = nullptr;
  std::atomic<std::uintptr_t> context_{0};  // that module_ is loaded in
  std::array<std::atomic<CUfunction>, kPackKernels> functions_{};
};

}  // namespace

Result<std::unique_ptr<Device>> makeCudaDevice(accel::Accelerator& accelerator) {
  auto driver = Driver::get();
  if (!driver.ok()) {
    return driver.status();
  }
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(accelerator, **driver));
}

}  // namespace gmac::datatype
