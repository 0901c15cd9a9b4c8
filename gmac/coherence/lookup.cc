// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/lookup.h"

#include <algorithm>

#include "gmac/coherence/allocation.h"
#include "gmac/coherence/ledger.h"

namespace gmac {
bool Lookup::touchesShared(const void* address, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = begin + std::min(bytes, UINTPTR_MAX - begin);
  if (bytes == 0 || !shared_ranges::mayBeShared(address, bytes)) {
    return false;
  }
  const Look look(mutex_);
  const Object* object = index_.firstEndingAfter(address);
  return object != nullptr && reinterpret_cast<std::uintptr_t>(object->address()) < end;
}

std::size_t Lookup::sharedPrefix(const void* address, std::size_t bytes, bool* shared) noexcept {
  const auto* begin = static_cast<const std::byte*>(address);
  const Look look(mutex_);
  const Object* object = index_.firstEndingAfter(address);
  *shared = object != nullptr && object->address() <= begin;
  if (*shared) {
    return std::min(bytes, static_cast<std::size_t>(object->ownEnd(begin) - begin));
  }
  return object == nullptr ? bytes
                           : std::min(bytes, static_cast<std::size_t>(object->address() - begin));
}

std::size_t Lookup::ofOneKind(const void* address, std::size_t bytes) noexcept {
  if (!index_.anyPages()) {
    return bytes;
  }
  const Look look(mutex_);
  const Object* const object = index_.find(address);
  if (object == nullptr) {
    return bytes;
  }
  const std::byte* const end = object->ownEnd(address);
  const auto most = static_cast<std::size_t>(end - static_cast<const std::byte*>(address));
  return end == object->allocation().end() ? bytes : std::min(bytes, most);
}

coherence::Place Lookup::placeOf(const void* address, std::size_t bytes) noexcept {
  using coherence::Current;
  constexpr int kMostBlocks = 64;  // the lock is not held for longer
  const auto* const byte = static_cast<const std::byte*>(address);
  const Lock lock(mutex_);
  const std::uint64_t asOf = coherence::placesChanged();
  const Object* const object = index_.firstEndingAfter(byte);
  if (object == nullptr || object->address() > byte) {
    const Object* const before = index_.lastBeginningBefore(byte);
    return {before == nullptr ? 0 : reinterpret_cast<std::uintptr_t>(before->end()),
            object == nullptr ? UINTPTR_MAX : reinterpret_cast<std::uintptr_t>(object->address()),
            Current::kNotShared, asOf};
  }
  const auto base = reinterpret_cast<std::uintptr_t>(object->address());
  const auto offset = static_cast<std::size_t>(byte - object->address());
  const BlockIndex index = object->indexOf(byte);
  // The answer is good until work is submitted, which no counter tells: nobody keeps it.
  if (object->concurrent && unordered_) {
    const bool done = ledger_.writersDone(*object) && ledger_.readersDone(*object);
    return {base, base + object->bytes(), done ? Current::kCpu : Current::kAccelerator, 0};
  }
  const ByteRange own = object->ownAround(offset);
  // Outside `open` all are Invalid: an object that the CPU has not touched takes one step.
  if (object->open.empty() || index >= object->open.end) {
    const std::size_t begin =
        std::max(own.begin, object->open.empty() ? 0 : object->offsetOf(object->open.end));
    return {base + begin, base + own.end, Current::kAccelerator, asOf};
  }
  // The bytes around an offset, within one block.
  struct Part {
    ByteRange bytes;
    Current current;
  };
  const auto partAt = [&](std::size_t at) -> Part {
    const BlockIndex i{at / object->blockBytes};
    const ByteRange onCpu = object->currentOf(i);
    if (at < onCpu.begin) {
      return {{object->offsetOf(i), onCpu.begin}, Current::kAccelerator};
    }
    if (at >= onCpu.end) {
      return {{onCpu.end, object->offsetOf(i + 1)}, Current::kAccelerator};
    }
    return {onCpu, isDirty((*object)[i].state) ? Current::kCpu : Current::kBoth};
  };
  auto [range, current] = partAt(offset);
  if (index < object->open.begin) {
    range = {own.begin, std::min(own.end, object->offsetOf(object->open.begin))};
  }
  const std::size_t most = std::min(bytes, own.end - offset);
  for (int i = 0; i < kMostBlocks && range.end < offset + most; ++i) {
    const Part next = partAt(range.end);
    if (next.current != current) {
      break;
    }
    range.end = next.bytes.end;
  }
  return {base + range.begin, base + range.end, current, asOf};
}

std::ptrdiff_t Lookup::deviceDistance(const void* address) noexcept {
  if (allocation_.safeObjects() == 0) {
    return 0;
  }
  const Look look(mutex_);
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
  const Look look(mutex_);
  for (const Object& object : index_.all()) {
    const auto begin = static_cast<std::uintptr_t>(object.device);
    if (!object.sameAddress && device >= begin && device - begin < object.bytes()) {
      return reinterpret_cast<std::uintptr_t>(object.address()) + (device - begin);
    }
  }
  return device;
}

}  // namespace gmac
