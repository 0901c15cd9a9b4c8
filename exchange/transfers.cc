// SPDX-License-Identifier: Apache-2.0
#include "exchange/transfers.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "gmac/base/round_up.h"

namespace gmac::exchange::internal {
namespace {

// Layouts that nobody uses and that lie ready for the next message.
constexpr std::size_t kMaxIdleLayouts = 256;
constexpr std::size_t kPage = 4096;

}  // namespace

Transfers::Transfers(std::shared_ptr<Outbox> outbox, int rank)
    : outbox_(std::move(outbox)),
      rank_(rank),
      entries_(FileLayout::kTransfers),
      free_(FileLayout::kTransfers) {
  std::iota(free_.rbegin(), free_.rend(), 0);
}

std::uint64_t Transfers::idOf(std::size_t index) const {
  const std::lock_guard guard(lock_);
  return entries_[index].id;
}

std::byte* Transfers::pinnedRing(std::size_t index) const {
  const std::lock_guard guard(lock_);
  return entries_[index].pinned.data();
}

void Transfers::givePinnedRingBack(std::size_t index) {
  const std::lock_guard guard(lock_);
  entries_[index].pinned = PinnedRings::Use();
}

Result<std::size_t> Transfers::takeLayoutRoom(std::size_t bytes) {
  Result<std::size_t> offset = outbox_->takeRoom(bytes);
  while (!offset.ok() && !idle_.empty()) {
    dropOldestLayout();
    offset = outbox_->takeRoom(bytes);
  }
  return offset;
}

// The layout's bytes, in the record where they fit, else in memory that messages share.
Status Transfers::lay(const SharedLayout& layout, LayoutExchange how, TransferRecord& record,
                      Entry& entry) {
  record.layoutBytes = layout.bytes.size();
  record.hash = layout.hash;
  record.layoutOffset = TransferRecord::kInline;
  record.layouts = static_cast<std::uint32_t>(
      how == LayoutExchange::kNaive ? LayoutExchange::kNaive : LayoutExchange::kMemoised);
  record.laid.store(0, std::memory_order_relaxed);
  if (layout.bytes.size() <= record.layout.size()) {
    std::memcpy(record.layout.data(), layout.bytes.data(), layout.bytes.size());
    return {};
  }
  const std::size_t room = roundUp(layout.bytes.size(), kPage);
  if (how != LayoutExchange::kMemoised) {
    const Result<std::size_t> offset = takeLayoutRoom(room);
    GMAC_TRY(offset.status());
    entry.ownLayout = *offset;
    entry.ownLayoutBytes = room;
    record.layoutOffset = *offset;
    record.layouts = static_cast<std::uint32_t>(how);
    if (how == LayoutExchange::kNaive) {
      std::memcpy(outbox_->file().payloads() + *offset, layout.bytes.data(), layout.bytes.size());
    }
    return {};
  }
  auto found = laid_.find(layout.hash);
  if (found == laid_.end()) {
    const Result<std::size_t> offset = takeLayoutRoom(room);
    GMAC_TRY(offset.status());
    std::memcpy(outbox_->file().payloads() + *offset, layout.bytes.data(), layout.bytes.size());
    found = laid_.emplace(layout.hash, Laid{*offset, room, 0, idle_.end()}).first;
  } else if (found->second.users == 0) {
    idle_.erase(found->second.idle);
  }
  ++found->second.users;
  entry.laid = true;
  entry.hash = layout.hash;
  record.layoutOffset = found->second.offset;
  return {};
}

void Transfers::dropOldestLayout() {
  const auto oldest = laid_.find(idle_.front());
  outbox_->giveRoomBack(oldest->second.offset, oldest->second.room);
  laid_.erase(oldest);
  idle_.pop_front();
}

bool Transfers::sweepAll() {
  bool any = sweepTaken(true);
  for (; !idle_.empty(); any = true) {
    dropOldestLayout();
  }
  return any;
}

// Takes back what receivers have freed, and layouts that nobody uses, before it fails.
Result<std::size_t> Transfers::takeRoom(std::size_t bytes,
                                        Result<std::size_t> (Outbox::*take)(std::size_t)) {
  Result<std::size_t> offset = (*outbox_.*take)(bytes);
  if (!offset.ok() && sweepAll()) {
    offset = (*outbox_.*take)(bytes);
  }
  return offset;
}

void Transfers::giveRoomBack(const Entry& entry) {
  outbox_->giveRoomBack(entry.ring, entry.ringBytes);
  if (entry.ownLayoutBytes > 0) {
    outbox_->giveRoomBack(entry.ownLayout, entry.ownLayoutBytes);
  }
  if (entry.copyBytes > 0) {
    outbox_->giveCopyRoomBack(entry.copy, entry.copyBytes, entry.copyHasPages);
  }
}

void Transfers::release(std::size_t index) {
  Entry& entry = entries_[index];
  giveRoomBack(entry);
  if (entry.laid) {
    const auto found = laid_.find(entry.hash);
    if (--found->second.users == 0) {
      found->second.idle = idle_.insert(idle_.end(), entry.hash);
      if (idle_.size() > kMaxIdleLayouts) {
        dropOldestLayout();
      }
    }
  }
  entry = Entry();
  free_.push_back(index);
}

// Records whose receivers had begun when they were taken back, or that were left to them.
bool Transfers::sweepTaken(bool ofEndedToo) {
  const std::size_t before = taken_.size();
  std::erase_if(taken_, [&](std::size_t index) {
    const Entry& entry = entries_[index];
    const bool freed = entry.taken ? record(index).left.load(std::memory_order_acquire) == entry.id
                                   : record(index).state.load(std::memory_order_acquire) ==
                                         Slot::stateOf(entry.id, Phase::kFree);
    if (!freed && (!ofEndedToo || entry.peer->lives())) {
      return false;
    }
    release(index);
    return true;
  });
  takenCount_ = taken_.size();
  return taken_.size() < before;
}

void Transfers::sweep() {
  if (takenCount_.load(std::memory_order_relaxed) != 0) {
    const std::lock_guard guard(lock_);
    (void)sweepTaken(false);
  }
}

Result<std::size_t> Transfers::take(int receiver, const SharedLayoutPtr& layout,
                                    const SendOptions& options, const std::shared_ptr<Peer>& peer,
                                    PinnedRings::Use pinned) {
  const std::lock_guard guard(lock_);
  (void)sweepTaken(free_.empty());
  if (free_.empty()) {
    return fail(adsmErrorHostMemory, "exchange: {} messages are under way, as many as there can be",
                entries_.size());
  }
  Entry entry;
  entry.ringBytes = options.fragmentBytes * options.fragments;
  const auto wanted = static_cast<std::size_t>(layout->layout.bytes());
  if (wanted < entry.ringBytes) {
    entry.ringBytes = roundUp(std::max<std::size_t>(wanted, 1), options.fragmentBytes);
  }
  const Result<std::size_t> ring = takeRoom(entry.ringBytes, &Outbox::takeRoom);
  GMAC_TRY(ring.status());
  entry.ring = *ring;
  const bool isOwnCopy =
      options.leavesRing && options.path == Path::kRing && wanted <= entry.ringBytes;
  if (options.mayCopy && !isOwnCopy) {
    const std::size_t bytes = roundUp(std::max<std::size_t>(wanted, 1), kPage);
    const Result<std::size_t> copy = takeRoom(bytes, &Outbox::takeCopyRoom);
    if (!copy.ok()) {
      giveRoomBack(entry);
      return copy.status();
    }
    entry.copy = *copy;
    entry.copyBytes = bytes;
  }
  // (After the last sweep, which adds to these.)
  const std::size_t index = free_.back();
  TransferRecord& shared = record(index);
  const bool inParts = LayoutReader::reads(layout->layout) && !options.onDevice;
  const LayoutExchange how = options.layouts == LayoutExchange::kPipelined && !inParts
                                 ? LayoutExchange::kMemoised
                                 : options.layouts;
  if (const Status status = lay(*layout, how, shared, entry); !status.ok()) {
    giveRoomBack(entry);
    return status;
  }
  entry.id = ++ids_;
  entry.peer = peer;
  shared.pinnedFragment = pinned ? options.pinnedFragment : 0;
  shared.pinnedOffset = pinned ? pinned.offset() : 0;
  shared.pinnedBytes =
      pinned ? pinned.bytes() / options.pinnedFragment * options.pinnedFragment : 0;
  shared.pinnedProduced.store(0, std::memory_order_relaxed);
  shared.pinnedConsumed.store(0, std::memory_order_relaxed);
  entry.pinned = std::move(pinned);
  shared.bytes = layout->layout.bytes();
  shared.ring = entry.ring;
  shared.ringBytes = entry.ringBytes;
  shared.copy = isOwnCopy ? entry.ring : entry.copy;
  shared.fragmentBytes = options.fragmentBytes;
  shared.receiver = receiver;
  shared.aheadFragment = 0;
  for (auto& slot : shared.ahead) {
    slot.store(0, std::memory_order_relaxed);
  }
  shared.aheadTaken.store(0, std::memory_order_relaxed);
  shared.produced.store(0, std::memory_order_relaxed);
  shared.consumed.store(0, std::memory_order_relaxed);
  shared.answer.store(TransferRecord::kNone, std::memory_order_relaxed);
  shared.state.store(Slot::stateOf(entry.id, Phase::kWritten), std::memory_order_release);
  free_.pop_back();
  entries_[index] = std::move(entry);
  return index;
}

void Transfers::giveBack(std::size_t index, bool taken) {
  const std::lock_guard guard(lock_);
  if (!taken) {
    release(index);
    return;
  }
  entries_[index].taken = true;
  taken_.push_back(index);
  takenCount_ = taken_.size();
}

void Transfers::leave(std::size_t index) {
  const std::lock_guard guard(lock_);
  taken_.push_back(index);
  takenCount_ = taken_.size();
}

bool Transfers::makeRoom() {
  const std::lock_guard guard(lock_);
  return sweepAll();
}

Result<std::byte*> Transfers::copyOf(std::size_t index) {
  std::size_t copy = 0;
  std::size_t bytes = 0;
  {
    const std::lock_guard guard(lock_);
    Entry& entry = entries_[index];
    if (entry.copyBytes == 0) {
      return fail(adsmErrorInvalidValue, "exchange: a message was begun without room for a copy");
    }
    entry.copyHasPages = true;
    copy = entry.copy;
    bytes = entry.copyBytes;
  }
  GMAC_TRY(outbox_->populateCopy(copy, bytes));
  return outbox_->file().payloads() + copy;
}

}  // namespace gmac::exchange::internal
