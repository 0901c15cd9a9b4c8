// SPDX-License-Identifier: Apache-2.0
#include "gmac/os/handlers.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>

#include "gmac/os/signal_mask.h"

// sigaction() under the name that no library which is put before libc stands in for.
extern "C" int __sigaction(int signal, const struct sigaction* action,
                           struct sigaction* before) noexcept;

namespace gmac::os {
namespace {

enum class Known : std::uint8_t { kUnseen, kSeen, kNone, kSome };
constinit std::atomic<Known> known{Known::kUnseen};
// Threads that count on there being none, and the process whose threads they are: a child of fork
// has none of the others.
constinit std::atomic<int> counting{0};
constinit std::atomic<pid_t> owner{0};

}  // namespace

void actionsAreSeen() noexcept {
  Known before = Known::kUnseen;
  (void)known.compare_exchange_strong(before, Known::kSeen);
}

void lookForHandlers() noexcept {
  if (known.load() != Known::kSeen) return;
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action = {};
    if ((kDeferrable & kernelBit(signal)) != 0 && signal != standIn() &&
        __sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_DFL &&
        action.sa_handler != SIG_IGN) {
      known.store(Known::kSome);
      return;
    }
  }
  owner.store(getpid());
  Known before = Known::kSeen;
  (void)known.compare_exchange_strong(before, Known::kNone);
}

void handlerComes(int signal) noexcept {
  if (signal < 1 || signal >= NSIG || (kDeferrable & kernelBit(signal)) == 0) return;
  if (known.exchange(Known::kSome) != Known::kNone || owner.load() != getpid() ||
      SignalsBlocked::here()) {
    return;
  }
  const int error = errno;
  constexpr timespec kStep{0, 100'000};
  for (int step = 0; counting.load() != 0 && step < 10'000; ++step) {
    (void)nanosleep(&kStep, nullptr);
  }
  errno = error;
}

bool enterWithoutHandlers() noexcept {
  if (known.load(std::memory_order_relaxed) != Known::kNone) return false;
  counting.fetch_add(1);
  if (known.load() == Known::kNone) return true;
  counting.fetch_sub(1);
  return false;
}

void leaveWithoutHandlers() noexcept { counting.fetch_sub(1); }

}  // namespace gmac::os
