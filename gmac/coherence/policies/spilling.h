// SPDX-License-Identifier: Apache-2.0
//
// More objects than a device's memory holds: those that were used least lately have the
// accelerator's copy in the memory of another device that reaches it, or in the CPU's, under the
// same address, and come back when there is room.
#ifndef GMAC_COHERENCE_POLICIES_SPILLING_H_
#define GMAC_COHERENCE_POLICIES_SPILLING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/movable_memory.h"
#include "gmac/base/status.h"
#include "gmac/coherence/freed_memory.h"
#include "gmac/coherence/launches.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/options.h"
#include "gmac/coherence/waits.h"

namespace gmac {

class Allocation;
class Ledger;

// Kernels never meet a missing page: what lies in the CPU's memory they reach over the bus. Moving
// an object waits for all device work that may use it, and changes nothing of what the CPU and the
// accelerator see. Thread-safe. Not for the fault handler, nor in a child of fork.
class Spilling {
 public:
  Spilling(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger, Waits& waits,
           ObjectIndex& index, FreedMemory& freed, Allocation& allocation, Launches& launches,
           const SpillOptions& options);
  Spilling(const Spilling&) = delete;
  Spilling& operator=(const Spilling&) = delete;

  // As Allocation. Where the device's memory is full, makes room there, or takes another device's
  // memory, or the CPU's, for the new object. Where that fails too, the error is
  // adsmErrorAcceleratorMemory and has the words of both.
  Result<void*> allocate(std::size_t size, accel::Placement placement);
  // See adsm.h. `devices`: different ones, by number. An object that cannot be striped, or for
  // whose pieces a device has no room, is as allocate() makes it; a message says why.
  Result<void*> allocateStriped(std::size_t size, std::span<const std::size_t> devices);
  Status free(void* address);
  // Whether no device has room now for an object of that size and kLeftFree besides, even if all
  // other objects left it. False where that cannot be told, or no object may leave a device.
  bool fitsNowhere(std::size_t bytes);
  // For an allocation that is no object and has failed: moves one object out of the memory of that
  // device, by the driver's number. False: there is none that can move.
  bool makeRoom(int device);
  // The device that the thread works with; the first of those with memory.
  int here() const { return several() ? memory_->deviceHere() : 0; }
  int first() const { return several() ? memory_->devicesWithMemory().front() : 0; }
  // Where an object's memory may lie.
  struct Place {
    accel::Home home;
    int device;          // of kDevice and kApart
    bool alone = false;  // elsewhere than memory is gathered
  };
  // An object while the lock is free: its number tells whether it is still the same.
  struct Candidate {
    std::byte* address = nullptr;
    std::size_t bytes = 0;
    std::uint64_t number = 0;
  };
  // Bytes that stay free on a device when objects go there: the application allocates, too.
  static constexpr std::size_t kLeftFree = std::size_t{64} << 20;
  // For devices that do not reach each other's memory (gathering.h): memory is made there from now
  // on, and all objects move there. Nothing is allocated meanwhile, and no work begins. The first
  // error; then some objects lie where they lay, if gatheredIn() has changed. Besides the errors of
  // moves: adsmErrorNotSupported.
  Status gather(const Place& place);
  // The same of one object. It waits for the calls that use the object, and for the application's
  // streams. After an error some of it may have moved.
  Status gatherOne(const Candidate& candidate, const Place& place);
  // Whether beforeWork() has something to do. Three loads.
  bool isDue() const {
    return roomMayBe_.load(std::memory_order_relaxed) || launches_.guestsAreDue() ||
           keepsPages_.load(std::memory_order_relaxed);
  }
  // Before device work: brings objects back if memory may have become free, and in place of others
  // where work uses them more (guest_policy.h). Three loads, usually.
  void beforeWork() {
    if (roomMayBe_.load(std::memory_order_relaxed)) [[unlikely]] {
      bringBack();
    }
    if (launches_.guestsAreDue() || keepsPages_.load(std::memory_order_relaxed)) [[unlikely]] {
      exchange();
    }
  }

