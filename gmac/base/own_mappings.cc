// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/own_mappings.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace gmac::own_mappings {
namespace {

constexpr std::uintptr_t kFree = 0;
constexpr std::uintptr_t kClaimed = 1;  // its end is not there yet

struct Range {
  std::atomic<std::uintptr_t> begin{kFree};
  std::atomic<std::uintptr_t> end{0};
};
constinit std::array<Range, 64> ranges{};
constinit std::atomic<std::size_t> used{0};  // no range beyond these was ever one
constinit std::atomic<pid_t> owner{0};

}  // namespace

void add(const void* begin, std::size_t bytes) noexcept {
  owner.store(getpid(), std::memory_order_relaxed);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    std::uintptr_t expected = kFree;
    if (ranges[i].begin.compare_exchange_strong(expected, kClaimed)) {
      ranges[i].end.store(address + bytes, std::memory_order_relaxed);
      ranges[i].begin.store(address, std::memory_order_release);
      std::size_t known = used.load();
      while (known <= i && !used.compare_exchange_weak(known, i + 1)) {
      }
      return;
    }
  }
}

void remove(const void* begin) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  for (Range& range : ranges) {
    std::uintptr_t expected = address;
    if (range.begin.compare_exchange_strong(expected, kFree)) return;
  }
}

bool meets(const void* address, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = begin + std::min(bytes, UINTPTR_MAX - begin);
  const std::size_t known = used.load(std::memory_order_acquire);
  return std::any_of(ranges.begin(), ranges.begin() + static_cast<std::ptrdiff_t>(known),
                     [&](const Range& range) {
                       const std::uintptr_t from = range.begin.load(std::memory_order_acquire);
                       return from > kClaimed && from < end &&
                              begin < range.end.load(std::memory_order_relaxed);
                     }) &&
         owner.load(std::memory_order_relaxed) == getpid();
}

}  // namespace gmac::own_mappings
