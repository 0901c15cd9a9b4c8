// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/device_crashes.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#if !defined(__SANITIZE_THREAD__)
// The thread sanitizer's, in a program that was built with it.
extern "C" [[gnu::weak]] void __tsan_ignore_thread_begin();
#endif

// sigaction() under the name that no library which is put before libc stands in for: what the
// device process does with its signals must not be recorded as the application's wish.
extern "C" int __sigaction(int signal, const struct sigaction* action,
                           struct sigaction* before) noexcept;

namespace gmac::accel::host {
namespace {

constexpr std::size_t kSignalStackBytes = std::size_t{64} << 10;

// The signal handler's data. Set before the threads start.
ControlBlock* crashControl = nullptr;
std::atomic<const Command*> runningOnKernelQueue{nullptr};
// Threads that never run a kernel's code.
thread_local volatile bool neverRunsKernels = false;

constexpr std::array kCrashes{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

void onCrash(int signal, siginfo_t* info, void* /*context*/) {
  const int savedErrno = errno;
  CrashReport& crash = crashControl->crash;
  std::uint32_t none = 0;
  // Several threads may crash at once: the first one reports, and nothing takes the process before.
  if (crash.state.compare_exchange_strong(none, 1)) {
    const Command* const command = runningOnKernelQueue.load();
    crash.signal = signal;
    crash.address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    crash.inKernel =
        !neverRunsKernels && command != nullptr && command->kind == CommandKind::kLaunch;
    if (crash.inKernel) {
      crash.name = command->name;
    }
    crash.state.store(2, std::memory_order_release);
    for (Queue& queue : crashControl->queues) {
      queue.completed.wakeAll();
    }
  } else {
    while (crash.state.load(std::memory_order_acquire) != 2) {
      sched_yield();
    }
  }
  // The default action takes the process when the signal comes back: by itself when the instruction
  // runs again, by us when somebody sent it.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  __sigaction(signal, &standard, nullptr);
  if (info->si_code <= 0) {
    raise(signal);
  }
  errno = savedErrno;
}

}  // namespace

void takeSignals(ControlBlock* control) {
  crashControl = control;
  struct sigaction action {};
  for (int signal = 1; signal < NSIG; ++signal) {
    action.sa_handler = SIG_DFL;
    // A Ctrl-C that the application handles must not take its accelerator away.
    if (signal == SIGINT || signal == SIGQUIT || signal == SIGTERM || signal == SIGHUP ||
        signal == SIGPIPE) {
      action.sa_handler = SIG_IGN;
    }
    __sigaction(signal, &action, nullptr);
  }
  action = {};
  action.sa_sigaction = onCrash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : kCrashes) {
    sigaddset(&action.sa_mask, signal);  // a crash of the handler's own ends the process
  }
  for (const int signal : kCrashes) {
    __sigaction(signal, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

void prepareThread(bool runsKernels) {
  neverRunsKernels = !runsKernels;
#if !defined(__SANITIZE_THREAD__)
  // The program's sanitizer cannot see what orders this process's threads and the application's.
  // It would take every word of every copy for a race, and look into it.
  if (__tsan_ignore_thread_begin != nullptr) {
    __tsan_ignore_thread_begin();
  }
#endif
  void* const stack = mmap(nullptr, kSignalStackBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) {
    return;
  }
  stack_t description{};
  description.ss_sp = stack;
  description.ss_size = kSignalStackBytes;
  sigaltstack(&description, nullptr);
}

void kernelQueueRuns(const Command* command) { runningOnKernelQueue.store(command); }

}  // namespace gmac::accel::host
