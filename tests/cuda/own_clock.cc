// SPDX-License-Identifier: Apache-2.0
//
// A clock for tests of what is chosen by the times of rounds: each look at it takes 100 ns, and
// nothing else that the machine does takes any. It stands in for clock_gettime (the linker's
// --wrap) in all that is linked into the test; the C++ library's clocks are the system's.
#include <time.h>

#include <atomic>
#include <cstdint>

namespace gmac {
namespace {

constexpr std::uint64_t kStep = 100;
constexpr std::uint64_t kSecond = 1'000'000'000;

extern "C" {

int realGetTime(clockid_t clock, timespec* time) noexcept __asm__("__real_clock_gettime");
int ownGetTime(clockid_t clock, timespec* time) noexcept __asm__("__wrap_clock_gettime");

int ownGetTime(clockid_t clock, timespec* time) noexcept {
  static std::atomic<std::uint64_t> now{kSecond};
  if (clock != CLOCK_MONOTONIC) {
    return realGetTime(clock, time);
  }
  const std::uint64_t then = now.fetch_add(kStep, std::memory_order_relaxed) + kStep;
  time->tv_sec = static_cast<time_t>(then / kSecond);
  time->tv_nsec = static_cast<long>(then % kSecond);
  return 0;
}

}  // extern "C"

}  // namespace
}  // namespace gmac
