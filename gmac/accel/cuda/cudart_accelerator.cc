// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/cudart_accelerator.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <mutex>
#include <string>

#include "gmac/accel/cuda/driver.h"
#include "gmac/accel/cuda/real_dlsym.h"
#include "gmac/accel/cuda/stream_accelerator.h"
#include "gmac/api/adsm.h"

namespace gmac::accel {

namespace cuda {

namespace {

// The functions of one CUDA runtime. Immutable once complete, so thread-safe.
struct RuntimeFunctions {
#define GMAC_CUDART_ENTRY(function, result, parameters) Entry<result parameters> function;
  ADSM_CUDART_FUNCTIONS(GMAC_CUDART_ENTRY)
#undef GMAC_CUDART_ENTRY

  // Takes each function that `find(member of the table, name)` knows; the first name that it does
  // not, or NULL.
  template <typename Find>
  const char* fill(Find&& find) {
    const char* missing = nullptr;
#define GMAC_CUDART_FILL(member, result, parameters)                                    \
  member.name = #member;                                                                \
  member.function =                                                                     \
      reinterpret_cast<result(*) parameters>(find(&adsmCudart_t::member, member.name)); \
  if (member.function == nullptr && missing == nullptr) missing = member.name;
    ADSM_CUDART_FUNCTIONS(GMAC_CUDART_FILL)
#undef GMAC_CUDART_FILL
    return missing;
  }
};

// The runtime that the application named. Never destroyed: exit handlers of others may still come
// through it.
struct NamedRuntime {
  std::mutex mutex;
  bool named = false;
  RuntimeFunctions functions;
};

NamedRuntime& namedRuntime() {
  static NamedRuntime* const runtime = new NamedRuntime;
  return *runtime;
}

// Dynamic shared memory that a launch may use without asking.
constexpr std::size_t kUnaskedSharedBytes = 48 << 10;

// Structures that grow with every version of CUDA: this program may have been built against an
// older one than the runtime.
template <typename Structure>
union Roomy {
  Structure structure;
  std::byte room[8192];
};

// A __global__ function. Thread-safe; owned by its accelerator.
class RuntimeKernel final : public LoadedKernel {
 public:
  explicit RuntimeKernel(const adsmKernelDesc_t& desc) : desc(desc) {}

  const adsmKernelDesc_t& desc;
  std::atomic<std::size_t> sharedBytes{
      kUnaskedSharedBytes};  // the most that the function has been allowed
};

// The CUDA runtime on one device. As DeviceCalls says.
class RuntimeCalls final : public DeviceCalls {
 public:
  explicit RuntimeCalls(const RuntimeFunctions& cudart) : cudart_(cudart) {}

  Status open() override {
    const Reentry inside;
    GMAC_TRY(checkAs(adsmErrorNoAccelerator, cudart_.cudaGetDevice, &device_));
    Roomy<cudaDeviceProp> properties{};
    GMAC_TRY(checkAs(adsmErrorNoAccelerator, cudart_.cudaGetDeviceProperties, &properties.structure,
                     device_));
    deviceName_ = properties.structure.name;  // the first member in every version
    int unified = 0;
    GMAC_TRY(
        check(cudart_.cudaDeviceGetAttribute, &unified, cudaDevAttrUnifiedAddressing, device_));
    unifiedAddresses_ = unified != 0;
    // Creates the primary context in this thread.
    return checkAs(adsmErrorNoAccelerator, cudart_.cudaFree, static_cast<void*>(nullptr));
  }

  std::string_view name() const noexcept override { return "cudart"; }
  std::string_view deviceName() const noexcept override { return deviceName_; }
  bool unifiedAddresses() const noexcept override { return unifiedAddresses_; }
  // (It cannot be closed: the end of a context is seen from inside of the CUDA runtime that ends
  // it.)
  int primaryDevice() const noexcept override { return device_; }
  int deviceNumber() const noexcept override { return device_; }  // the driver has the same numbers

  // The token is the device to go back to, and whether the application had an error of its own to
  // see.
  std::uintptr_t enter() noexcept override {
    const bool clean = cudart_.cudaPeekAtLastError() == cudaSuccess;
    int current = device_;
    cudart_.cudaGetDevice(&current);
    if (current != device_) cudart_.cudaSetDevice(device_);
    return static_cast<std::uintptr_t>(current) << 1 | (clean ? 1 : 0);
  }
  void leave(std::uintptr_t token) noexcept override {
    const int previous = static_cast<int>(token >> 1);
    if (previous != device_) cudart_.cudaSetDevice(previous);
    // A "not ready" of ours must not look like the application's failure.
    if ((token & 1) != 0 && cudart_.cudaPeekAtLastError() != cudaSuccess)
      cudart_.cudaGetLastError();
  }

