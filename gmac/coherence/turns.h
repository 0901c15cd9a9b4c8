// SPDX-License-Identifier: Apache-2.0
//
// When a background thread may take the locks of the address space and of the driver.
#ifndef GMAC_COHERENCE_TURNS_H_
#define GMAC_COHERENCE_TURNS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace gmac {

// Keeps one background thread out of the way of the application's threads. Registering pages
// takes locks of the system and of the driver for some hundred microseconds, in which a fault would
// wait; a thread that has just had its fault answered is busy with the pages that it got. Owned by
// the manager; thread-safe; the fault handler may call used().
class Turns {
 public:
  // A thread of the application has just been served.
  void used() noexcept { uses_.fetch_add(1, std::memory_order_relaxed); }
  std::uint32_t uses() const noexcept { return uses_.load(std::memory_order_relaxed); }

  // Returns right after the next use, if there have been any since `seen`; at once if not, and
  // after about a millisecond in any case.
  void awaitTurn(std::uint32_t seen) const {
    const std::uint32_t now = uses();
    for (unsigned nap = 0; now != seen && uses() == now && nap < kMostNaps; ++nap) {
      std::this_thread::sleep_for(kNap);
    }
  }

  // Lets about a millisecond pass; whether nothing was used in it.
  bool quiet() const {
    const std::uint32_t before = uses();
    for (unsigned nap = 0; uses() == before && nap < kMostNaps; ++nap) {
      std::this_thread::sleep_for(kNap);
    }
    return uses() == before;
  }

 private:
  static constexpr std::chrono::microseconds kNap{20};  // about 75 with the system's slack
  static constexpr unsigned kMostNaps = 16;

  std::atomic<std::uint32_t> uses_{0};
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_TURNS_H_
