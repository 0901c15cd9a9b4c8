// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/address_windows.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "gmac/base/own_mappings.h"
#include "gmac/base/round_up.h"

namespace gmac::accel {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kSmallestWindow = std::size_t{16} << 20;
static_assert(AddressWindows::kEdgeBytes % kHugePageBytes == 0);

class FromSystem final : public ReservedAddresses {
 public:
  FromSystem(void* address, std::size_t bytes)
      : ReservedAddresses(reinterpret_cast<std::uintptr_t>(address), bytes) {
    own_mappings::add(address, bytes);
  }
  ~FromSystem() override {
    if (!forgotten()) {
      own_mappings::remove(reinterpret_cast<void*>(begin()));
      munmap(reinterpret_cast<void*>(begin()), bytes());
    }
  }
};

// Reserves address space, no more than `wanted` and no less than `least`, and both edges.
Result<std::unique_ptr<ReservedAddresses>> reserveUpTo(std::size_t wanted, std::size_t least,
                                                       const ReserveAddresses& reserve) {
  wanted += 2 * AddressWindows::kEdgeBytes;
  least += 2 * AddressWindows::kEdgeBytes;
  for (std::size_t bytes = wanted;; bytes = roundUp(bytes / 2, kHugePageBytes)) {
    bytes = std::max(bytes, least);
    auto reserved = reserve(bytes);
    if (reserved.ok() || bytes == least) {
      return reserved;
    }
  }
}

}  // namespace

Result<std::unique_ptr<ReservedAddresses>> reserveFromSystem(std::size_t bytes) {
  void* const address =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return fail(adsmErrorHostMemory, "{}", std::strerror(errno));
  }
  return std::unique_ptr<ReservedAddresses>(std::make_unique<FromSystem>(address, bytes));
}

std::size_t windowLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return SIZE_MAX;
  }
  return std::max(limit.rlim_cur / 4 / kHugePageBytes * kHugePageBytes, kSmallestWindow);
}

Result<std::shared_ptr<AddressWindows>> AddressWindows::make(const WindowOptions& options) {
  std::shared_ptr<AddressWindows> windows(new AddressWindows(options.unit));
  const auto reserveFor = [&](Placement placement, std::size_t wanted) -> Status {
    Window& window = windows->windowOf(placement);
    auto reserved = reserveUpTo(std::max(std::min(wanted, windowLimit()), kSmallestWindow),
                                kSmallestWindow, options.reserve);
    if (!reserved.ok()) {
      const std::string words = lastErrorText();
      return fail(adsmErrorHostMemory,
                  "the accelerator cannot reserve {} bytes of address space: {}", kSmallestWindow,
                  words);
    }
    window.addresses = std::move(*reserved);
    window.ranges.emplace(window.addresses->begin() + kEdgeBytes,
                          window.addresses->bytes() - 2 * kEdgeBytes);
    return {};
  };
  GMAC_TRY(reserveFor(Placement::kSameAddress,
                      roundUp(options.bytes != 0 ? options.bytes : kDefaultBytes, kHugePageBytes)));
  // Twice the memory, so that fragments of address space do not count.
  GMAC_TRY(reserveFor(Placement::kAnywhere, roundUp(options.memoryBytes, kHugePageBytes) * 2));
  return windows;
}

std::optional<std::uintptr_t> AddressWindows::take(std::size_t bytes, std::size_t alignment,
                                                   Placement placement) {
  const std::lock_guard lock(mutex_);
  return windowOf(placement).ranges->take(roundUp(bytes, unit_), std::max(alignment, unit_));
}

void AddressWindows::giveBack(std::uintptr_t address, std::size_t bytes, Placement placement) {
  const std::lock_guard lock(mutex_);
  windowOf(placement).ranges->giveBack(address, roundUp(bytes, unit_));
}

std::int64_t AddressWindows::offsetOf(std::uintptr_t address, Placement placement) const {
  const std::uintptr_t offset = address - of(placement).begin();
  return static_cast<std::int64_t>(
      placement == Placement::kSameAddress ? offset : same_.addresses->bytes() + offset);
}

std::size_t AddressWindows::largest(Placement placement) {
  const std::lock_guard lock(mutex_);
  return windowOf(placement).ranges->largest();
}

void AddressWindows::forget() {
  same_.addresses->forget();
  anywhere_.addresses->forget();
}

}  // namespace gmac::accel
