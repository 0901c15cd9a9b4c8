// SPDX-License-Identifier: Apache-2.0
//
// The address space of accelerators' memory: one window whose addresses are free for the
// application, and one for memory that kernels alone see. Accelerators that share both give each
// allocation an address of its own, so that its memory may go from one to another under it.
#ifndef GMAC_ACCEL_ADDRESS_WINDOWS_H_
#define GMAC_ACCEL_ADDRESS_WINDOWS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "gmac/accel/accelerator.h"
#include "gmac/base/range_allocator.h"
#include "gmac/base/status.h"

namespace gmac::accel {

// Addresses that nothing else of the process gets; the CPU has no access there. Whoever derives
// from this gives them back in its destructor, unless they are forgotten.
class ReservedAddresses {
 public:
  virtual ~ReservedAddresses() = default;
  ReservedAddresses(const ReservedAddresses&) = delete;
  ReservedAddresses& operator=(const ReservedAddresses&) = delete;

  std::uintptr_t begin() const { return begin_; }
  std::size_t bytes() const { return bytes_; }
  void forget() { forgotten_ = true; }

 protected:
  ReservedAddresses(std::uintptr_t begin, std::size_t bytes) : begin_(begin), bytes_(bytes) {}
  bool forgotten() const { return forgotten_; }

 private:
  const std::uintptr_t begin_;
  const std::size_t bytes_;
  bool forgotten_ = false;
};

// Reserves a multiple of 2 MiB.
using ReserveAddresses =
    std::function<Result<std::unique_ptr<ReservedAddresses>>(std::size_t bytes)>;

// From the operating system. adsmErrorHostMemory.
Result<std::unique_ptr<ReservedAddresses>> reserveFromSystem(std::size_t bytes);

struct WindowOptions {
  // Of the first window, halved until that is granted. 0: 1 TiB.
  std::size_t bytes = 0;
  // Of the accelerators' memory, together.
  std::size_t memoryBytes = 0;
  // Each allocation has whole units, and starts at one. A power of two, at most 2 MiB.
  std::size_t unit = 1;
  ReserveAddresses reserve = reserveFromSystem;
};

// Thread-safe. Not for the fault handler.
class AddressWindows {
 public:
  // adsmErrorHostMemory: not even a small window is granted.
  static Result<std::shared_ptr<AddressWindows>> make(const WindowOptions& options);

  // Addresses for `bytes` bytes; nothing: no free range is so long.
  std::optional<std::uintptr_t> take(std::size_t bytes, std::size_t alignment, Placement placement);
  // `bytes` as taken.
  void giveBack(std::uintptr_t address, std::size_t bytes, Placement placement);
  // The place of such an address in a file that both windows' addresses have one after the other.
  std::int64_t offsetOf(std::uintptr_t address, Placement placement) const;
  // The longest free range, bytes.
  std::size_t largest(Placement placement);
  const ReservedAddresses& of(Placement placement) const {
    return *(placement == Placement::kSameAddress ? same_ : anywhere_).addresses;
  }

  // Address space at both ends of a window that no allocation takes, for margins of those beside
  // it. Whole huge pages, so that allocations stay aligned to them.
  static constexpr std::size_t kEdgeBytes = std::size_t{2} << 20;

  // Of the window for Placement::kSameAddress, where nothing else is asked for.
#if defined(__SANITIZE_THREAD__)
  // The thread sanitizer keeps a shadow of what is mapped, and leaves less address space to map.
  static constexpr std::size_t kDefaultBytes = std::size_t{64} << 30;
#else
  static constexpr std::size_t kDefaultBytes = std::size_t{1} << 40;
#endif

  // In a child of fork, before its end: the addresses are the parent's.
  void forget();

 private:
  struct Window {
    std::unique_ptr<ReservedAddresses> addresses;
    std::optional<RangeAllocator> ranges;
  };

  explicit AddressWindows(std::size_t unit) : unit_(unit) {}
  Window& windowOf(Placement placement) {
    return placement == Placement::kSameAddress ? same_ : anywhere_;
  }

  const std::size_t unit_;
  std::mutex mutex_;  // guards the ranges
  Window same_;
  Window anywhere_;
};

// The most that one window may take of a limited address space (ulimit -v); the application needs
// the rest.
std::size_t windowLimit();

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_ADDRESS_WINDOWS_H_
