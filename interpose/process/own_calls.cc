// SPDX-License-Identifier: Apache-2.0
//
// Functions that this library both stands in for and calls itself, a dozen times in a kernel call
// and in a fault. Its own locks and times lie in no object: its own calls (the linker's --wrap, see
// gmac/BUILD) go to the real functions at once, without a look at where the argument lies.
//
// What stands in for another function of the C library, and is given the program's own lock, calls
// locks.h.
#include <pthread.h>
#include <time.h>

#include <atomic>

#include "interpose/base/real.h"

namespace gmac::interpose {
namespace {

// The real function: the next one. Where this library comes after libc (a library that the program
// loads needs it), there is none, and the first one is libc's.
template <typename Function>
class Own;

template <typename Return, typename... Args>
class Own<Return(Args...)> {
 public:
  constexpr explicit Own(const char* name) : name_(name) {}

  Return operator()(Args... args) {
    auto* function = function_.load(std::memory_order_relaxed);
    if (function == nullptr) [[unlikely]] {
      function = resolve();
    }
    return function(args...);
  }
  auto* resolve() noexcept {
    void* const next = nextDefinition(name_);
    auto* const function =
        reinterpret_cast<Return (*)(Args...)>(next != nullptr ? next : firstDefinition(name_));
    function_.store(function, std::memory_order_relaxed);
    return function;
  }

 private:
  const char* name_;
  std::atomic<Return (*)(Args...)> function_{nullptr};
};

constinit Own<int(pthread_mutex_t*)> realLock("pthread_mutex_lock");
constinit Own<int(pthread_mutex_t*)> realTrylock("pthread_mutex_trylock");
constinit Own<int(pthread_mutex_t*)> realUnlock("pthread_mutex_unlock");
constinit Own<int(clockid_t, timespec*)> realGetTime("clock_gettime");

// Keeps the dynamic linker out of signal handlers.
[[gnu::constructor]] void resolveOwnCalls() {
  realLock.resolve();
  realTrylock.resolve();
  realUnlock.resolve();
  realGetTime.resolve();
}

extern "C" {

int ownLock(pthread_mutex_t* mutex) noexcept __asm__("__wrap_pthread_mutex_lock");
int ownTrylock(pthread_mutex_t* mutex) noexcept __asm__("__wrap_pthread_mutex_trylock");
int ownUnlock(pthread_mutex_t* mutex) noexcept __asm__("__wrap_pthread_mutex_unlock");
int ownGetTime(clockid_t clock, timespec* time) noexcept __asm__("__wrap_clock_gettime");

int ownLock(pthread_mutex_t* mutex) noexcept { return realLock(mutex); }
int ownTrylock(pthread_mutex_t* mutex) noexcept { return realTrylock(mutex); }
int ownUnlock(pthread_mutex_t* mutex) noexcept { return realUnlock(mutex); }
int ownGetTime(clockid_t clock, timespec* time) noexcept { return realGetTime(clock, time); }

}  // extern "C"

}  // namespace
}  // namespace gmac::interpose
