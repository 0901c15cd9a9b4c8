// SPDX-License-Identifier: Apache-2.0
//
// Threads of the device process. Each has a stack that no thread has had before: the process is a
// fork, and libc would give its threads the stacks, and with them the pthread_t, that threads of
// the application had. The thread sanitizer, which remembers those, ends a process that does so.
#ifndef GMAC_ACCEL_HOST_DEVICE_THREAD_H_
#define GMAC_ACCEL_HOST_DEVICE_THREAD_H_

#include <memory>
#include <utility>

namespace gmac::accel::host {

// Starts a detached thread that lives until the process ends, with libc's stack size for threads.
// Returns 0 or the errno. Allocates no heap memory, and takes no lock that the application may have
// held at the fork.
int startDeviceThread(void* (*body)(void*), void* argument) noexcept;

// The same for a function object. Throws std::bad_alloc.
template <typename Body>
int startDeviceThread(Body body) {
  auto owned = std::make_unique<Body>(std::move(body));
  const int error = startDeviceThread(
      [](void* argument) -> void* {
        const std::unique_ptr<Body> body(static_cast<Body*>(argument));
        (*body)();
        return nullptr;
      },
      owned.get());
  if (error == 0) {
    (void)owned.release();
  }
  return error;
}

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_DEVICE_THREAD_H_
