// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_MPI_ABI_SENT_TICKET_H_
#define GMAC_MPI_ABI_SENT_TICKET_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "mpi/abi/calls.h"
#include "mpi/abi/elements.h"
#include "mpi/abi/fragments.h"
#include "mpi/tickets.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// How a message is sent, which its sender alone decides: as a ticket, if it is large, its receiver
// is reached, and there is room; and counted. Staged memory is packed (reserve(), write()); plain
// memory may stay where it is (offer()). To be kept as long as MPI reads bytes().
class SentTicket {
 public:
  // Ready and standard sends, which are over when MPI has taken the bytes.
  SentTicket(MPI_Comm communicator, int destination);
  // The others. (A probe at the receiver would complete a synchronous send, and a buffered one
  // takes the room that the application has given MPI.)
  SentTicket() = default;

  // Room for their payload; NULL: it takes the wire.
  std::byte* reserve(const Elements& elements);
  // The payload is there.
  void write();
  // Of staged memory: before Side: what it says may stay where it is; and whether it does.
  void mayBeLent(tickets::Sender sender) { lends_ = sender; }
  bool lend(const Elements& elements);
  // Of plain memory: a transfer, or for short pieces whose sender leaves, a packed payload. False:
  // it takes the wire. A sender that follows calls follow() when MPI has the ticket.
  bool offer(const void* buffer, MPI_Count count, MPI_Datatype datatype, tickets::Sender sender);
  // Of staged memory: before Side: the caller calls follow() when MPI has the ticket; and whether
  // the payload goes in fragments.
  void mayBeFragmented() { followed_ = true; }
  bool fragment(const Elements& elements);
  bool isInFragments() const { return fragments_ != nullptr; }
  // Sends what follows the ticket. Of a transfer that goes by a ring, packs what there is room for:
  // it may be over then.
  void follow() {
    if (fragments_ != nullptr) fragments_->post();
    if (transfer_ != nullptr) isLeft_ = transfer_->follow() == Progress::kOver;
  }
  // False if so many elements of a predefined type are too few for a ticket.
  static bool mayBeReserved(MPI_Count count, MPI_Datatype datatype);
  // False if offer() would be, whatever the buffer and the receiver are: some nanoseconds for most
  // messages.
  static bool mayBeOffered(MPI_Count count, MPI_Datatype datatype);

  // MPI has not sent the ticket.
  void recall() {
    if (inUse_) (void)parcel_.recall();
    if (transfer_ != nullptr) transfer_->recall();
    if (fragments_ != nullptr) fragments_->recall();
  }

  // Whether the buffer is the application's again, or never was anybody else's; if not, waits no
  // more than it takes to leave a copy.
  bool settled() {
    return fragments_ != nullptr ? fragments_->settled()
                                 : transfer_ == nullptr || progress() != Progress::kUnderWay;
  }
  // Of lend(): why the message cannot be sent at all; empty: it can.
  const std::string& refusal() const { return refusal_; }
  // After settled(): with which reason the message failed; empty: it has not.
  std::string failure() {
    if (fragments_ != nullptr) return fragments_->reason();
    return transfer_ != nullptr && progress() == Progress::kFailed ? transfer_->reason() : "";
  }
  // Whether there is something to wait for when MPI has sent the ticket.
  bool isTransfer() const { return (transfer_ != nullptr && !isLeft_) || fragments_ != nullptr; }
  // Of lend(): the call advances it until it is settled() (Transfer::isStaged()).
  bool isStaged() const { return transfer_ != nullptr && transfer_->isStaged(); }
  // How many bytes the receiver takes from here.
  std::int64_t transferBytes() const { return transfer_ != nullptr ? transfer_->bytes() : 0; }

  // The same after a blocking call has returned `code`: unless it may have been sent. (Of a call
  // that also receives, the receive may have failed.)
  void recallIfUnsent(int code);

  // `call()`, which sends and does nothing else. Where MPI's error handler throws, nothing is sent.
  template <typename Call>
  int sendBy(const Call& call) {
    try {
      return call();
    } catch (...) {
      recall();
      throw;
    }
  }

  // Whether the ticket is sent in place of the payload, as kBytes bytes.
  bool inUse() const { return inUse_; }
  std::byte* bytes() { return bytes_.data(); }

 private:
  void noteSlow(tickets::Way way, const Elements& elements) const;
  using Progress = tickets::Transfer::Progress;
  Progress progress() { return transfer_->advance(); }

  std::shared_ptr<tickets::Transfer> transfer_;
  bool isLeft_ = false;  // the transfer was over at once
  std::shared_ptr<FragmentedSend> fragments_;
  bool followed_ = false;
  std::optional<tickets::Sender> lends_;
  bool mayBeUsed_ = false;
  int rank_ = -1;          // in MPI_COMM_WORLD; -1: it is not reached
  int fragmentRank_ = -1;  // the same; -1: it takes no fragments
  exchange::Parcel parcel_;
  tickets::Source packedFrom_;
  std::chrono::steady_clock::time_point reservedAt_{};  // for large payloads
  std::string refusal_;
  bool inUse_ = false;
  tickets::Bytes bytes_{};  // once inUse_
};

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_SENT_TICKET_H_
