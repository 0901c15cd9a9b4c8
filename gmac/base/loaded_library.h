// SPDX-License-Identifier: Apache-2.0
//
// Whether the process has loaded a library.
#ifndef GMAC_BASE_LOADED_LIBRARY_H_
#define GMAC_BASE_LOADED_LIBRARY_H_

#include <atomic>

namespace gmac {

// A library that this process does not load itself, but uses once somebody has. Thread-safe.
class LoadedLibrary {
 public:
  // `name`: as for dlopen().
  constexpr explicit LoadedLibrary(const char* name) : name_(name) {}

  // Its handle; NULL: it is not loaded. Once found it stays loaded. Searches the dynamic linker's
  // paths, which takes some ten microseconds, only if a library has been loaded since the last
  // call.
  void* find() noexcept;

 private:
  const char* const name_;
  std::atomic<void*> handle_{nullptr};
  std::atomic<unsigned long long> searched_{0};  // how many had been loaded then
};

}  // namespace gmac

#endif  // GMAC_BASE_LOADED_LIBRARY_H_
