// SPDX-License-Identifier: Apache-2.0
//
// Memory through which messages go from this process's device to another one's where neither
// reaches the other's memory: the sender's device copies into it while the receiver's copies out
// of it, each over its own bus ("copy in/out", "GPU-aware datatype engine" of Open MPI, section
// 4.2).
#ifndef GMAC_EXCHANGE_PINNED_RINGS_H_
#define GMAC_EXCHANGE_PINNED_RINGS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "exchange/attempts.h"
#include "exchange/device_functions.h"
#include "exchange/exports.h"
#include "exchange/outbox.h"
#include "exchange/peer.h"
#include "exchange/shared_file.h"
#include "gmac/base/descriptor.h"
#include "gmac/base/range_allocator.h"
#include "gmac/base/status.h"

namespace gmac::exchange::internal {

struct PinnedRingOptions {
  std::size_t bytes;  // of a ring, a multiple of 4096
  std::size_t most;   // rings at a time
};

// The rings of this process, each a memory file that one other process has mapped as well.
// Messages that are shorter than a ring have parts of one at the same time. Both
// processes pin it, which takes milliseconds, so a ring that no message uses is kept for the next
// one to that process; the one that was unused for longest makes way for another process's. The
// worst case is messages to more processes in turn than there may be rings: each makes a ring.
// Thread-safe: one lock, which is held while a ring is made.
class PinnedRings : public std::enable_shared_from_this<PinnedRings> {
 private:
  struct Ring {
    Ring(Mapping made, std::size_t bytes) : mapping(std::move(made)), room(0, bytes) {}
    Mapping mapping;
    ExportId id = kNoExport;
    int rank = 0;
    bool isPinned = false;
    RangeAllocator room;
    std::size_t users = 0;
  };

 public:
  // Part of a ring while a message uses it, or all of it. Owner; may outlive the exchange.
  class Use {
   public:
    Use() = default;
    Use(Use&& other) noexcept { swap(other); }
    Use& operator=(Use&& other) noexcept {
      Use(std::move(other)).swap(*this);
      return *this;
    }
    // Neither process's device copies there any more.
    ~Use();
    explicit operator bool() const { return ring_ != nullptr; }
    std::byte* data() const { return ring_->mapping.data() + offset_; }
    ExportId id() const { return ring_->id; }
    std::size_t offset() const { return offset_; }
    std::size_t bytes() const { return bytes_; }

   private:
    friend class PinnedRings;
    void swap(Use& other) noexcept {
      std::swap(rings_, other.rings_);
      std::swap(ring_, other.ring_);
      std::swap(offset_, other.offset_);
      std::swap(bytes_, other.bytes_);
    }
    std::shared_ptr<PinnedRings> rings_;
    Ring* ring_ = nullptr;
    std::size_t offset_ = 0;
    std::size_t bytes_ = 0;
  };

  // `device`: pins it; may be NULL.
  PinnedRings(std::shared_ptr<Outbox> outbox, std::shared_ptr<Exports> exports,
              const DeviceFunctions* device, const PinnedRingOptions& options);
  ~PinnedRings();

  // So many bytes (not 0, a multiple of 4096; of more, a whole ring) that nobody uses, of a ring
  // that the process of that rank has been given. `peers` by rank. adsmErrorHostMemory: as many as
  // there may be are in use, or there is no memory for one; adsmErrorSystem: that process's queue
  // is full now, or it is gone.
  Result<Use> take(int rank, std::size_t bytes, const std::vector<std::shared_ptr<Peer>>& peers);

 private:
  // All under the lock.
  Status make(int rank);
  void unpin(const Ring& ring) const;
  bool dropOldest(const std::vector<std::shared_ptr<Peer>>& peers);

  const std::shared_ptr<Outbox> outbox_;
  const std::shared_ptr<Exports> exports_;
  const DeviceFunctions* const device_;
  const PinnedRingOptions options_;
  std::mutex lock_;        // guards what follows
  std::list<Ring> rings_;  // unused for longest first
  Attempts attempts_;      // to make one
};

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_PINNED_RINGS_H_
