// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_MPI_ABI_RECEPTION_H_
#define GMAC_MPI_ABI_RECEPTION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "mpi/abi/peers.h"
#include "mpi/abi/side.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// The buffer of a receive, as MPI is given it, and what comes there: a payload, or a ticket, whose
// payload then takes its place. A buffer of plain memory is given to MPI as it is; the bytes of a
// ticket are read from its front by its datatype.
class Reception {
 public:
  // When the datatype is needed: a nonblocking receive outlives the application's handle of it.
  enum class Ends { kInTheCall, kLater };

  // `peers`: those who may send tickets; NULL: nobody. `communicator`: whose error handler is
  // called.
  Reception(void* buffer, MPI_Count count, MPI_Datatype datatype, MPI_Comm communicator,
            PeersPtr peers, Ends ends);

  // Whether all that is to be done is to call MPI.
  bool isMpis() const { return !side_.has_value() && peers_ == nullptr; }
  bool failed() const { return side_.has_value() && side_->failed(); }

  void* address() const { return side_.has_value() ? side_->address() : buffer_; }
  MPI_Datatype datatype() const { return side_.has_value() ? side_->datatype() : datatype_; }

  // Of a call that sends what is in the buffer before it receives there: packs it. False: failed.
  bool pack(SentTicket* wire);
  // It receives this message, and no other, whose status is to be what it would have been.
  void receives(const Held& held);

  // MPI has received, with success. False: code() says with what the call fails.
  bool arrived(const MPI_Status& status);
  // Makes the status of a receive that has arrived that of its message.
  void amend(MPI_Status* status) const;
  // Of a persistent request: it begins again.
  void restart();

  // An error of MPI's; MPI_SUCCESS: it is one of ours, with that reason.
  int code() const { return code_; }
  const std::string& reason() const {
    return reason_.empty() && side_.has_value() ? side_->reason() : reason_;
  }
  // Whose error handler is to be called; and whether MPI has not done so for an error of its own.
  MPI_Comm communicator() const {
    return peers_ != nullptr ? peers_->communicator() : communicator_;
  }
  // Whether it notices when that is freed.
  bool knowsCommunicator() const { return peers_ != nullptr; }
  bool mpiToldNobody() const { return reread_ != nullptr; }

 private:
  std::optional<tickets::Ticket> ticketIn(const MPI_Status& status);
  bool mayHold(const MPI_Status& status) const;
  bool prepareElements();
  bool redeem(const tickets::Ticket& ticket);
  bool redeemTransfer(const tickets::Ticket& ticket);

  void* buffer_;
  MPI_Count count_;
  MPI_Datatype datatype_;
  MPI_Comm communicator_;
  PeersPtr peers_;
  std::optional<Side> side_;          // of memory that MPI is not given
  std::optional<Elements> elements_;  // of plain memory, when they are needed

  // Of a held message.
  bool isHeld_ = false;
  int source_ = 0;
  int tag_ = 0;
  std::shared_ptr<Reread> reread_;

  std::int64_t payloadBytes_ = -1;  // a ticket's
  int code_ = MPI_SUCCESS;
  std::string reason_;
};

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_RECEPTION_H_
