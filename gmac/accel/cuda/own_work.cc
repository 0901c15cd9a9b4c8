// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/own_work.h"

#include <cuda.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <vector>

#include "gmac/accel/cuda/driver.h"
#include "gmac/accel/cuda/pci_link.h"
#include "gmac/accel/cuda/reentry.h"
#include "gmac/base/own_system_call.h"

namespace gmac::accel::cuda {
namespace {

// True if the program can read a pointer there now, or the system does not tell (a sandbox that
// denies the call). The system reads, and answers where the processor would fault.
bool pointerReadable(std::uintptr_t address) noexcept {
  const int kept = errno;
  void* scratch = nullptr;
  iovec to{&scratch, sizeof scratch};
  iovec from{reinterpret_cast<void*>(address), sizeof scratch};
  const long read = ownSystemCall(SYS_process_vm_readv, getpid(), &to, 1UL, &from, 1UL, 0UL);
  const bool readable = read < 0 ? errno != EFAULT : read == sizeof scratch;
  errno = kept;
  return readable;
}

}  // namespace

// Makes a layer's context current in the calling thread; the hooks ignore calls within. Cheaper
// than a DeviceScope, because what is called within may be part of what the application captures.
class OwnWork::Scope {
 public:
  explicit Scope(const OwnWork& own) : Scope(own, own.calls_) {}
  Scope(const OwnWork& own, const DeviceCalls& calls) : driver_(own.driver_) {
    const auto wanted = reinterpret_cast<CUcontext>(calls.nativeContext());
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

 private:
  const Reentry inside_;
  const Driver& driver_;
  bool pushed_;
};

template <typename Function, typename... Args>
Status OwnWork::callIn(DeviceCalls& calls, adsmError_t otherwise, const Entry<Function>& entry,
                       Args... args) const noexcept {
  const int code = static_cast<int>(entry.function(args...));
  if (code == CUDA_SUCCESS) [[likely]] {
    return {};
  }
  return calls.health().fail(code, otherwise, entry.name, ArgumentText(args...).view(),
                             driver_.errorText(code));
}

// The first launch in a context loads the module; later launches take no lock.
class OwnWork::Kernels final : public LoadedKernels {
 public:
  Kernels(OwnWork& own, const BuiltInKernels& kernels)
      : own_(own), kernels_(kernels), functions_(kernels.kernels.size()) {}

  const char* name(int number) const noexcept {
    return kernels_.kernels[static_cast<std::size_t>(number)].name;
  }
  // A kernel in `context`; nullptr: find() it first.
  CUfunction known(int number, std::uintptr_t context) const noexcept {
    return context_.load(std::memory_order_acquire) == context
               ? functions_[static_cast<std::size_t>(number)].load(std::memory_order_acquire)
               : nullptr;
  }
  // `context` is current in the calling thread.
  [[gnu::noinline]] Status find(int number, std::uintptr_t context, CUfunction* function) {
    const std::lock_guard lock(mutex_);
    if (module_ == nullptr || context_.load() != context) {
      if (kernels_.cudaImage == nullptr) {
        return fail(adsmErrorNoImplementation, "built without the CUDA toolkit: no kernel {}",
                    name(number));
      }
      CUmodule module = nullptr;
      GMAC_TRY(own_.call(adsmErrorSystem, own_.driver_.cuModuleLoadDataEx, &module,
                         kernels_.cudaImage, 0u, static_cast<CUjit_option*>(nullptr),
                         static_cast<void**>(nullptr)));
      for (auto& known : functions_) {
        known.store(nullptr);
      }
      module_ = module;
      context_.store(context, std::memory_order_release);
    }
    CUfunction found = nullptr;
    GMAC_TRY(own_.call(adsmErrorNoImplementation, own_.driver_.cuModuleGetFunction, &found, module_,
                       name(number)));
    functions_[static_cast<std::size_t>(number)].store(found, std::memory_order_release);
    *function = found;
    return {};
  }

