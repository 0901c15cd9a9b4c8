// SPDX-License-Identifier: Apache-2.0
//
// Who has which part of an address range.
#ifndef GMAC_ACCEL_RANGE_ALLOCATOR_H_
#define GMAC_ACCEL_RANGE_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace gmac::accel {

// Hands out address ranges of a window, first fit, and joins neighbours that come back. It
// never touches the memory. Not thread-safe: its owner locks around it. Not for the fault handler.
class RangeAllocator {
 public:
  RangeAllocator(std::uintptr_t base, std::size_t bytes);

  // A range of `bytes` (not 0) aligned to `alignment` (a power of two); nothing when no free range
  // is large enough.
  std::optional<std::uintptr_t> take(std::size_t bytes, std::size_t alignment);

  // Takes back exactly what take() handed out. O(log n) in the number of free ranges.
  void giveBack(std::uintptr_t address, std::size_t bytes);

  // The longest free range, bytes.
  std::size_t largest() const;

 private:
  std::map<std::uintptr_t, std::size_t> free_;  // start -> bytes; no two touch
};

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_RANGE_ALLOCATOR_H_
