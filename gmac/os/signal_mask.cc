// SPDX-License-Identifier: Apache-2.0
#include "gmac/os/signal_mask.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <utility>

#include "gmac/base/own_system_call.h"
#include "gmac/os/handlers.h"

// glibc's own way of taking a real-time signal away from SIGRTMIN..SIGRTMAX; 0: the highest.
extern "C" int __libc_allocate_rtsig(int high) noexcept;
// sigaction() under the name that no library which is put before libc stands in for.
extern "C" int __sigaction(int signal, const struct sigaction* action,
                           struct sigaction* before) noexcept;

namespace gmac::os {
namespace {

constexpr int kNotTaken = -2;
constinit std::atomic<int> taken{kNotTaken};

void change(sigset_t* set, int signal, bool member) noexcept {
  if (signal > 0) (void)(member ? sigaddset(set, signal) : sigdelset(set, signal));
}

// Whether the system takes a handler for a signal that nobody sends yet.
bool mayBeHandled(int signal) noexcept {
  struct sigaction before = {};
  struct sigaction probe = {};
  probe.sa_handler = [](int) {};
  return __sigaction(signal, &probe, &before) == 0 && __sigaction(signal, &before, nullptr) == 0;
}

// Before the program asks for SIGRTMAX.
[[gnu::constructor]] void takeStandIn() { (void)standIn(); }

// A mask that came through exec from a program without this library.
[[gnu::constructor]] void translateInherited() {
  const KernelSet inherited = threadMask();
  if ((inherited & kernelBit(SIGSEGV)) != 0) {
    (void)setThreadMask((inherited & ~kernelBit(SIGSEGV)) | kernelBit(standIn()));
  }
}

}  // namespace

int standIn() noexcept {
  int signal = taken.load(std::memory_order_relaxed);
  if (signal != kNotTaken) [[likely]] {
    return signal;
  }
  // Two threads that come here at once take two; both use the one that was stored first. A system
  // may keep the highest for itself (valgrind does), and refuses a handler for it.
  int fresh = __libc_allocate_rtsig(0);
  while (fresh > 0 && !mayBeHandled(fresh)) fresh = __libc_allocate_rtsig(0);
  if (fresh < 0) fresh = 0;
  return taken.compare_exchange_strong(signal, fresh, std::memory_order_relaxed) ? fresh : signal;
}

sigset_t kernelMask(const sigset_t& program) noexcept {
  sigset_t kernel = program;
  change(&kernel, standIn(), sigismember(&program, SIGSEGV) == 1);
  change(&kernel, SIGSEGV, false);
  return kernel;
}

sigset_t programMask(const sigset_t& kernel) noexcept {
  sigset_t program = kernel;
  const int signal = standIn();
  if (signal > 0 && sigismember(&kernel, signal) == 1) change(&program, SIGSEGV, true);
  change(&program, signal, false);
  return program;
}

KernelSet setThreadMask(KernelSet mask) noexcept {
  KernelSet before = 0;
  (void)ownSystemCall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, &before, sizeof mask);
  return before;
}

KernelSet threadMask() noexcept {
  KernelSet mask = 0;
  (void)ownSystemCall(SYS_rt_sigprocmask, SIG_BLOCK, nullptr, &mask, sizeof mask);
  return mask;
}

FileSizeSignalKept::FileSizeSignalKept() noexcept
    : before_(setThreadMask(threadMask() | kernelBit(SIGXFSZ))), wasPending_(false) {
  KernelSet pending = 0;
  (void)syscall(SYS_rt_sigpending, &pending, sizeof pending);
  wasPending_ = (pending & kernelBit(SIGXFSZ)) != 0;
}

FileSizeSignalKept::~FileSizeSignalKept() {
  const int error = errno;
  if (!wasPending_) {
    const KernelSet ours = kernelBit(SIGXFSZ);
    const timespec now{};
    (void)syscall(SYS_rt_sigtimedwait, &ours, nullptr, &now, sizeof ours);
  }
  (void)setThreadMask(before_);
  errno = error;
}

SignalsBlocked::SignalsBlocked(When when) noexcept {
  if (!thread.blocked) {
    thread.blocked = true;
    if (thread.byDelivery) {
      role_ = Role::kOutermost;
      before_ = thread.interrupted;
    } else if (when == When::kWhereHandled && enterWithoutHandlers()) {
      role_ = Role::kCounts;
      thread.withoutHandlers = true;
    } else {
      role_ = Role::kOutermost;
      before_ = setThreadMask(kDeferrable);
    }
  } else if (thread.withoutHandlers && when == When::kAlways) {
    role_ = Role::kInsideCounting;
    thread.withoutHandlers = false;
    before_ = setThreadMask(kDeferrable);
  }
}

SignalsBlocked::~SignalsBlocked() {
  switch (role_) {
    case Role::kNested:
      return;
    case Role::kCounts:
      thread.blocked = thread.withoutHandlers = false;
      leaveWithoutHandlers();
      return;
    case Role::kInsideCounting:
      (void)setThreadMask(before_);
      thread.withoutHandlers = true;
      return;
    case Role::kOutermost:
      break;
  }
  thread.blocked = false;
  thread.byDelivery = leftToReturn_;
  thread.interrupted = before_;
  if (!leftToReturn_) (void)setThreadMask(before_);
}

SignalsBlocked::ByDelivery::ByDelivery(KernelSet interrupted) noexcept
    : outerByDelivery_(std::exchange(thread.byDelivery, true)),
      outerInterrupted_(std::exchange(thread.interrupted, interrupted)) {}

SignalsBlocked::ByDelivery::~ByDelivery() {
  thread.byDelivery = outerByDelivery_;
  thread.interrupted = outerInterrupted_;
}

void SignalsBlocked::ByDelivery::again() noexcept {
  if (!std::exchange(thread.byDelivery, true)) thread.interrupted = setThreadMask(kDeferrable);
}

}  // namespace gmac::os
