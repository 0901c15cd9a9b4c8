// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/device_thread.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "gmac/base/round_up.h"

namespace gmac::accel::host {
namespace {

// As libc chooses it, which takes a lock to tell.
std::size_t stackBytes(std::size_t page) noexcept {
  constexpr std::size_t kWithoutLimit = std::size_t{2} << 20;
  constexpr std::size_t kLeast = std::size_t{64} << 10;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return kWithoutLimit;
  }
  return roundUp(std::max<std::size_t>(limit.rlim_cur, kLeast), page);
}

}  // namespace

int startDeviceThread(void* (*body)(void*), void* argument) noexcept {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t bytes = stackBytes(page);
  // The lowest page guards the stack.
  auto* const memory =
      static_cast<std::byte*>(mmap(nullptr, page + bytes, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0));
  if (memory == MAP_FAILED) {
    return errno;
  }
  int error = mprotect(memory, page, PROT_NONE) == 0 ? 0 : errno;
  if (error == 0) {
    pthread_attr_t attributes;
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    error = pthread_attr_setstack(&attributes, memory + page, bytes);
    pthread_t thread{};
    if (error == 0) {
      error = pthread_create(&thread, &attributes, body, argument);
    }
    (void)pthread_attr_destroy(&attributes);
  }
  if (error != 0) {
    (void)munmap(memory, page + bytes);
  }
  return error;
}

}  // namespace gmac::accel::host
