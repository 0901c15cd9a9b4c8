// SPDX-License-Identifier: Apache-2.0
//
// Messages of a few bytes of shared objects that are current on the CPU, as most short ones are,
// and of device memory but for nonblocking receives: one copy to or from private memory, without an
// allocation, and with nothing prepared. All else takes the way of longer messages (side.h,
// reception.h), before MPI is called or afterwards.
#ifndef GMAC_MPI_ABI_SHORT_MESSAGE_H_
#define GMAC_MPI_ABI_SHORT_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "gmac/datatype/engine/cpu_bytes.h"
#include "mpi/abi/memory.h"
#include "mpi/abi/sent_ticket.h"
#include "mpi/abi/types.h"
#include "mpi/staging_memory.h"
#include "mpi/tickets.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// The bytes of a buffer of such memory that has room for a short message. 0: it is another buffer.
// (Of types that were used before.)
inline std::size_t shortRoom(Where where, MPI_Count count, MPI_Datatype datatype) {
  const MPI_Count size = where != Where::kPlain ? knownDenseSize(datatype) : 0;
  return size > 0 && count <= static_cast<MPI_Count>(StagingMemory::kLeastRoom) / size
             ? static_cast<std::size_t>(count * size)
             : 0;
}

// Packs such a message. `place`: by whereIs(). False: it is to be sent as others are. (What may
// become a ticket is.)
inline bool packShort(Where where, const gmacDevicePlace& place, const void* buffer,
                      MPI_Count count, MPI_Datatype datatype, StagingMemory* packed) {
  const std::size_t bytes = shortRoom(where, count, datatype);
  if (bytes == 0 || SentTicket::mayBeReserved(count, datatype)) {
    return false;
  }
  StagingMemory memory(bytes);
  if (memory.data() == nullptr) {
    return false;
  }
  int copied = 0;
  if (where == Where::kShared) {
    copied = gmacReadOnCpu(memory.data(), buffer, bytes);
  } else if (gmacCopyFromDeviceInOrder(memory.data(), buffer, bytes, &place, &copied) !=
             adsmSuccess) {
    return false;  // which fails again, and is told then
  }
  if (copied == 0) {
    return false;
  }
  *packed = std::move(memory);
  tickets::sweep();
  tickets::tellDevice();
  tickets::trace("send: wire", static_cast<std::int64_t>(bytes));
  return true;
}

// Copies a message of `bytes` to the buffer in whose place MPI has received it. `place`: NULL: a
// shared object, of those that lived `then`. `sender`: its rank in MPI_COMM_WORLD, if it may send
// tickets, else -1. False: nothing was done.
inline bool unpackShort(void* buffer, const gmacDevicePlace* place, const ObjectsThen& then,
                        const StagingMemory& staged, std::size_t bytes, int sender) {
  // (Longer messages import what their senders suggest.)
  if (tickets::anySuggested(sender)) {
    return false;
  }
  int copied = bytes == 0 ? 1 : 0;
  if (bytes > 0 && place == nullptr && then.isFreed(buffer)) {
    return false;
  }
  if (bytes > 0 && place == nullptr) {
    copied = gmacWriteOnCpu(buffer, staged.data(), bytes);
  } else if (bytes > 0 &&
             gmacCopyToDeviceInOrder(buffer, staged.data(), bytes, place, &copied) != adsmSuccess) {
    return false;  // as above
  }
  if (copied == 0) {
    return false;
  }
  tickets::sweep();
  tickets::tellDevice();
  tickets::trace("receive: wire", static_cast<std::int64_t>(bytes));
  return true;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_SHORT_MESSAGE_H_
