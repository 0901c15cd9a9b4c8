// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/real_dlsym.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace gmac::accel::cuda {

namespace {

Dlsym findRealDlsym() noexcept {
  // dlvsym is not wrapped, so it leads to the C library's function. Its version says since when it
  // lives in libc itself; before that it came from libdl under the platform's first version.
  for (const char* version : {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"}) {
    if (void* found = dlvsym(RTLD_NEXT, "dlsym", version); found != nullptr) {
      return reinterpret_cast<Dlsym>(found);
    }
  }
  std::fputs("gmac: the C library has no dlsym under a version that is known\n", stderr);
  std::abort();
}

}  // namespace

Dlsym realDlsym() noexcept {
  static const Dlsym real = findRealDlsym();
  return real;
}

}  // namespace gmac::accel::cuda
