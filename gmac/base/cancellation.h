// SPDX-License-Identifier: Apache-2.0
//
// pthread_cancel() and this library's own code.
//
// The library calls cancellation points of libc and of drivers while it holds locks and while its
// records are incomplete. So cancellation is off from every entry into the library to the exit
// (uncancelled): in API functions, the fault handler, fork and exit handlers, and functions that
// replace libc's and CUDA's. A request that arrives meanwhile waits. A function that replaces a
// cancellation point is one itself (cancellationPoint): at its entry, before it acquires anything,
// and while the real function waits (cancellably).
//
// A thread may also ask to be cancelled at any instruction (PTHREAD_CANCEL_ASYNCHRONOUS). Then the
// call that turns cancellation on again serves a request that has waited. The frames on the stack
// at that moment, and all frames that run with cancellation on, must let the unwinder pass: a C++
// frame with anything to clean up, or noexcept around a call that may throw, ends the process
// instead. So the frames that switch cancellation have nothing of that kind, and the work has a
// frame of its own.
#ifndef GMAC_BASE_CANCELLATION_H_
#define GMAC_BASE_CANCELLATION_H_

#include <pthread.h>

#include <type_traits>
#include <utility>

namespace gmac {

namespace internal {

// libc's functions, declared as functions that do not throw: a compiler that does not know of
// unwinding adds nothing that stops it. Async-signal-safe.
extern "C" int gmacSetCancelState(int state, int* before) noexcept
    __asm__("pthread_setcancelstate");
extern "C" int gmacSetCancelType(int type, int* before) noexcept __asm__("pthread_setcanceltype");

// Whether cancellation was on when the thread entered the library.
inline constinit thread_local bool mayBeCancelled __attribute__((tls_model("initial-exec"))) =
    false;

// Turns cancellation on again if it was on, and serves a request that has waited in a thread with
// asynchronous cancellation. (The type comes last and serves it: glibc's function for the state
// does as well, but up to 2.36 forgets to record that the thread was cancelled.)
[[gnu::always_inline]] inline void restoreCancelState(int before, int type) noexcept {
  if (before == PTHREAD_CANCEL_ENABLE) {
    (void)gmacSetCancelState(PTHREAD_CANCEL_ENABLE, nullptr);
  }
  if (type != PTHREAD_CANCEL_DEFERRED) (void)gmacSetCancelType(type, nullptr);
}

// A frame of its own for the work.
template <typename Body>
[[gnu::noinline]] auto work(Body& body) noexcept(noexcept(body())) {
  return body();
}

}  // namespace internal

// Returns body(), called with cancellation off. May be nested. For the fault handler too. No
// exception may come out of `body`.
template <typename Body>
auto uncancelled(Body body) noexcept(noexcept(body())) {
  int before = PTHREAD_CANCEL_ENABLE;
  (void)internal::gmacSetCancelState(PTHREAD_CANCEL_DISABLE, &before);
  // glibc's handler for a request asks for the type alone (2.36): one that was sent while
  // cancellation was still on would be served in here.
  int type = PTHREAD_CANCEL_DEFERRED;
  (void)internal::gmacSetCancelType(PTHREAD_CANCEL_DEFERRED, &type);
  const bool outer = std::exchange(internal::mayBeCancelled, before == PTHREAD_CANCEL_ENABLE);
  if constexpr (std::is_void_v<decltype(body())>) {
    internal::work(body);
    internal::mayBeCancelled = outer;
    internal::restoreCancelState(before, type);
  } else {
    const auto result = internal::work(body);
    internal::mayBeCancelled = outer;
    internal::restoreCancelState(before, type);
    return result;
  }
}

// The same, as a cancellation point: a pending request is served first.
template <typename Body>
auto cancellationPoint(Body body) {
  pthread_testcancel();
  return uncancelled(std::move(body));
}

// Inside cancellationPoint(): returns call(), made with cancellation as the thread has it, but only
// at cancellation points. For real calls that may wait. The thread must hold no lock that the
// frames on the stack do not release.
template <typename Call>
auto cancellably(const Call& call) {
  const struct Scope {
    Scope() noexcept {
      (void)internal::gmacSetCancelType(PTHREAD_CANCEL_DEFERRED, &type);
      if (internal::mayBeCancelled) {
        (void)internal::gmacSetCancelState(PTHREAD_CANCEL_ENABLE, nullptr);
      }
    }
    ~Scope() {
      (void)internal::gmacSetCancelState(PTHREAD_CANCEL_DISABLE, nullptr);
      (void)internal::gmacSetCancelType(type, nullptr);
    }
    int type = PTHREAD_CANCEL_DEFERRED;
  } scope;
  return call();
}

}  // namespace gmac

#endif  // GMAC_BASE_CANCELLATION_H_
