// SPDX-License-Identifier: Apache-2.0
//
// Managed memory for PyTorch's tensors (torch.cuda.memory.CUDAPluggableAllocator), as
// torch_network.py is given it. By the driver's functions, which it looks up: so it fits each CUDA
// runtime that PyTorch brings.
#include <dlfcn.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace {

using Initialise = int(unsigned flags);
using GetContext = int(void** context);
using PushContext = int(void* context);
using GetDevice = int(int* device, int number);
using RetainContext = int(void** context, int device);
using Allocate = int(std::uintptr_t* address, std::size_t bytes, unsigned flags);
using Free = int(std::uintptr_t address);
constexpr unsigned kAttachGlobal = 1;

// NULL: there is no such driver.
template <typename Function>
Function* driversFunction(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  return driver == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(driver, name));
}

// A thread has no context until it has called CUDA's runtime, and PyTorch may ask for memory
// before.
bool hasContext(int number) {
  static Initialise* const initialise = driversFunction<Initialise>("cuInit");
  static GetContext* const getContext = driversFunction<GetContext>("cuCtxGetCurrent");
  static PushContext* const pushContext = driversFunction<PushContext>("cuCtxPushCurrent_v2");
  static GetDevice* const getDevice = driversFunction<GetDevice>("cuDeviceGet");
  static RetainContext* const retain = driversFunction<RetainContext>("cuDevicePrimaryCtxRetain");
  if (initialise == nullptr || getContext == nullptr || pushContext == nullptr ||
      getDevice == nullptr || retain == nullptr || initialise(0) != 0) {
    return false;
  }
  void* context = nullptr;
  if (getContext(&context) == 0 && context != nullptr) {
    return true;
  }
  int device = 0;
  return getDevice(&device, number) == 0 && retain(&context, device) == 0 &&
         pushContext(context) == 0;
}

}  // namespace

#pragma GCC visibility push(default)

// NULL: there is none.
extern "C" void* gmacMalloc(ssize_t bytes, int device, void* /*stream*/) {
  static Allocate* const allocate = driversFunction<Allocate>("cuMemAllocManaged");
  std::uintptr_t address = 0;
  if (bytes > 0 && (allocate == nullptr || !hasContext(device) ||
                    allocate(&address, static_cast<std::size_t>(bytes), kAttachGlobal) != 0)) {
    std::fprintf(stderr, "no managed memory for %zd bytes\n", bytes);
    return nullptr;
  }
  return reinterpret_cast<void*>(address);
}

extern "C" void gmacFree(void* memory, ssize_t bytes, int device, void* /*stream*/) {
  static Free* const free = driversFunction<Free>("cuMemFree_v2");
  if (memory != nullptr && (free == nullptr || !hasContext(device) ||
                            free(reinterpret_cast<std::uintptr_t>(memory)) != 0)) {
    std::fprintf(stderr, "managed memory of %zd bytes is not freed\n", bytes);
  }
}

#pragma GCC visibility pop
