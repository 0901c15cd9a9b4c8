// SPDX-License-Identifier: Apache-2.0
//
// Polling back-off.
#ifndef GMAC_ACCEL_BACKOFF_H_
#define GMAC_ACCEL_BACKOFF_H_

#include <chrono>

namespace gmac::accel {

// Waits in growing steps between two polls: spins at first, then yields, then sleeps for a small
// share of the time already waited, so that the CPU is free for others and the wait ends at most a
// few per cent late. A local variable of one thread; the fault handler may use it.
class Backoff {
 public:
  void step() noexcept;
  // Since the first step.
  std::chrono::nanoseconds waited() const noexcept { return waited_; }

 private:
  std::chrono::steady_clock::time_point start_{};
  std::chrono::nanoseconds waited_{0};
  bool started_ = false;
};

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_BACKOFF_H_
