// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>
#include <mutex>

#include "gmac/accel/cuda/real_dlsym.h"

namespace gmac::accel::cuda {

void* driverLibrary() noexcept {
  // A failure is not kept: the library may be found later, and asking again is what a caller
  // without it does anyway.
  return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

Status Driver::load() {
  void* const library = driverLibrary();
  if (library == nullptr) {
    return gmac::fail(adsmErrorNoAccelerator, "no CUDA driver: {}", dlerror());
  }
  const char* missing = nullptr;
  // Two steps, so that cuda.h's renaming reaches the symbol: messages say cuMemAlloc, the linker is
  // asked for cuMemAlloc_v2.
#define GMAC_CUDA_SYMBOL(symbol) #symbol
#define GMAC_CUDA_FIND(member)                                                               \
  member.name = #member;                                                                     \
  member.function =                                                                          \
      reinterpret_cast<decltype(::member)*>(realDlsym()(library, GMAC_CUDA_SYMBOL(member))); \
  if (member.function == nullptr && missing == nullptr) missing = member.name;
  GMAC_CUDA_DRIVER_FUNCTIONS(GMAC_CUDA_FIND)
  const char* const required = missing;
  GMAC_CUDA_OPTIONAL_DRIVER_FUNCTIONS(GMAC_CUDA_FIND)
#undef GMAC_CUDA_FIND
#undef GMAC_CUDA_SYMBOL
  if (required != nullptr) {
    return gmac::fail(adsmErrorNoAccelerator, "the CUDA driver is too old: it has no {}", required);
  }
  if (const CUresult result = cuInit(0); result != CUDA_SUCCESS) {
    return gmac::fail(adsmErrorNoAccelerator, "cuInit(0) failed with {}: {}",
                      static_cast<int>(result), errorText(result));
  }
  return Status();
}

Result<const Driver*> Driver::get() {
  // Never destroyed: exit handlers of others may still come through here.
  static Driver* const driver = new Driver;
  static std::mutex mutex;
  static bool loaded = false;
  const std::lock_guard lock(mutex);
  if (!loaded) GMAC_TRY(driver->load());
  loaded = true;
  return static_cast<const Driver*>(driver);
}

const char* Driver::errorText(int code) const noexcept {
  const char* text = nullptr;
  if (cuGetErrorString(static_cast<CUresult>(code), &text) != CUDA_SUCCESS || text == nullptr) {
    return "a code that this driver does not know";
  }
  return text;
}

std::string Driver::busAddressOf(int device) const {
  constexpr std::array kParts = {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
                                 CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID};
  std::array<int, kParts.size()> parts{};
  for (std::size_t i = 0; i < kParts.size(); ++i) {
    if (cuDeviceGetAttribute.function(&parts[i], kParts[i], device) != CUDA_SUCCESS) return {};
  }
  return fmt::format("{:04x}:{:02x}:{:02x}.0", parts[0], parts[1], parts[2]);
}

}  // namespace gmac::accel::cuda
