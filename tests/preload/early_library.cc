// SPDX-License-Identifier: Apache-2.0
//
// A library whose constructor allocates a shared object and runs a kernel on it. It is preloaded
// after libgmac.so but initialised before it, because it does not depend on it.
#include <dlfcn.h>

#include <cstddef>

#include "gmac/api/adsm.h"

namespace {

int* object = nullptr;

template <typename Function>
Function api(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

void addOne(const adsmThreadBlock_t*, void** args) { ++**static_cast<int**>(args[0]); }

bool run() {
  const std::size_t sizes[] = {sizeof object};
  adsmKernelDesc_t desc{};
  desc.name = "addOne";
  desc.paramCount = 1;
  desc.paramSizes = sizes;
  desc.host = &addOne;
  adsmKernel_t kernel = nullptr;
  void* args[] = {&object};
  return api<decltype(&adsmKernelCreate)>("adsmKernelCreate")(&desc, &kernel) == adsmSuccess &&
         api<decltype(&adsmCall)>("adsmCall")(kernel, {1, 1, 1}, {1, 1, 1}, 0, args) ==
             adsmSuccess &&
         api<decltype(&adsmSync)>("adsmSync")() == adsmSuccess;
}

[[gnu::constructor]] void begin() {
  const auto allocate = api<decltype(&adsmAlloc)>("adsmAlloc");
  if (allocate == nullptr) return;
  auto* const made = static_cast<int*>(allocate(1 << 20));
  if (made == nullptr) return;
  *made = 41;
  object = made;
  if (!run()) object = nullptr;
}

}  // namespace

// NULL unless everything above went well.
extern "C" __attribute__((visibility("default"))) int* earlyObject() { return object; }
