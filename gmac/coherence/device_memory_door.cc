// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/device_memory_door.h"

#include "gmac/accel/accelerator.h"
#include "gmac/coherence/options.h"
#include "gmac/coherence/parts.h"

namespace gmac {

bool DeviceMemoryDoor::placesMemory() const noexcept { return parts_.placement.chooses(); }

Status DeviceMemoryDoor::prefer(const void* address, std::size_t bytes, int device, bool forGood) {
  if (parts_.forked()) {
    return {};
  }
  // (What has one copy moves at a wait, unless calls pass over it.)
  GMAC_TRY(parts_.launches.order(address, bytes, true));
  return parts_.placement.prefer(address, bytes, device, forGood);
}

Status DeviceMemoryDoor::namedBy(const void* address, int device) {
  return parts_.forked() ? Status() : parts_.placement.namedBy(address, device);
}

bool DeviceMemoryDoor::makeRoom() {
  return !parts_.forked() &&
         (parts_.freed.giveBackAll() || parts_.spilling.makeRoom(parts_.spilling.here()) ||
          parts_.gathering.leaveApart());
}

bool DeviceMemoryDoor::makeRoomForOwnWork() { return parts_.makeRoomForOwnWork(); }

bool DeviceMemoryDoor::isKept(std::uintptr_t device) {
  return !parts_.forked() && parts_.freed.isKept(device);
}

std::size_t DeviceMemoryDoor::keptBytes() const noexcept { return parts_.freed.keptBytes(); }

bool DeviceMemoryDoor::fitsNowhere(std::size_t bytes) {
  return !parts_.forked() && parts_.spilling.fitsNowhere(bytes);
}

bool DeviceMemoryDoor::managedMode() const noexcept { return options_.managed; }

bool DeviceMemoryDoor::trustsHints() const noexcept { return options_.trustHints; }

unsigned DeviceMemoryDoor::waitLimit() const noexcept { return options_.waitLimitSeconds; }

bool DeviceMemoryDoor::reachedByCuda() const noexcept { return accelerator_.name() != "host"; }

Status DeviceMemoryDoor::setUsers(const void* object, coherence::Users users,
                                  accel::NativeStream stream) {
  return parts_.forked()
             ? fail(adsmErrorForked, "attaching {} to a stream in a child of fork", object)
             : parts_.promises.setUsers(object, users, stream);
}

void DeviceMemoryDoor::setReadMostly(const void* object, bool readMostly) {
  if (!parts_.forked() && options_.trustHints) {
    parts_.promises.setReadMostly(object, readMostly);
  }
}

}  // namespace gmac