 private:
  OwnWork& own_;
  const BuiltInKernels kernels_;
  std::mutex mutex_;  // for loading
  CUmodule module_ = nullptr;
  std::atomic<std::uintptr_t> context_{0};  // that module_ is loaded in
  std::vector<std::atomic<CUfunction>> functions_;
};

// Commands on one stream of the context of `calls`, which is current in the calling thread.
class OwnWork::Queue final : public Commands {
 public:
  Queue(OwnWork& own, DeviceCalls& calls, Stream stream)
      : own_(own), calls_(calls), stream_(stream) {}

  Status launch(LoadedKernels& loaded, const Launch& launch) override {
    auto& kernels = static_cast<Kernels&>(loaded);
    if (&calls_ != &own_.calls_) [[unlikely]] {
      return fail(adsmErrorNotSupported, "{} on a stream of another context",
                  kernels.name(launch.kernel));
    }
    const std::uintptr_t context = calls_.nativeContext();
    CUfunction function = kernels.known(launch.kernel, context);
    if (function == nullptr) [[unlikely]] {
      GMAC_TRY(kernels.find(launch.kernel, context, &function));
    }
    void* args[] = {const_cast<void*>(launch.params)};
    const CUresult code = driver().cuLaunchKernel.function(
        function, launch.blocks, 1, 1, launch.threads, 1, 1, 0, stream_, args, nullptr);
    if (code == CUDA_SUCCESS) [[likely]] {
      return {};
    }
    return calls_.health().fail(
        code, adsmErrorLaunch, driver().cuLaunchKernel.name,
        ShortText("{}, {} x {} threads", kernels.name(launch.kernel), launch.blocks, launch.threads)
            .view(),
        driver().errorText(code));
  }
  Status copyIn(std::uint64_t to, const void* pinned, std::size_t bytes) override {
    return own_.callIn(calls_, adsmErrorSystem, driver().cuMemcpyHtoDAsync, CUdeviceptr{to}, pinned,
                       bytes, stream_);
  }
  Status copyOut(void* pinned, std::uint64_t from, std::size_t bytes) override {
    return own_.callIn(calls_, adsmErrorSystem, driver().cuMemcpyDtoHAsync, pinned,
                       CUdeviceptr{from}, bytes, stream_);
  }
  Status copyWithin(std::uint64_t to, std::uint64_t from, std::size_t bytes) override {
    return own_.callIn(calls_, adsmErrorSystem, driver().cuMemcpyDtoDAsync, CUdeviceptr{to},
                       CUdeviceptr{from}, bytes, stream_);
  }
  Status copyStrided(const StridedCopy& copy) override {
    for (const StridedCopy::Side& side : {copy.target, copy.source}) {
      if (side.pitch < copy.rowBytes || side.slicePitch % side.pitch != 0 ||
          side.slicePitch < copy.rows * side.pitch) {
        return fail(adsmErrorNotSupported,
                    "strided copies take rows that do not overlap, not {} bytes every {}, {} times "
                    "every {}",
                    copy.rowBytes, side.pitch, copy.rows, side.slicePitch);
      }
    }
    CUDA_MEMCPY3D what{};
    what.WidthInBytes = static_cast<std::size_t>(copy.rowBytes);
    what.Height = static_cast<std::size_t>(copy.rows);
    what.Depth = static_cast<std::size_t>(copy.slices);
    what.dstMemoryType = copy.target.onCpu ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    what.dstDevice = copy.target.onCpu ? 0 : copy.target.address;
    what.dstHost = copy.target.onCpu ? reinterpret_cast<void*>(copy.target.address) : nullptr;
    what.dstPitch = static_cast<std::size_t>(copy.target.pitch);
    what.dstHeight = static_cast<std::size_t>(copy.target.slicePitch / copy.target.pitch);
    what.srcMemoryType = copy.source.onCpu ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    what.srcDevice = copy.source.onCpu ? 0 : copy.source.address;
    what.srcHost = copy.source.onCpu ? reinterpret_cast<const void*>(copy.source.address) : nullptr;
    what.srcPitch = static_cast<std::size_t>(copy.source.pitch);
    what.srcHeight = static_cast<std::size_t>(copy.source.slicePitch / copy.source.pitch);
    const CUresult code = driver().cuMemcpy3DAsync.function(&what, stream_);
    if (code == CUDA_SUCCESS) {
      return {};
    }
    return calls_.health().fail(
        code, code == CUDA_ERROR_INVALID_VALUE ? adsmErrorNotSupported : adsmErrorSystem,
        driver().cuMemcpy3DAsync.name,
        ShortText("{} x {} x {} bytes, to {} and {} bytes apart, from {} and {}", copy.rowBytes,
                  copy.rows, copy.slices, copy.target.pitch, copy.target.slicePitch,
                  copy.source.pitch, copy.source.slicePitch)
            .view(),
        driver().errorText(code));
  }

