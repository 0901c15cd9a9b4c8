// SPDX-License-Identifier: Apache-2.0
//
// A buffer of the application's that MPI does not touch: MPI is given its packed payload in private
// memory, as `count` elements of a contiguous type of the same size. So a message has the bytes,
// the status and the truncation that it would have without this library.
#ifndef GMAC_MPI_ABI_STAGED_H_
#define GMAC_MPI_ABI_STAGED_H_

#include <cstdint>
#include <string>
#include <utility>

#include "mpi/abi/types.h"
#include "mpi/staging_memory.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// A duplicate of a datatype, owned: the application may free the type while a request needs it.
// (Not kept with the Type: MPICH never frees a type of which a duplicate lives, and so never tells
// of it.)
class MpiDuplicate {
 public:
  MpiDuplicate() = default;
  explicit MpiDuplicate(MPI_Datatype original);
  ~MpiDuplicate();
  MpiDuplicate(MpiDuplicate&& other) noexcept
      : type_(other.type_), made_(std::exchange(other.made_, false)) {}
  MpiDuplicate& operator=(MpiDuplicate&& other) noexcept {
    std::swap(made_, other.made_);
    std::swap(type_, other.type_);
    return *this;
  }
  // False: there is none.
  bool made() const { return made_; }
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_{};  // initialised before made_, which says whether it means anything
  bool made_ = false;
};

class Staged {
 public:
  // How prepare() ended.
  enum class Ready {
    kYes,
    kLetMpiRefuse,  // an argument is wrong: the call goes to MPI as it is
    kFailed,        // reason() says why
  };

  Staged() = default;

  // Memory for the payload of `count` (1 or more) elements at `buffer`, which may be shared in
  // part.
  Ready prepare(void* buffer, MPI_Count count, MPI_Datatype datatype);
  // The same, and packs the payload there: in the order of calls, each part where it is current.
  Ready pack(const void* buffer, MPI_Count count, MPI_Datatype datatype);
  // Packs again. False: failed, and nothing was sent.
  bool repack();
  // Unpacks the first `bytes` of the payload into the buffer. False: failed.
  bool unpack(std::int64_t bytes);
  // All of it.
  bool unpackAll();
  // The same for what a receive says that it has received.
  bool unpackReceived(const MPI_Status& status);

  // For MPI, with the application's count.
  void* address() const { return memory_.data(); }
  MPI_Datatype datatype() const { return type_->wire; }

  const std::string& reason() const { return reason_; }

 private:
  bool move(bool packs, std::int64_t bytes);
  bool moveFromBottom(bool packs, std::int64_t bytes);
  bool moveByMpi(bool packs, std::int64_t bytes);
  bool moveAs(bool packs, void* buffer, std::int64_t count, adsmType_t type, std::int64_t bytes);

  void* buffer_ = nullptr;
  std::int64_t count_ = 0;
  TypePtr type_;
  MpiDuplicate duplicate_;  // of a type that only MPI can pack
  StagingMemory memory_;
  std::string reason_;
};

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_STAGED_H_
