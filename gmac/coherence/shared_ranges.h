// SPDX-License-Identifier: Apache-2.0
//
// Where shared memory may be: what says "nothing of this is shared" without a lock and without the
// runtime, for functions that every program calls all the time (memcpy).
//
// All functions are thread-safe, allocate nothing, and may be called in the fault handler, before
// the runtime has started, and before this library's constructors have run.
#ifndef GMAC_COHERENCE_SHARED_RANGES_H_
#define GMAC_COHERENCE_SHARED_RANGES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gmac::shared_ranges {

// Objects are told from what lies between them in units of this size (a power of two).
inline constexpr std::size_t kGranuleBytes = std::size_t{2} << 20;

namespace internal {

inline constinit std::atomic<std::size_t> objects{0};  // that live
// All shared objects there ever were lie inside [lowest, highest).
inline constinit std::atomic<std::uintptr_t> lowest{UINTPTR_MAX};
inline constinit std::atomic<std::uintptr_t> highest{0};

// The end of the addresses that a process can map unless it asks for more (on processors with five
// levels of page tables).
inline constexpr std::uintptr_t kAddressEnd = std::uintptr_t{1} << 47;
inline constexpr std::size_t kWordBits = 64;

// One bit per granule, set while an object lives in it. Pages of this exist where bits have been
// set: 4 KiB for every 64 GiB of address space that objects are in.
// (An array of plain words, reached through std::atomic_ref: constant initialisation of millions of
// atomics is more than some compilers try.)
inline constinit std::uint64_t granules[kAddressEnd / kGranuleBytes / kWordBits] = {};

inline std::atomic_ref<std::uint64_t> wordOf(std::size_t granule) noexcept {
  return std::atomic_ref(granules[granule / kWordBits]);
}
inline bool lives(std::size_t granule) noexcept {
  return (wordOf(granule).load(std::memory_order_relaxed) >> granule % kWordBits & 1) != 0;
}

// For ranges of more than two granules, and for those that are no ranges.
bool mayBeSharedSlow(std::uintptr_t begin, std::size_t bytes) noexcept;

}  // namespace internal

// Whether any object lives.
inline bool any() noexcept { return internal::objects.load(std::memory_order_relaxed) != 0; }

// Whether a byte of [address, address + bytes), bytes > 0, may be shared: a few comparisons, and
// two more loads where objects live below and above. Yes for memory that is not shared only if an
// object is less than 2 MiB away; never no for memory that is.
inline bool mayBeShared(const void* address, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (begin >= internal::highest.load(std::memory_order_relaxed)) {
    return false;
  }
  const std::uintptr_t last = begin + (bytes - 1);
  const std::size_t first = begin / kGranuleBytes;
  if (last / kGranuleBytes - first > 1 || last >= internal::kAddressEnd) {
    return internal::mayBeSharedSlow(begin, bytes);
  }
  return last >= internal::lowest.load(std::memory_order_relaxed) &&
         (internal::lives(first) || internal::lives(last / kGranuleBytes));
}

// An object of that range lives from now on. For Allocation, under the lock of all objects.
void add(std::uintptr_t begin, std::uintptr_t end) noexcept;
// One object less, and none in that range any more; both ends are multiples of kGranuleBytes, and
// there may be nothing between them.
void remove(std::uintptr_t begin, std::uintptr_t end) noexcept;

}  // namespace gmac::shared_ranges

#endif  // GMAC_COHERENCE_SHARED_RANGES_H_
