// SPDX-License-Identifier: Apache-2.0
//
// Several devices that reach each other's memory: pages go to the device that is to use them most.
#ifndef GMAC_COHERENCE_POLICIES_PLACEMENT_H_
#define GMAC_COHERENCE_POLICIES_PLACEMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/movable_memory.h"
#include "gmac/base/status.h"
#include "gmac/coherence/freed_memory.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"

namespace gmac {

class Launches;

// Where pages lie changes how fast a device reaches them, and nothing else. So pages move only
// while no device work is in flight: nobody waits for a kernel, which might itself wait for what
// the program does next. A wish that comes at another moment is kept until then. Thread-safe. Not
// for the fault handler, nor in a child of fork.
class Placement {
 public:
  Placement(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger, ObjectIndex& index,
            FreedMemory& freed, Launches& launches);
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // Whether there is a choice. Constant while a context lasts.
  bool chooses() const noexcept { return memory_ != nullptr && memory_->severalDevices(); }
  // The program asks for these bytes to lie on a device. Where their object's home is there
  // already, and it is not to stay `forGood`, they may have one copy nevertheless.
  Status prefer(const void* address, std::size_t bytes, int device, bool forGood);
  // A kernel on a device has been given an address: the object is wished there if no kernel was
  // given an address of it before, or if kernels of that device alone have been for long
  // (lone_worker.h); and if nothing else was said of it.
  Status namedBy(const void* address, int device);
  // The program has waited for device work.
  Status afterWait() { return waiting_.load(std::memory_order_relaxed) ? fulfil() : Status(); }

 private:
  struct Wish {
    const std::byte* address;
    std::size_t bytes;
    std::uint64_t number;  // the object's, which tells whether it is still the same
    int device;
    bool alone = false;  // its kernels alone name the object, all of which is to move
  };
  // Far more wishes than programs have; when they are exceeded, the oldest are dropped.
  static constexpr std::size_t kMostWishes = 1024;

  void remember(const Wish& wish);
  // Whether an older wish waits that has some of its bytes.
  bool contradicts(const Wish& wish) const;
  // Whether an object's bytes from there on lie on a device, or do when they do not have one copy.
  bool isAtHomeOn(int device, const Object& object, const std::byte* first,
                  std::size_t bytes) const;
  // Whether all bytes of a wish have one copy: they go there once they are on the accelerator
  // again.
  bool hasOneCopy(const Wish& wish);
  // Under the lock. Of the object that holds the wish's bytes; NULL: it is gone.
  Object* objectOf(const Wish& wish);
  Status fulfil();
  Status move(const Wish& wish);
  // Whether a kernel that names an object on another device than it lies on is a reason to move it.
  bool worksAlone(Object& object, int device);
  // Under the lock, when the object's pages have moved or not, which took so long.
  void tell(Object& object, const Wish& wish, bool moved, LoneWorker::Nanoseconds took);

  ObjectMutex& mutex_;
  accel::Accelerator& accelerator_;
  accel::MovableMemory* const memory_;
  Ledger& ledger_;
  ObjectIndex& index_;
  FreedMemory& freed_;
  Launches& launches_;
  std::vector<Wish> wishes_;          // oldest first; under the mutex
  std::atomic<bool> waiting_{false};  // there are some
  double bytesPerNanosecond_ = 20;    // of the latest move; under the mutex
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_PLACEMENT_H_