  Result<std::uintptr_t> allocate(std::size_t bytes) override {
    void* address = nullptr;
    GMAC_TRY(check(cudart_.cudaMalloc, &address, bytes));
    return reinterpret_cast<std::uintptr_t>(address);
  }
  Status release(std::uintptr_t address) override {
    return check(cudart_.cudaFree, pointer(address));
  }
  Result<void*> allocateHost(std::size_t bytes) override {
    void* address = nullptr;
    GMAC_TRY(checkAs(adsmErrorHostMemory, cudart_.cudaHostAlloc, &address, bytes,
                     unsigned{cudaHostAllocDefault}));
    return address;
  }
  Status releaseHost(void* address) override { return check(cudart_.cudaFreeHost, address); }
  Status registerHost(void* address, std::size_t bytes, bool everywhere) override {
    return checkAs(
        adsmErrorHostMemory, cudart_.cudaHostRegister, address, bytes,
        everywhere ? unsigned{cudaHostRegisterPortable} : unsigned{cudaHostRegisterDefault});
  }
  Status unregisterHost(void* address) override {
    return check(cudart_.cudaHostUnregister, address);
  }

  Result<Stream> createStream() override {
    cudaStream_t stream = nullptr;
    GMAC_TRY(check(cudart_.cudaStreamCreateWithFlags, &stream, unsigned{cudaStreamNonBlocking}));
    return stream;
  }
  Status destroyStream(Stream stream) override { return check(cudart_.cudaStreamDestroy, stream); }
  Result<Event> createEvent() override {
    cudaEvent_t event = nullptr;
    GMAC_TRY(check(cudart_.cudaEventCreateWithFlags, &event, unsigned{cudaEventDisableTiming}));
    return event;
  }
  Status destroyEvent(Event event) override { return check(cudart_.cudaEventDestroy, event); }

  Status copyIn(std::uintptr_t to, const void* from, std::size_t bytes, Stream stream) override {
    return check(cudart_.cudaMemcpyAsync, pointer(to), from, bytes, cudaMemcpyHostToDevice, stream);
  }
  Status copyOut(void* to, std::uintptr_t from, std::size_t bytes, Stream stream) override {
    return check(cudart_.cudaMemcpyAsync, to, pointer(from), bytes, cudaMemcpyDeviceToHost, stream);
  }
  Status copyWithin(std::uintptr_t to, std::uintptr_t from, std::size_t bytes,
                    Stream stream) override {
    return check(cudart_.cudaMemcpyAsync, pointer(to), pointer(from), bytes,
                 cudaMemcpyDeviceToDevice, stream);
  }
  Status fill(std::uintptr_t to, unsigned char value, std::size_t bytes, Stream stream) override {
    return check(cudart_.cudaMemsetAsync, pointer(to), int{value}, bytes, stream);
  }

  Status record(Event event, Stream stream) override {
    return check(cudart_.cudaEventRecord, event, stream);
  }
  int tryRecord(Event event, Stream stream) noexcept override {
    return cudart_.cudaEventRecord(event, stream);
  }
  Status streamWait(Stream stream, Event event) override {
    return check(cudart_.cudaStreamWaitEvent, stream, event, 0u);
  }
  int query(Event event) noexcept override { return cudart_.cudaEventQuery(event); }
  Status queryFailed(int code, Event event) noexcept override {
    return failAs(adsmErrorSystem, code, cudart_.cudaEventQuery.name, ArgumentText(event).view());
  }

  Result<std::unique_ptr<LoadedKernel>> load(const adsmKernelDesc_t& desc) override {
    if (desc.cudartSymbol == nullptr) return missingImplementation(desc, "cudartSymbol", name());
    Roomy<cudaFuncAttributes> attributes{};
    const cudaError_t error =
        cudart_.cudaFuncGetAttributes(&attributes.structure, desc.cudartSymbol);
    if (error != cudaSuccess) {
      return failAs(
          adsmErrorNoImplementation, error, cudart_.cudaFuncGetAttributes.name,
          ShortText("kernel {}, __global__ function at {}", desc.name, desc.cudartSymbol).view());
    }
    return std::unique_ptr<LoadedKernel>(std::make_unique<RuntimeKernel>(desc));
  }

