// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/own_mappings.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "gmac/base/log.h"
#include "gmac/base/own_system_call.h"

namespace gmac::own_mappings {
namespace {

constexpr std::uintptr_t kFree = 0;
constexpr std::uintptr_t kClaimed = 1;  // its end is not there yet

struct Range {
  std::atomic<std::uintptr_t> begin{kFree};
  std::atomic<std::uintptr_t> end{0};
};

// Tables that follow each other; none is ever given back.
struct Table {
  std::array<Range, 64> ranges{};
  std::atomic<std::size_t> used{0};  // no range beyond these was ever one
  std::atomic<Table*> next{nullptr};
};
constinit Table first{};
constinit std::atomic<pid_t> owner{0};

bool addTo(Table& table, std::uintptr_t address, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < table.ranges.size(); ++i) {
    Range& range = table.ranges[i];
    std::uintptr_t expected = kFree;
    if (!range.begin.compare_exchange_strong(expected, kClaimed)) continue;
    range.end.store(address + bytes, std::memory_order_relaxed);
    range.begin.store(address, std::memory_order_release);
    std::size_t known = table.used.load();
    while (known <= i && !table.used.compare_exchange_weak(known, i + 1)) {
    }
    return true;
  }
  return false;
}

// The table after a full one; NULL: there is no memory for it.
Table* after(Table& full) noexcept {
  if (Table* const next = full.next.load(std::memory_order_acquire)) return next;
  const long mapped = ownSystemCall(SYS_mmap, nullptr, sizeof(Table), PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == -1) return nullptr;
  Table* const made = std::construct_at(reinterpret_cast<Table*>(mapped));
  Table* other = nullptr;
  if (full.next.compare_exchange_strong(other, made, std::memory_order_acq_rel)) return made;
  (void)ownSystemCall(SYS_munmap, made, sizeof(Table));
  return other;
}

bool meetsOf(const Table& table, std::uintptr_t begin, std::uintptr_t end) noexcept {
  const std::size_t known = table.used.load(std::memory_order_acquire);
  return std::any_of(
      table.ranges.begin(), table.ranges.begin() + static_cast<std::ptrdiff_t>(known),
      [&](const Range& range) {
        const std::uintptr_t from = range.begin.load(std::memory_order_acquire);
        return from > kClaimed && from < end && begin < range.end.load(std::memory_order_relaxed);
      });
}

}  // namespace

void add(const void* begin, std::size_t bytes) noexcept {
  owner.store(getpid(), std::memory_order_relaxed);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  Table* table = &first;
  while (table != nullptr && !addTo(*table, address, bytes)) table = after(*table);
  if (table == nullptr) {
    log(LogLevel::kError,
        "{} bytes at {} are reserved for shared objects, and there is no memory to note it: a "
        "munmap() or mremap() of the program's there is not refused",
        bytes, begin);
  }
}

void remove(const void* begin) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  for (Table* table = &first; table != nullptr;
       table = table->next.load(std::memory_order_acquire)) {
    for (Range& range : table->ranges) {
      std::uintptr_t expected = address;
      if (range.begin.compare_exchange_strong(expected, kFree)) return;
    }
  }
}

bool meets(const void* address, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = begin + std::min(bytes, UINTPTR_MAX - begin);
  for (const Table* table = &first; table != nullptr;
       table = table->next.load(std::memory_order_acquire)) {
    if (meetsOf(*table, begin, end)) return owner.load(std::memory_order_relaxed) == getpid();
  }
  return false;
}

}  // namespace gmac::own_mappings
