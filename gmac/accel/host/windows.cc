// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/windows.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "gmac/accel/host/device_process.h"
#include "gmac/base/round_up.h"

namespace gmac::accel::host {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kSmallestWindow = std::size_t{16} << 20;
#if defined(__SANITIZE_THREAD__)
// The thread sanitizer keeps a shadow of what is mapped, and leaves less address space to map.
constexpr std::size_t kDefaultWindow = std::size_t{64} << 30;
#else
constexpr std::size_t kDefaultWindow = std::size_t{1} << 40;
#endif
// Address space at both ends of a window that no allocation takes, for the margins of those beside
// it. Whole huge pages, so that allocations stay aligned to them.
constexpr std::size_t kWindowEdge = kHugePageBytes;
static_assert(kWindowEdge >= kMarginBytes);

// Reserves address space, no more than `wanted` and no less than `least`, and both edges. Empty:
// there is none (errno).
Mapping reserve(std::size_t wanted, std::size_t least) {
  wanted += 2 * kWindowEdge;
  least += 2 * kWindowEdge;
  for (std::size_t bytes = wanted;; bytes = roundUp(bytes / 2, kHugePageBytes)) {
    bytes = std::max(bytes, least);
    Mapping mapping = map(bytes, PROT_NONE, MAP_PRIVATE | MAP_NORESERVE);
    if (mapping || bytes == least) {
      return mapping;
    }
  }
}

}  // namespace

std::size_t windowLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return SIZE_MAX;
  }
  return std::max(limit.rlim_cur / 4 / kHugePageBytes * kHugePageBytes, kSmallestWindow);
}

Result<std::shared_ptr<Windows>> Windows::make(std::size_t bytes, std::size_t memoryBytes) {
  std::shared_ptr<Windows> windows(new Windows);
  const auto reserveFor = [&](Placement placement, std::size_t wanted) -> Status {
    Window& window = windows->of(placement);
    window.mapping =
        reserve(std::max(std::min(wanted, windowLimit()), kSmallestWindow), kSmallestWindow);
    if (!window.mapping) {
      return fail(adsmErrorHostMemory,
                  "the host accelerator cannot reserve {} bytes of address space: {}",
                  kSmallestWindow, std::strerror(errno));
    }
    window.ranges.emplace(window.mapping.number() + kWindowEdge,
                          window.mapping.bytes() - 2 * kWindowEdge);
    return {};
  };
  GMAC_TRY(reserveFor(Placement::kSameAddress,
                      roundUp(bytes != 0 ? bytes : kDefaultWindow, kHugePageBytes)));
  // Twice the memory, so that fragments of address space do not count.
  GMAC_TRY(reserveFor(Placement::kAnywhere, roundUp(memoryBytes, kHugePageBytes) * 2));
  return windows;
}

std::optional<std::uintptr_t> Windows::take(std::size_t bytes, std::size_t alignment,
                                            Placement placement) {
  const std::lock_guard lock(mutex_);
  return of(placement).ranges->take(bytes, alignment);
}

void Windows::giveBack(std::uintptr_t address, std::size_t bytes, Placement placement) {
  const std::lock_guard lock(mutex_);
  of(placement).ranges->giveBack(address, bytes);
}

std::int64_t Windows::offsetOf(std::uintptr_t address, Placement placement) const {
  return static_cast<std::int64_t>(placement == Placement::kSameAddress
                                       ? address - same_.mapping.number()
                                       : same_.mapping.bytes() +
                                             (address - anywhere_.mapping.number()));
}

std::size_t Windows::largest(Placement placement) {
  const std::lock_guard lock(mutex_);
  return of(placement).ranges->largest();
}

void Windows::forget() {
  same_.mapping.forget();
  anywhere_.mapping.forget();
}

}  // namespace gmac::accel::host
