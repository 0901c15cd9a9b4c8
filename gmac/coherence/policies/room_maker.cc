// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/room_maker.h"

#include <tuple>
#include <utility>

#include "gmac/coherence/policies/most_room_first.h"

namespace gmac {

// (What a device that is gone has is nothing.)
std::size_t RoomMaker::roomOn(std::size_t device) const {
  const Result<accel::DeviceDescription> description = devices_->describe(device);
  return description.ok() ? description->memory.free : 0;
}

std::vector<Away> RoomMaker::ordered(std::vector<Candidate> candidates, std::size_t device,
                                     std::size_t needed) const {
  std::size_t room = roomOn(device);
  for (const Candidate& candidate : candidates) {
    room += candidate.object.bytes;
  }
  std::vector<Away> objects;
  if (room < needed) {
    return objects;
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tuple(a.advised, a.used) < std::tuple(b.advised, b.used);
  });
  objects.reserve(candidates.size());
  for (const Candidate& candidate : candidates) {
    objects.push_back(candidate.object);
  }
  return objects;
}

std::vector<std::size_t> RoomMaker::placesFor(std::size_t bytes, std::size_t device) const {
  std::vector<std::pair<std::size_t, std::size_t>> rooms;
  for (std::size_t other = 0; other < devices_->count(); ++other) {
    const std::size_t room = other == device ? 0 : roomOn(other);
    if (room >= bytes) {
      rooms.emplace_back(room, other);
    }
  }
  return mostRoomFirst(std::move(rooms));
}

}  // namespace gmac
