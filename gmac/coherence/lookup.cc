// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/lookup.h"

#include <algorithm>

namespace gmac {

bool Lookup::touchesShared(const void* address, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = begin + std::min(bytes, UINTPTR_MAX - begin);
  if (bytes == 0 || !shared_ranges::mayBeShared(address, bytes)) {
    return false;
  }
  const Lock lock(mutex_);
  const Object* object = index_.firstEndingAfter(address);
  return object != nullptr && reinterpret_cast<std::uintptr_t>(object->address()) < end;
}

std::size_t Lookup::sharedPrefix(const void* address, std::size_t bytes, bool* shared) noexcept {
  const auto* begin = static_cast<const std::byte*>(address);
  const Lock lock(mutex_);
  const Object* object = index_.firstEndingAfter(address);
  *shared = object != nullptr && object->address() <= begin;
  if (*shared) {
    return std::min(bytes, static_cast<std::size_t>(object->end() - begin));
  }
  return object == nullptr ? bytes
                           : std::min(bytes, static_cast<std::size_t>(object->address() - begin));
}

std::size_t Lookup::currentPrefix(const void* address, std::size_t bytes,
                                  coherence::Current* current) noexcept {
  using coherence::Current;
  const auto* const begin = static_cast<const std::byte*>(address);
  const Lock lock(mutex_);
  Object* const object = index_.firstEndingAfter(begin);
  if (object == nullptr || object->address() > begin) {
    *current = Current::kNotShared;
    return object == nullptr ? bytes
                             : std::min(bytes, static_cast<std::size_t>(object->address() - begin));
  }
  const auto most = std::min(bytes, static_cast<std::size_t>(object->end() - begin));
  const auto first = static_cast<std::size_t>(begin - object->address());
  // Where the bytes from an offset on are current, and where that may change.
  const auto currentAt = [&](std::size_t offset, std::size_t* end) {
    const BlockIndex i{offset / object->blockBytes};
    const State state = (*object)[i].state;
    const ByteRange onCpu = object->currentOf(i);
    if (onCpu.begin <= offset && offset < onCpu.end) {
      *end = onCpu.end;
      return isDirty(state) ? Current::kCpu : Current::kBoth;
    }
    *end = offset < onCpu.begin ? onCpu.begin : object->offsetOf(i + 1);
    return Current::kAccelerator;
  };
  std::size_t stop = 0;
  // Outside `open` all are Invalid: an object that the CPU has not touched takes one step.
  if (object->open.empty() || object->indexOf(begin) >= object->open.end) {
    *current = Current::kAccelerator;
    return most;
  }
  *current = currentAt(first, &stop);
  if (object->indexOf(begin) < object->open.begin) {
    stop = object->offsetOf(object->open.begin);
  }
  for (std::size_t next = 0; stop < first + most && currentAt(stop, &next) == *current;) {
    stop = next;
  }
  return std::min(most, stop - first);
}

std::ptrdiff_t Lookup::deviceDistance(const void* address) noexcept {
  if (allocation_.safeObjects() == 0) {
    return 0;
  }
  const Lock lock(mutex_);
  const Object* const object = index_.find(address);
  return object == nullptr
             ? 0
             : static_cast<std::ptrdiff_t>(static_cast<std::uintptr_t>(object->device) -
                                           reinterpret_cast<std::uintptr_t>(object->address()));
}

std::uintptr_t Lookup::cpuAddress(std::uintptr_t device) noexcept {
  if (allocation_.safeObjects() == 0) {
    return device;
  }
  const Lock lock(mutex_);
  for (const Object& object : index_.all()) {
    const auto begin = static_cast<std::uintptr_t>(object.device);
    if (!object.sameAddress && device >= begin && device - begin < object.bytes()) {
      return reinterpret_cast<std::uintptr_t>(object.address()) + (device - begin);
    }
  }
  return device;
}

}  // namespace gmac
