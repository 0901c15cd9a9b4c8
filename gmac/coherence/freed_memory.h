// SPDX-License-Identifier: Apache-2.0
//
// The memory of freed objects: it is kept for the next allocation of its size, or given back.
#ifndef GMAC_COHERENCE_FREED_MEMORY_H_
#define GMAC_COHERENCE_FREED_MEMORY_H_

#include <atomic>
#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/movable_memory.h"
#include "gmac/base/status.h"
#include "gmac/coherence/alarm.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/object_pool.h"
#include "gmac/coherence/waits.h"

namespace gmac {

class Ledger;

// Owns objects that are in no index any more; giveBackAll() comes before its end. Takes the lock
// itself where it is given none. Giving back lets the lock go. Not on the path of a fault that
// succeeds; one that lacks memory gives back what is kept.
class FreedMemory {
 public:
  // `keptBytes`: how much is kept besides an eighth of what lives; 0: nothing ever. `staysOpen`:
  // see mayStayOpen().
  FreedMemory(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger, Waits& waits,
              std::size_t keptBytes, bool staysOpen)
      : mutex_(mutex),
        accelerator_(accelerator),
        ledger_(ledger),
        waits_(waits),
        pool_(keptBytes),
        staysOpen_(staysOpen) {}
  FreedMemory(const FreedMemory&) = delete;
  FreedMemory& operator=(const FreedMemory&) = delete;

  // An object was made; was freed; has another home, and perhaps is not in the memory of a device
  // where it belongs (Object::spilledFrom).
  void born(const Object& object) {
    livingBytes_ += object.bytes();
    spilled_ += object.spilled() ? 1 : 0;
  }
  void died(const Object& object) {
    livingBytes_ -= object.bytes();
    spilled_ -= object.spilled() ? 1 : 0;
  }
  void moves(Object& object, accel::Home home, int spilledFrom = -1) {
    died(object);
    object.home = home;
    object.spilledFrom = spilledFrom;
    born(object);
  }
  // The bytes of objects that live. Under the lock.
  std::size_t livingBytes() const { return livingBytes_; }
  // How many objects have the CPU's memory, or another device's, in place of a device's, which is
  // full then: nothing is kept. For everybody, without the lock.
  std::size_t spilled() const noexcept { return spilled_.load(std::memory_order_relaxed); }

  // Whether what the CPU has open of an object that is being freed may stay so while its memory is
  // kept (Object::keptOpen), and be open in the next object from its allocation on: no protection
  // change, no fault. Where all that is open is dirty, little, and in one piece; or where the
  // object has one copy, and the CPU and kernels use it at once. Of small objects in programs for
  // managed memory alone, whose freed memory stays accessible under CUDA, too, where another small
  // object lives; elsewhere an access to it crashes. (Such an object with one copy keeps it in any
  // case, unless no work comes in several lives.) Under the lock, with the blocks as they were.
  bool mayStayOpen(const Object& object) const;
  // Whether an object is of that kind.
  bool comesAndGoes(const Object& object) const;
  // Keeps the memory of an object that nobody uses and no index holds, or gives it back, and other
  // memory where too much is kept. Its bytes on the accelerator are zero already where it still has
  // `zeroSince`. The error is the accelerator's that did not take it.
  Status take(Lock& lock, Object& object);
  struct Request {
    std::size_t bytes;
    accel::Placement placement;
    std::size_t blockBytes;  // of the new object; 0: it is one block
  };
  // A kept object's memory for an allocation; empty: there is none. Its open bytes are zero. The
  // lock is free.
  std::unique_ptr<Object> reuse(const Request& request);
  // Gives back all that is kept and all that is still pinned of freed objects, because memory has
  // run out, or the accelerator goes. Whether there was anything.
  bool giveBackAll(Lock& lock);
  bool giveBackAll();
  // Stops, or resumes, keeping memory.
  void keepNothing() { keeps_ = false; }
  void keepAgain() { keeps_ = true; }

  // Whether the byte that the accelerator knows at `device` is kept; how much of the device's
  // memory is. Thread-safe.
  bool isKept(std::uintptr_t device);
  std::size_t keptBytes() const noexcept { return pool_.bytesOnDevice(); }

  // Pages are unpinned by a thread that sleeps on the alarm and calls disposeNext(); NULL: by
  // whoever frees.
  void disposeBy(Alarm* thread) { disposer_ = thread; }
  // Gives the pages of one freed object back; false when there is none.
  bool disposeNext();
  bool hasMore();

  // An object as large gets pages of its own under CUDA, which a free takes away.
  static constexpr std::size_t kLeastClosed = std::size_t{2} << 20;

 private:
  // As much is cleared in the time of a fault and its protection changes.
  static constexpr std::size_t kMostKeptOpen = std::size_t{256} << 10;

  bool keep(Lock& lock, Object& object);
  void leaveCpu(Lock& lock, Object& object);
  bool leavePages(Lock& lock, Object& object);
  static Status clearOpen(Object& kept, std::size_t blockBytes);
  Status giveBack(Lock& lock, Object& object);
  void retire(Lock& lock, Object& object);

  ObjectMutex& mutex_;
  accel::Accelerator& accelerator_;
  Ledger& ledger_;
  Waits& waits_;
  ObjectPool pool_;
  const bool staysOpen_;
  bool keeps_ = true;
  std::size_t livingBytes_ = 0;
  std::atomic<std::size_t> spilled_{0};
  boost::intrusive::list<Object> retired_;  // whose pages are still pinned
  std::size_t retiredBytes_ = 0;            // of those, and of those on their way
  Alarm* disposer_ = nullptr;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_FREED_MEMORY_H_
