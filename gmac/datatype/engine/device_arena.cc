// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/device_arena.h"

#include <algorithm>

#include "gmac/base/round_up.h"

namespace gmac::datatype {
namespace {

constexpr std::size_t kAlignment = 256;

constexpr std::size_t rounded(std::size_t bytes) { return roundUp(bytes, kAlignment); }

}  // namespace

DeviceArena::~DeviceArena() {
  for (const Slab& slab : slabs_) {
    device_.free(slab.address, slab.bytes);
  }
}

Result<std::uint64_t> DeviceArena::allocate(std::size_t bytes) {
  bytes = rounded(bytes);
  for (Slab& slab : slabs_) {
    if (const auto piece = slab.pieces.take(bytes, kAlignment)) {
      return *piece;
    }
  }
  const std::size_t slabBytes = std::max(bytes, kSlabBytes);
  auto address = device_.allocate(slabBytes);
  if (!address.ok()) {
    return address.status();
  }
  slabs_.push_back({*address, slabBytes, RangeAllocator(*address, slabBytes)});
  return *slabs_.back().pieces.take(bytes, kAlignment);
}

void DeviceArena::free(std::uint64_t address, std::size_t bytes) {
  // Two slabs may touch, and a piece belongs to one.
  const auto slab = std::find_if(slabs_.begin(), slabs_.end(), [&](const Slab& one) {
    return address >= one.address && address - one.address < one.bytes;
  });
  slab->pieces.giveBack(address, rounded(bytes));
}

void DeviceArena::trim() {
  std::erase_if(slabs_, [&](const Slab& slab) {
    if (slab.pieces.largest() != slab.bytes) {
      return false;
    }
    device_.free(slab.address, slab.bytes);
    return true;
  });
}

}  // namespace gmac::datatype
