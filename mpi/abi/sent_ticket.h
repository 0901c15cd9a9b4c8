// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_MPI_ABI_SENT_TICKET_H_
#define GMAC_MPI_ABI_SENT_TICKET_H_

#include <cstddef>
#include <cstdint>

#include "mpi/abi/calls.h"
#include "mpi/tickets.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// How a message of staged memory is sent, which its sender alone decides: as a ticket, if it is
// large, its receiver is reached, and there is room; and counted. To be kept as long as MPI reads
// bytes().
class SentTicket {
 public:
  // Ready and standard sends, which are over when MPI has taken the bytes.
  SentTicket(MPI_Comm communicator, int destination);
  // The others. (A probe at the receiver would complete a synchronous send, and a buffered one
  // takes the room that the application has given MPI.)
  SentTicket() = default;

  // Room for that payload; NULL: it takes the wire.
  std::byte* reserve(std::int64_t payloadBytes);
  // The payload is there.
  void write();
  // MPI has not sent the ticket.
  void recall() {
    if (inUse_) (void)parcel_.recall();
  }

  // The same after a blocking call has returned `code`: unless it may have been sent. (Of a call
  // that also receives, the receive may have failed.)
  void recallIfUnsent(int code);

  // Whether the ticket is sent in place of the payload, as kBytes bytes.
  bool inUse() const { return inUse_; }
  std::byte* bytes() { return bytes_.data(); }

 private:
  bool mayBeUsed_ = false;
  int rank_ = -1;  // in MPI_COMM_WORLD
  exchange::Parcel parcel_;
  bool inUse_ = false;
  tickets::Bytes bytes_{};  // once inUse_
};

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_SENT_TICKET_H_
