// SPDX-License-Identifier: Apache-2.0
//
// More objects than the device's memory holds: those that were used least lately have the
// accelerator's copy in the CPU's memory, under the same address, and come back when there is room.
#ifndef GMAC_COHERENCE_POLICIES_SPILLING_H_
#define GMAC_COHERENCE_POLICIES_SPILLING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/movable_memory.h"
#include "gmac/base/status.h"
#include "gmac/coherence/allocation.h"
#include "gmac/coherence/freed_memory.h"
#include "gmac/coherence/launches.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/waits.h"

namespace gmac {

struct SpillOptions {
  bool allowed = true;                            // else an allocation that does not fit fails
  std::size_t leastBytes = std::size_t{2} << 20;  // smaller objects are not worth their move
};

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

  // As Allocation. Where the device's memory is full, makes room there, or takes the CPU's memory
  // for the new object. Where that fails too, the error is adsmErrorAcceleratorMemory and has the
  // words of both.
  Result<void*> allocate(std::size_t size, accel::Placement placement);
  Status free(void* address);
  // For an allocation of the application's own that has failed: moves one object out of the
  // device's memory. False: there is none that can move.
  bool makeRoom();
  // For devices that do not reach each other's memory: all of it goes to the CPU's, which they do
  // reach, and stays there. adsmErrorNotSupported, adsmErrorHostMemory.
  Status keepOnCpu();
  // Before device work: brings objects back if memory may have become free. A load, usually.
  void beforeWork() {
    if (roomMayBe_.load(std::memory_order_relaxed)) [[unlikely]] {
      bringBack();
    }
  }

 private:
  // An object while the lock is free: its number tells whether it is still the same.
  struct Candidate {
    std::byte* address = nullptr;
    std::size_t bytes = 0;
    std::uint64_t number = 0;
  };

  // The object in `home` that was used least lately, before the work with that number; the one that
  // was used last of those with at most `bytes` bytes. No address: there is none.
  Candidate leastLatelyUsed(std::uint64_t before);
  Candidate lastUsed(std::size_t bytes);
  Candidate anyOnDevice();
  // Whether moving what was used before that work makes so much room.
  bool sufficient(std::size_t bytes, std::uint64_t before);
  bool movable(const Object& object, accel::Home home) const;
  Status move(const Candidate& candidate, accel::Home home);
  Status waitForUsers(const Candidate& candidate, Object** object);
  static void tell(const Object& object);
  [[gnu::cold, gnu::noinline]] void bringBack();

  ObjectMutex& mutex_;
  accel::Accelerator& accelerator_;
  Ledger& ledger_;
  Waits& waits_;
  ObjectIndex& index_;
  FreedMemory& freed_;
  Allocation& allocation_;
  Launches& launches_;
  const std::size_t leastBytes_;
  accel::MovableMemory* const memory_;  // NULL: nothing moves
  std::mutex moving_;                   // one thread at a time makes room or brings back
  std::atomic<bool> roomMayBe_{false};
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_SPILLING_H_