 private:
  const Driver& driver() const { return own_.driver_; }

  OwnWork& own_;
  DeviceCalls& calls_;
  const Stream stream_;
};

Memory OwnWork::memoryOf(const void* address) const noexcept {
  const Reentry inside;
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

DeviceTraits OwnWork::traits() const noexcept {
  const Scope scope(*this);
  CUdevice device = 0;
  if (driver_.cuCtxGetDevice.function(&device) != CUDA_SUCCESS) {
    return {};
  }
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    return driver_.cuDeviceGetAttribute.function(&value, which, device) == CUDA_SUCCESS ? value : 0;
  };
  DeviceTraits traits;
  traits.multiprocessors =
      static_cast<std::uint32_t>(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  traits.cyclesPerMicrosecond = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000.0;
  // The clock is in kHz, the width in bits, and data moves on both edges of the clock.
  traits.memoryRate = 2 * (attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) / 1000.0) *
                      (attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8.0);
  traits.linkRate = pciLinkRate(kPciDevices, driver_.busAddressOf(device));
  return traits;
}

std::string OwnWork::busAddress() const {
  const Scope scope(*this);
  CUdevice device = 0;
  return driver_.cuCtxGetDevice.function(&device) == CUDA_SUCCESS ? driver_.busAddressOf(device)
                                                                  : std::string();
}

Result<void*> OwnWork::allocatePinned(std::size_t bytes) {
  const Scope scope(*this);
  void* memory = nullptr;
  GMAC_TRY(call(adsmErrorHostMemory, driver_.cuMemHostAlloc, &memory, bytes,
                static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE)));
  return memory;
}

void OwnWork::freePinned(void* address) noexcept {
  const Scope scope(*this);
  (void)driver_.cuMemFreeHost.function(address);
}

Status OwnWork::waitForAll() {
  const Scope scope(*this);
  return call(adsmErrorSystem, driver_.cuCtxSynchronize);
}

Status OwnWork::check(NativeStream stream) {
  // The driver dereferences a stream without a check; these two numbers are streams without memory.
  const auto number = static_cast<std::uintptr_t>(stream);
  if (number == reinterpret_cast<std::uintptr_t>(CU_STREAM_LEGACY) ||
      number == reinterpret_cast<std::uintptr_t>(CU_STREAM_PER_THREAD)) {
    return {};
  }
  if (number % alignof(void*) != 0 || !pointerReadable(number)) {
    return fail(adsmErrorInvalidValue, "{:#x} is no CUstream: there is no such memory", number);
  }
  return {};
}

std::unique_ptr<LoadedKernels> OwnWork::load(const BuiltInKernels& kernels) {
  return std::make_unique<Kernels>(*this, kernels);
}

Status OwnWork::run(Stream stream, Work& work) {
  Queue queue(*this, calls_, stream);
  return work.run(queue);
}

Status OwnWork::runOn(DeviceCalls& calls, Stream stream, Work& work) {
  const Scope scope(*this, calls);
  Queue queue(*this, calls, stream);
  return work.run(queue);
}

Status OwnWork::launchOn(DeviceCalls& calls, Stream stream, LoadedKernels& kernels,
                         const Launch& launch) {
  const Scope scope(*this, calls);
  return Queue(*this, calls, stream).launch(kernels, launch);
}

}  // namespace gmac::accel::cuda
