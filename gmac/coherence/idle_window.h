// SPDX-License-Identifier: Apache-2.0
//
// Finds times at which a background thread may take the locks of the address space and the driver.
#ifndef GMAC_COHERENCE_IDLE_WINDOW_H_
#define GMAC_COHERENCE_IDLE_WINDOW_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace gmac {

// Keeps one background thread out of the way of the application's threads. Registering pages holds
// locks of the system and of the driver for some hundred microseconds, in which a fault would wait.
// A thread whose fault has just been answered is busy with the pages that it got, so that is the
// time to do it. Owned by Residency; thread-safe; the fault handler may call used().
class IdleWindow {
 public:
  // Notes that a thread of the application has just been served.
  void used() noexcept { uses_.fetch_add(1, std::memory_order_relaxed); }
  std::uint32_t uses() const noexcept { return uses_.load(std::memory_order_relaxed); }

  // If there were uses since `seen`, waits until right after the next one, but not longer than
  // about a millisecond.
  void await(std::uint32_t seen) const {
    const std::uint32_t now = uses();
    for (unsigned nap = 0; now != seen && uses() == now && nap < kMaxNaps; ++nap) {
      std::this_thread::sleep_for(kNap);
    }
  }

  // Waits up to about a millisecond for a use; true if there was none.
  bool quiet() const {
    const std::uint32_t before = uses();
    for (unsigned nap = 0; uses() == before && nap < kMaxNaps; ++nap) {
      std::this_thread::sleep_for(kNap);
    }
    return uses() == before;
  }

 private:
  static constexpr std::chrono::microseconds kNap{20};  // about 75 with the system's slack
  static constexpr unsigned kMaxNaps = 16;

  std::atomic<std::uint32_t> uses_{0};
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_IDLE_WINDOW_H_
