// SPDX-License-Identifier: Apache-2.0
//
// On which member of a group each allocation lies.
#ifndef GMAC_ACCEL_GROUP_HOMES_H_
#define GMAC_ACCEL_GROUP_HOMES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "gmac/accel/accelerator.h"

namespace gmac::accel {

// Thread-safe. at() is for the fault path: no thread holds the lock while it touches shared
// objects.
class Homes {
 public:
  struct Allocation {
    std::size_t bytes;
    Placement placement;
    std::size_t device;
    unsigned others = 0;  // bit i: device i has memory for it too
  };

  void add(DeviceAddress address, const Allocation& allocation) {
    const std::lock_guard lock(mutex_);
    allocations_.insert_or_assign(number(address), allocation);
  }
  void remove(DeviceAddress address) {
    const std::lock_guard lock(mutex_);
    allocations_.erase(number(address));
  }
  // The allocation that contains an address.
  std::optional<Allocation> at(DeviceAddress address) {
    const std::lock_guard lock(mutex_);
    auto found = allocations_.upper_bound(number(address));
    if (found == allocations_.begin()) {
      return std::nullopt;
    }
    --found;
    return number(address) - found->first < found->second.bytes
               ? std::optional<Allocation>(found->second)
               : std::nullopt;
  }

 private:
  static std::uintptr_t number(DeviceAddress address) {
    return static_cast<std::uintptr_t>(address);
  }

  std::mutex mutex_;
  std::map<std::uintptr_t, Allocation> allocations_;
};

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_GROUP_HOMES_H_
