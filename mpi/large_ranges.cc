// SPDX-License-Identifier: Apache-2.0
#include "mpi/large_ranges.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>

#include "gmac/base/round_up.h"

namespace gmac::mpi {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

bool addressesAreLimited() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

// Starts at a huge page, so that all of it may lie in such pages: they are made in less time.
std::byte* map(std::size_t bytes) {
  void* const given =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (given == MAP_FAILED) {
    return nullptr;
  }
  auto* const start = static_cast<std::byte*>(given);
  const std::size_t before = roundUp(reinterpret_cast<std::uintptr_t>(start), kHugePage) -
                             reinterpret_cast<std::uintptr_t>(start);
  if (before != 0) {
    (void)munmap(start, before);
  }
  (void)munmap(start + before + bytes, kHugePage - before);
  (void)madvise(start + before, bytes, MADV_HUGEPAGE);  // where the system has them
  return start + before;
}

}  // namespace

LargeRanges::Range LargeRanges::take(std::size_t bytes) {
  const std::size_t rounded = roundUp(bytes, kHugePage);
  const std::lock_guard lock(mutex_);
  const auto fits = [rounded](const Range& one) {
    return one.bytes >= rounded && one.bytes / 2 <= rounded;
  };
  if (const auto found = std::find_if(free_.rbegin(), free_.rend(), fits); found != free_.rend()) {
    const Range range = *found;
    free_.erase(std::prev(found.base()));
    bytes_ -= range.bytes;
    return range;
  }
  std::byte* data = map(rounded);
  if (data == nullptr) {
    unmapAllBut(0);
    data = map(rounded);
  }
  return {data, rounded};
}

void LargeRanges::free(const Range& range) {
  const std::lock_guard lock(mutex_);
  if (addressesAreLimited() || madvise(range.data, range.bytes, MADV_FREE) != 0) {
    (void)munmap(range.data, range.bytes);
    return;
  }
  free_.push_back(range);
  bytes_ += range.bytes;
  unmapAllBut(most_);
}

void LargeRanges::unmapAllBut(std::size_t kept) {
  while (bytes_ > kept) {
    (void)munmap(free_.front().data, free_.front().bytes);
    bytes_ -= free_.front().bytes;
    free_.erase(free_.begin());
  }
}

}  // namespace gmac::mpi
