// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/real_dlsym.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

// Where the file that has this code begins in memory: defined by the linker.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start;

namespace gmac::accel::cuda {

namespace {

// Sanitizers look functions up before they are ready for code that they check. So nothing here
// calls a function of the C++ library, not even an inline one: without the optimiser it stays a
// function, and a checked one.
#define GMAC_UNCHECKED __attribute__((no_sanitize("address", "thread", "undefined")))

GMAC_UNCHECKED Dlsym findRealDlsym() noexcept {
  // dlvsym is not wrapped, so it leads to the C library's function. Its version says since when it
  // lives in libc itself; before that it came from libdl under the platform's first version.
  static constexpr const char* kVersions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
  // Nothing comes next where the C library is searched before this one, which another library of
  // the program needs, say. There the first definition is the C library's.
  void* const places[] = {RTLD_NEXT, RTLD_DEFAULT};
  for (void* const where : places) {
    for (const char* const version : kVersions) {
      void* const found = dlvsym(where, "dlsym", version);
      Dl_info file;
      if (found != nullptr && dladdr(found, &file) != 0 && file.dli_fbase != &__ehdr_start) {
        return reinterpret_cast<Dlsym>(found);
      }
    }
  }
  std::fputs("gmac: the C library has no dlsym under a version that is known\n", stderr);
  std::abort();
}

}  // namespace

GMAC_UNCHECKED Dlsym realDlsym() noexcept {
  static constinit Dlsym found = nullptr;
  Dlsym real = __atomic_load_n(&found, __ATOMIC_RELAXED);
  if (real == nullptr) {
    real = findRealDlsym();
    __atomic_store_n(&found, real, __ATOMIC_RELAXED);
  }
  return real;
}

}  // namespace gmac::accel::cuda
