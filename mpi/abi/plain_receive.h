// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_MPI_ABI_PLAIN_RECEIVE_H_
#define GMAC_MPI_ABI_PLAIN_RECEIVE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "mpi/abi/memory.h"
#include "mpi/abi/peers.h"
#include "mpi/abi/types.h"
#include "mpi/staging_memory.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// A receive into plain memory that MPI has been given as it is, and that may get a ticket; or one
// to a shared object, of a short message (short_message.h). Most get no ticket, so this is only
// what is needed to tell, and to find the payload then.
struct PlainReceive {
  void* buffer = nullptr;
  MPI_Count count = 0;
  MPI_Datatype datatype{};  // the application may have freed it, unless it is predefined
  TypePtr type;             // NULL: a predefined type
  int source = 0;
  PeersPtr peers;          // NULL: no ticket comes
  StagingMemory staged;    // which MPI has been given in the buffer's place; empty: plain memory
  bool isOfObject = true;  // else, with `staged`, of device memory
  ObjectsThen then;        // when it was begun

  bool isStaged() const { return staged.data() != nullptr; }
};

// Whether a plain buffer has room for a ticket. (Of a shorter one MPI says that it is too short.)
struct TicketRoom {
  bool any = false;
  // Whether a PlainReceive can be made of it: gmac packs the type, and no fragments come.
  bool isPlain = false;
  TypePtr type = nullptr;  // as in PlainReceive
};
inline TicketRoom roomForTicket(MPI_Count count, MPI_Datatype datatype) {
  const auto holds = [&](MPI_Count size) {
    return size > 0 && count >= (static_cast<MPI_Count>(tickets::kBytes) + size - 1) / size;
  };
  if (count <= 0 || datatype == MPI_DATATYPE_NULL) {
    return {};
  }
  if (const MPI_Count size = denseSize(datatype); size > 0) {
    return {holds(size), count <= PTRDIFF_MAX / size && !tickets::goesInFragments(count * size)};
  }
  const TypePtr* const recent = recentType(datatype);
  TypePtr type = recent != nullptr ? *recent : findType(datatype).type;
  if (type != nullptr) {
    const bool isPlain = (type->dense || type->own != nullptr) &&
                         count <= PTRDIFF_MAX / std::max(type->size, std::int64_t{1}) &&
                         !tickets::goesInFragments(count * type->size);
    return {holds(type->size), isPlain, std::move(type)};
  }
  MPI_Count size = 0;
  return {real().Type_size_x(datatype, &size) == MPI_SUCCESS && holds(size)};
}

// Whether a plain buffer cannot take a ticket, as MPI does not unpack it there: see Type.
inline bool splitsTicket([[maybe_unused]] const void* buffer, [[maybe_unused]] MPI_Count count,
                         [[maybe_unused]] MPI_Datatype datatype) {
#ifdef OPEN_MPI
  return false;
#else
  if (!tickets::inUse() || count <= 0 || datatype == MPI_DATATYPE_NULL || buffer == MPI_IN_PLACE ||
      denseSize(datatype) > 0) {
    return false;
  }
  const TypePtr* const recent = recentType(datatype);
  const TypePtr found = recent != nullptr ? nullptr : findType(datatype).type;
  const Type* const type = recent != nullptr ? recent->get() : found.get();
  return type != nullptr && type->splitsTickets &&
         count > (static_cast<MPI_Count>(tickets::kBytes) - 1) / type->size &&
         shifted(buffer, type->trueLowerBound) != nullptr;  // MPI says what is wrong
#endif
}
// Whether what is received goes through private memory.
inline bool isReceivedStaged(const void* buffer, MPI_Count count, MPI_Datatype datatype) {
  return needsStaging(buffer, count, datatype) || splitsTicket(buffer, count, datatype);
}

// Whether a message with that status may be a ticket, by its length. For every message, so from the
// fields; of no length else. (MPI_Get_elements_x takes as long as all else that is done.)
inline bool hasTicketsLength(const MPI_Status& status) {
#ifdef OPEN_MPI
  return status._ucount == tickets::kBytes;
#else
  return status.count_lo == static_cast<int>(tickets::kBytes);
#endif
}

// The length of a short message that was received, by its status; and whether a request was
// cancelled. From the fields, too.
inline std::size_t shortLength(const MPI_Status& status) {
#ifdef OPEN_MPI
  return status._ucount;
#else
  return static_cast<std::size_t>(status.count_lo);
#endif
}
inline bool isCancelled(const MPI_Status& status) {
#ifdef OPEN_MPI
  return status._cancelled != 0;
#else
  return (status.count_hi_and_cancelled & 1) != 0;
#endif
}

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_PLAIN_RECEIVE_H_
