// SPDX-License-Identifier: Apache-2.0
//
// What becomes of a freed object's memory: it is kept for the next allocation of its size, or given
// back.
#include <memory>
#include <utility>

#include "gmac/coherence/manager.h"
#include "gmac/coherence/manager_lock.h"
#include "gmac/observe/stats.h"

namespace gmac {

// Keeps the memory of an object that nobody uses and no index holds. False: it has to be given
// back. Lets the lock go.
bool Manager::keep(Lock& lock, Object& object) {
  // Where new objects are Dirty their bytes count on the CPU's side, which nobody has cleared.
  if (protocol_->initial() != State::kReadOnly || !keepsFreed_ ||
      !pool_.admits(object.bytes(), livingBytes_)) {
    return false;
  }
  const auto cleared = [&]() -> Result<accel::Ticket> {
    const FreeForWork free(lock);
    GMAC_TRY(object.mirror->protect(0, object.bytes(), os::Access::kNone));
    // In the order of the kernel queue, so that nobody waits for it here. An accelerator that is
    // lost says so, and freeing tells.
    return accelerator_.fill(object.device, std::byte{0}, object.bytes());
  }();
  if (!cleared.ok()) {
    return false;
  }
  object.cleared = *cleared;
  object.clearedAfter = ledger_.lastCall();
  pool_.put(object);
  return true;
}

// Gives the memory of an object back that no index holds. Lets the lock go.
Status Manager::giveBack(Lock& lock, Object& object) {
  const Status status = [&] {
    const FreeForWork free(lock);
    object.mirror->withdraw();
    const Timed timed(Phase::kCudaFree);
    // What clears it may still run.
    (void)await(free, object.cleared);
    return accelerator_.free(object.device, object.bytes());
  }();
  retire(lock, object);
  return status;
}

// A kept object's memory for an allocation of `bytes` bytes; empty: there is none. The lock is
// free.
std::unique_ptr<Object> Manager::takeKept(std::size_t bytes, accel::Placement placement) {
  std::unique_ptr<Object> kept;
  {
    Lock lock(*this);
    // An allocation does not wait for the kernels of others: only for the clearing itself.
    kept.reset(pool_.take(
        bytes, placement == accel::Placement::kSameAddress, [this](const Object& object) {
          return accelerator_.done(object.cleared) || accelerator_.done(object.clearedAfter);
        }));
  }
  if (kept != nullptr && !accelerator_.wait(kept->cleared).ok()) {
    Lock lock(*this);
    (void)giveBack(lock, *kept.release());
  }
  return kept;
}

// Gives back all that is kept and all that is still pinned of freed objects, because memory has run
// out, or the accelerator goes. Whether there was anything. Lets the lock go.
bool Manager::giveBackKept(Lock& lock) {
  bool any = false;
  while (Object* object = pool_.takeOldest()) {
    any = true;
    (void)giveBack(lock, *object);
  }
  while (retiredBytes_ != 0) {
    any = true;
    if (retired_.empty()) {
      waitForChange(lock);
    } else {
      const Free free(lock);
      (void)disposeNext();
    }
  }
  return any;
}

bool Manager::isKept(std::uintptr_t device) {
  if (keptBytes() == 0) {
    return false;
  }
  const Lock lock(*this);
  return pool_.holds(device);
}

bool Manager::giveBackKept() {
  Lock lock(*this);
  return giveBackKept(lock);
}

}  // namespace gmac
