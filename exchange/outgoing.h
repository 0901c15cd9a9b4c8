// SPDX-License-Identifier: Apache-2.0
//
// The sender's end of a message that is copied once; see transfer.h.
#ifndef GMAC_EXCHANGE_OUTGOING_H_
#define GMAC_EXCHANGE_OUTGOING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "exchange/copies.h"
#include "exchange/exchange.h"
#include "exchange/layout_bytes.h"
#include "exchange/packed_ahead.h"
#include "exchange/patience.h"
#include "exchange/peer.h"
#include "exchange/ring_fill.h"
#include "exchange/shared_file.h"
#include "exchange/transfers.h"
#include "gmac/base/status.h"

namespace gmac::exchange::internal {

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
  bool needsNobody() const;

 private:
  Status produce(TransferRecord& record, std::int64_t most);
  // All of it is in the ring.
  Result<bool> leaveRing(TransferRecord& record);
  // The next part of a layout that is laid down in parts.
  void layNextPart(TransferRecord& record);
  // The receiver's count of the messages that wait for it; see SharedFile::waitingOf().
  void countWaiting(bool begins);
  Result<bool> freed(const TransferRecord& record);
  void stopDevice();
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
  std::unique_ptr<RingFill> fill_;      // of kPinned
  bool described_ = false;
  bool copied_ = false;
  bool declined_ = false;
  bool over_ = false;
  adsmError_t failed_ = adsmSuccess;
  Patience patience_;
};

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_OUTGOING_H_
