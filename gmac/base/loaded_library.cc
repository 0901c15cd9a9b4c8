// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/loaded_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstddef>

namespace gmac {
namespace {

// How many libraries the process has ever loaded.
unsigned long long loadedSoFar() noexcept {
  unsigned long long count = 0;
  (void)::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        *static_cast<unsigned long long*>(result) = info->dlpi_adds;
        return 1;
      },
      &count);
  return count;
}

}  // namespace

void* LoadedLibrary::find() noexcept {
  if (void* const known = handle_.load(std::memory_order_acquire); known != nullptr) {
    return known;
  }
  // (Counted before the search: what is loaded meanwhile is searched for the next time.)
  const unsigned long long loaded = loadedSoFar();
  if (loaded == searched_.load(std::memory_order_acquire)) {
    return nullptr;
  }
  void* const found = ::dlopen(name_, RTLD_LAZY | RTLD_NOLOAD);
  if (found != nullptr) {
    handle_.store(found, std::memory_order_release);
  }
  searched_.store(loaded, std::memory_order_release);
  return found;
}

}  // namespace gmac
