// SPDX-License-Identifier: Apache-2.0
#include "interpose/base/real.h"

#include <dlfcn.h>

#include <cerrno>

#if GMAC_HAVE_CUDA
#include "gmac/accel/cuda/real_dlsym.h"
#endif

namespace gmac::interpose {
namespace {

void* definition(void* where, const char* name) noexcept {
  const int savedErrno = errno;
#if GMAC_HAVE_CUDA
  void* const function = accel::cuda::realDlsym()(where, name);
#else
  void* const function = ::dlsym(where, name);
#endif
  errno = savedErrno;
  return function;
}

}  // namespace

void* nextDefinition(const char* name) noexcept { return definition(RTLD_NEXT, name); }

void* firstDefinition(const char* name) noexcept { return definition(RTLD_DEFAULT, name); }

}  // namespace gmac::interpose
