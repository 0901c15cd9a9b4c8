// SPDX-License-Identifier: Apache-2.0
//
// In which order an object tries devices that have room for it.
#ifndef GMAC_COHERENCE_POLICIES_MOST_ROOM_FIRST_H_
#define GMAC_COHERENCE_POLICIES_MOST_ROOM_FIRST_H_

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace gmac {

// The devices of pairs of free bytes and device: the one with the most first; where they have the
// same, by number.
template <typename Device>
std::vector<Device> mostRoomFirst(std::vector<std::pair<std::size_t, Device>> rooms) {
  std::sort(rooms.begin(), rooms.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<Device> devices;
  devices.reserve(rooms.size());
  for (const auto& [bytes, device] : rooms) {
    devices.push_back(device);
  }
  return devices;
}

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_MOST_ROOM_FIRST_H_
