// SPDX-License-Identifier: Apache-2.0
#include "tests/mpi/device.h"

#include <dlfcn.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <thread>
#include <vector>

#if GMAC_HAVE_CUDA

#include "tests/cuda/fake_pack_kernels.h"

namespace gmac::testing {
namespace {

bool isReal() { return !usesFakeDriver(); }

void* library() {
  if (!isReal()) return fake_cuda::library();
  static void* const handle = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (handle == nullptr) {
    std::fprintf(stderr, "FAILED: GMAC_TEST_DRIVER=real: %s\n", ::dlerror());
    std::abort();
  }
  return handle;
}

template <typename Function>
Function* driver(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library(), name));
}

void require(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "FAILED: a call of the CUDA driver: error %d\n", static_cast<int>(result));
  std::abort();
}

// shared.h's kernel, as the fake driver runs kernels.
CUresult flip(const unsigned*, const unsigned*, unsigned, void** args) {
  auto* const bytes = fake_cuda::device(fake_cuda::argument<unsigned char*>(args, 0));
  const auto count = fake_cuda::argument<std::size_t>(args, 1);
  for (std::size_t i = 0; i < count; ++i) bytes[i] ^= 0x5a;
  return CUDA_SUCCESS;
}

// All that these programs launch.
const fake_cuda::Image& image() {
  static constexpr std::size_t kFlipBytes[] = {sizeof(void*), sizeof(std::size_t)};
  static const auto* const kernels = [] {
    const fake_cuda::Image& packs = fake_cuda::packImage();
    auto* const all =
        new std::vector<fake_cuda::Kernel>(packs.kernels, packs.kernels + packs.kernelCount);
    all->push_back({"flip", &flip, std::size(kFlipBytes), kFlipBytes});
    return all;
  }();
  static const fake_cuda::Image kImage = {"fakecud", kernels->data(), kernels->size(), nullptr, 0};
  return kImage;
}

// Before the program asks for a driver.
[[maybe_unused]] const bool kFakeFromTheBeginning = [] {
  const char* const driver = std::getenv("GMAC_TEST_DRIVER");
  const bool wanted = driver != nullptr && std::strcmp(driver, "fake") == 0;
  if (wanted) fake_cuda::standIn(&image());
  return wanted;
}();

CUstream stream = nullptr;

// Programs have many small buffers, and an allocation of the driver's takes its time: they are
// parts of one, which begins again when none is left. For one thread.
struct Arena {
  static constexpr std::size_t kBytes = std::size_t{512} << 20;
  static constexpr std::size_t kAlignment = 256;
  CUdeviceptr first = 0;
  std::size_t used = 0;
  std::size_t living = 0;
} arena;

}  // namespace

bool usesFakeDriver() {
  const char* const driver = std::getenv("GMAC_TEST_DRIVER");
  return driver == nullptr || std::strcmp(driver, "real") != 0;
}

bool loadDriver() { return library() != nullptr; }

bool startDevice() {
  if (!isReal()) fake_cuda::standIn(&image());
  CUcontext context = nullptr;
  require(driver<decltype(::cuInit)>("cuInit")(0));
  require(driver<decltype(::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, 0));
  require(driver<decltype(::cuCtxPushCurrent)>("cuCtxPushCurrent_v2")(context));
  require(driver<decltype(::cuStreamCreate)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING));
  return true;
}

void showDevices(int count, bool reachEachOther) { fake_cuda::setDevices(count, reachEachOther); }

void initialiseCuda() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  require(reinterpret_cast<decltype(&::cuInit)>(::dlsym(library, "cuInit"))(0));
}
int currentDevice() {
  CUcontext context = nullptr;
  CUdevice device = -1;
  require(driver<decltype(::cuCtxGetCurrent)>("cuCtxGetCurrent")(&context));
  if (context != nullptr) require(driver<decltype(::cuCtxGetDevice)>("cuCtxGetDevice")(&device));
  return device;
}
void chooseDevice(int device) {
  CUcontext context = nullptr;
  require(
      driver<decltype(::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, device));
  require(driver<decltype(::cuCtxPushCurrent)>("cuCtxPushCurrent_v2")(context));
}
int deviceOf(const void* memory) {
  int device = -1;
  require(driver<decltype(::cuPointerGetAttribute)>("cuPointerGetAttribute")(
      &device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, reinterpret_cast<CUdeviceptr>(memory)));
  return device;
}

void refuseImports() { fake_cuda::failAlways("cuIpcOpenMemHandle_v2", CUDA_ERROR_INVALID_CONTEXT); }

void refuseOneImport(std::size_t which) {
  fake_cuda::failNth("cuIpcOpenMemHandle_v2", which, CUDA_ERROR_OUT_OF_MEMORY);
}

void failNextLaunch() { fake_cuda::failNext("cuLaunchKernel", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES); }

void failNthCall(const char* name, std::size_t n) {
  fake_cuda::failNth(name, n, CUDA_ERROR_OUT_OF_MEMORY);
}

void refuseExports() { fake_cuda::failAlways("cuIpcGetMemHandle", CUDA_ERROR_NOT_SUPPORTED); }
void refuseOneExport() { fake_cuda::failNext("cuIpcGetMemHandle", CUDA_ERROR_NOT_SUPPORTED); }

