// SPDX-License-Identifier: Apache-2.0
//
// Buffers for bytes in transit between the CPU and a device.
#ifndef GMAC_DATATYPE_ENGINE_STAGING_H_
#define GMAC_DATATYPE_ENGINE_STAGING_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gmac/base/status.h"
#include "gmac/datatype/engine/device.h"

namespace gmac::datatype {

class Staging;

// A slot on loan: kSlotBytes of pinned CPU memory and as much device memory. Move-only; returned
// when destroyed, and used again once the work of its ticket is over.
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
  // Notes the latest work that uses the slot.
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

// The slots of one device, made on demand, at most kMaxSlots. Thread-safe; owned by the engine,
// never destroyed before it. A thread that holds slots must return some before it takes more, or it
// may wait for itself: an operation has at most kSlotsEach.
class Staging {
 public:
  static constexpr std::size_t kSlotBytes = std::size_t{4} << 20;
  static constexpr std::size_t kSlotsEach = 3;
  static constexpr std::size_t kMaxSlots = 24;

  explicit Staging(Device& device) : device_(device) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // A slot whose earlier work is over. Waits while all are on loan. `most`: while there are so
  // many, waits for the work of one rather than make another.
  Result<StagingSlot> take(std::size_t most = kMaxSlots);

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

#endif  // GMAC_DATATYPE_ENGINE_STAGING_H_
