// SPDX-License-Identifier: Apache-2.0
//
// Wakes a background thread.
#ifndef GMAC_COHERENCE_ALARM_H_
#define GMAC_COHERENCE_ALARM_H_

#include <atomic>
#include <cstdint>

namespace gmac {

// One thread sleeps on it, any may ring. A ring between heard() and sleep() is not lost. Allocates
// nothing; the fault handler rings.
class Alarm {
 public:
  void ring() noexcept {
    rings_.fetch_add(1);
    rings_.notify_all();
  }
  // How often it has rung so far.
  std::uint32_t heard() const noexcept { return rings_.load(); }
  // Until it has rung more often than that.
  void sleep(std::uint32_t heard) const noexcept { rings_.wait(heard); }

 private:
  std::atomic<std::uint32_t> rings_{0};
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_ALARM_H_
