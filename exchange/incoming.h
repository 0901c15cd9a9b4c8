// SPDX-License-Identifier: Apache-2.0
//
// The receiver's end of a message that is copied once; see transfer.h.
#ifndef GMAC_EXCHANGE_INCOMING_H_
#define GMAC_EXCHANGE_INCOMING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "exchange/copies.h"
#include "exchange/device_reads.h"
#include "exchange/exchange.h"
#include "exchange/imports.h"
#include "exchange/layout_bytes.h"
#include "exchange/patience.h"
#include "exchange/peer.h"
#include "exchange/ring_drain.h"
#include "exchange/shared_file.h"
#include "exchange/transfers.h"
#include "gmac/base/status.h"

namespace gmac::exchange::internal {

class Incoming {
 public:
  Incoming(std::shared_ptr<Peer> peer, std::shared_ptr<Imports> imports,
           std::shared_ptr<PathCounters> counters, int sender, std::size_t record, std::uint64_t id,
           std::byte* base, Copies copies, const DeviceFunctions* device, std::int64_t arrivalLeast,
           datatype::Layout to);
  ~Incoming();

  // Reads what the sender says, once. Later it may be otherwise. `own`: the receiver's layout, if
  // it is one that is shared; else NULL.
  // `left`: it needs its sender no more (Phase::kCopied).
  Status begin(LayoutTable& layouts, const SharedLayoutPtr& own, std::int64_t bytes, bool left);
  std::int64_t bytes() const { return bytes_; }
  Path path() const { return path_ == Path::kDevice && hasArrived_ ? Path::kArriving : path_; }
  Result<bool> advance(std::int64_t most);
  const std::byte* packed() const;
  const std::byte* packedOnDevice() const;
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
  // The same from the start, and says why.
  void goThroughRing(const char* why);
  Status tookBack() const;
  Status isOver() const;
  // Whether there is more to come from the sender's process.
  bool needsSender() const;
  // Where the sender packs fragments ahead, if this process's device reaches that.
  Status findAhead(const TransferRecord& said);
  // The ring of pinned memory; if it cannot be imported, the path is kRing.
  Status importRing(const TransferRecord& said);
  // As the next, from pinned memory.
  Result<std::int64_t> drainRing(std::int64_t most);
  // Waits for what the device copies; nothing writes to the target any more.
  void stopDevice();
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
  const std::int64_t arrivalLeast_;
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
  bool hasArrived_ = false;  // one kernel has unpacked all while it arrived
  PinnedView pinned_{};      // of kPinned
  std::unique_ptr<RingDrain> drain_;
  Phase phase_ = Phase::kCollected;
  bool over_ = false;
  adsmError_t failed_ = adsmSuccess;
  std::unique_ptr<std::byte[]> unpackFrom_;  // of kRead, into small pieces; NULL: not needed yet
  Patience patience_;
};

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_INCOMING_H_
