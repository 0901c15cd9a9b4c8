// SPDX-License-Identifier: Apache-2.0
//
// The address space of host accelerators' memory: one window whose addresses are free for the
// application, and one for memory that kernels alone see. Accelerators that share both give each
// allocation an address of its own, so that its memory may go from one to another under it.
#ifndef GMAC_ACCEL_HOST_WINDOWS_H_
#define GMAC_ACCEL_HOST_WINDOWS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/host/mapping.h"
#include "gmac/base/range_allocator.h"
#include "gmac/base/status.h"

namespace gmac::accel::host {

// Thread-safe. Not for the fault handler.
class Windows {
 public:
  // `bytes`: of the first window, halved until the system grants it, 0: 1 TiB; `memoryBytes`: of
  // the accelerators' memory, together. adsmErrorHostMemory.
  static Result<std::shared_ptr<Windows>> make(std::size_t bytes, std::size_t memoryBytes);

  // Addresses for `bytes` bytes; nothing: no free range is so long.
  std::optional<std::uintptr_t> take(std::size_t bytes, std::size_t alignment, Placement placement);
  void giveBack(std::uintptr_t address, std::size_t bytes, Placement placement);
  // The place of such an address in a file that both windows' addresses have one behind the other.
  std::int64_t offsetOf(std::uintptr_t address, Placement placement) const;
  // The longest free range, bytes.
  std::size_t largest(Placement placement);

  // In a child of fork, before its end: the addresses are the parent's.
  void forget();

 private:
  struct Window {
    Mapping mapping;
    std::optional<RangeAllocator> ranges;
  };

  Windows() = default;
  Window& of(Placement placement) {
    return placement == Placement::kSameAddress ? same_ : anywhere_;
  }

  std::mutex mutex_;  // guards the ranges
  Window same_;
  Window anywhere_;
};

// What a limited address space (ulimit -v) allows for one window; the application needs the rest.
std::size_t windowLimit();

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_WINDOWS_H_
