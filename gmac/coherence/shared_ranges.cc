// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/shared_ranges.h"

#include <algorithm>

namespace gmac::shared_ranges {
namespace {

using internal::kAddressEnd;
using internal::kWordBits;

// Calls visit(word, mask) for the granules that [begin, end) touches, until it returns true.
template <typename Visit>
bool anyWord(std::uintptr_t begin, std::uintptr_t end, const Visit& visit) noexcept {
  const std::size_t last = (std::min(end, kAddressEnd) - 1) / kGranuleBytes;
  for (std::size_t granule = begin / kGranuleBytes; granule <= last;) {
    const std::size_t first = granule % kWordBits;
    const std::size_t count = std::min(last - granule + 1, kWordBits - first);
    const std::uint64_t ones =
        count == kWordBits ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
    if (visit(internal::wordOf(granule), ones << first)) {
      return true;
    }
    granule += count;
  }
  return false;
}

}  // namespace

bool internal::mayBeSharedSlow(std::uintptr_t begin, std::size_t bytes) noexcept {
  const std::uintptr_t most = begin + std::min(bytes, UINTPTR_MAX - begin);
  // No granule needs a look where no object has ever been.
  begin = std::max(begin, lowest.load(std::memory_order_relaxed));
  const std::uintptr_t end = std::min(most, highest.load(std::memory_order_relaxed));
  if (begin >= end) {
    return false;
  }
  if (begin >= kAddressEnd) {
    return true;
  }
  return anyWord(begin, end, [](auto word, std::uint64_t mask) {
    return (word.load(std::memory_order_relaxed) & mask) != 0;
  });
}

void add(std::uintptr_t begin, std::uintptr_t end) noexcept {
  ++internal::objects;
  if (begin < kAddressEnd) {
    (void)anyWord(begin, end, [](auto word, std::uint64_t mask) {
      word.fetch_or(mask, std::memory_order_relaxed);
      return false;
    });
  }
  internal::lowest = std::min(internal::lowest.load(), begin);
  internal::highest = std::max(internal::highest.load(), end);
}

void remove(std::uintptr_t begin, std::uintptr_t end) noexcept {
  --internal::objects;
  if (begin < std::min(end, kAddressEnd)) {
    (void)anyWord(begin, end, [](auto word, std::uint64_t mask) {
      word.fetch_and(~mask, std::memory_order_relaxed);
      return false;
    });
  }
}

}  // namespace gmac::shared_ranges
