// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/staged.h"

#include <utility>

namespace gmac::mpi::GMAC_MPI_ABI {

Ready Staged::prepare(void* buffer, MPI_Count count, MPI_Datatype datatype) {
  const Ready ready = elements_.prepare(buffer, count, datatype);
  return ready == Ready::kYes ? allocate() : ready;
}

Ready Staged::adopt(void* buffer, MPI_Count count, MPI_Datatype datatype, StagingMemory memory,
                    const ObjectsThen* objects) {
  memory_ = std::move(memory);
  const Ready ready = elements_.prepare(buffer, count, datatype);
  if (objects != nullptr) elements_.wereShared(*objects);
  return ready;
}

Ready Staged::allocate() {
  memory_ = StagingMemory(static_cast<std::size_t>(elements_.bytes()));
  if (memory_.data() == nullptr) {
    reason_ = "no memory for a message of " + std::to_string(elements_.bytes()) + " bytes";
    return Ready::kFailed;
  }
  return Ready::kYes;
}

Ready Staged::pack(const void* buffer, MPI_Count count, MPI_Datatype datatype, SentTicket* ticket) {
  Ready ready = elements_.prepare(const_cast<void*>(buffer), count, datatype);
  if (ready != Ready::kYes) {
    return ready;
  }
  if (ticket != nullptr) {
    if (ticket->lend(elements_)) {
      return Ready::kYes;
    }
    if (!ticket->refusal().empty()) {
      reason_ = ticket->refusal();
      return Ready::kFailed;
    }
    if (ticket->fragment(elements_)) {
      return Ready::kYes;
    }
    if (std::byte* const room = ticket->reserve(elements_)) {
      if (!elements_.pack(room)) {
        return Ready::kFailed;
      }
      ticket->write();
      return Ready::kYes;
    }
  }
  ready = allocate();
  return ready == Ready::kYes && !repack() ? Ready::kFailed : ready;
}

// (A message that its receiver's device copies needs no pinned memory.)
bool Staged::repack() {
  pin();
  return elements_.pack(memory_.data());
}

bool Staged::unpack(std::int64_t bytes) {
  pin();
  return elements_.unpack(memory_.data(), bytes);
}

bool Staged::unpackReceived(const MPI_Status& status) {
  MPI_Count bytes = 0;
  if (real().Get_elements_x(&status, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes == MPI_UNDEFINED) {
    reason_ = "MPI does not say how many bytes it has received";
    return false;
  }
  return unpack(bytes);
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
