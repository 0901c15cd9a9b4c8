// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_BASE_STAY_AWAKE_H_
#define GMAC_BASE_STAY_AWAKE_H_

#include <sched.h>

#include <algorithm>
#include <chrono>

namespace gmac {

// Waits for what another thread is about to do, but no longer than it takes to be sent to sleep and
// woken up, which in a virtual machine is some 50 us. Whether the condition has come true.
// Async-signal-safe if the condition is.
template <typename Condition>
bool comesSoon(Condition condition) noexcept {
  using std::chrono::steady_clock;
  constexpr std::chrono::microseconds kSpin{10};
  constexpr std::chrono::microseconds kAwake{50};
  constexpr int kMostPauses = 32;  // a microsecond or two
  if (condition()) {
    return true;
  }
  const steady_clock::time_point start = steady_clock::now();
  for (int pauses = 1;; pauses = std::min(2 * pauses, kMostPauses)) {
    const auto waited = steady_clock::now() - start;
    if (waited > kAwake) {
      return false;
    }
    if (waited < kSpin) {
      for (int i = 0; i < pauses; ++i) {
        __builtin_ia32_pause();
      }
    } else {
      sched_yield();  // the other thread may be waiting for this one's core
    }
    if (condition()) {
      return true;
    }
  }
}

}  // namespace gmac

#endif  // GMAC_BASE_STAY_AWAKE_H_
