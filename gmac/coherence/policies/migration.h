// SPDX-License-Identifier: Apache-2.0
//
// Several devices: each object lies on one of them, its home, and goes where work needs it.
#ifndef GMAC_COHERENCE_POLICIES_MIGRATION_H_
#define GMAC_COHERENCE_POLICIES_MIGRATION_H_

#include <cstddef>
#include <mutex>
#include <optional>
#include <span>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/devices.h"
#include "gmac/base/status.h"
#include "gmac/coherence/freed_memory.h"
#include "gmac/coherence/launches.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/policies/room_maker.h"
#include "gmac/coherence/waits.h"

namespace gmac {

class Blocks;

// A move waits for all device work that may use the object, so work of two devices that uses one
// object runs in the order in which it was submitted. It changes nothing of what the CPU and
// kernels see. Devices that reach each other's memory need no move: an object goes to the one whose
// call lists it first, and stays there. Thread-safe. Not for the fault handler, nor in a child of
// fork.
class Migration {
 public:
  Migration(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger, Waits& waits,
            ObjectIndex& index, FreedMemory& freed, Blocks& blocks, Launches& launches,
            bool makesRoom)
      : mutex_(mutex),
        devices_(accelerator.devices()),
        ledger_(ledger),
        waits_(waits),
        index_(index),
        freed_(freed),
        blocks_(blocks),
        launches_(launches),
        room_(mutex, devices_, ledger, index, makesRoom) {}
  Migration(const Migration&) = delete;
  Migration& operator=(const Migration&) = delete;

  // See adsm.h. A call on a device: what it uses moves there first, where it must. `makesRoom`:
  // where that does not fit, other objects leave the device (room_maker.h).
  Status call(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
              const std::optional<CallUses>& uses, std::size_t device, bool makesRoom);
  // The program names an object's home; then the object goes there.
  Status advise(const void* address, std::size_t bytes);
  Status migrate(const void* address, std::size_t bytes, std::size_t device);
  // For memory that is no object's and does not fit on device 0: one object leaves it. False: none
  // can.
  bool makeRoom();
  // Whether no work has used an object and nothing was copied to where it lies: its first use
  // chooses its home. Under the lock.
  bool unused(const Object& object) const {
    return !object.inTransit() && !object.hasMoved &&
           ledger_.newestWorkWith(object) == object.born && object.flushed().value == 0 &&
           !object.spread();
  }
  // As Launches. The runtime's own work runs on device 0; the application's streams are that
  // device's where devices do not reach each other's memory.
  Status beginOwnWork(std::span<const coherence::DeviceRange> ranges);
  Status beginDeviceWork(accel::NativeStream stream,
                         std::span<const coherence::DeviceRange> ranges);

 private:
  void stay(const Away& away);
  // `stream`: whose objects a range without an address names.
  Away awayFrom(std::size_t device, std::span<const coherence::DeviceRange> ranges,
                accel::NativeStream stream = {});
  // Brings what the ranges name to device 0, where they do not reach it, and calls `begin()`.
  template <typename Begin>
  Status beginOnFirst(std::span<const coherence::DeviceRange> ranges, accel::NativeStream stream,
                      Begin begin);
  // If a move fails for want of memory, gives back the memory of freed objects and tries again.
  Status move(const Away& away, std::size_t device);
  Status moveOnce(const Away& away, std::size_t device);
  // Where it does not fit, other objects leave the device; none for which `uses` is true.
  template <typename Uses>
  Status moveInPlaceOfOthers(const Away& away, std::size_t device, Uses uses);
  bool letLeave(const Away& object, std::size_t device);
  Status relocate(const Away& away, std::size_t device);
  Status gather(const Away& away, std::size_t device);
  Status settlePart(const Away& away, std::size_t device);
  Status unite(Lock& lock, Object& object, std::size_t device);
  Status complete(Lock& lock, Object& object, BlockRange range, std::size_t device);
  // Waits for the calls that `calls(object)` returns and for all copies of the object. NULL: it has
  // been freed.
  template <typename Calls>
  Object* settled(Lock& lock, const Away& away, Calls calls);
  // Moves an unused object without copying. False: the object is in use or has been freed.
  Result<bool> place(const Away& away, std::size_t device);
  static void tell(const Object& object);

  ObjectMutex& mutex_;
  accel::Devices* const devices_;  // NULL: one device, and nothing moves
  Ledger& ledger_;
  Waits& waits_;
  ObjectIndex& index_;
  FreedMemory& freed_;
  Blocks& blocks_;
  Launches& launches_;
  const RoomMaker room_;
  // Held from the first move for a call until the call is submitted, so that two threads that need
  // one object on two devices do not take it from each other for ever.
  std::mutex moving_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_MIGRATION_H_