  Status launch(LoadedKernel& loaded, const LaunchShape& shape, void** args,
                Stream stream) override {
    auto& kernel = static_cast<RuntimeKernel&>(loaded);
    if (shape.sharedBytes > kernel.sharedBytes.load(std::memory_order_relaxed)) {
      const auto wanted = static_cast<int>(std::min<std::size_t>(shape.sharedBytes, INT_MAX));
      GMAC_TRY(checkAs(adsmErrorLaunch, cudart_.cudaFuncSetAttribute, kernel.desc.cudartSymbol,
                       cudaFuncAttributeMaxDynamicSharedMemorySize, wanted));
      kernel.sharedBytes.store(shape.sharedBytes, std::memory_order_relaxed);
    }
    const cudaError_t error = cudart_.cudaLaunchKernel(
        kernel.desc.cudartSymbol, dim3{shape.grid.x, shape.grid.y, shape.grid.z},
        dim3{shape.block.x, shape.block.y, shape.block.z}, args, shape.sharedBytes, stream);
    if (error == cudaSuccess) return Status();
    return failAs(adsmErrorLaunch, error, cudart_.cudaLaunchKernel.name,
                  describeLaunch(kernel.desc, shape).view());
  }

  Result<std::uintptr_t> constantAddress(LoadedKernel& loaded, const adsmConstant_t& constant,
                                         std::size_t bytes) override {
    const auto& kernel = static_cast<RuntimeKernel&>(loaded);
    if (constant.cudartSymbol == nullptr) {
      return missingImplementation(
          kernel.desc, ShortText("cudartSymbol of constant {}", constant.name).view(), name());
    }
    std::size_t size = 0;
    GMAC_TRY(checkAs(adsmErrorNoImplementation, cudart_.cudaGetSymbolSize, &size,
                     constant.cudartSymbol));
    if (bytes > size) return constantTooSmall(kernel.desc, constant, size, bytes);
    void* address = nullptr;
    GMAC_TRY(checkAs(adsmErrorNoImplementation, cudart_.cudaGetSymbolAddress, &address,
                     constant.cudartSymbol));
    return reinterpret_cast<std::uintptr_t>(address);
  }

 private:
  static void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
  const char* words(int code) const noexcept override {
    return cudart_.cudaGetErrorString(static_cast<cudaError_t>(code));
  }

  const RuntimeFunctions& cudart_;
  int device_ = 0;
  std::string deviceName_;
  bool unifiedAddresses_ = false;
};

// A CUDA runtime that the process has loaded as a shared library.
bool findSharedRuntime(RuntimeFunctions& functions) {
  const char* const missing = functions.fill([](adsmFunction_t adsmCudart_t::*, const char* name) {
    return realDlsym()(RTLD_DEFAULT, name);
  });
  return missing == nullptr;
}

}  // namespace

}  // namespace cuda

Result<std::unique_ptr<Accelerator>> makeCudartAccelerator() {
  cuda::NamedRuntime& runtime = cuda::namedRuntime();
  {
    const std::lock_guard lock(runtime.mutex);
    if (!runtime.named) runtime.named = cuda::findSharedRuntime(runtime.functions);
    if (!runtime.named) {
      return gmac::fail(adsmErrorNoAccelerator,
                        "no CUDA runtime in this program: include gmac/adsm.h in a source that "
                        "nvcc compiles, or link "
                        "with the shared CUDA runtime");
    }
  }
  auto calls = std::make_unique<cuda::RuntimeCalls>(runtime.functions);
  GMAC_TRY(calls->open());
  // The runtime has loaded it.
  Result<const cuda::Driver*> driver = cuda::Driver::get();
  if (!driver.ok()) return driver.status();
  return cuda::StreamAccelerator::make(std::move(calls), **driver);
}

}  // namespace gmac::accel

adsmError_t adsmUseCudart(const adsmCudart_t* cudart) {
  using gmac::accel::cuda::NamedRuntime;
  if (cudart == nullptr || cudart->size != sizeof(adsmCudart_t)) {
    return gmac::fail(adsmErrorInvalidValue, "adsmUseCudart: the table has {} bytes, not {}",
                      cudart == nullptr ? 0 : cudart->size, sizeof(adsmCudart_t))
        .code();
  }
  gmac::accel::cuda::RuntimeFunctions functions;
  const char* const missing = functions.fill(
      [cudart](adsmFunction_t adsmCudart_t::*member, const char*) { return cudart->*member; });
  if (missing != nullptr) {
    return gmac::fail(adsmErrorInvalidValue, "adsmUseCudart: {} is NULL", missing).code();
  }
  NamedRuntime& runtime = gmac::accel::cuda::namedRuntime();
  const std::lock_guard lock(runtime.mutex);
  if (!runtime.named) {
    runtime.functions = functions;
    runtime.named = true;
  }
  return adsmSuccess;
}
