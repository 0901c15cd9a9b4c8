// SPDX-License-Identifier: Apache-2.0
#include "gmac/os/fault.h"

#include <pthread.h>
#include <sigsegv.h>
#include <ucontext.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace gmac::os {
namespace {

using SignalAction = struct sigaction;

// What libsigsegv does not pass on. A signal handler of the application may nest inside ours, so
// the values are saved and restored around each delivery.
struct Delivery {
  siginfo_t* info = nullptr;
  void* context = nullptr;
  int signal = 0;
};
thread_local Delivery current __attribute__((tls_model("initial-exec")));

std::atomic<FaultFunction> faultFunction{nullptr};
SignalAction previousAction;    // whoever handled the signal before us
SignalAction libsigsegvAction;  // libsigsegv's own entry

bool isWrite(const void* context) noexcept {
#if defined(__x86_64__)
  // Bit 1 of the page-fault error code: the access was a write.
  constexpr greg_t kWriteBit = 2;
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWriteBit) != 0;
#else
#error "gmac needs to know how this processor tells a write fault from a read fault"
#endif
}

bool askPrevious(const Delivery& delivery) noexcept {
  if ((previousAction.sa_flags & SA_SIGINFO) != 0 && previousAction.sa_sigaction != nullptr) {
    previousAction.sa_sigaction(delivery.signal, delivery.info, delivery.context);
    return true;
  }
  if (previousAction.sa_handler != SIG_DFL && previousAction.sa_handler != SIG_IGN) {
    previousAction.sa_handler(delivery.signal);
    return true;
  }
  return false;
}

// libsigsegv's view of a fault: non-zero when handled; zero makes it restore the default action,
// under which the repeated access kills the process at its own address.
int deliver(void* address, int) {
  const Delivery delivery = current;
  // Faults of the kernel's making only: a signal sent by kill() carries no address.
  if (delivery.info->si_code > 0) {
    const FaultFunction function = faultFunction.load(std::memory_order_acquire);
    if (function != nullptr && function(address, isWrite(delivery.context))) {
      return 1;
    }
  }
  if (askPrevious(delivery)) {
    return 1;
  }
  if (delivery.info->si_code <= 0) {
    // Nothing will repeat a sent signal: raise it again, under the default action. Ours would be
    // entered anew.
    SignalAction defaultAction = {};
    defaultAction.sa_handler = SIG_DFL;
    (void)sigaction(delivery.signal, &defaultAction, nullptr);
    (void)pthread_kill(pthread_self(), delivery.signal);
  }
  return 0;
}

void onSignal(int signal, siginfo_t* info, void* context) {
  const int savedErrno = errno;
  const Delivery saved = current;
  current = Delivery{info, context, signal};
  libsigsegvAction.sa_sigaction(signal, info, context);
  current = saved;
  errno = savedErrno;
}

}  // namespace

Status installFaultHandler(FaultFunction function) {
  if (sigaction(SIGSEGV, nullptr, &previousAction) != 0) {
    return fail(adsmErrorSystem, "sigaction(SIGSEGV): {}", strerrordesc_np(errno));
  }
  faultFunction.store(function, std::memory_order_release);
  if (sigsegv_install_handler(&deliver) != 0) {
    return fail(adsmErrorSystem, "sigsegv_install_handler failed");
  }
  (void)sigaction(SIGSEGV, nullptr, &libsigsegvAction);
  SignalAction front = {};
  front.sa_sigaction = &onSignal;
  // No mask and SA_NODEFER: while a fault waits for a kernel, signals go on being handled, and
  // their handlers may fault. SA_ONSTACK as before, so that a handler for stack overflows goes on
  // seeing them.
  front.sa_flags = SA_SIGINFO | SA_NODEFER | (previousAction.sa_flags & SA_ONSTACK);
  sigemptyset(&front.sa_mask);
  if (sigaction(SIGSEGV, &front, nullptr) != 0) {
    return fail(adsmErrorSystem, "sigaction(SIGSEGV): {}", strerrordesc_np(errno));
  }
  return {};
}

SignalsBlocked::SignalsBlocked() noexcept {
  sigset_t all;
  sigfillset(&all);
  // A synchronous fault must never be blocked: the kernel would kill the process instead of
  // delivering it.
  sigdelset(&all, SIGSEGV);
  sigdelset(&all, SIGBUS);
  sigdelset(&all, SIGILL);
  sigdelset(&all, SIGFPE);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}

SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace gmac::os
