// SPDX-License-Identifier: Apache-2.0
#include "exchange/transfers.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <numeric>

#include "exchange/description.h"
#include "gmac/base/log.h"
#include "gmac/base/round_up.h"
#include "gmac/datatype/cpu/transfer.h"

namespace gmac::exchange::internal {
namespace {

using datatype::Layout;
using std::int64_t;

constexpr std::chrono::milliseconds kAskForEnded{5};
// Layouts that nobody uses and that lie ready for the next message.
constexpr std::size_t kMaxIdleLayouts = 256;
constexpr std::size_t kPage = 4096;
// The most pieces of a side that the kernel takes at once; one is for the nonce.
constexpr std::size_t kPieces = 1023;
// The most that it copies at once, less what is not a whole page.
constexpr int64_t kMaxRead = int64_t{1} << 30;
// Shorter pieces of the receiver's are unpacked from memory of so many bytes, which stays in a
// second-level cache.
constexpr int64_t kLeastPiece = 4096;
constexpr int64_t kUnpackBytes = int64_t{64} << 10;

}  // namespace

bool Patience::passed() {
  const auto now = std::chrono::steady_clock::now();
  if (now - asked_ < kAskForEnded) {
    return false;
  }
  asked_ = now;
  return true;
}

// ---- Records of this process.

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
                                    const SendOptions& options, const std::shared_ptr<Peer>& peer) {
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

// ---- At the sender.

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
  if (over_ || transfers_->outbox()->inChild()) {
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

void Outgoing::finish(bool taken) {
  over_ = true;
  ahead_.reset();
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
    ahead_.reset();
  }
  Status status;
  layNextPart(record);
  if (path_ == Path::kRing) {
    status = produce(record, bytes());
    if (status.ok() && leavesRing_ && described_ && produced_ == bytes()) {
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

Result<bool> Outgoing::leaveRing(TransferRecord& record) {
  std::uint64_t found = Slot::stateOf(id_, Phase::kDescribed);
  // A receiver that has not begun has consumed nothing, so the ring holds all: it finds a copy.
  if (record.copy == record.ring &&
      record.state.compare_exchange_strong(found, Slot::stateOf(id_, Phase::kCopied),
                                           std::memory_order_acq_rel)) {
    countWaiting(false);
    copied_ = true;
  } else if (found == Slot::stateOf(id_, Phase::kFree)) {
    return freed(record);
  }
  over_ = true;
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
  if (!over_ && described_ && leavesRing_ && path_ == Path::kRing && record.copy == record.ring) {
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
  ahead_.reset();
  path_ = Path::kCopy;
  transfers_->sent.add(path_, bytes());
  transfers_->leave(index_);
  return true;
}

// ---- At the receiver.

Incoming::Incoming(std::shared_ptr<Peer> peer, std::shared_ptr<Imports> imports,
                   std::shared_ptr<PathCounters> counters, int sender, std::size_t record,
                   std::uint64_t id, std::byte* base, Copies copies, const DeviceFunctions* device,
                   Layout to)
    : peer_(std::move(peer)),
      imports_(std::move(imports)),
      counters_(std::move(counters)),
      sender_(sender),
      index_(record),
      id_(id),
      base_(base),
      copies_(copies),
      device_(device),
      to_(std::move(to)) {}

Incoming::~Incoming() {
  if (peer_->inChild()) {
    (void)deviceReads_.release();  // (Its copies are the parent's.)
    return;
  }
  deviceReads_.reset();
  if (!over_) {
    (void)letGo(true);
  }
  if (import_ != nullptr) {
    imports_->unuse(import_);
  }
}

Status Incoming::tookBack() const {
  return fail(adsmErrorInvalidValue,
              "exchange: rank {} has taken a message of {} bytes back while it was read", sender_,
              bytes_);
}

bool Incoming::letGo(bool gaveUp) {
  over_ = true;
  deviceReads_.reset();  // nothing writes to the target from now on
  if (gaveUp) {
    failed_ = adsmErrorInvalidValue;
    record().answer.store(TransferRecord::kGaveUp, std::memory_order_relaxed);
  }
  std::uint64_t expected = Slot::stateOf(id_, phase_);
  const std::uint64_t free = Slot::stateOf(id_, Phase::kFree);
  if (record().state.compare_exchange_strong(expected, free, std::memory_order_acq_rel)) {
    return true;
  }
  if (expected == Slot::stateOf(id_, Phase::kMoved)) {
    // It is the receiver's alone.
    if (gaveUp) {
      record().state.store(free, std::memory_order_release);
    } else {
      over_ = false;
    }
    return gaveUp;
  }
  failed_ = adsmErrorInvalidValue;
  record().left.store(id_, std::memory_order_release);
  return false;
}

Status Incoming::moveToCopy() {
  deviceReads_.reset();
  const std::uint64_t copy = record().copy;
  const std::size_t all = peer_->met().file.payloadBytes();
  phase_ = Phase::kMoved;
  if (copy > all || static_cast<std::uint64_t>(bytes_) > all - copy) {
    (void)letGo(true);
    return fail(failed_, "exchange: the copy that rank {} has left of a message cannot be there",
                sender_);
  }
  path_ = Path::kCopy;
  copy_ = peer_->met().file.payloads() + copy;
  done_ = 0;
  return {};
}

Result<bool> Incoming::conclude() {
  // In this order: a sender may leave a copy and then revoke its export.
  const bool revoked = path_ != Path::kCopy && import_ != nullptr && import_->revoked();
  const std::uint64_t state = record().state.load(std::memory_order_acquire);
  if (phase_ == Phase::kCollected && state == Slot::stateOf(id_, Phase::kMoved)) {
    GMAC_TRY(moveToCopy());
    return false;
  }
  if (state != Slot::stateOf(id_, phase_) || revoked) {
    (void)letGo(true);
    return tookBack();
  }
  if (done_ < bytes_) {
    return false;
  }
  if (letGo(false)) {
    counters_->add(path_, bytes_);
    return true;
  }
  if (over_) {
    return tookBack();
  }
  GMAC_TRY(moveToCopy());
  return false;
}

Status Incoming::readLayout(LayoutTable& layouts, const SharedLayoutPtr& own) {
  const LayoutHash hash = record().hash;
  const auto how = static_cast<LayoutExchange>(record().layouts);
  if (how == LayoutExchange::kMemoised) {
    if (own != nullptr && own->hash == hash) {
      // It then shares its list with to_, so that nobody compares them.
      from_ = std::shared_ptr<const Layout>(own, &own->layout);
      layouts.countHit();
      return {};
    }
    from_ = layouts.find(hash, bytes_);
    if (from_ != nullptr) {
      return {};
    }
  }
  const std::uint64_t offset = record().layoutOffset;
  const std::uint64_t bytes = record().layoutBytes;
  const SharedFile& file = peer_->met().file;
  std::span<const std::byte> text;
  if (offset == TransferRecord::kInline && bytes <= record().layout.size()) {
    text = std::span(record().layout).first(bytes);
  } else if (offset <= file.payloadBytes() && bytes <= file.payloadBytes() - offset) {
    text = {file.payloads() + offset, bytes};
  }
  if (how == LayoutExchange::kPipelined) {
    parts_.emplace(text);
    return {};
  }
  Result<Layout> layout = decode(text);
  GMAC_TRY(layout.status());
  from_ = std::make_shared<const Layout>(std::move(*layout));
  if (how == LayoutExchange::kMemoised) {
    layouts.add(hash, from_);
  }
  return {};
}

Result<bool> Incoming::hasLayout() {
  if (!parts_.has_value() || done_ < partEnd_) {
    return true;
  }
  while (done_ == partEnd_) {
    Result<std::optional<LayoutReader::Part>> part =
        parts_->next(record().laid.load(std::memory_order_acquire));
    GMAC_TRY(part.status());
    if (!part->has_value()) {
      return false;
    }
    LayoutReader::Part& now = **part;
    if (now.last > bytes_ || (mapped_ != nullptr && !isImported(now.bounds))) {
      return fail(adsmErrorInvalidValue, "exchange: what rank {} says of a message cannot be",
                  sender_);
    }
    partEnd_ = now.last;
    from_ = std::make_shared<const Layout>(std::move(now.layout));
  }
  return true;
}

bool Incoming::isImported(const datatype::Bounds& bounds) const {
  int64_t first = 0;
  int64_t last = 0;
  return !__builtin_add_overflow(exportOffset_, bounds.first, &first) &&
         !__builtin_add_overflow(exportOffset_, bounds.last, &last) && first >= 0 &&
         last <= static_cast<int64_t>(import_->bytes);
}

Status Incoming::begin(LayoutTable& layouts, const SharedLayoutPtr& own, int64_t bytes,
                       bool copied) {
  TransferRecord& said = record();
  bytes_ = bytes;
  const std::uint64_t ring = said.ring;
  const std::uint64_t ringBytes = said.ringBytes;
  const std::uint64_t fragmentBytes = said.fragmentBytes;
  const std::uint32_t path = said.path;
  const std::uint64_t copy = said.copy;
  const std::size_t all = peer_->met().file.payloadBytes();
  GMAC_TRY(readLayout(layouts, own));
  if (said.bytes != bytes || (from_ != nullptr && from_->bytes() != bytes) || ring > all ||
      ringBytes > all - ring || fragmentBytes == 0 || ringBytes < fragmentBytes ||
      ringBytes % fragmentBytes != 0 || path >= static_cast<std::uint32_t>(Path::kCopy) ||
      (copied && (copy > all || static_cast<std::uint64_t>(bytes) > all - copy))) {
    return fail(adsmErrorInvalidValue, "exchange: what rank {} says of a message cannot be",
                sender_);
  }
  address_ = said.address;
  ring_ = peer_->met().file.payloads() + ring;
  ringBytes_ = static_cast<int64_t>(ringBytes);
  fragmentBytes_ = static_cast<int64_t>(fragmentBytes);
  path_ = copied ? Path::kCopy : static_cast<Path>(path);
  copy_ = peer_->met().file.payloads() + (copied ? copy : 0);
  if (path_ == Path::kMapped || path_ == Path::kDevice) {
    return importSource(path_ == Path::kMapped ? ExportKind::kFile : ExportKind::kDevice,
                        ExportId{said.exportId}, said.exportOffset);
  }
  return {};
}

Status Incoming::importSource(ExportKind kind, ExportId id, int64_t offset) {
  if (kind == ExportKind::kDevice && device_ == nullptr) {
    log(LogLevel::kInfo,
        "exchange: a message of {} bytes goes through the ring: no device of this process copies "
        "it",
        bytes_);
    askForRing();
    return {};
  }
  const auto import = imports_->use(peer_, sender_, id);
  if (!import.ok() && kind == ExportKind::kFile &&
      peer_->readable.load(std::memory_order_relaxed)) {
    log(LogLevel::kInfo, "exchange: a message of {} bytes is read, not mapped: {}", bytes_,
        lastErrorText());
    path_ = Path::kRead;
    record().answer.store(TransferRecord::kReads, std::memory_order_release);
    return {};
  }
  if (!import.ok()) {
    log(LogLevel::kInfo, "exchange: a message of {} bytes goes through the ring: {}", bytes_,
        lastErrorText());
    askForRing();
    return {};
  }
  import_ = *import;
  exportOffset_ = offset;
  // (Of a layout in parts, each part is looked at when it is there.)
  if ((import_->kind == ExportKind::kFile) != (kind == ExportKind::kFile) ||
      (from_ != nullptr && !isImported(from_->bounds())) ||
      (from_ == nullptr && kind != ExportKind::kFile)) {
    return fail(adsmErrorInvalidValue, "exchange: a message of rank {} does not lie in its export",
                sender_);
  }
  mapped_ = import_->data + offset;
  return kind == ExportKind::kDevice ? findAhead(record()) : Status();
}

Status Incoming::findAhead(const TransferRecord& said) {
  // (The sender may have made room for it since, which is proved for its next message.)
  peer_->importPieces(imports_->rank(), *device_);
  const std::uint64_t fragment = said.aheadFragment;
  const std::uint64_t offset = said.aheadOffset;
  if (fragment == 0 || device_->begin == nullptr) {
    return {};
  }
  std::size_t all = 0;
  const std::byte* const piece = peer_->piece(said.aheadPiece, &all);
  if (piece == nullptr || offset > all || fragment > (all - offset) / TransferRecord::kAheadSlots) {
    return fail(adsmErrorInvalidValue, "exchange: what rank {} says of a message cannot be",
                sender_);
  }
  aheadRing_ = AheadRing{piece + offset, static_cast<int64_t>(fragment)};
  return {};
}

// (What has been copied is copied again.)
void Incoming::askForRing() {
  path_ = Path::kRing;
  done_ = 0;
  record().answer.store(TransferRecord::kWantsRing, std::memory_order_release);
}

// The kernel looks up each piece of either side. So it reads small pieces of ours as one, which are
// unpacked from there.
Result<int64_t> Incoming::read(int64_t most) {
  // (A device's memory is none that the kernel reads into.)
  if ((copies_.onDevice() || to_.meanBlockBytes() < kLeastPiece) && unpackFrom_ == nullptr) {
    unpackFrom_.reset(new (std::nothrow) std::byte[kUnpackBytes]);
    if (unpackFrom_ == nullptr && copies_.onDevice()) {
      askForRing();
      return 0;
    }
  }
  std::array<iovec, kPieces + 1> here;
  std::array<iovec, kPieces + 1> there;
  const int64_t limit =
      std::min({most, bytes_ - done_, unpackFrom_ != nullptr ? kUnpackBytes : kMaxRead});
  // One side's pieces from done_ on; how many bytes they are.
  const auto fill = [&](const Layout& layout, std::uintptr_t base, int64_t bytes,
                        std::array<iovec, kPieces + 1>& pieces, std::size_t* count) {
    datatype::PieceCursor cursor(layout, done_);
    int64_t filled = 0;
    *count = 0;
    while (filled < bytes && *count < kPieces) {
      const auto run = cursor.run();
      int64_t taken = 0;
      for (int64_t i = 0; i < run.count && filled < bytes && *count < kPieces; ++i) {
        const int64_t now = std::min(run.bytes, bytes - filled);
        pieces[(*count)++] = {reinterpret_cast<void*>(
                                  base + static_cast<std::uintptr_t>(run.offset + i * run.stride)),
                              static_cast<std::size_t>(now)};
        filled += now;
        taken += now;
      }
      if (filled < bytes) {
        cursor.skip(taken);
      }
    }
    return filled;
  };
  std::size_t hereCount = 0;
  std::size_t thereCount = 0;
  int64_t bytes = fill(*from_, address_, limit, there, &thereCount);
  if (unpackFrom_ != nullptr) {
    here[hereCount++] = {unpackFrom_.get(), static_cast<std::size_t>(bytes)};
  } else if (const int64_t fits =
                 fill(to_, reinterpret_cast<std::uintptr_t>(base_), bytes, here, &hereCount);
             fits < bytes) {
    bytes = fill(*from_, address_, fits, there, &thereCount);
  }
  // Last its nonce: so long, at least, that was the process and the program.
  Nonce nonce{};
  here[hereCount++] = {&nonce, sizeof nonce};
  there[thereCount++] = {reinterpret_cast<void*>(peer_->met().nonceAddress), sizeof nonce};
  const ssize_t got =
      ::process_vm_readv(peer_->met().process, here.data(), hereCount, there.data(), thereCount, 0);
  if (got == bytes + static_cast<ssize_t>(sizeof nonce) && nonce == peer_->met().nonce) {
    if (unpackFrom_ != nullptr) {
      GMAC_TRY(copies_.unpack(to_, base_, unpackFrom_.get(), done_, bytes));
    }
    return bytes;
  }
  if (got < 0 && errno == ESRCH) {
    return fail(adsmErrorSystem, "exchange: the process of rank {} has ended", sender_);
  }
  log(LogLevel::kInfo, "exchange: a message of {} bytes goes through the ring: {}", bytes_,
      got < 0 ? std::strerror(errno) : "not all of it can be read from outside of its process");
  if (got < 0 && (errno == EPERM || errno == ENOSYS)) {
    peer_->readable.store(false, std::memory_order_relaxed);
  }
  askForRing();
  return 0;
}

Result<int64_t> Incoming::unpackRing(int64_t most) {
  const auto produced = static_cast<int64_t>(record().produced.load(std::memory_order_acquire));
  if (produced < done_ || produced > bytes_ || produced - done_ > ringBytes_) {
    return fail(adsmErrorInvalidValue, "exchange: rank {} says that {} bytes of {} are there",
                sender_, produced, bytes_);
  }
  const int64_t now = std::min({most, produced - done_, fragmentBytes_ - done_ % fragmentBytes_});
  if (now > 0) {
    GMAC_TRY(copies_.unpack(to_, base_, ring_ + done_ % ringBytes_, done_, now));
  }
  return now;
}

// Copies at most so many bytes; how many.
Result<int64_t> Incoming::step(int64_t most) {
  if (path_ == Path::kMapped || path_ == Path::kRead || path_ == Path::kDevice) {
    const Result<bool> known = hasLayout();
    GMAC_TRY(known.status());
    if (!*known) {
      return 0;
    }
    most = parts_.has_value() ? std::min(most, partEnd_ - done_) : most;
  }
  switch (path_) {
    case Path::kMapped:
      GMAC_TRY(copies_.transfer(to_, base_, *from_, mapped_, done_, most, bytes_));
      return most;
    case Path::kDevice:
      if (device_->begin != nullptr) {
        if (deviceReads_ == nullptr) {
          deviceReads_ = std::make_unique<DeviceReads>(*device_, record(), aheadRing_, to_, base_,
                                                       *from_, mapped_);
        }
        return deviceReads_->advance();
      }
      GMAC_TRY(transferByDevice(*device_, to_, base_, *from_, mapped_, done_, most));
      return most;
    case Path::kCopy:
      GMAC_TRY(copies_.unpack(to_, base_, copy_ + done_, done_, most, bytes_));
      return most;
    case Path::kRead:
      return read(most);
    case Path::kRing:
      break;
  }
  return unpackRing(most);
}

Status Incoming::isOver() const {
  return failed_ == adsmErrorSystem
             ? fail(failed_, "exchange: the process of rank {} has ended", sender_)
             : tookBack();
}

const std::byte* Incoming::packed() const {
  if (over_ || peer_->inChild()) {
    return nullptr;
  }
  if (path_ == Path::kCopy) {
    return copy_;
  }
  if (ringHoldsAll()) {
    const std::uint64_t produced = record().produced.load(std::memory_order_acquire);
    return produced == static_cast<std::uint64_t>(bytes_) ? ring_ : nullptr;
  }
  return path_ == Path::kMapped && !parts_.has_value() && from_->blockCount() == 1
             ? mapped_ + from_->bounds().first
             : nullptr;
}

bool Incoming::isBeingPacked() const {
  return !over_ && !peer_->inChild() && ringHoldsAll() && packed() == nullptr;
}

Result<bool> Incoming::end() {
  if (packed() == nullptr) {
    return over_ && failed_ != adsmSuccess
               ? Result<bool>(isOver())
               : fail(adsmErrorInvalidValue, "exchange: a message that is not read where it lies");
  }
  done_ = bytes_;
  return conclude();
}

Result<bool> Incoming::advance(int64_t most) {
  if (peer_->inChild()) {
    return fail(adsmErrorForked, "exchange: a child of fork has no part in its parent's messages");
  }
  if (over_) {
    return failed_ != adsmSuccess ? Result<bool>(isOver()) : Result<bool>(true);
  }
  if (path_ == Path::kRead && !peer_->readable.load(std::memory_order_relaxed)) {
    askForRing();
  }
  int64_t copied = 0;
  while (copied < most && done_ < bytes_) {
    const Result<int64_t> now = step(std::min(most - copied, bytes_ - done_));
    if (!now.ok()) {
      const std::string text = lastErrorText();
      const adsmError_t code = now.status().code();
      (void)letGo(true);
      failed_ = code;
      return fail(code, "{}", text);
    }
    done_ += *now;
    copied += *now;
    if (path_ == Path::kRing) {
      record().consumed.store(static_cast<std::uint64_t>(done_), std::memory_order_release);
    }
    if (*now == 0) {
      break;
    }
  }
  const Result<bool> concluded = conclude();
  if (!concluded.ok() || *concluded) {
    return concluded;
  }
  // (A copy needs no sender.)
  if (copied == 0 && path_ != Path::kCopy && patience_.passed() && !peer_->lives()) {
    // It may have left one since.
    const Result<bool> last = conclude();
    if (!last.ok() || *last || path_ == Path::kCopy) {
      return last;
    }
    (void)letGo(true);
    failed_ = adsmErrorSystem;
    return fail(failed_,
                "exchange: the process of rank {} has ended before all of a message of {} bytes "
                "was there",
                sender_, bytes_);
  }
  return false;
}

}  // namespace gmac::exchange::internal
