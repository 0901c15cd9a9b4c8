// SPDX-License-Identifier: Apache-2.0
//
// A number that one side counts up and the other waits for, in memory that two processes share.
#ifndef GMAC_ACCEL_HOST_COUNTER_H_
#define GMAC_ACCEL_HOST_COUNTER_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace gmac::accel::host {

// Thread-safe, also between processes. Allocates nothing and takes no lock, so the fault handler
// may use it. Only one thread at a time may call publish().
class Counter {
 public:
  std::uint64_t value() const { return value_.load(std::memory_order_acquire); }

  // Makes `value` visible, with all that was written before it, and wakes who waits.
  void publish(std::uint64_t value);

  // Wakes everybody who waits, for another reason than the value. Async-signal-safe.
  void wakeAll();

  // Waits until the value is at least `target`: spins for a few microseconds, then sleeps. Returns
  // whether it is so; false means that `limit` has passed, or that wakeAll() was called.
  bool await(std::uint64_t target, std::chrono::milliseconds limit);

 private:
  alignas(64) std::atomic<std::uint64_t> value_{0};
  // publish() need not enter the kernel when nobody sleeps.
  std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_COUNTER_H_
