// SPDX-License-Identifier: Apache-2.0
//
// Allocations whose pages lie on several devices in turn, and the queues by which copies between
// them and the CPU's memory go over the buses of all these devices at once.
#ifndef GMAC_ACCEL_CUDA_STRIPES_H_
#define GMAC_ACCEL_CUDA_STRIPES_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "gmac/accel/cuda/device_calls.h"
#include "gmac/accel/cuda/queues.h"
#include "gmac/base/status.h"

namespace gmac::accel::cuda {

// The copy queues of one device, in its context. Only the accelerator uses their tickets: one of
// its own queues waits for their work and gives callers the ticket. Call open() and close() from
// one thread at a time.
class CopyLanes {
 public:
  explicit CopyLanes(DeviceCalls& calls)
      : in(calls, QueueId::kIn, /*ordered=*/true),
        out(calls, QueueId::kOut, /*ordered=*/true),
        calls_(calls) {}

  Status open();
  void close() noexcept;
  bool isOpen() const noexcept { return open_.load(std::memory_order_acquire); }
  DeviceCalls& calls() const noexcept { return calls_; }

  Queue in;
  Queue out;

 private:
  DeviceCalls& calls_;
  std::atomic<bool> open_{false};
};

// Which device has which page. Thread-safe. The questions are for the fault path: no thread holds
// the lock while it touches shared objects, or asks the driver.
class Stripes {
 public:
  static constexpr std::size_t kPage = std::size_t{2} << 20;

  // Consecutive bytes on one device.
  struct Run {
    std::size_t bytes;
    std::size_t device;
  };

  // An allocation that starts at `address`, with the device of each page, by number.
  void set(std::uintptr_t address, std::vector<std::uint8_t> devices);
  void remove(std::uintptr_t address);
  void clear();

  // Of an allocation, in whole pages.
  std::size_t bytesOf(std::uintptr_t address) const;
  bool any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }
  bool hold(std::uintptr_t address) const { return any() && runAt(address).has_value(); }
  // From an address on; empty: it is in none of them.
  std::optional<Run> runAt(std::uintptr_t address) const;
  // Visits runs of [address, address + bytes), which is one run of device 0 where that is in none
  // of them: `visit(offset, run)` gives a Status. Ends with the first error.
  template <typename Visit>
  Status forEachRun(std::uintptr_t address, std::size_t bytes, Visit visit) const {
    for (std::size_t offset = 0; offset < bytes;) {
      Run run = any() ? runAt(address + offset).value_or(Run{SIZE_MAX, 0}) : Run{SIZE_MAX, 0};
      run.bytes = std::min(run.bytes, bytes - offset);
      GMAC_TRY(visit(offset, run));
      offset += run.bytes;
    }
    return {};
  }
  // Whether a device has some of those bytes.
  bool touches(std::uintptr_t address, std::size_t bytes, std::size_t device) const {
    bool any = false;
    (void)forEachRun(address, bytes, [&](std::size_t, const Run& run) {
      any |= run.device == device;
      return Status();
    });
    return any;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, std::vector<std::uint8_t>> allocations_;  // the device of each page
  std::atomic<std::size_t> count_{0};
};

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_STRIPES_H_
