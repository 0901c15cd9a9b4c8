// SPDX-License-Identifier: Apache-2.0
#include "interpose/base/real.h"

#include <dlfcn.h>

#include <cerrno>

#if GMAC_HAVE_CUDA
#include "gmac/accel/cuda/real_dlsym.h"
#endif

namespace gmac::interpose {

void* nextDefinition(const char* name) noexcept {
  const int savedErrno = errno;
#if GMAC_HAVE_CUDA
  void* const function = accel::cuda::realDlsym()(RTLD_NEXT, name);
#else
  void* const function = ::dlsym(RTLD_NEXT, name);
#endif
  errno = savedErrno;
  return function;
}

}  // namespace gmac::interpose
