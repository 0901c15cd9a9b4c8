// SPDX-License-Identifier: Apache-2.0
//
// Both ends of messages that are copied once; see transfer.h.
//
// A record in the sender's file goes through the phases of a slot. In kCollected its receiver reads
// and writes it, until it sets kFree. If the sender takes the message back then, it sets kFree
// itself, and uses record and ring again when the receiver has noticed (`left`) or has ended.
#ifndef GMAC_EXCHANGE_TRANSFERS_H_
#define GMAC_EXCHANGE_TRANSFERS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "exchange/copies.h"
#include "exchange/device_reads.h"
#include "exchange/exchange.h"
#include "exchange/imports.h"
#include "exchange/layout_bytes.h"
#include "exchange/outbox.h"
#include "exchange/packed_ahead.h"
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
  Result<std::size_t> take(int receiver, const SharedLayoutPtr& layout, const SendOptions& options,
                           const std::shared_ptr<Peer>& peer);
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

// Waits a little longer each time, and asks now and then whether a process lives.
class Patience {
 public:
  // True: it is time to ask.
  bool passed();

 private:
  std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
};

class Outgoing {
 public:
  // `ahead`: how much is packed ahead of a message in device memory.
  Outgoing(std::shared_ptr<Transfers> transfers, std::shared_ptr<Peer> peer, std::size_t record,
           const std::byte* base, Copies copies, SharedLayoutPtr layout,
           std::size_t layoutPartBytes, int receiver, Path path, bool leavesRing,
           const AheadOptions& ahead);
  ~Outgoing();

  std::int64_t bytes() const { return layout_->layout.bytes(); }
  Path path() const { return path_; }
  void describe(std::span<std::byte, kDescriptionBytes> description);
  Result<bool> advance();
  bool recall();
  Result<bool> leaveCopy(bool evenIfBegun);
  bool declined() const { return declined_; }

 private:
  Status produce(TransferRecord& record, std::int64_t most);
  // All of it is in the ring.
  Result<bool> leaveRing(TransferRecord& record);
  // The next part of a layout that is laid down in parts.
  void layNextPart(TransferRecord& record);
  // The receiver's count of the messages that wait for it; see SharedFile::waitingOf().
  void countWaiting(bool begins);
  Result<bool> freed(const TransferRecord& record);
  void finish(bool taken);

  const std::shared_ptr<Transfers> transfers_;
  const std::shared_ptr<Peer> peer_;
  const std::size_t index_;
  const std::uint64_t id_;
  const std::byte* const base_;
  const Copies copies_;
  const SharedLayoutPtr layout_;
  const std::size_t layoutPartBytes_;
  const int receiver_;
  const AheadOptions aheadOptions_;
  Path path_;
  const bool leavesRing_;
  std::int64_t produced_ = 0;
  std::size_t laid_ = 0;                // of the layout
  std::unique_ptr<PackedAhead> ahead_;  // NULL: nothing is packed ahead
  bool described_ = false;
  bool copied_ = false;
  bool declined_ = false;
  bool over_ = false;
  adsmError_t failed_ = adsmSuccess;
  Patience patience_;
};

class Incoming {
 public:
  Incoming(std::shared_ptr<Peer> peer, std::shared_ptr<Imports> imports,
           std::shared_ptr<PathCounters> counters, int sender, std::size_t record, std::uint64_t id,
           std::byte* base, Copies copies, const DeviceFunctions* device, datatype::Layout to);
  ~Incoming();

  // Reads what the sender says, once. Later it may be otherwise. `own`: the receiver's layout, if
  // it is one that is shared; else NULL.
  Status begin(LayoutTable& layouts, const SharedLayoutPtr& own, std::int64_t bytes, bool copied);
  std::int64_t bytes() const { return bytes_; }
  Path path() const { return path_; }
  Result<bool> advance(std::int64_t most);
  const std::byte* packed() const;
  bool isBeingPacked() const;
  Result<bool> end();

 private:
  Status readLayout(LayoutTable& layouts, const SharedLayoutPtr& own);
  // Whether bytes from done_ on are in from_, of which the next part may have to be read for that.
  Result<bool> hasLayout();
  // Whether that is in what is imported.
  bool isImported(const datatype::Bounds& bounds) const;
  // Imports the memory that, as the sender says, the message lies in; if it cannot be imported, the
  // path is kRead or kRing.
  Status importSource(ExportKind kind, ExportId id, std::int64_t offset);
  // So many bytes were read; 0: the path is kRing from now on.
  Result<std::int64_t> read(std::int64_t most);
  Result<std::int64_t> unpackRing(std::int64_t most);
  // Whether the ring holds the whole message, which the sender packs there without waiting.
  bool ringHoldsAll() const { return path_ == Path::kRing && ringBytes_ >= bytes_; }
  Result<std::int64_t> step(std::int64_t most);
  void askForRing();
  Status tookBack() const;
  Status isOver() const;
  // Where the sender packs fragments ahead, if this process's device reaches that.
  Status findAhead(const TransferRecord& said);
  // The sender has left a copy, which is to be read from now on.
  Status moveToCopy();
  // After bytes were read: whether they were the message's, and all of it. False: there are more,
  // or they are elsewhere.
  Result<bool> conclude();
  // Lets go of the record; false: the sender has taken it back, or left a copy.
  bool letGo(bool gaveUp);

  TransferRecord& record() const { return peer_->met().file.transfer(index_); }

  const std::shared_ptr<Peer> peer_;
  const std::shared_ptr<Imports> imports_;
  const std::shared_ptr<PathCounters> counters_;
  const int sender_;
  const std::size_t index_;
  const std::uint64_t id_;
  std::byte* const base_;
  const Copies copies_;
  const DeviceFunctions* const device_;  // NULL: it copies no messages
  const datatype::Layout to_;
  std::shared_ptr<const datatype::Layout> from_;
  std::optional<LayoutReader> parts_;  // of the layout, where from_ is one part of it
  std::int64_t partEnd_ = 0;           // in packed order, of from_
  Path path_ = Path::kRing;
  std::int64_t bytes_ = 0;
  std::int64_t done_ = 0;
  // As the sender has said.
  std::uint64_t address_ = 0;
  const std::byte* ring_ = nullptr;
  std::int64_t ringBytes_ = 0;
  std::int64_t fragmentBytes_ = 0;
  std::int64_t exportOffset_ = 0;
  Imports::Entry* import_ = nullptr;
  const std::byte* mapped_ = nullptr;  // by the CPU or the device
  const std::byte* copy_ = nullptr;
  std::optional<AheadRing> aheadRing_;  // of kDevice
  std::unique_ptr<DeviceReads> deviceReads_;
  Phase phase_ = Phase::kCollected;
  bool over_ = false;
  adsmError_t failed_ = adsmSuccess;
  std::unique_ptr<std::byte[]> unpackFrom_;  // of kRead, into small pieces; NULL: not needed yet
  Patience patience_;
};

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_TRANSFERS_H_
