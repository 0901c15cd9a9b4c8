// SPDX-License-Identifier: Apache-2.0
//
// Objects that lie elsewhere than the others, on a machine whose devices do not reach each other's
// memory, for the calls that list them.
//
// A call that lists what it uses needs those objects alone. One that nothing has used yet comes to
// be on the device of the first such call. One that lies on another device goes to the call's at
// once if it has been there for long (LoneWorker::hasStayed()), else to the CPU's memory, which all
// reach, and from there to a device whose calls alone list it. Work that may use every object needs
// them where the others are (gathering.h).
#ifndef GMAC_COHERENCE_POLICIES_STRAYS_H_
#define GMAC_COHERENCE_POLICIES_STRAYS_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/devices.h"
#include "gmac/accel/movable_memory.h"
#include "gmac/base/status.h"
#include "gmac/coherence/freed_memory.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/lone_worker.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/policies/device_groups.h"
#include "gmac/coherence/policies/gathering_policy.h"
#include "gmac/coherence/policies/spilling.h"
#include "gmac/coherence/work_port.h"

namespace gmac {

class Migration;

// For one thread at a time, and while no other begins device work or allocates: Gathering sees to
// both. Not under the lock.
class Strays {
 public:
  // `policy`: where the others lie.
  Strays(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger, ObjectIndex& index,
         FreedMemory& freed, Migration& migration, Spilling& spilling, GatheringPolicy& policy)
      : mutex_(mutex),
        devices_(accelerator.devices()),
        memory_(accelerator.movableMemory()),
        groups_(memory_),
        ledger_(ledger),
        index_(index),
        freed_(freed),
        migration_(migration),
        spilling_(spilling),
        policy_(policy) {}
  Strays(const Strays&) = delete;
  Strays& operator=(const Strays&) = delete;

  // A call on a device is to use the objects in these ranges, and no others.
  Status bring(int device, std::span<const coherence::DeviceRange> used);
  // The program places the object at the address on a device.
  Status migrate(const void* address, int device);
  // Work on a device is to use every object, and reaches where the others lie.
  Status gather(int device) { return any_ ? gatherAll(device) : Status(); }
  // All objects have been moved to one place.
  void gathered() { any_ = false; }
  // Those on devices apart go to the CPU's memory. Whether one has.
  bool leaveApart();
  // All objects have been freed.
  void forget() {
    any_ = false;
    worker_ = LoneWorker();
  }

 private:
  using Group = DeviceGroups::Group;
  using Way = GatheringPolicy::Way;
  struct Found {
    std::vector<Spilling::Candidate> away;  // on devices that the one asked for does not reach
    std::size_t bytes = 0;                  // of all
  };

  Object* find(const Spilling::Candidate& candidate);
  LoneWorker::Nanoseconds timeOf(const Object& object) const;
  std::vector<Spilling::Candidate> objectsIn(std::span<const coherence::DeviceRange> used);
  Found all(const Group& reached);
  Status gatherAll(int device);
  bool quiet();
  Way wayOf(const Spilling::Candidate& candidate, int device);
  Status move(const Spilling::Candidate& candidate, Way way, int device);
  // To a device's memory; none: the CPU's.
  Status moveTo(const Spilling::Candidate& candidate, std::optional<int> device);
  Status toCpu(const Spilling::Candidate& candidate);
  // Without copying, if nothing has used the object; else as moveTo(), and sets `copied`.
  Status goTo(const Spilling::Candidate& candidate, int device, bool* copied);

  ObjectMutex& mutex_;
  accel::Devices* const devices_;
  accel::MovableMemory* const memory_;
  const DeviceGroups groups_;
  Ledger& ledger_;
  ObjectIndex& index_;
  FreedMemory& freed_;
  Migration& migration_;
  Spilling& spilling_;
  GatheringPolicy& policy_;
  bool any_ = false;
  LoneWorker worker_;  // that uses every object
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_STRAYS_H_
