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

using Allocate = int(std::uintptr_t* address, std::size_t bytes, unsigned flags);
using Free = int(std::uintptr_t address);
constexpr unsigned kAttachGlobal = 1;

// NULL: there is no such driver.
template <typename Function>
Function* driversFunction(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  return driver == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(driver, name));
}

}  // namespace

// NULL: there is none.
extern "C" void* gmacMalloc(ssize_t bytes, int /*device*/, void* /*stream*/) {
  static Allocate* const allocate = driversFunction<Allocate>("cuMemAllocManaged");
  std::uintptr_t address = 0;
  if (bytes > 0 && (allocate == nullptr ||
                    allocate(&address, static_cast<std::size_t>(bytes), kAttachGlobal) != 0)) {
    std::fprintf(stderr, "no managed memory for %zd bytes\n", bytes);
    return nullptr;
  }
  return reinterpret_cast<void*>(address);
}

extern "C" void gmacFree(void* memory, ssize_t /*bytes*/, int /*device*/, void* /*stream*/) {
  static Free* const free = driversFunction<Free>("cuMemFree_v2");
  if (memory != nullptr && free != nullptr) {
    (void)free(reinterpret_cast<std::uintptr_t>(memory));
  }
}
