// SPDX-License-Identifier: Apache-2.0
//
// A staged buffer: MPI is given a packed copy of it in private memory, as `count` elements of a
// contiguous type of the same size. So the message has the same bytes, status and truncation as
// without this library.
#ifndef GMAC_MPI_ABI_STAGED_H_
#define GMAC_MPI_ABI_STAGED_H_

#include <cstdint>
#include <string>

#include "mpi/abi/elements.h"
#include "mpi/abi/sent_ticket.h"
#include "mpi/staging_memory.h"

namespace gmac::mpi::GMAC_MPI_ABI {

class Staged {
 public:
  Staged() = default;

  // Allocates memory for the payload of `count` (1 or more) elements at `buffer`.
  Ready prepare(void* buffer, MPI_Count count, MPI_Datatype datatype);
  // The same with memory in which MPI has received before, of a dense type that was found then.
  // `objects`: when it was begun; NULL: the buffer was of no shared object then. Calls no MPI.
  Ready adopt(void* buffer, MPI_Count count, MPI_Datatype datatype, StagingMemory memory,
              const ObjectsThen* objects);
  // As prepare(), and packs the payload there, or into the ticket's room if the ticket has any. If
  // the ticket lends the elements, they stay where they are.
  Ready pack(const void* buffer, MPI_Count count, MPI_Datatype datatype, SentTicket* ticket);
  // Packs again. False: failed, and nothing was sent.
  bool repack();
  // Unpacks the first `bytes` of the payload into the buffer. False: failed.
  bool unpack(std::int64_t bytes);
  bool unpackAll() { return unpack(elements_.bytes()); }
  // The same, from a payload that lies elsewhere.
  bool unpackFrom(std::byte* payload, std::int64_t bytes) {
    return elements_.unpack(payload, bytes);
  }
  // The same, for as many bytes as the status of the receive says.
  bool unpackReceived(const MPI_Status& status);

  // For payloads that a device fills or reads. (Plain memory is staged, too: splitsTicket().)
  void pin() {
    if (elements_.bytes() >= std::int64_t{StagingMemory::kLeastPinned} && elements_.needStaging()) {
      memory_.pin(kPinning);
    }
  }

  const Elements& elements() const { return elements_; }
  std::int64_t bytes() const { return elements_.bytes(); }
  // For MPI, with the application's count.
  void* address() const { return memory_.data(); }
  MPI_Datatype datatype() const { return elements_.type().wire; }

  const std::string& reason() const { return reason_.empty() ? elements_.reason() : reason_; }

 private:
  Ready allocate();

  Elements elements_;
  StagingMemory memory_;
  std::string reason_;  // unless it is the elements'
};

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_STAGED_H_
