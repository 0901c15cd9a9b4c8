// SPDX-License-Identifier: Apache-2.0
//
// Signals: these functions stand in for libc's, so that the runtime answers its faults whatever the
// program does with SIGSEGV, and the program does not notice.
//
//  - The program's action for SIGSEGV runs after ours (os/fault.h), also when it is set after the
//    runtime has started; a program that asks for its action gets its own.
//  - SIGSEGV is never blocked in the kernel's masks; a signal that the program cannot use is
//    blocked in its place (os/signal_mask.h). So every mask is translated on its way to the kernel
//    and back: also before the runtime has started, since other threads' masks cannot be changed
//    then.
//
// libc's older functions, which have masks of one integer or set actions by themselves, call the
// newer ones here: libc's versions would bypass them.
//
// All functions are thread-safe, and async-signal-safe where POSIX says so.
#undef _FORTIFY_SOURCE

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "gmac/os/fault.h"
#include "gmac/os/handlers.h"
#include "gmac/os/signal_mask.h"
#include "interpose/base/real.h"
#include "interpose/base/served_call.h"

// The headers declare arguments that are never NULL; a program that passes NULL gets libc's answer.
#pragma GCC diagnostic ignored "-Wnonnull-compare"

extern "C" {

[[noreturn]] void __chk_fail();

// The sigaction() of this file, whichever the dynamic linker finds first.
__attribute__((visibility("hidden"))) int gmacSigaction(int signal, const struct sigaction* wanted,
                                                        struct sigaction* before) noexcept;

}  // extern "C"

namespace gmac::interpose {
namespace {

using Action = struct sigaction;
using Handler = void (*)(int);

constinit Real<int(int, const Action*, Action*)> realSigaction("sigaction");
constinit Real<Handler(int, Handler)> realSignal("signal");
constinit Real<Handler(int, Handler)> realSysvSignal("sysv_signal");
constinit Real<Handler(int, Handler)> realSigset("sigset");
constinit Real<int(int)> realSigignore("sigignore");
constinit Real<int(int, int)> realSiginterrupt("siginterrupt");
constinit Real<int(int, const sigset_t*, sigset_t*)> realSigprocmask("sigprocmask");
constinit Real<int(int, const sigset_t*, sigset_t*)> realPthreadSigmask("pthread_sigmask");
constinit Real<int(pthread_attr_t*, const sigset_t*)> realSetAttrMask("pthread_attr_setsigmask_np");
constinit Real<int(const pthread_attr_t*, sigset_t*)> realGetAttrMask("pthread_attr_getsigmask_np");
constinit Real<int(sigset_t*)> realSigpending("sigpending");
constinit Real<int(const sigset_t*)> realSigsuspend("sigsuspend");
constinit Real<int(const sigset_t*, int*)> realSigwait("sigwait");
constinit Real<int(const sigset_t*, siginfo_t*)> realSigwaitinfo("sigwaitinfo");
constinit Real<int(const sigset_t*, siginfo_t*, const timespec*)> realSigtimedwait("sigtimedwait");
constinit Real<int(int, const sigset_t*, int)> realSignalfd("signalfd");
constinit Real<int(pollfd*, nfds_t, const timespec*, const sigset_t*)> realPpoll("ppoll");
constinit Real<int(int, fd_set*, fd_set*, fd_set*, const timespec*, const sigset_t*)> realPselect(
    "pselect");
constinit Real<int(int, epoll_event*, int, int, const sigset_t*)> realEpollPwait("epoll_pwait");
constinit Real<int(int, epoll_event*, int, const timespec*, const sigset_t*)> realEpollPwait2(
    "epoll_pwait2");

[[gnu::constructor]] void resolveSignals() {
  resolveAtLoad(realSigaction, realSignal, realSysvSignal, realSigset, realSigignore,
                realSiginterrupt, realSigprocmask, realPthreadSigmask, realSetAttrMask,
                realGetAttrMask, realSigpending, realSigsuspend, realSigwait, realSigwaitinfo,
                realSigtimedwait, realSignalfd, realPpoll, realPselect, realEpollPwait,
                realEpollPwait2);
  // The program's calls come here unless it finds the C library's function first: where another
  // library needs this one, or opens it.
  if (firstDefinition("sigaction") == reinterpret_cast<void*>(&gmacSigaction)) os::actionsAreSeen();
}

// The kernel's form of a mask that the program gives, which may be NULL. For the stack.
class KernelForm {
 public:
  explicit KernelForm(const sigset_t* program) noexcept : null_(program == nullptr) {
    if (!null_) mask_ = os::kernelMask(*program);
  }
  const sigset_t* get() const noexcept { return null_ ? nullptr : &mask_; }

