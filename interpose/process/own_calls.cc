// SPDX-License-Identifier: Apache-2.0
//
// Functions that this library both stands in for and calls itself, a dozen times in a kernel call
// and in a fault. Its own locks and times lie in no object: its own calls (the linker's --wrap, see
// gmac/BUILD) go to the real functions at once, without a look at where the argument lies.
//
// What stands in for another function of the C library, and is given the program's own lock, calls
// locks.h.
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <atomic>

#include "interpose/base/real.h"

namespace gmac::interpose {
namespace {

// What the library's calls would be bound to if it stood in for nothing: the first definition,
// unless that is its own (of a program with a thread sanitizer it is often the sanitizer's, which
// has to see the locks; of a library that comes after libc, libc's), else the next one.
void* definitionForUs(const char* name) noexcept {
  static const char here = 0;
  void* const first = firstDefinition(name);
  Dl_info of{};
  Dl_info ours{};
  const bool isElsewhere = first != nullptr && ::dladdr(first, &of) != 0 &&
                           ::dladdr(&here, &ours) != 0 && of.dli_fbase != ours.dli_fbase;
  return isElsewhere ? first : nextDefinition(name);
}

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
    auto* const function = reinterpret_cast<Return (*)(Args...)>(definitionForUs(name_));
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