 private:
  // An object that is not in its device's memory, which may come closer.
  struct Guest {
    Candidate candidate;
    std::uint64_t used;
    bool onCpu;
    int wanted;
  };

  Result<void*> allocateAnywhere(std::size_t size, accel::Placement placement);
  // A new object on a device: what guests were used before its time is no regret against it.
  void beginsHere(void* address);
  // Whether objects lie on the accelerator's own devices, where they spill and come back.
  bool atHome() const { return memory_->gatheredIn() == accel::Home::kDevice; }
  bool several() const { return memory_ != nullptr && memory_->severalDevices(); }
  Result<accel::MemoryRoom> roomOn(int device) const;
  // Other devices than `device` with room for an object besides a reserve, the one with the most
  // room first.
  std::vector<int> peersWithRoom(std::size_t bytes, int device) const;
  // The object in a device's memory that was used least lately, before the work with that number.
  // Those whose home the program has named come last. No address: there is none.
  Candidate leastLatelyUsed(std::uint64_t before, int device);
  // Objects in a device's memory that were used before that work; `bytes` of each are there.
  struct Used {
    Candidate candidate;
    std::uint64_t used;
    bool advised;
    accel::DeviceAddress address;
    std::uint64_t bytesUsed;
  };
  std::vector<Used> usedBefore(std::uint64_t before);
  std::size_t bytesOn(const Used& used, int device) const;
  std::vector<Candidate> allButMirrors();
  // The room on a device once what was used before that work has left it. Errors of roomOn().
  Result<std::size_t> roomWithout(std::uint64_t before, int device);
  // Whether roomWithout() is at least `bytes`.
  bool sufficient(std::size_t bytes, std::uint64_t before, int device);
  bool movable(const Object& object, accel::Home home) const;
  // Out of a device's memory.
  Status spill(const Candidate& candidate, int from);
  // `wanted`: Object::spilledFrom.
  Status move(const Candidate& candidate, const Place& place, int wanted);
  Status moveMemory(const Object& object, const Place& place) const;
  Object* waitForUsers(const Candidate& candidate, bool ofItAlone);
  // Those that may come closer, the newest used first.
  std::vector<Guest> guests();
  // A better place for one of them than it has; none: there is no room.
  std::optional<Place> betterPlace(const Guest& guest) const;
  void tell(const Object& object, const Place& place) const;
  [[gnu::cold, gnu::noinline]] void bringBack();
  // A guest for which it is time to look for a better place.
  struct DueGuest {
    Candidate candidate;
    int device;
  };
  // Objects that a guest could replace, and how much of them work has used.
  struct Places {
    std::vector<Candidate> objects;
    std::uint64_t bytes = 0;
    std::uint64_t bytesUsed = 0;
    bool suffice = false;
  };
  [[gnu::cold, gnu::noinline]] void exchange();
  std::vector<DueGuest> dueGuests();
  Places placesFor(std::size_t bytes, int device);
  bool exchange(const DueGuest& guest);  // whether it was made
  void letPagesGo();                     // moving_ is held

  ObjectMutex& mutex_;
  accel::Accelerator& accelerator_;
  Ledger& ledger_;
  Waits& waits_;
  ObjectIndex& index_;
  FreedMemory& freed_;
  Allocation& allocation_;
  Launches& launches_;
  const std::size_t leastBytes_;
  const bool allowed_;
  accel::MovableMemory* const memory_;  // NULL: nothing moves
  std::mutex moving_;                   // one thread at a time makes room or brings back
  std::atomic<bool> roomMayBe_{false};
  // The CPU's pages that exchanges have left are kept, as guests often come one after the other;
  // until work comes that exchanges nothing, or other objects move.
  std::atomic<bool> keepsPages_{false};
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_SPILLING_H_
