// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/range_allocator.h"

#include <algorithm>
#include <iterator>

#include "gmac/base/round_up.h"

namespace gmac {

RangeAllocator::RangeAllocator(std::uintptr_t base, std::size_t bytes) {
  free_.emplace(base, bytes);
}

std::optional<std::uintptr_t> RangeAllocator::take(std::size_t bytes, std::size_t alignment) {
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const std::uintptr_t start = range->first;
    const std::size_t length = range->second;
    const std::uintptr_t address = roundUp(start, alignment);
    const std::size_t skipped = address - start;
    if (skipped > length || length - skipped < bytes) {
      continue;
    }
    const std::size_t left = length - skipped - bytes;
    if (skipped == 0) {
      free_.erase(range);
    } else {
      range->second = skipped;
    }
    if (left != 0) {
      free_.emplace(address + bytes, left);
    }
    return address;
  }
  return std::nullopt;
}

void RangeAllocator::giveBack(std::uintptr_t address, std::size_t bytes) {
  auto next = free_.lower_bound(address);
  if (next != free_.end() && address + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == address) {
      previous->second += bytes;
      return;
    }
  }
  free_.emplace_hint(next, address, bytes);
}

std::size_t RangeAllocator::largest() const {
  std::size_t bytes = 0;
  for (const auto& [start, length] : free_) {
    bytes = std::max(bytes, length);
  }
  return bytes;
}

}  // namespace gmac
