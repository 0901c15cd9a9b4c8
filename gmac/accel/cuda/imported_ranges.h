// SPDX-License-Identifier: Apache-2.0
//
// Where this process has memory of other processes' devices.
#ifndef GMAC_ACCEL_CUDA_IMPORTED_RANGES_H_
#define GMAC_ACCEL_CUDA_IMPORTED_RANGES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>

namespace gmac::accel::cuda {

// Thread-safe; not for the fault handler.
class ImportedRanges {
 public:
  void add(std::uintptr_t start, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    ends_[start] = start + bytes;
    count_.store(ends_.size(), std::memory_order_release);
  }
  // Does nothing where none starts there.
  void remove(std::uintptr_t start) {
    const std::lock_guard lock(mutex_);
    ends_.erase(start);
    count_.store(ends_.size(), std::memory_order_release);
  }
  bool hold(std::uintptr_t address) const noexcept {
    if (count_.load(std::memory_order_acquire) == 0) return false;
    const std::lock_guard lock(mutex_);
    const auto next = ends_.upper_bound(address);
    return next != ends_.begin() && address < std::prev(next)->second;
  }

 private:
  mutable std::mutex mutex_;                       // guards the next
  std::map<std::uintptr_t, std::uintptr_t> ends_;  // by their starts
  std::atomic<std::size_t> count_{0};
};

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_IMPORTED_RANGES_H_
