// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/reception.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>
#include <vector>

#include "gmac/base/status.h"
#include "mpi/abi/requests.h"
#include "mpi/slow_messages.h"
#include "mpi/spinning.h"
#include "mpi/staging_memory.h"

namespace gmac::mpi::GMAC_MPI_ABI {

namespace {

// From device memory to this process's device's, not by that device.
void noteNotCopied(slow::Reason reason, std::int64_t bytes, std::chrono::nanoseconds time) {
  if (slow::isSlow(reason, bytes) && tickets::hasDevice()) {
    slow::note(reason, bytes, time);
  }
}

// The device is waited for while it copies so many bytes in one piece: some 50 us, in which this
// process serves nobody.
constexpr std::int64_t kMostAwaited = std::int64_t{16} << 20;

// Why the sender's device memory was packed.
slow::Reason whyPacked(const tickets::Ticket& ticket) {
  return ticket.hasNoHandle ? slow::Reason::kNotExported : slow::Reason::kNotImported;
}

// How long something takes that may be told as slow; of other messages the clock is not read.
class Stopwatch {
 public:
  Stopwatch(slow::Reason reason, std::int64_t bytes) : runs_(slow::isSlow(reason, bytes)) {
    if (runs_) start_ = std::chrono::steady_clock::now();
  }
  std::chrono::nanoseconds time() const {
    return runs_ ? std::chrono::steady_clock::now() - start_ : std::chrono::nanoseconds(0);
  }

