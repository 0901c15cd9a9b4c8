// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_MPI_ABI_RECEPTION_H_
#define GMAC_MPI_ABI_RECEPTION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "mpi/abi/fragments.h"
#include "mpi/abi/peers.h"
#include "mpi/abi/plain_receive.h"
#include "mpi/abi/side.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// The buffer of a receive. What arrives is a payload, or a ticket, which is then replaced by its
// payload. MPI is given a buffer of plain memory as it is; a ticket that arrives there is read from
// the first bytes, as the datatype lays them out.
class Reception {
 public:
  // How long the datatype is needed: a nonblocking receive may outlive the application's handle of
  // it.
  enum class Ends { kInTheCall, kLater };

  // `staged`: the answer of needsStaging(). `peers`: the processes that may send tickets; NULL:
  // none. The error handler of `communicator` is called.
  Reception(bool staged, void* buffer, MPI_Count count, MPI_Datatype datatype,
            MPI_Comm communicator, PeersPtr peers, Ends ends);
  // The same of one that MPI has been given before, whose private memory it takes. Calls no MPI.
  Reception(PlainReceive& receive, MPI_Comm communicator, Ends ends);

  // Whether nothing is left to do but to call MPI.
  bool isMpis() const { return !side_.has_value() && peers_ == nullptr; }
  bool failed() const { return side_.has_value() && side_->failed(); }

  void* address() const { return side_.has_value() ? side_->address() : buffer_; }
  MPI_Datatype datatype() const { return side_.has_value() ? side_->datatype() : datatype_; }

  // Packs the buffer, for calls that send its contents before they receive into it. False: failed.
  bool pack(SentTicket* wire);
  // The same, in fragments, whose ticket it is then. The buffer is read until they are posted.
  bool sendsInFragments(SentTicket* ticket) const;
  // This receive gets a held message. Its status becomes what it would have been without the probe.
  void receives(const Held& held);

  // Whether a message in fragments may come.
  bool mayGetFragments() const { return mayGetFragments_; }
  // The receiver waits, and MPI has not received yet.
  void attend() { attended_ = true; }
  // MPI has received with success. Whether arrived() does not wait for other processes; else ask
  // again. Thread-safe.
  bool isHere(const MPI_Status& status);
  // MPI has received with success: delivers the payload. False: the call fails with code().
  bool arrived(const MPI_Status& status);
  // Corrects the status after arrived(): it becomes that of the message, not of the ticket.
  void amend(MPI_Status* status) const;
  // A persistent request is started again.
  void restart();

  // MPI's error code; MPI_SUCCESS if the failure is this library's, which reason() explains.
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
  void keepType();
  bool redeem(const tickets::Ticket& ticket);
  bool redeemTransfer(const tickets::Ticket& ticket);
  void beginFragments(const tickets::Ticket& ticket);
  bool redeemFragments(const tickets::Ticket& ticket);
  void noteAttention(const MPI_Status& status) const;
  bool redeemByDevice(const tickets::Ticket& ticket, const datatype::Layout& layout);

  void* buffer_;
  MPI_Count count_;
  MPI_Datatype datatype_;
  MPI_Comm communicator_;
  PeersPtr peers_;
  const Ends ends_;
  std::optional<Side> side_;          // of memory that MPI is not given
  std::optional<Elements> elements_;  // of plain memory, when they are needed

  // Of a held message.
  bool isHeld_ = false;
  int source_ = 0;
  int tag_ = 0;
  std::shared_ptr<Reread> reread_;

  bool mayGetFragments_ = false;
  std::atomic<bool> attended_;
  std::mutex lock_;  // guards what follows until all fragments are there
  std::optional<tickets::Ticket> fragmented_;
  StagingMemory packed_;                         // of fragments, where they do not go to the buffer
  std::unique_ptr<FragmentedReceive> incoming_;  // NULL: none are to come

  bool isArriving_ = false;         // exchange::Path::kArriving
  std::int64_t payloadBytes_ = -1;  // a ticket's
  int code_ = MPI_SUCCESS;
  std::string reason_;
};

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_RECEPTION_H_
