// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_ACCEL_HOST_ADDRESS_TABLE_H_
#define GMAC_ACCEL_HOST_ADDRESS_TABLE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>

namespace gmac::accel::host {

// Ranges of addresses that commands may name, and where this process has their bytes. Thread-safe:
// the socket's thread changes it while the queues' threads look up.
class AddressTable {
 public:
  // False when the range overlaps one that is there. Throws std::bad_alloc and changes nothing
  // then.
  bool insert(std::uintptr_t address, std::uint64_t bytes, void* here) {
    std::unique_lock lock(mutex_);
    const auto next = ranges_.lower_bound(address);
    if (next != ranges_.end() && next->first - address < bytes) {
      return false;
    }
    if (next != ranges_.begin()) {
      const auto& [start, range] = *std::prev(next);
      if (address - start < range.bytes) {
        return false;
      }
    }
    ranges_.emplace_hint(next, address, Range{bytes, static_cast<std::byte*>(here)});
    return true;
  }

  // False when there is no range with exactly this start and size.
  bool remove(std::uintptr_t address, std::uint64_t bytes) {
    std::unique_lock lock(mutex_);
    const auto found = ranges_.find(address);
    if (found == ranges_.end() || found->second.bytes != bytes) {
      return false;
    }
    ranges_.erase(found);
    return true;
  }

  // The first byte of [address, address + bytes) in this process, if one range holds them all.
  std::byte* find(std::uintptr_t address, std::uint64_t bytes) const {
    std::shared_lock lock(mutex_);
    auto range = ranges_.upper_bound(address);
    if (range == ranges_.begin()) {
      return nullptr;
    }
    --range;
    const std::uint64_t offset = address - range->first;
    if (offset > range->second.bytes || bytes > range->second.bytes - offset) {
      return nullptr;
    }
    return range->second.here + offset;
  }

  // Of the free addresses around [address, address + bytes), the part that is at most `most` bytes
  // away: from where to where. The range itself is not in the table, or is what is asked about.
  struct Surroundings {
    std::uintptr_t begin;
    std::uintptr_t end;
  };
  Surroundings around(std::uintptr_t address, std::uint64_t bytes, std::uintptr_t most) const {
    std::shared_lock lock(mutex_);
    Surroundings free{address - most, address + bytes + most};
    const auto next = ranges_.upper_bound(address);
    if (next != ranges_.end()) {
      free.end = std::min(free.end, next->first);
    }
    auto before = ranges_.lower_bound(address);
    if (before != ranges_.begin()) {
      --before;
      free.begin = std::max(free.begin, before->first + before->second.bytes);
    }
    return free;
  }

 private:
  struct Range {
    std::uint64_t bytes;
    std::byte* here;
  };
  mutable std::shared_mutex mutex_;
  std::map<std::uintptr_t, Range> ranges_;
};

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_ADDRESS_TABLE_H_
