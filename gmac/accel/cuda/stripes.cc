// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/stripes.h"

#include <string>
#include <utility>

namespace gmac::accel::cuda {

Status CopyLanes::open() {
  if (isOpen()) {
    return {};
  }
  const DeviceScope scope(calls_);
  Status opened = in.open();
  if (opened.ok()) {
    opened = out.open();
  }
  if (!opened.ok()) {
    const std::string words = lastErrorText();
    close();
    recordError(opened.code(), words);
    return opened;
  }
  open_.store(true, std::memory_order_release);
  return {};
}

void CopyLanes::close() noexcept {
  open_.store(false);
  const DeviceScope scope(calls_);
  in.close();
  out.close();
}

void Stripes::set(std::uintptr_t address, std::vector<std::uint8_t> devices) {
  const std::lock_guard lock(mutex_);
  allocations_.insert_or_assign(address, std::move(devices));
  count_ = allocations_.size();
}

void Stripes::remove(std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  allocations_.erase(address);
  count_ = allocations_.size();
}

void Stripes::clear() {
  const std::lock_guard lock(mutex_);
  allocations_.clear();
  count_ = 0;
}

std::size_t Stripes::bytesOf(std::uintptr_t address) const {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(address);
  return found == allocations_.end() ? 0 : found->second.size() * kPage;
}

std::optional<Stripes::Run> Stripes::runAt(std::uintptr_t address) const {
  const std::lock_guard lock(mutex_);
  auto found = allocations_.upper_bound(address);
  if (found == allocations_.begin()) {
    return std::nullopt;
  }
  const auto& [start, devices] = *--found;
  const std::size_t first = (address - start) / kPage;
  if (first >= devices.size()) {
    return std::nullopt;
  }
  std::size_t last = first + 1;
  while (last < devices.size() && devices[last] == devices[first]) {
    ++last;
  }
  return Run{start + last * kPage - address, devices[first]};
}

}  // namespace gmac::accel::cuda
