// SPDX-License-Identifier: Apache-2.0
#include "exchange/outgoing.h"

#include <algorithm>
#include <cstring>

#include "exchange/description.h"

namespace gmac::exchange::internal {

using std::int64_t;

Outgoing::Outgoing(std::shared_ptr<Transfers> transfers, std::shared_ptr<Peer> peer,
                   std::size_t record, const std::byte* base, Copies copies, SharedLayoutPtr layout,
                   std::size_t layoutPartBytes, int receiver, Path path, bool leavesRing,
                   const AheadOptions& ahead)
    : transfers_(std::move(transfers)),
      peer_(std::move(peer)),
      index_(record),
      id_(transfers_->idOf(record)),
      base_(base),
      copies_(copies),
      layout_(std::move(layout)),
      layoutPartBytes_(layoutPartBytes),
      receiver_(receiver),
      aheadOptions_(ahead),
      path_(path),
      leavesRing_(leavesRing) {}

Outgoing::~Outgoing() {
  if (transfers_->outbox()->inChild()) {
    (void)fill_.release();  // (Its packs are the parent's.)
    return;
  }
  if (over_) {
    return;
  }
  std::atomic<std::uint64_t>& state = transfers_->record(index_).state;
  const std::uint64_t free = Slot::stateOf(id_, Phase::kFree);
  const std::uint64_t before = state.exchange(free, std::memory_order_acq_rel);
  if (before == Slot::stateOf(id_, Phase::kDescribed)) {
    countWaiting(false);
  }
  finish(before == Slot::stateOf(id_, Phase::kCollected));
}

void Outgoing::countWaiting(bool begins) {
  const SharedFile& there = peer_->met().file;
  const int sender = transfers_->rank();
  if (begins) {
    there.waitingOf(sender).fetch_add(1, std::memory_order_acq_rel);
    there.waiting().fetch_add(1, std::memory_order_acq_rel);
  } else {
    there.waiting().fetch_sub(1, std::memory_order_acq_rel);
    there.waitingOf(sender).fetch_sub(1, std::memory_order_acq_rel);
  }
}

// Nothing reads the message on the device any more.
void Outgoing::stopDevice() {
  ahead_.reset();
  fill_.reset();
}

void Outgoing::finish(bool taken) {
  over_ = true;
  stopDevice();
  transfers_->giveBack(index_, taken);
}

void Outgoing::describe(std::span<std::byte, kDescriptionBytes> description) {
  TransferContents contents{};
  if (!transfers_->outbox()->inChild()) {
    TransferRecord& record = transfers_->record(index_);
    if (path_ == Path::kRing) {
      // Packs the first fragment, with which the receiver can begin. The rest is packed while it
      // unpacks.
      (void)produce(record, static_cast<int64_t>(record.fragmentBytes));
    } else if (path_ == Path::kDevice) {
      ahead_ = PackedAhead::begin(transfers_->outbox(), *copies_.device(), record, layout_->layout,
                                  base_, receiver_, aheadOptions_);
    } else if (path_ == Path::kPinned) {
      fill_ = std::make_unique<RingFill>(*copies_.device(), record, layout_->layout, base_,
                                         transfers_->pinnedRing(index_));
      (void)fill_->advance();  // (advance() says what is wrong)
    }
    layNextPart(record);
    contents.magic = TransferContents::kMagic;
    contents.nonce = transfers_->outbox()->nonce();
    contents.id = id_;
    contents.record = index_;
    contents.bytes = bytes();
    contents.receiver = receiver_;
    described_ = true;
    countWaiting(true);
    record.state.store(Slot::stateOf(id_, Phase::kDescribed), std::memory_order_release);
  }
  std::memcpy(description.data(), &contents, sizeof contents);
}

void Outgoing::layNextPart(TransferRecord& record) {
  const std::vector<std::byte>& all = layout_->bytes;
  if (record.layouts != static_cast<std::uint32_t>(LayoutExchange::kPipelined) ||
      laid_ == all.size()) {
    return;
  }
  const std::size_t part = std::min(layoutPartBytes_, all.size() - laid_);
  std::memcpy(transfers_->outbox()->file().payloads() + record.layoutOffset + laid_,
              all.data() + laid_, part);
  laid_ += part;
  record.laid.store(laid_, std::memory_order_release);
}

// Fills what is free of the ring, of the first `most` bytes of the message.
Status Outgoing::produce(TransferRecord& record, int64_t most) {
  const int64_t all = std::min(most, bytes());
  const auto ringBytes = static_cast<int64_t>(record.ringBytes);
  const auto fragment = static_cast<int64_t>(record.fragmentBytes);
  std::byte* const ring = transfers_->outbox()->file().payloads() + record.ring;
  while (produced_ < all) {
    const auto consumed = static_cast<int64_t>(record.consumed.load(std::memory_order_acquire));
    if (consumed < 0 || consumed > produced_) {
      return fail(adsmErrorSystem, "exchange: rank {} says that it has {} of {} bytes", receiver_,
                  consumed, produced_);
    }
    const int64_t now = std::min(fragment, all - produced_);
    if (produced_ + now - consumed > ringBytes) {
      return {};
    }
    GMAC_TRY(copies_.pack(layout_->layout, ring + produced_ % ringBytes, base_, produced_, now));
    produced_ += now;
    record.produced.store(static_cast<std::uint64_t>(produced_), std::memory_order_release);
  }
  return {};
}

Result<bool> Outgoing::advance() {
  if (over_) {
    return failed_ == adsmSuccess ? Result<bool>(true) : Result<bool>(Status(failed_));
  }
  if (transfers_->outbox()->inChild()) {
    return fail(adsmErrorForked, "exchange: a child of fork has no part in its parent's messages");
  }
  TransferRecord& record = transfers_->record(index_);
  const std::uint64_t state = record.state.load(std::memory_order_acquire);
  const std::uint64_t free = Slot::stateOf(id_, Phase::kFree);
  if (described_ && state == free) {
    return freed(record);
  }
  const std::uint32_t answer = record.answer.load(std::memory_order_acquire);
  if (path_ == Path::kMapped && answer == TransferRecord::kReads) {
    path_ = Path::kRead;
  } else if (path_ != Path::kRing && answer == TransferRecord::kWantsRing) {
    if (path_ == Path::kRead) {
      peer_->reads.store(false, std::memory_order_relaxed);
    }
    path_ = Path::kRing;
    stopDevice();
  }
  Status status;
  layNextPart(record);
  if (path_ == Path::kRing) {
    status = produce(record, bytes());
    if (status.ok() && leavesRing_ && described_ && produced_ == bytes()) {
      return leaveRing(record);
    }
  } else if (fill_ != nullptr) {
    status = fill_->advance();
    if (status.ok() && leavesRing_ && described_ && fill_->isPacked()) {
      return leaveRing(record);
    }
  } else if (ahead_ != nullptr) {
    ahead_->advance();
  }
  if (status.ok() && patience_.passed() && !peer_->lives()) {
    status = fail(adsmErrorSystem,
                  "exchange: the process of rank {} has ended before it had a message of {} bytes",
                  receiver_, bytes());
  }
  if (!status.ok()) {
    const std::uint64_t before = record.state.exchange(free, std::memory_order_acq_rel);
    if (described_ && before == free) {
      return freed(record);  // the receiver has ended after it had all
    }
    if (before == Slot::stateOf(id_, Phase::kDescribed)) {
      countWaiting(false);
    }
    failed_ = status.code();
    finish(before == Slot::stateOf(id_, Phase::kCollected));
    return status;
  }
  return false;
}

bool Outgoing::needsNobody() const {
  const TransferRecord& record = transfers_->record(index_);
  return leavesRing_ &&
         (path_ == Path::kRing ? record.copy == record.ring : path_ == Path::kPinned);
}

Result<bool> Outgoing::leaveRing(TransferRecord& record) {
  std::uint64_t found = Slot::stateOf(id_, Phase::kDescribed);
  // A receiver that has not begun has consumed nothing, so the ring holds all: it finds a copy.
  if (needsNobody() && record.state.compare_exchange_strong(
                           found, Slot::stateOf(id_, Phase::kCopied), std::memory_order_acq_rel)) {
    countWaiting(false);
    copied_ = true;
  } else if (found == Slot::stateOf(id_, Phase::kFree)) {
    return freed(record);
  }
  over_ = true;
  stopDevice();
  transfers_->sent.add(path_, bytes());
  transfers_->leave(index_);
  return true;
}

// The receiver has let go of it.
Result<bool> Outgoing::freed(const TransferRecord& record) {
  const std::uint32_t answer = record.answer.load(std::memory_order_relaxed);
  finish(false);
  if (path_ == Path::kMapped && answer == TransferRecord::kReads) {
    path_ = Path::kRead;
  }
  if (answer == TransferRecord::kGaveUp) {
    declined_ = true;
    failed_ = adsmErrorSystem;
    return fail(failed_, "exchange: rank {} has given up a message of {} bytes", receiver_,
                bytes());
  }
  transfers_->sent.add(path_, bytes());
  return true;
}

bool Outgoing::recall() {
  if (copied_ && !transfers_->outbox()->inChild()) {
    // (Its record is taken back like one that the receiver has freed.)
    std::uint64_t expected = Slot::stateOf(id_, Phase::kCopied);
    return transfers_->record(index_).state.compare_exchange_strong(
        expected, Slot::stateOf(id_, Phase::kFree), std::memory_order_acq_rel);
  }
  if (over_ || !described_ || transfers_->outbox()->inChild()) {
    return false;
  }
  std::uint64_t expected = Slot::stateOf(id_, Phase::kDescribed);
  if (!transfers_->record(index_).state.compare_exchange_strong(
          expected, Slot::stateOf(id_, Phase::kFree), std::memory_order_acq_rel)) {
    return false;
  }
  countWaiting(false);
  finish(false);
  return true;
}

Result<bool> Outgoing::leaveCopy(bool evenIfBegun) {
  if (transfers_->outbox()->inChild()) {
    return fail(adsmErrorForked, "exchange: a child of fork has no part in its parent's messages");
  }
  TransferRecord& record = transfers_->record(index_);
  if (!over_ && described_ && path_ == Path::kRing && needsNobody()) {
    return advance();  // the ring is the copy
  }
  std::atomic<std::uint64_t>& state = record.state;
  const std::uint64_t described = Slot::stateOf(id_, Phase::kDescribed);
  const std::uint64_t collected = Slot::stateOf(id_, Phase::kCollected);
  std::uint64_t found = state.load(std::memory_order_acquire);
  const auto mayCopy = [&] { return found == described || (evenIfBegun && found == collected); };
  if (over_ || !described_ || !mayCopy()) {
    return false;
  }
  const Result<std::byte*> copy = transfers_->copyOf(index_);
  GMAC_TRY(copy.status());
  GMAC_TRY(copies_.pack(layout_->layout, *copy, base_, 0, bytes(), bytes()));
  record.pinnedIsLeft.store(0, std::memory_order_relaxed);
  do {
    if (!mayCopy()) {
      return false;
    }
  } while (!state.compare_exchange_weak(
      found, Slot::stateOf(id_, found == described ? Phase::kCopied : Phase::kMoved),
      std::memory_order_acq_rel));
  if (found == described) {
    countWaiting(false);
  }
  over_ = true;
  copied_ = true;
  stopDevice();
  transfers_->givePinnedRingBack(index_);
  path_ = Path::kCopy;
  transfers_->sent.add(path_, bytes());
  transfers_->leave(index_);
  return true;
}

}  // namespace gmac::exchange::internal
