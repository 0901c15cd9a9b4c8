// SPDX-License-Identifier: Apache-2.0
//
// Memory for bytes on their way between the CPU and a device.
#ifndef GMAC_DATATYPE_STAGING_H_
#define GMAC_DATATYPE_STAGING_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gmac/base/status.h"
#include "gmac/datatype/device.h"

namespace gmac::datatype {

class Staging;

// Role: one slot on loan: kSlotBytes of pinned CPU memory and as much of the device's. Move-only;
// goes back when it is destroyed, to be used again when the work behind its ticket is over.
class StagingSlot {
 public:
  StagingSlot() = default;
  StagingSlot(StagingSlot&& other) noexcept { swap(other); }
  StagingSlot& operator=(StagingSlot&& other) noexcept {
    swap(other);
    return *this;
  }
  ~StagingSlot();

  std::byte* pinned() const { return pinned_; }
  std::uint64_t device() const { return device_; }
  // The newest work that uses the slot.
  void usedUntil(accel::Ticket ticket) { ticket_ = ticket; }
  accel::Ticket ticket() const { return ticket_; }

 private:
  friend class Staging;
  void swap(StagingSlot& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(pinned_, other.pinned_);
    std::swap(device_, other.device_);
    std::swap(ticket_, other.ticket_);
  }

  Staging* owner_ = nullptr;
  std::byte* pinned_ = nullptr;
  std::uint64_t device_ = 0;
  accel::Ticket ticket_;
};

// Role: the slots of one device, made on demand, at most kMostSlots. Thread-safe; owned by the
// engine, never destroyed before it. Who has slots with work under way and asks for more must first
// give back, or it may wait for itself: an operation has at most kSlotsEach.
class Staging {
 public:
  static constexpr std::size_t kSlotBytes = std::size_t{4} << 20;
  static constexpr std::size_t kSlotsEach = 3;
  static constexpr std::size_t kMostSlots = 24;

  explicit Staging(Device& device) : device_(device) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // A slot whose earlier work is over. Waits when all are out.
  Result<StagingSlot> take();

 private:
  friend class StagingSlot;
  void giveBack(StagingSlot slot) noexcept;
  Result<StagingSlot> make();

  Device& device_;
  std::mutex mutex_;
  std::condition_variable given_;
  std::deque<StagingSlot> free_;  // the oldest first
  std::size_t made_ = 0;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_STAGING_H_
