// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/counter.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace gmac::accel::host {
namespace {

// Long enough for a small copy to finish, short enough not to be felt on a machine with two cores.
constexpr std::chrono::nanoseconds kSpin = std::chrono::microseconds(4);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

// The half of the counter that changes with every publish(). Futexes have 32 bits.
std::uint32_t* lowHalf(std::atomic<std::uint64_t>& counter) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  static_assert(sizeof(std::atomic<std::uint64_t>) == sizeof(std::uint64_t));
  return reinterpret_cast<std::uint32_t*>(&counter);
}

}  // namespace

void Counter::publish(std::uint64_t value) {
  // Sequentially consistent, against the increment in await(): either the sleeper sees the value or
  // we see the sleeper.
  value_.store(value, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) {
    wakeAll();
  }
}

void Counter::wakeAll() {
  syscall(SYS_futex, lowHalf(value_), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool Counter::await(std::uint64_t target, std::chrono::milliseconds limit) {
  if (value() >= target) {
    return true;
  }
  const auto spinEnd = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      pause();
    }
    if (value() >= target) {
      return true;
    }
  } while (std::chrono::steady_clock::now() < spinEnd);

  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const std::uint64_t seen = value_.load(std::memory_order_seq_cst);
  if (seen < target) {
    const timespec timeout = {limit.count() / 1000, (limit.count() % 1000) * 1'000'000};
    syscall(SYS_futex, lowHalf(value_), FUTEX_WAIT, static_cast<std::uint32_t>(seen), &timeout,
            nullptr, 0);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return value() >= target;
}

}  // namespace gmac::accel::host
