// SPDX-License-Identifier: Apache-2.0
//
// First-fit range allocator.
#ifndef GMAC_BASE_RANGE_ALLOCATOR_H_
#define GMAC_BASE_RANGE_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace gmac {

// Allocates ranges of a window of addresses or offsets, first fit, and joins freed neighbours. It
// never accesses memory. Not thread-safe: its owner locks around it. Not for the fault handler.
class RangeAllocator {
 public:
  RangeAllocator(std::uintptr_t base, std::size_t bytes);

  // A range of `bytes` (not 0) aligned to `alignment` (a power of two); nothing when no free range
  // is large enough.
  std::optional<std::uintptr_t> take(std::size_t bytes, std::size_t alignment);

  // Frees exactly a range that take() returned. O(log n) in the number of free ranges.
  void giveBack(std::uintptr_t address, std::size_t bytes);

  // The longest free range, bytes.
  std::size_t largest() const;

 private:
  std::map<std::uintptr_t, std::size_t> free_;  // start -> bytes; no two touch
};

}  // namespace gmac

#endif  // GMAC_BASE_RANGE_ALLOCATOR_H_
