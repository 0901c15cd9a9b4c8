// SPDX-License-Identifier: Apache-2.0
//
// Calls the functions that this library stands in for: libc's, or those of another library between.
#ifndef GMAC_INTERPOSE_BASE_REAL_H_
#define GMAC_INTERPOSE_BASE_REAL_H_

#include <atomic>
#include <cstdlib>

#include "gmac/base/log.h"

// Marks the definition of one of libc's names.
#define GMAC_INTERPOSED __attribute__((visibility("default")))

namespace gmac::interpose {

// The next definition of a function after this library's: libc's, or that of another library that
// stands in between; NULL when there is none. Stays clear of the dlsym that this library itself
// stands in for, and keeps errno. Thread-safe.
void* nextDefinition(const char* name) noexcept;

// The definition that the program calls: its own, this library's, or that of a library before it.
void* firstDefinition(const char* name) noexcept;

// One such function, called like it. Thread-safe; a constinit variable that lives as long as the
// library. Resolved at the first call, since constructors of other libraries may do I/O before this
// library's run. Resolving it in a constructor as well (resolveAtLoad) keeps the dynamic linker out
// of signal handlers. The fault handler may call a function that is resolved.
template <typename Function>
class Real;

template <typename Return, typename... Args>
class Real<Return(Args...)> {
 public:
  using Function = Return(Args...);

  constexpr explicit Real(const char* name) : name_(name) {}

  Return operator()(Args... args) {
    Function* function = function_.load(std::memory_order_relaxed);
    if (function == nullptr) [[unlikely]] {
      function = resolve();
      if (function == nullptr) {
        // The caller found the name in this library only: no other library that is loaded has it.
        log(LogLevel::kError, "{} was called, and no library defines it", name_);
        std::abort();
      }
    }
    return function(args...);
  }

  // NULL when no library has the function: an older C library, say.
  Function* resolve() noexcept {
    auto* const function = reinterpret_cast<Function*>(nextDefinition(name_));
    if (function != nullptr) function_.store(function, std::memory_order_relaxed);
    return function;
  }

 private:
  const char* name_;
  std::atomic<Function*> function_{nullptr};
};

template <typename... Functions>
void resolveAtLoad(Real<Functions>&... reals) noexcept {
  (reals.resolve(), ...);
}

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_BASE_REAL_H_
