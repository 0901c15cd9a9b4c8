// SPDX-License-Identifier: Apache-2.0
//
// Packs and unpacks elements of a datatype between the application's memory, which may be partly
// shared or on a device, and private memory.
#ifndef GMAC_MPI_ABI_ELEMENTS_H_
#define GMAC_MPI_ABI_ELEMENTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "mpi/abi/memory.h"
#include "mpi/abi/types.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// Owns a duplicate of a datatype, because the application may free the type while a request needs
// it. (The duplicate cannot be kept in Type: as long as it lives MPICH does not free the original,
// and so never reports that it was freed.)
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
  // False if there is no duplicate.
  bool made() const { return made_; }
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_{};  // initialised before made_, which says whether it means anything
  bool made_ = false;
};

// How the preparation of a buffer ended.
enum class Ready {
  kYes,
  kLetMpiRefuse,  // an argument is wrong: the call goes to MPI as it is
  kFailed,        // the buffer's reason() says why
};

class Elements {
 public:
  Elements() = default;

  // Prepares `count` (1 or more) elements that begin `from` bytes after `buffer`.
  Ready prepare(void* buffer, MPI_Count count, MPI_Datatype datatype, MPI_Count from = 0);
  // The same of plain memory and a type that was found before, but not one that only MPI packs.
  // Calls no MPI.
  void preparePlain(void* buffer, MPI_Count count, MPI_Datatype datatype, TypePtr type);
  // After prepare(): they were of a shared object `then`, which may have been freed.
  void wereShared(const ObjectsThen& then) {
    wasShared_ = true;
    then_ = then;
  }
  // Adds elements of the same datatype if `buffer` is where these elements end; else returns false.
  bool extend(const void* buffer, MPI_Count count, MPI_Datatype datatype);

  const Type& type() const { return *type_; }
  // (By what is known of the datatype, which the application may have freed.)
  bool needStaging() const { return needsStaging(buffer_, span()); }
  // The size of the payload.
  std::int64_t bytes() const { return count_ * type_->size; }
  // Packs all elements, each part on the side where it is current; ordered after all kernel calls
  // made before. False: failed, and nothing was packed.
  bool pack(std::byte* to);
  // Packs the first to.size() bytes of the payload, which has as many. Only for plain memory.
  bool packFront(std::span<std::byte> to);
  // Unpacks the first `bytes` of the payload. False: failed.
  bool unpack(std::byte* from, std::int64_t bytes);

  // Whether transferTo() may be called: the two have as many bytes, in memory apart that is no
  // device's alone, and gmac knows both types.
  bool canTransferTo(const Elements& target) const;
  // Copies the payload there in one pass; ordered as pack() is. False: failed.
  bool transferTo(const Elements& target);

  // Whether parts of the payload can be moved while the caller does something else; opens device
  // memory for it, as pack() and unpack() do.
  bool openParts() const;
  // Begins to pack, or unpack, so many bytes from number `offset` of the payload on. `packed`:
  // where they are, or go; it stays until the event is over. Else as adsmPackWith().
  adsmError_t beginPart(bool packs, std::byte* packed, std::int64_t offset, std::int64_t bytes,
                        adsmPackEvent_t* event) const;

  // Where the bytes lie relative to address(), for code that reads and writes them directly. NULL
  // if only MPI knows, or they are in device memory.
  exchange::SharedLayoutPtr layout() const {
    return onDevice_ || fromBottom_ ? nullptr : type_->layoutOf(count_);
  }
  std::byte* address() const { return static_cast<std::byte*>(buffer_); }
  // The same for code that leaves it to the runtime's device, which reaches objects, too. NULL also
  // if the memory is another device's; waits for the default streams of device memory.
  exchange::SharedLayoutPtr layoutForDevice() const;
  // Where all of it lies, if it is one piece of device memory that the runtime's device reaches,
  // and no shared object. Waits for nothing. NULL: it is not.
  std::byte* pieceOnDevice() const;
  // All of it is device memory and no shared object; the layout is known as above.
  bool isOnDevice() const { return onDevice_; }
  exchange::SharedLayoutPtr layoutOnDevice() const {
    return onDevice_ && !fromBottom_ ? type_->layoutOf(count_) : nullptr;
  }

  const std::string& reason() const { return reason_; }

 private:
  Span span() const {
    return Span::of(count_, type_->trueLowerBound, type_->trueExtent, type_->extent);
  }
  // The elements as gmac has them.
  bool isTyped() const { return !fromBottom_ && (type_->dense || type_->own != nullptr); }
  std::int64_t ownCount() const { return type_->dense ? bytes() : count_; }
  adsmType_t ownType() const { return type_->dense ? ADSM_TYPE_1 : type_->own; }
  // Whether the shared object that they were of has been freed.
  bool isGone() const {
    const void* const first = wasShared_ ? shifted(buffer_, span().first) : nullptr;
    return wasShared_ && (gmacTouchesShared(first, span().bytes()) == 0 || then_.isFreed(first));
  }
  bool move(bool packs, std::byte* packed, std::int64_t bytes);
  bool moveOnDevice(bool packs, std::byte* packed, std::int64_t bytes);
  bool moveByCopy(bool packs, std::byte* packed, const Span& lies, std::int64_t bytes);
  bool moveReached(bool packs, std::byte* packed, std::int64_t bytes);
  bool moveFromBottom(bool packs, std::byte* packed, std::int64_t bytes);
  bool moveByMpi(bool packs, std::byte* packed, std::int64_t bytes);
  bool moveSomeByMpi(bool packs, std::byte* packed, std::int64_t first, int count);
  bool movePartByMpi(bool packs, std::byte* packed, std::int64_t element, std::int64_t bytes);
  bool moveAs(bool packs, std::byte* packed, void* buffer, std::int64_t count, adsmType_t type,
              std::int64_t bytes);
  bool copy(bool packs, std::byte* cpu, void* device, std::size_t bytes);
  bool copyInOrder(bool packs, std::byte* cpu, void* device, std::size_t bytes, int* copied);

  void* buffer_ = nullptr;
  bool fromBottom_ = false;  // displacements are addresses
  std::int64_t count_ = 0;
  MPI_Datatype handle_{};  // to be compared alone: the application may have freed it
  TypePtr type_;
  bool onDevice_ = false;   // all of it in memory of a device that is no shared object
  bool wasShared_ = false;  // a byte was of a shared object
  ObjectsThen then_;
  MpiDuplicate duplicate_;  // of a type that only MPI can pack
  std::string reason_;
};

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_ELEMENTS_H_
