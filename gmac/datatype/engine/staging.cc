// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/staging.h"

namespace gmac::datatype {

StagingSlot::~StagingSlot() {
  if (owner_ != nullptr) {
    owner_->giveBack(std::move(*this));
  }
}

Staging::~Staging() {
  for (StagingSlot& slot : free_) {
    (void)device_.accelerator().wait(slot.ticket_);
    device_.accelerator().freePinned(slot.pinned_, kSlotBytes);
    device_.free(slot.device_, kSlotBytes);
    slot.owner_ = nullptr;
  }
}

Result<StagingSlot> Staging::make() {
  auto pinned = device_.accelerator().allocatePinned(kSlotBytes);
  if (!pinned.ok()) {
    return pinned.status();
  }
  auto memory = device_.allocate(kSlotBytes);
  if (!memory.ok()) {
    device_.accelerator().freePinned(*pinned, kSlotBytes);
    return memory.status();
  }
  StagingSlot slot;
  slot.owner_ = this;
  slot.pinned_ = static_cast<std::byte*>(*pinned);
  slot.device_ = *memory;
  return slot;
}

Result<StagingSlot> Staging::take(std::size_t most) {
  std::unique_lock lock(mutex_);
  for (bool mayMake = true;;) {
    const bool full = !mayMake || made_ >= most;
    if (!free_.empty() && (full || device_.accelerator().done(free_.front().ticket_))) {
      StagingSlot slot = std::move(free_.front());
      free_.pop_front();
      lock.unlock();
      GMAC_TRY(device_.accelerator().wait(slot.ticket_));
      slot.ticket_ = {};
      return slot;
    }
    if (!full) {
      ++made_;
      lock.unlock();
      auto slot = make();
      if (!slot.ok()) {
        lock.lock();
        --made_;
        // Use the slots that exist, if there are any.
        if (made_ == 0) {
          return slot.status();
        }
        mayMake = false;
        continue;
      }
      return slot;
    }
    given_.wait(lock);
  }
}

void Staging::giveBack(StagingSlot slot) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(slot));
  given_.notify_one();
}

}  // namespace gmac::datatype