void* allocateOnDevice(std::size_t bytes) {
  if (arena.first == 0) {
    // The CPU looks at the bytes of managed memory, which is the device's too.
    require(isReal()
                ? driver<decltype(::cuMemAllocManaged)>("cuMemAllocManaged")(
                      &arena.first, Arena::kBytes, CU_MEM_ATTACH_GLOBAL)
                : driver<decltype(::cuMemAlloc)>("cuMemAlloc_v2")(&arena.first, Arena::kBytes));
  }
  const std::size_t whole = (bytes + Arena::kAlignment) / Arena::kAlignment * Arena::kAlignment;
  if (whole > Arena::kBytes - arena.used) std::abort();
  void* const memory = reinterpret_cast<void*>(arena.first + arena.used);
  arena.used += whole;
  ++arena.living;
  return memory;
}
void freeOnDevice(void*) {
  if (--arena.living == 0) arena.used = 0;
}
unsigned char* behindDevice(void* memory) {
  if (isReal()) return static_cast<unsigned char*>(memory);
  return reinterpret_cast<unsigned char*>(
      fake_cuda::backing(reinterpret_cast<CUdeviceptr>(memory)));
}

void* allocateExportable(std::size_t bytes) {
  CUdeviceptr memory = 0;
  require(driver<decltype(::cuMemAlloc)>("cuMemAlloc_v2")(&memory, bytes));
  return reinterpret_cast<void*>(memory);
}
void freeExportable(void* memory) {
  require(driver<decltype(::cuMemFree)>("cuMemFree_v2")(reinterpret_cast<CUdeviceptr>(memory)));
}
std::size_t freeDeviceMemory() {
  std::size_t bytes = 0;
  std::size_t all = 0;
  require(driver<decltype(::cuMemGetInfo)>("cuMemGetInfo_v2")(&bytes, &all));
  return bytes;
}
void copyToDevice(void* device, const void* from, std::size_t bytes) {
  require(driver<decltype(::cuMemcpyHtoD)>("cuMemcpyHtoD_v2")(reinterpret_cast<CUdeviceptr>(device),
                                                              from, bytes));
}
void copyFromDevice(void* to, const void* device, std::size_t bytes) {
  require(driver<decltype(::cuMemcpyDtoH)>("cuMemcpyDtoH_v2")(
      to, reinterpret_cast<CUdeviceptr>(device), bytes));
}

void* allocateManaged(std::size_t bytes) {
  CUdeviceptr memory = 0;
  require(driver<decltype(::cuMemAllocManaged)>("cuMemAllocManaged")(&memory, bytes,
                                                                     CU_MEM_ATTACH_GLOBAL));
  return reinterpret_cast<void*>(memory);
}
void freeManaged(void* memory) { freeExportable(memory); }

void* allocatePinned(std::size_t bytes) {
  void* memory = nullptr;
  require(driver<decltype(::cuMemHostAlloc)>("cuMemHostAlloc")(&memory, bytes, 0));
  return memory;
}
void freePinned(void* memory) {
  require(driver<decltype(::cuMemFreeHost)>("cuMemFreeHost")(memory));
}

void fillLater(void* memory, unsigned char value, std::size_t bytes, StreamKind kind) {
  CUstream const on = kind == StreamKind::kOwn       ? stream
                      : kind == StreamKind::kDefault ? nullptr
                                                     : CU_STREAM_PER_THREAD;
  // A real device is as late as the fake one by a host function's sleep.
  if (isReal()) {
    require(driver<decltype(::cuLaunchHostFunc)>("cuLaunchHostFunc")(
        on, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }, nullptr));
  }
  // (A question whether the fake one is done lets it do one of them.)
  for (const int first : {0x80, 0x40, 0}) {
    require(driver<decltype(::cuMemsetD8Async)>("cuMemsetD8Async")(
        reinterpret_cast<CUdeviceptr>(memory), static_cast<unsigned char>(value ^ first), bytes,
        on));
  }
}

void finishStreams() { require(driver<decltype(::cuCtxSynchronize)>("cuCtxSynchronize")()); }

std::size_t deviceCalls(const char* name) { return fake_cuda::calls(name); }

}  // namespace gmac::testing

#else

namespace gmac::testing {

bool usesFakeDriver() { return false; }
bool loadDriver() { return false; }
bool startDevice() { return false; }
void showDevices(int, bool) { std::abort(); }
void initialiseCuda() { std::abort(); }
int currentDevice() { std::abort(); }
void chooseDevice(int) { std::abort(); }
int deviceOf(const void*) { std::abort(); }
void refuseImports() { std::abort(); }
void refuseOneImport(std::size_t) { std::abort(); }
void failNextLaunch() { std::abort(); }
void failNthCall(const char*, std::size_t) { std::abort(); }
void refuseExports() { std::abort(); }
void refuseOneExport() { std::abort(); }
void* allocateOnDevice(std::size_t) { std::abort(); }
void freeOnDevice(void*) { std::abort(); }
unsigned char* behindDevice(void*) { std::abort(); }
void* allocateExportable(std::size_t) { std::abort(); }
void freeExportable(void*) { std::abort(); }
std::size_t freeDeviceMemory() { std::abort(); }
void copyToDevice(void*, const void*, std::size_t) { std::abort(); }
void copyFromDevice(void*, const void*, std::size_t) { std::abort(); }
void* allocateManaged(std::size_t) { std::abort(); }
void freeManaged(void*) { std::abort(); }
void* allocatePinned(std::size_t) { std::abort(); }
void freePinned(void*) { std::abort(); }
void fillLater(void*, unsigned char, std::size_t, StreamKind) { std::abort(); }
void finishStreams() { std::abort(); }
std::size_t deviceCalls(const char*) { std::abort(); }

}  // namespace gmac::testing

#endif
