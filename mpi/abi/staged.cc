// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/staged.h"

#include <algorithm>
#include <utility>

namespace gmac::mpi::GMAC_MPI_ABI {

MpiDuplicate::MpiDuplicate(MPI_Datatype original)
    : made_(real().Type_dup(original, &type_) == MPI_SUCCESS) {}

MpiDuplicate::~MpiDuplicate() {
  if (made_) {
    (void)real().Type_free(&type_);
  }
}

Staged::Ready Staged::prepare(void* buffer, MPI_Count count, MPI_Datatype datatype) {
  FoundType found = findType(datatype);
  if (found.type == nullptr) {
    reason_ = found.reason;
    return found.refusedByMpi ? Ready::kLetMpiRefuse : Ready::kFailed;
  }
  type_ = std::move(found.type);
  buffer_ = buffer;
  count_ = count;
  if (type_->size != 0 && count_ > PTRDIFF_MAX / type_->size) {
    reason_ = "the message has more bytes than there are addresses";
    return Ready::kFailed;
  }
  if (!type_->dense && type_->own == nullptr) {
    duplicate_ = MpiDuplicate(datatype);
    if (!duplicate_.made()) {
      reason_ = "MPI does not duplicate the datatype";
      return Ready::kFailed;
    }
  }
  memory_ = StagingMemory(static_cast<std::size_t>(count_ * type_->size));
  if (memory_.data() == nullptr) {
    reason_ = "no memory for a message of " + std::to_string(count_ * type_->size) + " bytes";
    return Ready::kFailed;
  }
  return Ready::kYes;
}

Staged::Ready Staged::pack(const void* buffer, MPI_Count count, MPI_Datatype datatype) {
  const Ready ready = prepare(const_cast<void*>(buffer), count, datatype);
  return ready == Ready::kYes && !repack() ? Ready::kFailed : ready;
}

bool Staged::repack() { return move(true, count_ * type_->size); }

bool Staged::unpack(std::int64_t bytes) { return move(false, bytes); }

bool Staged::unpackAll() { return unpack(count_ * type_->size); }

bool Staged::unpackReceived(const MPI_Status& status) {
  MPI_Count bytes = 0;
  if (real().Get_elements_x(&status, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes == MPI_UNDEFINED) {
    reason_ = "MPI does not say how many bytes it has received";
    return false;
  }
  return unpack(bytes);
}

bool Staged::move(bool packs, std::int64_t bytes) {
  reason_.clear();
  if (bytes == 0) {
    return true;
  }
  if (type_->dense) {
    return moveAs(packs, buffer_, bytes, ADSM_TYPE_1, bytes);
  }
  if (type_->own == nullptr) {
    return moveByMpi(packs, bytes);
  }
  return buffer_ == nullptr ? moveFromBottom(packs, bytes)
                            : moveAs(packs, buffer_, count_, type_->own, bytes);
}

bool Staged::moveAs(bool packs, void* buffer, std::int64_t count, adsmType_t type,
                    std::int64_t bytes) {
  adsmPackOptions_t options = {};
  options.size = sizeof options;
  options.bytes = bytes;
  const adsmError_t error = packs ? adsmPackWith(memory_.data(), buffer, count, type, &options)
                                  : adsmUnpackWith(buffer, memory_.data(), count, type, &options);
  if (error != adsmSuccess) {
    reason_ = adsmLastErrorString();
  }
  return error == adsmSuccess;
}

// MPI_BOTTOM: displacements are addresses. gmac takes them from the first of these.
bool Staged::moveFromBottom(bool packs, std::int64_t bytes) {
  const std::int64_t one = 1;
  const std::int64_t shift = -type_->trueLowerBound;
  adsmType_t shifted = nullptr;
  adsmType_t type = nullptr;
  bool moved = adsmTypeHindexed(1, &one, &shift, type_->own, &shifted) == adsmSuccess;
  // The extent is the original's: a displacement moves both bounds.
  moved = moved && adsmTypeResized(shifted, 0, type_->extent, &type) == adsmSuccess &&
          adsmTypeCommit(type) == adsmSuccess;
  if (moved) {
    moved = moveAs(packs, reinterpret_cast<void*>(type_->trueLowerBound), count_, type, bytes);
  } else {
    reason_ = adsmLastErrorString();
  }
  for (const adsmType_t made : {shifted, type}) {
    if (made != nullptr) {
      (void)adsmTypeFree(made);
    }
  }
  return moved;
}

// MPI's own packing, which faults its way through shared objects. As many elements at a time as its
// ints count; a part of an element at the end of a message is left out.
bool Staged::moveByMpi(bool packs, std::int64_t bytes) {
  const std::int64_t chunk = std::max<std::int64_t>(1, kMaxElementBytes / type_->size);
  const std::int64_t elements = bytes / type_->size;
  for (std::int64_t done = 0; done < elements; done += chunk) {
    const auto count = static_cast<int>(std::min(chunk, elements - done));
    const auto room = static_cast<int>(count * type_->size);
    std::byte* const packed = memory_.data() + done * type_->size;
    const auto strided = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(buffer_) +
                                                 static_cast<std::uintptr_t>(done * type_->extent));
    int position = 0;
    const int code = packs ? real().Pack(strided, count, duplicate_.get(), packed, room, &position,
                                         ownCommunicator())
                           : real().Unpack(packed, room, &position, strided, count,
                                           duplicate_.get(), ownCommunicator());
    if (code != MPI_SUCCESS || position != room) {
      reason_ = "MPI does not pack the datatype";
      return false;
    }
  }
  return true;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