 private:
  const bool null_;
  sigset_t mask_;
};

template <typename RealFunction>
int changeMask(RealFunction& real, int how, const sigset_t* wanted, sigset_t* before) {
  const KernelForm kernel(wanted);
  sigset_t old;
  const int result = real(how, kernel.get(), &old);
  if (result == 0 && before != nullptr) *before = os::programMask(old);
  return result;
}

int nextSigaction(int signal, const Action* wanted, Action* before) {
  return realSigaction(signal, wanted, before);
}

void noteHandler(int signal, Handler handler) noexcept {
  if (handler != SIG_DFL && handler != SIG_IGN && handler != SIG_HOLD && handler != SIG_ERR) {
    os::handlerComes(signal);
  }
}

int changeAction(int signal, const Action* wanted, Action* before) {
  // As glibc does for the signals that it keeps for itself.
  if (signal > 0 && signal == os::standIn()) {
    errno = EINVAL;
    return -1;
  }
  Action kernel = {};
  if (wanted != nullptr) {
    kernel = *wanted;
    kernel.sa_mask = os::kernelMask(wanted->sa_mask);
    noteHandler(signal, kernel.sa_handler);
  }
  Action old = {};
  const Action* const change = wanted != nullptr ? &kernel : nullptr;
  const int result = signal == SIGSEGV ? os::changeProgramAction(change, &old, &nextSigaction)
                                       : realSigaction(signal, change, &old);
  if (result == 0 && before != nullptr) {
    *before = old;
    before->sa_mask = os::programMask(old.sa_mask);
  }
  return result;
}

Handler changeHandler(Handler handler, int flags, bool maskItself) {
  Action wanted = {};
  Action before;
  wanted.sa_handler = handler;
  wanted.sa_flags = flags;
  sigemptyset(&wanted.sa_mask);
  if (maskItself) (void)sigaddset(&wanted.sa_mask, SIGSEGV);
  return changeAction(SIGSEGV, &wanted, &before) == 0 ? before.sa_handler : SIG_ERR;
}

// The last siginterrupt() for SIGSEGV, for later signal() calls.
std::atomic<bool> interrupts{false};

bool isStandIn(int signal) noexcept {
  if (signal <= 0 || signal != os::standIn()) return false;
  errno = EINVAL;
  return true;
}

// A set of signals to wait for: a SIGSEGV that was sent while it was blocked arrives as the
// stand-in.
sigset_t waitedFor(const sigset_t& program) noexcept {
  sigset_t kernel = os::kernelMask(program);
  if (sigismember(&program, SIGSEGV) == 1) (void)sigaddset(&kernel, SIGSEGV);
  return kernel;
}

int programSignal(int signal, siginfo_t* info) noexcept {
  if (signal <= 0 || signal != os::standIn()) return signal;
  if (info != nullptr) info->si_signo = SIGSEGV;
  return SIGSEGV;
}

// Masks of one integer: bit n - 1 is signal n, for the first 32 signals.
constexpr int kOldSignals = 32;

sigset_t fromOldMask(int old) noexcept {
  sigset_t mask;
  sigemptyset(&mask);
  for (int signal = 1; signal < kOldSignals; ++signal) {
    if (((static_cast<unsigned>(old) >> (signal - 1)) & 1U) != 0) (void)sigaddset(&mask, signal);
  }
  return mask;
}

int toOldMask(const sigset_t& mask) noexcept {
  unsigned old = 0;
  for (int signal = 1; signal < kOldSignals; ++signal) {
    if (sigismember(&mask, signal) == 1) old |= 1U << (signal - 1);
  }
  return static_cast<int>(old);
}

int changeOldMask(int how, int old) {
  const sigset_t wanted = fromOldMask(old);
  sigset_t before;
  return changeMask(realSigprocmask, how, &wanted, &before) == 0 ? toOldMask(before) : -1;
}

int changeOne(int how, int signal) {
  sigset_t one;
  sigemptyset(&one);
  if (sigaddset(&one, signal) != 0) return -1;
  return changeMask(realSigprocmask, how, &one, nullptr);
}

// A wait with a mask of its own, which may be NULL. A SIGSEGV that is sent meanwhile and that the
// thread's own mask blocks has ended the wait and is pending as the stand-in (os/fault.cc),
// whatever the wait's mask says; where that lets it in, a second wait meets it at once.
template <typename Wait>
int waitWith(const sigset_t* program, const Wait& wait) {
  const KernelForm kernel(program);
  const int result = wait(kernel.get());
  const int standIn = os::standIn();
  sigset_t pending;
  if (result != -1 || errno != EINTR || program == nullptr || standIn <= 0 ||
      sigismember(kernel.get(), standIn) == 1 || realSigpending(&pending) != 0 ||
      sigismember(&pending, standIn) != 1) {
    return result;
  }
  return wait(kernel.get());
}

// One such wait whose other arguments may be in shared memory.
template <typename... Rules, typename RealFunction, typename... Args>
int waitOn(RealFunction& real, Args... args) {
  return serve<When::kBefore, Errors::kErrno, true, Rules...>(real, args...);
}

int suspendWith(const sigset_t& program) {
  return waitWith(&program, [](const sigset_t* kernel) { return realSigsuspend(kernel); });
}

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names ----

namespace signals = gmac::interpose;

extern "C" {

// ---- Actions

GMAC_INTERPOSED int sigaction(int signal, const struct sigaction* wanted,
                              struct sigaction* before) noexcept {
  return signals::changeAction(signal, wanted, before);
}

__attribute__((alias("sigaction"))) int gmacSigaction(int signal, const struct sigaction* wanted,
                                                      struct sigaction* before) noexcept;

GMAC_INTERPOSED signals::Handler signal(int signal, signals::Handler handler) noexcept {
  if (signals::isStandIn(signal)) return SIG_ERR;
  if (signal != SIGSEGV) {
    signals::noteHandler(signal, handler);
    return signals::realSignal(signal, handler);
  }
  return signals::changeHandler(handler, signals::interrupts ? 0 : SA_RESTART, true);
}

// <signal.h> declares it for old standards only.
// NOLINTNEXTLINE(readability-identifier-naming)
GMAC_INTERPOSED signals::Handler bsd_signal(int number, signals::Handler handler) noexcept {
  return signal(number, handler);
}

GMAC_INTERPOSED signals::Handler ssignal(int number, signals::Handler handler) noexcept {
  return signal(number, handler);
}

GMAC_INTERPOSED signals::Handler sysv_signal(int signal, signals::Handler handler) noexcept {
  if (signals::isStandIn(signal)) return SIG_ERR;
  if (signal != SIGSEGV) {
    signals::noteHandler(signal, handler);
    return signals::realSysvSignal(signal, handler);
  }
  return signals::changeHandler(handler, static_cast<int>(SA_RESETHAND) | SA_NODEFER | SA_INTERRUPT,
                                false);
}

GMAC_INTERPOSED signals::Handler __sysv_signal(int signal, signals::Handler handler) noexcept {
  return sysv_signal(signal, handler);
}

GMAC_INTERPOSED int siginterrupt(int signal, int interrupt) noexcept {
  if (signals::isStandIn(signal)) return -1;
  if (signal != SIGSEGV) return signals::realSiginterrupt(signal, interrupt);
  struct sigaction action;
  if (sigaction(signal, nullptr, &action) != 0) return -1;
  signals::interrupts = interrupt != 0;
  action.sa_flags = interrupt != 0 ? action.sa_flags & ~SA_RESTART : action.sa_flags | SA_RESTART;
  return sigaction(signal, &action, nullptr);
}

GMAC_INTERPOSED signals::Handler sigset(int signal, signals::Handler handler) noexcept {
  if (signals::isStandIn(signal)) return SIG_ERR;
  if (signal != SIGSEGV) {
    signals::noteHandler(signal, handler);
    return signals::realSigset(signal, handler);
  }
  sigset_t before;
  sigset_t one;
  sigemptyset(&one);
  (void)sigaddset(&one, signal);
  if (handler == SIG_HOLD) {
    if (sigprocmask(SIG_BLOCK, &one, &before) != 0) return SIG_ERR;
    if (sigismember(&before, signal) == 1) return SIG_HOLD;
    struct sigaction action;
    return sigaction(signal, nullptr, &action) == 0 ? action.sa_handler : SIG_ERR;
  }
  const signals::Handler old = signals::changeHandler(handler, 0, false);
  if (old == SIG_ERR || sigprocmask(SIG_UNBLOCK, &one, &before) != 0) return SIG_ERR;
  return sigismember(&before, signal) == 1 ? SIG_HOLD : old;
}

GMAC_INTERPOSED int sigignore(int signal) noexcept {
  if (signals::isStandIn(signal)) return -1;
  if (signal != SIGSEGV) return signals::realSigignore(signal);
  return signals::changeHandler(SIG_IGN, 0, false) == SIG_ERR ? -1 : 0;
}

// ---- Masks

GMAC_INTERPOSED int sigprocmask(int how, const sigset_t* wanted, sigset_t* before) noexcept {
  return signals::changeMask(signals::realSigprocmask, how, wanted, before);
}

GMAC_INTERPOSED int pthread_sigmask(int how, const sigset_t* wanted, sigset_t* before) noexcept {
  return signals::changeMask(signals::realPthreadSigmask, how, wanted, before);
}

GMAC_INTERPOSED int pthread_attr_setsigmask_np(pthread_attr_t* attributes, const sigset_t* mask) {
  const signals::KernelForm kernel(mask);
  return signals::realSetAttrMask(attributes, kernel.get());
}

GMAC_INTERPOSED int pthread_attr_getsigmask_np(const pthread_attr_t* attributes, sigset_t* mask) {
  sigset_t kernel;
  const int result = signals::realGetAttrMask(attributes, &kernel);
  // With the other result, PTHREAD_ATTR_NO_SIGMASK_NP, the set is filled in as well.
  *mask = gmac::os::programMask(kernel);
  return result;
}

GMAC_INTERPOSED int sigpending(sigset_t* set) noexcept {
  sigset_t kernel;
  const int result = signals::realSigpending(&kernel);
  if (result == 0) *set = gmac::os::programMask(kernel);
  return result;
}

GMAC_INTERPOSED int sigblock(int mask) noexcept { return signals::changeOldMask(SIG_BLOCK, mask); }

GMAC_INTERPOSED int sigsetmask(int mask) noexcept {
  return signals::changeOldMask(SIG_SETMASK, mask);
}

GMAC_INTERPOSED int siggetmask() noexcept { return signals::changeOldMask(SIG_BLOCK, 0); }

GMAC_INTERPOSED int sighold(int signal) noexcept { return signals::changeOne(SIG_BLOCK, signal); }

GMAC_INTERPOSED int sigrelse(int signal) noexcept {
  return signals::changeOne(SIG_UNBLOCK, signal);
}

// ---- Waiting

GMAC_INTERPOSED int sigsuspend(const sigset_t* mask) { return signals::suspendWith(*mask); }

// sigpause: the X/Open form takes a signal, the BSD form a mask.
GMAC_INTERPOSED int __sigpause(int signalOrMask, int isSignal) {
  if (isSignal == 0) return signals::suspendWith(signals::fromOldMask(signalOrMask));
  sigset_t mask;
  if (sigprocmask(SIG_BLOCK, nullptr, &mask) != 0 || sigdelset(&mask, signalOrMask) != 0) return -1;
  return signals::suspendWith(mask);
}

GMAC_INTERPOSED int __xpg_sigpause(int signal) { return __sigpause(signal, 1); }

// <signal.h> gives this name to the X/Open function, so it cannot be written down as it is.
GMAC_INTERPOSED int gmacBsdSigpause(int mask) __asm__("sigpause");
int gmacBsdSigpause(int mask) { return __sigpause(mask, 0); }

GMAC_INTERPOSED int sigwait(const sigset_t* set, int* signal) {
  const sigset_t kernel = signals::waitedFor(*set);
  int got = 0;
  const int result = signals::realSigwait(&kernel, &got);
  if (result == 0) *signal = signals::programSignal(got, nullptr);
  return result;
}

GMAC_INTERPOSED int sigwaitinfo(const sigset_t* set, siginfo_t* info) {
  const sigset_t kernel = signals::waitedFor(*set);
  siginfo_t got;
  const int result = signals::programSignal(signals::realSigwaitinfo(&kernel, &got), &got);
  if (result > 0 && info != nullptr) *info = got;
  return result;
}

GMAC_INTERPOSED int sigtimedwait(const sigset_t* set, siginfo_t* info, const timespec* timeout) {
  const sigset_t kernel = signals::waitedFor(*set);
  const timespec limit = timeout != nullptr ? *timeout : timespec{};
  siginfo_t got;
  const int result = signals::programSignal(
      signals::realSigtimedwait(&kernel, &got, timeout != nullptr ? &limit : nullptr), &got);
  if (result > 0 && info != nullptr) *info = got;
  return result;
}

GMAC_INTERPOSED int signalfd(int descriptor, const sigset_t* set, int flags) noexcept {
  const sigset_t kernel = signals::waitedFor(*set);
  return signals::realSignalfd(descriptor, &kernel, flags);
}

GMAC_INTERPOSED int ppoll(pollfd* descriptors, nfds_t count, const timespec* timeout,
                          const sigset_t* mask) {
  return signals::waitWith(mask, [&](const sigset_t* kernel) {
    return signals::waitOn<signals::Array<0, 1>, signals::Values<2>>(
        signals::realPpoll, descriptors, count, timeout, kernel);
  });
}

GMAC_INTERPOSED int __ppoll_chk(pollfd* descriptors, nfds_t count, const timespec* timeout,
                                const sigset_t* mask, size_t room) {
  if (room / sizeof(pollfd) < count) __chk_fail();
  return ppoll(descriptors, count, timeout, mask);
}

GMAC_INTERPOSED int pselect(int count, fd_set* reads, fd_set* writes, fd_set* exceptions,
                            const timespec* timeout, const sigset_t* mask) {
  return signals::waitWith(mask, [&](const sigset_t* kernel) {
    return signals::waitOn<signals::Descriptors<1, 0>, signals::Descriptors<2, 0>,
                           signals::Descriptors<3, 0>, signals::Values<4>>(
        signals::realPselect, count, reads, writes, exceptions, timeout, kernel);
  });
}

GMAC_INTERPOSED int epoll_pwait(int descriptor, epoll_event* events, int count, int timeout,
                                const sigset_t* mask) {
  return signals::waitWith(mask, [&](const sigset_t* kernel) {
    return signals::waitOn<signals::Array<1, 2>>(signals::realEpollPwait, descriptor, events, count,
                                                 timeout, kernel);
  });
}

GMAC_INTERPOSED int epoll_pwait2(int descriptor, epoll_event* events, int count,
                                 const timespec* timeout, const sigset_t* mask) {
  return signals::waitWith(mask, [&](const sigset_t* kernel) {
    return signals::waitOn<signals::Array<1, 2>, signals::Values<3>>(
        signals::realEpollPwait2, descriptor, events, count, timeout, kernel);
  });
}

}  // extern "C"
