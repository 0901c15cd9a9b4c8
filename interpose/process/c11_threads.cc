// SPDX-License-Identifier: Apache-2.0
//
// The locks of <threads.h>: these stand in for libc's functions in a program that is linked with
// the library or preloads it. In glibc they are POSIX's locks with other names and other result
// codes. They call ours (locks.h), and so work in shared memory too.
//
// Builds with the thread sanitizer leave these out, as locks.cc.
#if !defined(__SANITIZE_THREAD__)

#include <pthread.h>
#include <threads.h>

#include <cerrno>

#include "interpose/base/real.h"
#include "interpose/process/locks.h"

namespace gmac::interpose {
namespace {

static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t) &&
              alignof(mtx_t) >= alignof(pthread_mutex_t));
static_assert(sizeof(cnd_t) == sizeof(pthread_cond_t) && alignof(cnd_t) >= alignof(pthread_cond_t));
static_assert(sizeof(once_flag) == sizeof(pthread_once_t));

pthread_mutex_t* posix(mtx_t* mutex) noexcept { return reinterpret_cast<pthread_mutex_t*>(mutex); }
pthread_cond_t* posix(cnd_t* condition) noexcept {
  return reinterpret_cast<pthread_cond_t*>(condition);
}

int resultOf(int error) noexcept {
  switch (error) {
    case 0:
      return thrd_success;
    case ENOMEM:
      return thrd_nomem;
    case ETIMEDOUT:
      return thrd_timedout;
    case EBUSY:
      return thrd_busy;
    default:
      return thrd_error;
  }
}

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names ----

namespace threads = gmac::interpose;

extern "C" {

GMAC_INTERPOSED int mtx_lock(mtx_t* mutex) {
  return threads::resultOf(threads::lockMutex(threads::posix(mutex)));
}

GMAC_INTERPOSED int mtx_timedlock(mtx_t* mutex, const timespec* time) {
  return threads::resultOf(pthread_mutex_timedlock(threads::posix(mutex), time));
}

GMAC_INTERPOSED int mtx_unlock(mtx_t* mutex) {
  return threads::resultOf(threads::unlockMutex(threads::posix(mutex)));
}

GMAC_INTERPOSED int cnd_wait(cnd_t* condition, mtx_t* mutex) {
  return threads::resultOf(pthread_cond_wait(threads::posix(condition), threads::posix(mutex)));
}

GMAC_INTERPOSED int cnd_timedwait(cnd_t* condition, mtx_t* mutex, const timespec* time) {
  return threads::resultOf(
      pthread_cond_timedwait(threads::posix(condition), threads::posix(mutex), time));
}

GMAC_INTERPOSED int cnd_signal(cnd_t* condition) {
  return threads::resultOf(pthread_cond_signal(threads::posix(condition)));
}

GMAC_INTERPOSED int cnd_broadcast(cnd_t* condition) {
  return threads::resultOf(pthread_cond_broadcast(threads::posix(condition)));
}

GMAC_INTERPOSED void call_once(once_flag* flag, void (*function)()) {
  (void)pthread_once(reinterpret_cast<pthread_once_t*>(flag), function);
}

}  // extern "C"

#endif
