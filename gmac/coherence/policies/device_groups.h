// SPDX-License-Identifier: Apache-2.0
//
// Devices as places of memory, on a machine whose devices do not all reach each other's: those that
// share memory with the accelerator's own are one place (GatheringPolicy::kOwn), each other one is
// a place of its own, and none is the CPU's memory.
#ifndef GMAC_COHERENCE_POLICIES_DEVICE_GROUPS_H_
#define GMAC_COHERENCE_POLICIES_DEVICE_GROUPS_H_

#include <cstddef>
#include <optional>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/movable_memory.h"
#include "gmac/base/status.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/policies/gathering_policy.h"
#include "gmac/coherence/policies/spilling.h"

namespace gmac {

// `memory`: that of a machine with such devices. Thread-safe.
class DeviceGroups {
 public:
  using Group = GatheringPolicy::Place;

  explicit DeviceGroups(accel::MovableMemory* memory) : memory_(memory) {}

  // The device that the accelerator started on.
  int own() const { return memory_->devicesWithMemory().front(); }
  Group of(int device) const {
    return memory_->reachesOwn(device) ? GatheringPolicy::kOwn : device;
  }
  static Group of(const Object& object) {
    return object.home == accel::Home::kDevice  ? Group(GatheringPolicy::kOwn)
           : object.home == accel::Home::kApart ? Group(object.apartOn)
                                                : std::nullopt;
  }
  static accel::Home homeOf(const Group& group) {
    return !group                            ? accel::Home::kCpu
           : *group == GatheringPolicy::kOwn ? accel::Home::kDevice
                                             : accel::Home::kApart;
  }
  // adsmErrorAcceleratorMemory: the device has less room. Of a device that has no context yet
  // nobody knows; the move itself fails then.
  Status roomFor(std::size_t bytes, int device) const {
    const Result<accel::MemoryRoom> room = memory_->roomOn(device);
    return room.ok() &&
                   (room->free < Spilling::kLeftFree || room->free - Spilling::kLeftFree < bytes)
               ? fail(adsmErrorAcceleratorMemory, "it has {} bytes free, and {} are to go there",
                      room->free, bytes)
               : Status();
  }

 private:
  accel::MovableMemory* const memory_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_DEVICE_GROUPS_H_
