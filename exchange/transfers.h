// SPDX-License-Identifier: Apache-2.0
//
// The records of messages that are copied once, in the sender's file; see transfer.h for the
// messages, and outgoing.h and incoming.h for the two ends.
//
// A record in the sender's file goes through the phases of a slot. In kCollected its receiver reads
// and writes it, until it sets kFree. If the sender takes the message back then, it sets kFree
// itself, and uses record and ring again when the receiver has noticed (`left`) or has ended.
#ifndef GMAC_EXCHANGE_TRANSFERS_H_
#define GMAC_EXCHANGE_TRANSFERS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "exchange/exchange.h"
#include "exchange/layout_bytes.h"
#include "exchange/outbox.h"
#include "exchange/pinned_rings.h"
#include "exchange/shared_file.h"
#include "gmac/base/status.h"

namespace gmac::exchange::internal {

struct PathCounters {
  std::array<std::atomic<std::uint64_t>, kPaths> messages{};
  std::array<std::atomic<std::uint64_t>, kPaths> bytes{};
  void add(Path path, std::int64_t count) {
    messages[static_cast<std::size_t>(path)].fetch_add(1, std::memory_order_relaxed);
    bytes[static_cast<std::size_t>(path)].fetch_add(static_cast<std::uint64_t>(count),
                                                    std::memory_order_relaxed);
  }
};

// The records of this process, and the layouts that it has laid down for others. Thread-safe.
class Transfers {
 public:
  // `rank`: this process's.
  Transfers(std::shared_ptr<Outbox> outbox, int rank);

  // A record in phase kWritten; all but its state and what depends on the message's memory is set.
  // `pinned`: its ring of pinned memory, if it has one; kept as long as the record is.
  Result<std::size_t> take(int receiver, const SharedLayoutPtr& layout, const SendOptions& options,
                           const std::shared_ptr<Peer>& peer, PinnedRings::Use pinned);
  // `taken`: the receiver is at it still.
  void giveBack(std::size_t record, bool taken);
  // The receiver frees it: a copy is left there, or a ring.
  void leave(std::size_t record);
  // There is no room: takes back what receivers have freed, and layouts that nobody uses. Whether
  // there was any.
  bool makeRoom();
  // Takes back copies that receivers have freed, whose pages the system gets. A load if there are
  // none.
  void sweep();
  // Where the message's copy goes; it has memory from then on.
  Result<std::byte*> copyOf(std::size_t record);

  TransferRecord& record(std::size_t index) const { return outbox_->file().transfer(index); }
  std::uint64_t idOf(std::size_t index) const;
  // The ring of pinned memory of a record that has one; and nothing of the message is there any
  // more. (A receiver that reads there still learns of that before it believes what it has read.)
  std::byte* pinnedRing(std::size_t index) const;
  void givePinnedRingBack(std::size_t index);
  const std::shared_ptr<Outbox>& outbox() const { return outbox_; }
  int rank() const { return rank_; }

  PathCounters sent;

 private:
  struct Laid {
    std::size_t offset;
    std::size_t room;
    std::size_t users;
    std::list<LayoutHash>::iterator idle;
  };
  struct Entry {
    std::uint64_t id = 0;  // 0: free
    std::size_t ring = 0;
    std::size_t ringBytes = 0;
    std::size_t copy = 0;
    std::size_t copyBytes = 0;
    bool copyHasPages = false;
    bool laid = false;  // whether the layout is in laid_
    LayoutHash hash{};
    std::size_t ownLayout = 0;  // of a layout that is laid down for this message alone
    std::size_t ownLayoutBytes = 0;
    PinnedRings::Use pinned;
    std::shared_ptr<Peer> peer;
    bool taken = false;  // by a receiver that is at it still
  };

  // All under the lock.
  Status lay(const SharedLayout& layout, LayoutExchange how, TransferRecord& record, Entry& entry);
  // Room for a layout; layouts that nobody uses make way.
  Result<std::size_t> takeLayoutRoom(std::size_t bytes);
  Result<std::size_t> takeRoom(std::size_t bytes, Result<std::size_t> (Outbox::*take)(std::size_t));
  // Of the ring and the copy.
  void giveRoomBack(const Entry& entry);
  void release(std::size_t index);
  bool sweepTaken(bool ofEndedToo);
  void dropOldestLayout();
  bool sweepAll();

  const std::shared_ptr<Outbox> outbox_;
  const int rank_;
  mutable std::mutex lock_;  // guards what follows
  std::vector<Entry> entries_;
  std::vector<std::size_t> free_;
  std::vector<std::size_t> taken_;  // or left
  std::atomic<std::size_t> takenCount_{0};
  std::uint64_t ids_ = 0;
  std::map<LayoutHash, Laid> laid_;
  std::list<LayoutHash> idle_;  // unused for longest first
};

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_TRANSFERS_H_
