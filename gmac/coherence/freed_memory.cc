// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/freed_memory.h"

#include <utility>

#include "gmac/base/fill_in_pieces.h"
#include "gmac/coherence/ledger.h"
#include "gmac/observe/stats.h"

namespace gmac {

bool FreedMemory::comesAndGoes(const Object& object) const {
  return staysOpen_ && !object.sharedBySmallObjects && !object.advised &&
         object.bytes() < kLeastClosed;
}

bool FreedMemory::mayStayOpen(const Object& object) const {
  if (!comesAndGoes(object) || object.protectionIsStale() || object.spread()) {
    return false;
  }
  if (object.isZeroCopy()) {
    return object.concurrent || object.zeroCopy.mayBeConcurrent();
  }
  std::size_t bytes = 0;
  for (BlockIndex i = object.open.begin; i < object.open.end; i = i + 1) {
    const State state = object.made(i) ? object[i].state : object.rest(i);
    if (state != State::kInvalid && !(isDirty(state) && object.made(i))) {
      return false;
    }
    bytes += object.currentOf(i).length();
  }
  constexpr std::size_t kOfOnePiece = 2;
  return bytes != 0 && bytes <= kMostKeptOpen && object.edges <= kOfOnePiece;
}

// For an object with blocks of that size, or for one of one block.
Status FreedMemory::clearOpen(Object& kept, std::size_t blockBytes) {
  const auto clear = [&](ByteRange bytes) {
    fillInPieces(kept.address() + bytes.begin, 0, bytes.length());
  };
  if (kept.isZeroCopy()) {
    if (!kept.keptOpen || !kept.allDirty()) {
      GMAC_TRY(kept.mirror->protect(0, kept.bytes(), os::Access::kReadWrite));
    }
    clear({0, kept.bytes()});
    return kept.keptOpen ? Status() : kept.mirror->protect(0, kept.bytes(), os::Access::kNone);
  }
  if (!kept.keptOpen) {
    return {};
  }
  const bool sameBlocks = blockBytes == 0 ? kept.blockCount == 1 : kept.blockBytes == blockBytes;
  if (!sameBlocks) {
    kept.open = {};
    return kept.mirror->protect(0, kept.bytes(), os::Access::kNone);
  }
  for (BlockIndex i = kept.open.begin; i < kept.open.end; i = i + 1) {
    const ByteRange current = kept.currentOf(i);
    if (current != kept.openOf(i)) {
      GMAC_TRY(kept.mirror->protect(current.begin, current.length(), os::Access::kReadWrite));
    }
    clear(current);
  }
  return {};
}

// Pages with one copy lie on the accelerator again. False: some do not.
bool FreedMemory::leavePages(Lock& lock, Object& object) {
  bool left = true;
  {
    const FreeForWork free(lock);
    accel::MovableMemory& memory = *accelerator_.movableMemory();
    const int device = object.deviceNumber(memory);
    for (const std::unique_ptr<Object>& page : object.pages) {
      left &= memory.movePage(page->device, page->bytes(), object.home, device).ok();
    }
  }
  object.pages.clear();
  return left;
}

Status FreedMemory::take(Lock& lock, Object& object) {
  const bool whole = object.pages.empty() || leavePages(lock, object);
  if (object.isZeroCopy() &&
      !(comesAndGoes(object) &&
        object.zeroCopy.outlives(object.keptOpen && ledger_.newestWork() > object.born))) {
    object.keptOpen = false;
    leaveCpu(lock, object);
    if (!object.isZeroCopy()) {
      object.zeroCopy.moved(false);
      object.readBack = {};
    }
  }
  const Status status = whole && keep(lock, object) ? Status() : giveBack(lock, object);
  // With less that lives less is kept.
  while (Object* excess = pool_.takeExcess(livingBytes_)) {
    (void)giveBack(lock, *excess);
  }
  return status;
}

// False: it has to be given back. Lets the lock go.
bool FreedMemory::keep(Lock& lock, Object& object) {
  const bool oneCopy = object.isZeroCopy() && comesAndGoes(object);
  if (!keeps_ || spilled_ != 0 || (object.home != accel::Home::kDevice && !oneCopy) ||
      object.relocated || !pool_.admits(object.bytes(), livingBytes_)) {
    return false;
  }
  const auto cleared = [&]() -> Result<accel::Ticket> {
    const FreeForWork free(lock);
    if (!object.keptOpen) {
      GMAC_TRY(object.mirror->protect(0, object.bytes(), os::Access::kNone));
    }
    if (object.zeroSince || oneCopy) {
      return accel::Ticket{};
    }
    // In the order of the kernel queue, so that nobody waits for it here. An accelerator that is
    // lost says so, and freeing tells.
    return accelerator_.fill(object.device, std::byte{0}, object.bytes());
  }();
  // (Objects may have been gathered elsewhere while the lock was free.)
  const accel::MovableMemory* const memory = accelerator_.movableMemory();
  const accel::Home home = oneCopy ? accel::Home::kDevice : object.home;
  if (!cleared.ok() || (memory != nullptr && memory->gatheredIn() != home)) {
    object.cleared = cleared.ok() ? *cleared : object.cleared;
    return false;
  }
  object.cleared = *cleared;
  object.clearedAfter = ledger_.lastCallBeside(*cleared);
  pool_.put(object);
  return true;
}

// An object with one copy: the CPU's pages go before the device's do.
void FreedMemory::leaveCpu(Lock& lock, Object& object) {
  const FreeForWork free(lock);
  if (accelerator_.movableMemory()
          ->move(object.device, object.bytes(), accel::Home::kDevice)
          .ok()) {
    object.home = accel::Home::kDevice;
    object.mirror->removeMargin();
  }
}

Status FreedMemory::giveBack(Lock& lock, Object& object) {
  if (object.isZeroCopy()) {
    leaveCpu(lock, object);
  }
  const Status status = [&] {
    const FreeForWork free(lock);
    object.mirror->withdraw();
    const Timed timed(Phase::kCudaFree);
    // The fill that clears it may still run.
    (void)waits_.await(free, object.cleared);
    return accelerator_.free(object.device, object.bytes());
  }();
  retire(lock, object);
  return status;
}

std::unique_ptr<Object> FreedMemory::reuse(const Request& request) {
  std::unique_ptr<Object> kept;
  const accel::MovableMemory* const memory = accelerator_.movableMemory();
  const int here = memory == nullptr ? 0 : memory->deviceHere();
  {
    Lock lock(mutex_);
    // An allocation does not wait for the kernels of others: only for the clearing itself.
    const bool sameAddress = request.placement == accel::Placement::kSameAddress;
    kept.reset(pool_.take(request.bytes, sameAddress, [&](const Object& object) {
      return object.pagesOn == here &&
             (accelerator_.done(object.cleared) || accelerator_.done(object.clearedAfter));
    }));
  }
  if (kept != nullptr &&
      !(accelerator_.wait(kept->cleared).ok() && clearOpen(*kept, request.blockBytes).ok())) {
    Lock lock(mutex_);
    (void)giveBack(lock, *kept.release());
  }
  return kept;
}

bool FreedMemory::giveBackAll(Lock& lock) {
  bool any = false;
  while (Object* object = pool_.takeOldest()) {
    any = true;
    (void)giveBack(lock, *object);
  }
  while (retiredBytes_ != 0) {
    any = true;
    if (retired_.empty()) {
      lock.waitForChange();
    } else {
      const Free free(lock);
      (void)disposeNext();
    }
  }
  return any;
}

bool FreedMemory::giveBackAll() {
  Lock lock(mutex_);
  return giveBackAll(lock);
}

bool FreedMemory::isKept(std::uintptr_t device) {
  if (pool_.bytes() == 0) {
    return false;
  }
  const Lock lock(mutex_);
  return pool_.holds(device);
}

// Gives a freed object's pages back: at once where there is no thread for it, or where it has too
// much to do already.
void FreedMemory::retire(Lock& lock, Object& object) {
  constexpr std::size_t kMaxRetiredBytes = std::size_t{2} << 30;
  if (disposer_ != nullptr && retiredBytes_ + object.bytes() <= kMaxRetiredBytes) {
    retiredBytes_ += object.bytes();
    retired_.push_back(object);
    disposer_->ring();
    return;
  }
  const FreeForWork free(lock);
  delete &object;
}

bool FreedMemory::disposeNext() {
  Lock lock(mutex_);
  if (retired_.empty()) {
    return false;
  }
  Object& object = retired_.front();
  retired_.pop_front();
  const std::size_t bytes = object.bytes();
  {
    const FreeForWork free(lock);
    delete &object;
  }
  retiredBytes_ -= bytes;
  lock.changed();
  return true;
}

bool FreedMemory::hasMore() {
  const Lock lock(mutex_);
  return !retired_.empty();
}

}  // namespace gmac
