// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/sent_ticket.h"

#include "mpi/abi/elements.h"
#include "mpi/abi/peers.h"
#include "mpi/far_rows.h"
#include "mpi/slow_messages.h"

namespace gmac::mpi::GMAC_MPI_ABI {

SentTicket::SentTicket(MPI_Comm communicator, int destination) : mayBeUsed_(true) {
  tickets::sweep();
  if (const PeersPtr peers = Peers::of(communicator)) {
    const int rank = peers->rankInWorld(destination);
    (rank >= 0 && tickets::reaches(rank) ? rank_ : fragmentRank_) = rank;
  }
}

// A message of device memory that takes MPI's wire, where another way might be much faster.
void SentTicket::noteSlow(tickets::Way way, const Elements& elements) const {
  const auto reason = way == tickets::Way::kMode     ? slow::Reason::kMode
                      : way == tickets::Way::kNoRoom ? slow::Reason::kNoRoom
                                                     : slow::Reason::kNotReached;
  if (!slow::isSlow(reason, elements.bytes()) || !elements.needStaging() || !tickets::hasDevice() ||
      (way == tickets::Way::kNotReached ? !tickets::areOnOneHost()
                                        : !tickets::anyOtherHasDevice())) {
    return;
  }
  const exchange::SharedLayoutPtr layout = elements.isOnDevice() ? nullptr : elements.layout();
  if (elements.isOnDevice() ||
      (layout != nullptr &&
       tickets::mayLendOnDevice(elements.address(), layout->layout.bounds()))) {
    slow::begin(reason, elements.bytes());
  }
}

std::byte* SentTicket::reserve(const Elements& elements) {
  const std::int64_t payloadBytes = elements.bytes();
  // (What the receiver is to import first is packed, and told to it.)
  if (payloadBytes < tickets::leastPayload() && packedFrom_.exported == exchange::kNoExport) {
    tickets::trace("send: wire", payloadBytes);
    return nullptr;
  }
  if (mayBeUsed_ && rank_ >= 0) {
    parcel_ = tickets::reserve(rank_, payloadBytes);
  }
  const auto way = parcel_       ? tickets::Way::kTicket
                   : !mayBeUsed_ ? tickets::Way::kMode
                   : rank_ < 0   ? tickets::Way::kNotReached
                                 : tickets::Way::kNoRoom;
  tickets::count(way, payloadBytes);
  if (!parcel_ && (way != tickets::Way::kNoRoom || packedFrom_.hasNoHandle)) {
    noteSlow(way, elements);
  } else if (parcel_ && slow::isSlow(slow::Reason::kNotImported, payloadBytes)) {
    reservedAt_ = std::chrono::steady_clock::now();
  }
  if (!parcel_ && packedFrom_.exported != exchange::kNoExport) {
    tickets::suggest(rank_, packedFrom_.exported);
  }
  return parcel_.data();
}

bool SentTicket::fragment(const Elements& elements) {
  if (!followed_ || fragmentRank_ < 0 || elements.bytes() < tickets::leastFragmented()) {
    return false;
  }
  fragments_ = FragmentedSend::begin(elements, fragmentRank_);
  if (fragments_ == nullptr) {
    return false;
  }
  tickets::count(tickets::Way::kFragments, elements.bytes());
  bytes_ = fragments_->ticket();
  inUse_ = true;
  return true;
}

void SentTicket::write() {
  const auto none = std::chrono::steady_clock::time_point();
  bytes_ = tickets::write(parcel_, packedFrom_,
                          reservedAt_ == none ? std::chrono::nanoseconds(0)
                                              : std::chrono::steady_clock::now() - reservedAt_);
  inUse_ = true;
}

bool SentTicket::lend(const Elements& elements) {
  if (!lends_.has_value() || rank_ < 0) {
    return false;
  }
  // If the receiver reaches it.
  const auto choose = [&](bool isFar) {
    return tickets::chooseOnDevice(
        {elements.bytes(), isFar, tickets::DeviceMessage::Reach::kImported}, *lends_,
        tickets::leastPayload(), tickets::leastOnDevice(rank_));
  };
  if (choose(false) == tickets::Choice::kWire) {
    return false;
  }
  const exchange::SharedLayoutPtr layout =
      elements.isOnDevice() ? elements.layoutOnDevice() : elements.layout();
  if (layout == nullptr || layout->layout.bytes() != elements.bytes()) {
    return false;
  }
  // (Else it is packed into the parcel, or for the wire.)
  const bool isLoaded = choose(rowsLieFarApart(layout->layout)) == tickets::Choice::kDevice;
  if (elements.isOnDevice()) {
    if (!isLoaded) return false;
    transfer_ = tickets::Transfer::offer(rank_, elements.address(), layout, *lends_, &packedFrom_);
  } else if (elements.bytes() >= tickets::leastPayload()) {
    transfer_ = tickets::Transfer::lend(rank_, elements.address(), layout, *lends_);
  }
  if (transfer_ == nullptr && !elements.isOnDevice() && isLoaded) {
    bool failed = false;
    transfer_ =
        tickets::Transfer::lendOnDevice(rank_, elements.address(), layout, &packedFrom_, &failed);
    if (failed) refusal_ = adsmLastErrorString();
  }
  if (transfer_ == nullptr) {
    return false;
  }
  bytes_ = transfer_->write();
  inUse_ = true;
  return true;
}

bool SentTicket::mayBeReserved(MPI_Count count, MPI_Datatype datatype) {
  const MPI_Count size = knownDenseSize(datatype);
  return size == 0 || count > (tickets::leastAnywhere() - 1) / size;
}

bool SentTicket::mayBeOffered(MPI_Count count, MPI_Datatype datatype) {
  if (!tickets::inUse()) {
    return false;
  }
  // The other ranks take their memory back in their next call that sends or receives.
  tickets::sweep();
  // One piece takes MPI's wire.
  if (count <= 0 || denseSize(datatype) > 0) {
    return false;
  }
  const TypePtr* const type = recentType(datatype);
  return type == nullptr || (*type)->size >= tickets::leastPayload() ||
         count * (*type)->size >= tickets::leastPayload();
}

bool SentTicket::offer(const void* buffer, MPI_Count count, MPI_Datatype datatype,
                       tickets::Sender sender) {
  MPI_Count size = 0;
  if (rank_ < 0 || buffer == nullptr || buffer == MPI_IN_PLACE || count <= 0 ||
      datatype == MPI_DATATYPE_NULL || real().Type_size_x(datatype, &size) != MPI_SUCCESS ||
      size <= 0 || count > PTRDIFF_MAX / size || count * size < tickets::leastPayload()) {
    return false;
  }
  Elements elements;
  if (elements.prepare(const_cast<void*>(buffer), count, datatype) != Ready::kYes) {
    return false;  // MPI says what is wrong, or sends it
  }
  const exchange::SharedLayoutPtr layout = elements.layout();
  if (layout == nullptr || layout->layout.bytes() != elements.bytes()) {
    return false;
  }
  using tickets::Choice;
  const Choice choice = tickets::choiceFor(rank_, elements.address(), layout->layout, sender);
  if (choice == Choice::kWire) {
    return false;
  }
  if (choice != Choice::kPacked) {
    transfer_ = tickets::Transfer::begin(rank_, elements.address(), layout, choice);
  }
  if (transfer_ != nullptr) {
    bytes_ = transfer_->write();
    inUse_ = true;
    return true;
  }
  if (layout->layout.meanBlockBytes() >= tickets::kLongPiece) {
    return false;
  }
  std::byte* const room = reserve(elements);
  if (room == nullptr || !elements.pack(room)) {
    return false;
  }
  write();
  return true;
}

void SentTicket::recallIfUnsent(int code) {
  // MPI looks at all arguments before it sends.
  int errorClass = MPI_SUCCESS;
  if (code == MPI_SUCCESS || real().Error_class(code, &errorClass) != MPI_SUCCESS) {
    return;
  }
  switch (errorClass) {
    case MPI_ERR_ARG:
    case MPI_ERR_BUFFER:
    case MPI_ERR_COMM:
    case MPI_ERR_COUNT:
    case MPI_ERR_RANK:
    case MPI_ERR_TAG:
    case MPI_ERR_TYPE:
      recall();
      break;
    default:
      break;
  }
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
