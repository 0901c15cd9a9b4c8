// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/device_arena.h"

#include <algorithm>
#include <iterator>

namespace gmac::datatype {
namespace {

constexpr std::size_t kAlignment = 256;

constexpr std::size_t rounded(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

DeviceArena::~DeviceArena() {
  for (const Slab& slab : slabs_) {
    device_.free(slab.address, slab.bytes);
  }
}

Result<std::uint64_t> DeviceArena::allocate(std::size_t bytes) {
  bytes = rounded(bytes);
  auto place = std::find_if(free_.begin(), free_.end(),
                            [&](const auto& range) { return range.second >= bytes; });
  if (place == free_.end()) {
    const std::size_t slabBytes = std::max(bytes, kSlabBytes);
    auto slab = device_.allocate(slabBytes);
    if (!slab.ok()) {
      return slab.status();
    }
    slabs_.push_back({*slab, slabBytes});
    place = free_.emplace(*slab, slabBytes).first;
  }
  const auto [address, room] = *place;
  free_.erase(place);
  if (room > bytes) {
    free_.emplace(address + bytes, room - bytes);
  }
  return address;
}

void DeviceArena::free(std::uint64_t address, std::size_t bytes) {
  auto place = free_.emplace(address, rounded(bytes)).first;
  // Two slabs may touch; what is joined across them would belong to neither.
  const auto startsSlab = [&](std::uint64_t at) {
    return std::any_of(slabs_.begin(), slabs_.end(),
                       [&](const Slab& slab) { return slab.address == at; });
  };
  const auto next = std::next(place);
  if (next != free_.end() && place->first + place->second == next->first &&
      !startsSlab(next->first)) {
    place->second += next->second;
    free_.erase(next);
  }
  if (place != free_.begin() && !startsSlab(place->first)) {
    const auto before = std::prev(place);
    if (before->first + before->second == place->first) {
      before->second += place->second;
      free_.erase(place);
    }
  }
}

void DeviceArena::trim() {
  std::erase_if(slabs_, [&](const Slab& slab) {
    const auto whole = free_.find(slab.address);
    if (whole == free_.end() || whole->second != slab.bytes) {
      return false;
    }
    free_.erase(whole);
    device_.free(slab.address, slab.bytes);
    return true;
  });
}

}  // namespace gmac::datatype