 private:
  bool runs_;
  std::chrono::steady_clock::time_point start_{};
};

}  // namespace

Reception::Reception(bool staged, void* buffer, MPI_Count count, MPI_Datatype datatype,
                     MPI_Comm communicator, PeersPtr peers, Ends ends)
    : buffer_(buffer),
      count_(count),
      datatype_(datatype),
      communicator_(communicator),
      peers_(std::move(peers)),
      ends_(ends),
      attended_(ends == Ends::kInTheCall) {
  if (staged) {
    side_.emplace(true, buffer, count, datatype, false);
    mayGetFragments_ = tickets::goesInFragments(side_->payloadBytes());
    return;
  }
  MPI_Count size = 0;
  mayGetFragments_ = tickets::anyTakesFragments() && count > 0 && datatype != MPI_DATATYPE_NULL &&
                     real().Type_size_x(datatype, &size) == MPI_SUCCESS && size > 0 &&
                     count <= PTRDIFF_MAX / size && tickets::goesInFragments(count * size);
  if (ends_ == Ends::kLater) keepType();
}

// A ticket may come to plain memory when the application has freed the datatype.
void Reception::keepType() {
  if (peers_ != nullptr && !side_.has_value() && !elements_.has_value() && count_ > 0 &&
      datatype_ != MPI_DATATYPE_NULL && isDerived(datatype_)) {
    (void)prepareElements();
  }
}

Reception::Reception(PlainReceive& receive, MPI_Comm communicator, Ends ends)
    : buffer_(receive.buffer),
      count_(receive.count),
      datatype_(receive.datatype),
      communicator_(communicator),
      peers_(receive.peers),
      ends_(ends),
      attended_(ends == Ends::kInTheCall) {
  if (receive.isStaged()) {
    side_.emplace(buffer_, count_, datatype_, std::move(receive.staged),
                  receive.isOfObject ? &receive.then : nullptr);
  } else if (receive.type != nullptr) {
    elements_.emplace();
    elements_->preparePlain(buffer_, count_, datatype_, receive.type);
  }
}

bool Reception::pack(SentTicket* wire) {
  if (!side_.has_value()) {
    return true;
  }
  if (side_->elements() != nullptr) (void)wire->reserve(*side_->elements());
  return side_->pack();
}

bool Reception::sendsInFragments(SentTicket* ticket) const {
  return side_.has_value() && side_->elements() != nullptr && ticket->fragment(*side_->elements());
}

void Reception::receives(const Held& held) {
  isHeld_ = true;
  source_ = held.source;
  tag_ = held.tag;
  reread_ = held.reread;
  peers_ = held.peers;
  if (ends_ == Ends::kLater) keepType();
}

void Reception::restart() {
  attended_ = false;
  fragmented_.reset();
  incoming_.reset();
  packed_ = {};
  isHeld_ = false;
  reread_.reset();
  isArriving_ = false;
  payloadBytes_ = -1;
  code_ = MPI_SUCCESS;
  reason_.clear();
}

bool Reception::prepareElements() {
  if (elements_.has_value()) {
    return true;
  }
  elements_.emplace();
  if (elements_->prepare(buffer_, count_, datatype_) == Ready::kYes) {
    return true;
  }
  reason_ = elements_->reason().empty() ? "MPI does not take the datatype" : elements_->reason();
  elements_.reset();
  return false;
}

// Whether the status allows a ticket.
bool Reception::mayHold(const MPI_Status& status) const {
  MPI_Count bytes = 0;
  int cancelled = 0;
  return hasTicketsLength(status) &&
         (isHeld_ ? reread_ != nullptr : peers_->rankInWorld(status.MPI_SOURCE) >= 0) &&
         real().Get_elements_x(&status, MPI_BYTE, &bytes) == MPI_SUCCESS &&
         bytes == static_cast<MPI_Count>(tickets::kBytes) &&
         real().Test_cancelled(&status, &cancelled) == MPI_SUCCESS && cancelled == 0;
}

std::optional<tickets::Ticket> Reception::ticketIn(const MPI_Status& status) {
  if (peers_ == nullptr || !mayHold(status)) {
    return std::nullopt;
  }
  tickets::Bytes bytes{};
  if (side_.has_value()) {
    return side_->payloadBytes() < static_cast<std::int64_t>(tickets::kBytes)
               ? std::nullopt
               : tickets::read(
                     std::span(static_cast<const std::byte*>(side_->address()), tickets::kBytes)
                         .first<tickets::kBytes>());
  }
  if (!prepareElements() || elements_->bytes() < static_cast<std::int64_t>(tickets::kBytes)) {
    return std::nullopt;
  }
  return elements_->packFront(bytes) ? tickets::read(bytes) : std::nullopt;
}

// Straight to device memory, or an object.
bool Reception::redeemByDevice(const tickets::Ticket& ticket, const datatype::Layout& layout) {
  payloadBytes_ = ticket.payloadBytes;
  const Stopwatch watch(whyPacked(ticket), payloadBytes_);
  exchange::Path path{};
  const bool received = tickets::receive(ticket, side_->elements()->address(), layout,
                                         exchange::Memory::kDevice, &path)
                            .ok();
  const std::chrono::nanoseconds took = watch.time();
  isArriving_ = received && path == exchange::Path::kArriving;
  if (!received) {
    reason_ = lastErrorText();
  } else if (ticket.isPinned && !tickets::importFor(ticket)) {
    noteNotCopied(whyPacked(ticket), payloadBytes_, took);
  }
  return received;
}

// To the buffer where its layout is known, else by private memory.
bool Reception::redeemTransfer(const tickets::Ticket& ticket) {
  const std::int64_t room = side_.has_value() ? side_->payloadBytes() : elements_->bytes();
  payloadBytes_ = std::min(room, ticket.payloadBytes);
  const bool fits = ticket.payloadBytes <= room;
  if (fits && ticket.exported != exchange::kNoExport && !ticket.isPinned && side_.has_value() &&
      ticket.payloadBytes <= kMostAwaited) {
    if (std::byte* const piece = side_->elements()->pieceOnDevice()) {
      const bool received = tickets::receivePiece(ticket, piece).ok();
      if (!received) reason_ = lastErrorText();
      return received;
    }
  }
  if (fits && (ticket.exported != exchange::kNoExport || ticket.isPinned) && side_.has_value()) {
    if (const auto layout = side_->elements()->layoutForDevice()) {
      return redeemByDevice(ticket, layout->layout);
    }
  }
  const exchange::SharedLayoutPtr layout =
      fits && !side_.has_value() ? elements_->layout() : nullptr;
  if (layout != nullptr) {
    const bool received = tickets::receive(ticket, elements_->address(), layout->layout).ok();
    if (!received) reason_ = lastErrorText();
    return received;
  }
  StagingMemory own;
  std::byte* packed = nullptr;
  if (fits && side_.has_value()) {
    packed = static_cast<std::byte*>(side_->address());
  } else {
    own = StagingMemory(static_cast<std::size_t>(ticket.payloadBytes));
    packed = own.data();
  }
  const auto whole = datatype::Layout::make({}, {{0, ticket.payloadBytes}});
  if (packed == nullptr || !whole.ok()) {
    tickets::discard(ticket);
    reason_ = "no memory for a message of " + std::to_string(ticket.payloadBytes) + " bytes";
    return false;
  }
  if (fits && side_.has_value()) {
    bool unpacked = false;
    const auto taken = tickets::receive(ticket, packed, [&](const std::byte* payload) {
      unpacked = side_->unpackFrom(const_cast<std::byte*>(payload), payloadBytes_);
      return unpacked;
    });
    if (!taken.ok()) {
      reason_ = lastErrorText();
      return false;
    }
    return *taken ? unpacked : side_->unpackFrom(packed, payloadBytes_);
  }
  if (!tickets::receive(ticket, packed, *whole).ok()) {
    reason_ = lastErrorText();
    return false;
  }
  if (!fits) code_ = MPI_ERR_TRUNCATE;
  // Of plain memory, the ticket does not remain.
  const bool unpacked = side_.has_value() || elements_->unpack(packed, payloadBytes_);
  if (!unpacked && !side_.has_value()) reason_ = elements_->reason();
  return fits && unpacked;
}

// Posts the receives of the payload: to where it is unpacked from, or to a contiguous buffer.
void Reception::beginFragments(const tickets::Ticket& ticket) {
  fragmented_ = ticket;
  const std::int64_t room = side_.has_value() ? side_->payloadBytes() : elements_->bytes();
  payloadBytes_ = std::min(room, ticket.payloadBytes);
  std::byte* to = nullptr;
  if (ticket.payloadBytes > room) {
    code_ = MPI_ERR_TRUNCATE;
  } else if (side_.has_value()) {
    side_->pin();
    to = static_cast<std::byte*>(side_->address());
  } else if (elements_->type().dense) {
    to = elements_->address();
  } else {
    packed_ = StagingMemory(static_cast<std::size_t>(ticket.payloadBytes));
    to = packed_.data();
    if (to == nullptr) {
      reason_ = "no memory for a message of " + std::to_string(ticket.payloadBytes) + " bytes";
    }
  }
  if (to == nullptr) {
    fragments::discard(ticket);
    return;
  }
  try {
    incoming_ = std::make_unique<FragmentedReceive>(
        ticket, to, side_.has_value() ? side_->elements() : nullptr);
  } catch (const std::bad_alloc&) {
    reason_ = "no memory";  // short enough to need none
    fragments::discard(ticket);
  }
}

bool Reception::redeemFragments(const tickets::Ticket& ticket) {
  if (!fragmented_.has_value()) {
    beginFragments(ticket);
  }
  if (incoming_ == nullptr) {
    return false;
  }
  for (Spinning spinning(ticket.payloadBytes); !incoming_->advance(); spinning.turn()) {
    // Others may wait for this process in turn.
    requests::progress();
    tickets::serveTransfers();
  }
  reason_ = incoming_->reason();
  if (!reason_.empty() || incoming_->unpacks()) {
    return reason_.empty();
  }
  if (side_.has_value()) {
    return side_->unpackFrom(static_cast<std::byte*>(side_->address()), payloadBytes_);
  }
  const bool unpacked =
      packed_.data() == nullptr || elements_->unpack(packed_.data(), payloadBytes_);
  if (!unpacked) reason_ = elements_->reason();
  return unpacked;
}

bool Reception::isHere(const MPI_Status& status) {
  const std::lock_guard guard(lock_);
  if (!fragmented_.has_value()) {
    const std::optional<tickets::Ticket> ticket = ticketIn(status);
    if (!ticket.has_value() || ticket->fragmentBytes == 0) {
      return true;
    }
    beginFragments(*ticket);
  }
  return incoming_ == nullptr || incoming_->advance();
}

// A large message that its sender might have sent in fragments.
void Reception::noteAttention(const MPI_Status& status) const {
  MPI_Count bytes = 0;
  if (attended_ && !isHeld_ && tickets::anyTakesFragments() &&
      real().Get_elements_x(&status, MPI_BYTE, &bytes) == MPI_SUCCESS &&
      tickets::goesInFragments(bytes)) {
    fragments::noteAttention(peers_->rankInWorld(status.MPI_SOURCE));
  }
}

bool Reception::redeem(const tickets::Ticket& ticket) {
  if (ticket.fragmentBytes > 0) {
    return redeemFragments(ticket);
  }
  if (tickets::isTransfer(ticket)) {
    return redeemTransfer(ticket);
  }
  const auto delivery = tickets::collect(ticket);
  if (!delivery.ok()) {
    reason_ = lastErrorText();
    return false;
  }
  const std::int64_t room = side_.has_value() ? side_->payloadBytes() : elements_->bytes();
  payloadBytes_ = std::min(room, ticket.payloadBytes);
  auto* const payload = const_cast<std::byte*>(delivery->data());
  if (static_cast<std::int64_t>(delivery->bytes()) < ticket.payloadBytes) {
    reason_ = "a payload is shorter than its ticket says";
    return false;
  }
  if (ticket.payloadBytes > room) {
    code_ = MPI_ERR_TRUNCATE;
    // Of plain memory, the ticket does not remain.
    if (!side_.has_value()) (void)elements_->unpack(payload, room);
    return false;
  }
  const slow::Reason reason = whyPacked(ticket);
  const Stopwatch watch(reason, payloadBytes_);
  const bool unpacked = side_.has_value() ? side_->unpackFrom(payload, payloadBytes_)
                                          : elements_->unpack(payload, payloadBytes_);
  const std::chrono::nanoseconds took = watch.time();
  if (!unpacked && !side_.has_value()) {
    reason_ = elements_->reason();
  }
  // Of the sender's device memory: might this device have copied it?
  if (unpacked && (ticket.exported != exchange::kNoExport || ticket.hasNoHandle) &&
      side_.has_value() && side_->elements()->layoutForDevice() != nullptr) {
    if (!tickets::importFor(ticket)) {
      noteNotCopied(reason, payloadBytes_, ticket.packed + took);
    }
  }
  return unpacked;
}

bool Reception::arrived(const MPI_Status& status) {
  tickets::sweep();
  if (side_.has_value()) tickets::tellDevice();
  // (Where fragments have come, the ticket stands there no more.)
  const std::optional<tickets::Ticket> ticket =
      fragmented_.has_value() ? fragmented_ : ticketIn(status);
  if (ticket.has_value()) {
    const bool isRedeemed = redeem(*ticket);
    tickets::trace(ticket->fragmentBytes > 0       ? "receive: fragments"
                   : !tickets::isTransfer(*ticket) ? "receive: ticket"
                   : isArriving_                   ? "receive: transfer, unpacked as it arrived"
                                                   : "receive: transfer",
                   ticket->payloadBytes);
    return isRedeemed;
  }
  if (!side_.has_value()) {
    return true;
  }
  tickets::trace("receive: wire", side_->payloadBytes());
  const Stopwatch watch(slow::Reason::kNotImported, side_->payloadBytes());
  const bool unpacked = side_->unpack(status);
  const std::chrono::nanoseconds took = watch.time();
  if (unpacked && peers_ != nullptr) {
    noteAttention(status);
    const bool imported =
        tickets::importSuggested(isHeld_ ? -1 : peers_->rankInWorld(status.MPI_SOURCE),
                                 [&] { return side_->elements()->layoutForDevice() != nullptr; });
    MPI_Count bytes = 0;
    if (!imported && real().Get_elements_x(&status, MPI_BYTE, &bytes) == MPI_SUCCESS) {
      noteNotCopied(slow::Reason::kNotImported, bytes, took);
    }
  }
  return unpacked;
}

void Reception::amend(MPI_Status* status) const {
  if (isHeld_) {
    status->MPI_SOURCE = source_;
    status->MPI_TAG = tag_;
  }
  if (payloadBytes_ >= 0) {
    (void)real().Status_set_elements_x(status, MPI_BYTE, payloadBytes_);
  }
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
