// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_MPI_ABI_SIDE_H_
#define GMAC_MPI_ABI_SIDE_H_

#include <string>
#include <utility>

#include "mpi/abi/errors.h"
#include "mpi/abi/staged.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// One buffer of a call: what MPI is given in its place, or the buffer itself if it needs no
// staging.
class Side {
 public:
  // `staged`: the answer of needsStaging(). `packs`: packs the payload now. If `ticket` has room
  // for it, the payload goes there, and the caller sends the ticket instead of this buffer.
  Side(bool staged, const void* buffer, MPI_Count count, MPI_Datatype datatype, bool packs,
       SentTicket* ticket = nullptr)
      : address_(const_cast<void*>(buffer)), datatype_(datatype) {
    if (!staged) {
      return;
    }
    const Ready ready = packs ? staged_.pack(buffer, count, datatype, ticket)
                              : staged_.prepare(address_, count, datatype);
    failed_ = ready == Ready::kFailed;
    if (ready == Ready::kYes) {
      staged_in_use_ = true;
      address_ = staged_.address();
      datatype_ = staged_.datatype();
    }
  }

  // A receive that was begun with `received` in the buffer's place: Staged::adopt().
  Side(void* buffer, MPI_Count count, MPI_Datatype datatype, StagingMemory received,
       const ObjectsThen* objects)
      : address_(received.data()), datatype_(datatype), staged_in_use_(true) {
    failed_ = staged_.adopt(buffer, count, datatype, std::move(received), objects) != Ready::kYes;
  }

  bool failed() const { return failed_; }
  const std::string& reason() const { return staged_.reason(); }
  void* address() const { return address_; }
  MPI_Datatype datatype() const { return datatype_; }

  // Packs a send buffer again; unpacks a receive buffer. False: failed.
  bool pack() { return !staged_in_use_ || staged_.repack(); }
  bool unpack(const MPI_Status& status) {
    return !staged_in_use_ || staged_.unpackReceived(status);
  }
  // For staged buffers: the size of the payload, and unpacking of a payload that lies elsewhere.
  std::int64_t payloadBytes() const { return staged_in_use_ ? staged_.bytes() : 0; }
  bool unpackFrom(std::byte* payload, std::int64_t bytes) {
    return staged_.unpackFrom(payload, bytes);
  }
  void pin() { staged_.pin(); }
  // NULL: it is not staged.
  const Elements* elements() const { return staged_in_use_ ? &staged_.elements() : nullptr; }
  // Unpacks the whole payload.
  bool unpackAll() { return !staged_in_use_ || staged_.unpackAll(); }
  // Unpacks after a successful receive. Returns the call's result.
  int deliver(const MPI_Status& status, MPI_Comm communicator, const char* call) {
    return unpack(status) ? MPI_SUCCESS : refuse(communicator, call, reason());
  }

 private:
  void* address_;
  MPI_Datatype datatype_;
  Staged staged_;
  bool staged_in_use_ = false;
  bool failed_ = false;
};

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_SIDE_H_
