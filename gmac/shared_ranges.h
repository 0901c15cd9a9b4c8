// SPDX-License-Identifier: Apache-2.0
//
// Where shared memory may be: what says "nothing of this is shared" without a lock and without the
// manager, for functions that every program calls all the time (memcpy).
//
// Both answers may say yes for memory that is not shared, never no for memory that is. All
// functions are thread-safe, allocate nothing, and may be called in the fault handler, before the
// runtime has started, and before this library's constructors have run.
#ifndef GMAC_SHARED_RANGES_H_
#define GMAC_SHARED_RANGES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gmac::shared_ranges {

namespace internal {
// All shared objects there ever were lie inside [lowest, highest).
inline constinit std::atomic<std::uintptr_t> lowest{UINTPTR_MAX};
inline constinit std::atomic<std::uintptr_t> highest{0};
}  // namespace internal

// Whether [address, address + bytes), bytes > 0, reaches into the address range that shared objects
// have had: two loads and two comparisons. The range must not reach over the end of the address
// space (nearShared allows that).
inline bool mayBeShared(const void* address, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  return begin < internal::highest.load(std::memory_order_relaxed) &&
         begin + bytes > internal::lowest.load(std::memory_order_relaxed);
}

// The same against the objects that live now, to 2 MiB: plain memory between two objects is told
// apart.
bool nearShared(const void* address, std::size_t bytes) noexcept;

// An object of that range lives from now on. For the manager, under its lock.
void add(std::uintptr_t begin, std::uintptr_t end) noexcept;
// No object lives in that range any more; both ends are multiples of kGranuleBytes.
void remove(std::uintptr_t begin, std::uintptr_t end) noexcept;

inline constexpr std::size_t kGranuleBytes = std::size_t{2} << 20;

}  // namespace gmac::shared_ranges

#endif  // GMAC_SHARED_RANGES_H_
