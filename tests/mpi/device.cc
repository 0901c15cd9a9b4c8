// SPDX-License-Identifier: Apache-2.0
#include "tests/mpi/device.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>

#if GMAC_HAVE_CUDA

#include "tests/cuda/fake_pack_kernels.h"

namespace gmac::testing {
namespace {

// (Past the hooks: what these do is not what is tested.)
template <typename Function>
Function* driver(const char* name) {
  return fake_cuda::control<Function>(name);
}

void require(CUresult result) {
  if (result != CUDA_SUCCESS) std::abort();
}

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

bool loadDriver() { return fake_cuda::library() != nullptr; }

bool startDevice() {
  fake_cuda::standIn(&fake_cuda::packImage());
  CUcontext context = nullptr;
  require(driver<decltype(::cuInit)>("cuInit")(0));
  require(driver<decltype(::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, 0));
  require(driver<decltype(::cuCtxPushCurrent)>("cuCtxPushCurrent_v2")(context));
  require(driver<decltype(::cuStreamCreate)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING));
  return true;
}

void showDevices(int count) { fake_cuda::setDevices(count); }

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

void* allocateOnDevice(std::size_t bytes) {
  if (arena.first == 0) {
    require(driver<decltype(::cuMemAlloc)>("cuMemAlloc_v2")(&arena.first, Arena::kBytes));
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
  return reinterpret_cast<unsigned char*>(
      fake_cuda::backing(reinterpret_cast<CUdeviceptr>(memory)));
}

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
  require(driver<decltype(::cuMemsetD8Async)>("cuMemsetD8Async")(
      reinterpret_cast<CUdeviceptr>(memory), value, bytes, on));
}

std::size_t deviceCalls(const char* name) { return fake_cuda::calls(name); }

}  // namespace gmac::testing

#else

namespace gmac::testing {

bool loadDriver() { return false; }
bool startDevice() { return false; }
void showDevices(int) { std::abort(); }
void initialiseCuda() { std::abort(); }
int currentDevice() { std::abort(); }
void chooseDevice(int) { std::abort(); }
int deviceOf(const void*) { std::abort(); }
void* allocateOnDevice(std::size_t) { std::abort(); }
void freeOnDevice(void*) { std::abort(); }
unsigned char* behindDevice(void*) { std::abort(); }
void* allocatePinned(std::size_t) { std::abort(); }
void freePinned(void*) { std::abort(); }
void fillLater(void*, unsigned char, std::size_t, StreamKind) { std::abort(); }
std::size_t deviceCalls(const char*) { std::abort(); }

}  // namespace gmac::testing

#endif
