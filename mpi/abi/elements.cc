// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/elements.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "gmac/datatype/engine/cpu_bytes.h"
#include "mpi/slow_messages.h"
#include "mpi/staging_memory.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// Longer ones are worth the engine's own copies.
constexpr std::int64_t kMaxCopiedInOrder = std::int64_t{16} << 10;

// Whether the payload of `count` elements is the bytes of their span, in order. (The layout is
// asked for only where the lengths allow it: of few other types than contiguous ones.)
bool areOnePiece(const Type& type, std::int64_t count) {
  if (type.dense || type.trueExtent != type.size || (count != 1 && type.extent != type.size)) {
    return type.dense;
  }
  const exchange::SharedLayoutPtr layout = type.layoutOf(count);
  return layout != nullptr && layout->layout.blockCount() == 1;
}

}  // namespace

MpiDuplicate::MpiDuplicate(MPI_Datatype original)
    : made_(real().Type_dup(original, &type_) == MPI_SUCCESS) {}

MpiDuplicate::~MpiDuplicate() {
  if (made_) {
    (void)real().Type_free(&type_);
  }
}

Ready Elements::prepare(void* buffer, MPI_Count count, MPI_Datatype datatype, MPI_Count from) {
  FoundType found = findType(datatype);
  if (found.type == nullptr) {
    reason_ = found.reason;
    return found.refusedByMpi ? Ready::kLetMpiRefuse : Ready::kFailed;
  }
  type_ = std::move(found.type);
  buffer_ = shifted(buffer, from);
  fromBottom_ = buffer == MPI_BOTTOM;
  count_ = count;
  handle_ = datatype;
  if (type_->size != 0 && count_ > PTRDIFF_MAX / type_->size) {
    reason_ = "the message has more bytes than there are addresses";
    return Ready::kFailed;
  }
  // (What has no gaps is in one allocation.)
  const Span lies = span();
  const OnDevice place =
      onDevice(buffer_, !fromBottom_ && !lies.empty() && areOnePiece(*type_, count_)
                            ? Span{lies.first, lies.first + 1}
                            : lies);
  if (place == OnDevice::kMixed) {
    reason_ = "the datatype has elements in memory of a device and elsewhere";
    return Ready::kFailed;
  }
  onDevice_ = place == OnDevice::kYes;
  wasShared_ = !onDevice_ && !lies.empty() && gmacAnythingShared() != 0 &&
               gmacTouchesShared(shifted(buffer_, lies.first), lies.bytes()) != 0;
  if (!type_->dense && type_->own == nullptr) {
    duplicate_ = MpiDuplicate(datatype);
    if (!duplicate_.made()) {
      reason_ = "MPI does not duplicate the datatype";
      return Ready::kFailed;
    }
  }
  return Ready::kYes;
}

void Elements::preparePlain(void* buffer, MPI_Count count, MPI_Datatype datatype, TypePtr type) {
  type_ = std::move(type);
  buffer_ = buffer;
  fromBottom_ = buffer == MPI_BOTTOM;
  count_ = count;
  handle_ = datatype;
}

exchange::SharedLayoutPtr Elements::layoutForDevice() const {
  if (isGone()) {
    return nullptr;
  }
  if (onDevice_) {
    int reached = 0;
    if (gmacOpenDeviceMemory(shifted(buffer_, span().first), &reached) != adsmSuccess ||
        reached == 0) {
      return nullptr;
    }
  }
  return fromBottom_ ? nullptr : type_->layoutOf(count_);
}

std::byte* Elements::pieceOnDevice() const {
  auto* const first = static_cast<std::byte*>(shifted(buffer_, span().first));
  return onDevice_ && areOnePiece(*type_, count_) && gmacReachesDeviceMemory(first) != 0 ? first
                                                                                         : nullptr;
}

bool Elements::canTransferTo(const Elements& target) const {
  if (!isTyped() || !target.isTyped() || onDevice_ || target.onDevice_ ||
      bytes() != target.bytes()) {
    return false;
  }
  const auto range = [](const Elements& one) {
    const Span lies = one.span();
    return std::pair(reinterpret_cast<std::uintptr_t>(shifted(one.buffer_, lies.first)),
                     reinterpret_cast<std::uintptr_t>(shifted(one.buffer_, lies.last)));
  };
  const auto [first, end] = range(*this);
  const auto [targetFirst, targetEnd] = range(target);
  return end <= targetFirst || targetEnd <= first;
}

bool Elements::transferTo(const Elements& target) {
  reason_.clear();
  const adsmError_t error = adsmTransfer(target.buffer_, target.ownCount(), target.ownType(),
                                         buffer_, ownCount(), ownType());
  if (error != adsmSuccess) {
    reason_ = adsmLastErrorString();
  }
  return error == adsmSuccess;
}

bool Elements::openParts() const {
  if (!isTyped() || isGone()) {
    return false;
  }
  int reached = 1;
  return !onDevice_ ||
         (gmacOpenDeviceMemory(shifted(buffer_, span().first), &reached) == adsmSuccess &&
          reached != 0);
}

adsmError_t Elements::beginPart(bool packs, std::byte* packed, std::int64_t offset,
                                std::int64_t bytes, adsmPackEvent_t* event) const {
  adsmPackOptions_t options = {};
  options.size = sizeof options;
  options.offset = offset;
  options.bytes = bytes;
  options.event = event;
  return packs ? adsmPackWith(packed, buffer_, ownCount(), ownType(), &options)
               : adsmUnpackWith(buffer_, packed, ownCount(), ownType(), &options);
}

bool Elements::extend(const void* buffer, MPI_Count count, MPI_Datatype datatype) {
  const auto end = reinterpret_cast<std::uintptr_t>(buffer_) +
                   static_cast<std::uintptr_t>(count_ * type_->extent);
  if (datatype != handle_ || reinterpret_cast<std::uintptr_t>(buffer) != end ||
      (type_->size != 0 && count > PTRDIFF_MAX / type_->size - count_)) {
    return false;
  }
  count_ += count;
  return true;
}

bool Elements::pack(std::byte* to) { return move(true, to, bytes()); }

bool Elements::packFront(std::span<std::byte> to) {
  const auto bytes = static_cast<std::int64_t>(to.size());
  if (type_->dense || type_->own != nullptr) {
    return move(true, to.data(), bytes);
  }
  // MPI packs whole elements.
  const std::int64_t whole = (bytes + type_->size - 1) / type_->size * type_->size;
  const StagingMemory packed(static_cast<std::size_t>(whole));
  if (packed.data() == nullptr) {
    reason_ = "no memory for " + std::to_string(whole) + " bytes";
    return false;
  }
  if (!move(true, packed.data(), whole)) {
    return false;
  }
  std::copy_n(packed.data(), to.size(), to.data());
  return true;
}

bool Elements::unpack(std::byte* from, std::int64_t bytes) { return move(false, from, bytes); }

bool Elements::move(bool packs, std::byte* packed, std::int64_t bytes) {
  reason_.clear();
  if (bytes == 0) {
    return true;
  }
  if (isGone()) {
    reason_ = "the shared object of the message has been freed";
    return false;
  }
  return onDevice_ ? moveOnDevice(packs, packed, bytes) : moveReached(packs, packed, bytes);
}

// By the engine where it reaches the device. Else a copy of the whole span is what is packed, or
// unpacked and copied back.
bool Elements::moveOnDevice(bool packs, std::byte* packed, std::int64_t bytes) {
  const Span lies = span();
  void* const first = shifted(buffer_, lies.first);
  if (bytes <= kMaxCopiedInOrder && areOnePiece(*type_, count_)) {
    int copied = 0;
    if (!copyInOrder(packs, packed, first, static_cast<std::size_t>(bytes), &copied)) return false;
    if (copied != 0) return true;
  }
  int reached = 0;
  if (gmacOpenDeviceMemory(first, &reached) != adsmSuccess) {
    reason_ = adsmLastErrorString();
    return false;
  }
  if (reached == 0 &&
      slow::isSlow(slow::Reason::kOtherDevice, bytes, static_cast<std::int64_t>(lies.bytes()))) {
    const auto before = std::chrono::steady_clock::now();
    const bool moved = moveByCopy(packs, packed, lies, bytes);
    slow::note(slow::Reason::kOtherDevice, bytes, std::chrono::steady_clock::now() - before);
    return moved;
  }
  if (reached != 0 && (type_->dense || type_->own != nullptr)) {
    return moveReached(packs, packed, bytes);
  }
  return moveByCopy(packs, packed, lies, bytes);
}

bool Elements::moveByCopy(bool packs, std::byte* packed, const Span& lies, std::int64_t bytes) {
  void* const first = shifted(buffer_, lies.first);
  if (areOnePiece(*type_, count_)) {
    return copy(packs, packed, first, static_cast<std::size_t>(bytes));
  }
  const StagingMemory whole(lies.bytes());
  if (whole.data() == nullptr) {
    reason_ = "no memory for " + std::to_string(lies.bytes()) + " bytes";
    return false;
  }
  if (!copy(true, whole.data(), first, lies.bytes())) {
    return false;
  }
  void* const buffer = std::exchange(buffer_, shifted(whole.data(), -lies.first));
  const bool moved = moveReached(packs, packed, bytes);
  buffer_ = buffer;
  return moved && (packs || copy(false, whole.data(), first, lies.bytes()));
}

bool Elements::copy(bool packs, std::byte* cpu, void* device, std::size_t bytes) {
  const adsmError_t error =
      packs ? gmacCopyFromDevice(cpu, device, bytes) : gmacCopyToDevice(device, cpu, bytes);
  if (error != adsmSuccess) {
    reason_ = adsmLastErrorString();
  }
  return error == adsmSuccess;
}

bool Elements::copyInOrder(bool packs, std::byte* cpu, void* device, std::size_t bytes,
                           int* copied) {
  const adsmError_t error = packs ? gmacCopyFromDeviceInOrder(cpu, device, bytes, nullptr, copied)
                                  : gmacCopyToDeviceInOrder(device, cpu, bytes, nullptr, copied);
  if (error != adsmSuccess) {
    reason_ = adsmLastErrorString();
  }
  return error == adsmSuccess;
}

// In memory that the engine, and the CPU by faults, reach.
bool Elements::moveReached(bool packs, std::byte* packed, std::int64_t bytes) {
  if (areOnePiece(*type_, count_)) {
    const auto length = static_cast<std::size_t>(bytes);
    void* const first = shifted(buffer_, span().first);
    return (packs ? gmacReadOnCpu(packed, first, length) : gmacWriteOnCpu(first, packed, length)) !=
               0 ||
           moveAs(packs, packed, first, bytes, ADSM_TYPE_1, bytes);
  }
  if (type_->own == nullptr) {
    return moveByMpi(packs, packed, bytes);
  }
  return fromBottom_ ? moveFromBottom(packs, packed, bytes)
                     : moveAs(packs, packed, buffer_, count_, type_->own, bytes);
}

bool Elements::moveAs(bool packs, std::byte* packed, void* buffer, std::int64_t count,
                      adsmType_t type, std::int64_t bytes) {
  adsmPackOptions_t options = {};
  options.size = sizeof options;
  options.bytes = bytes;
  const adsmError_t error = packs ? adsmPackWith(packed, buffer, count, type, &options)
                                  : adsmUnpackWith(buffer, packed, count, type, &options);
  if (error != adsmSuccess) {
    reason_ = adsmLastErrorString();
  }
  return error == adsmSuccess;
}

// MPI_BOTTOM: displacements are addresses. gmac takes them from the first of these.
bool Elements::moveFromBottom(bool packs, std::byte* packed, std::int64_t bytes) {
  const std::int64_t one = 1;
  const std::int64_t shift = -type_->trueLowerBound;
  adsmType_t relative = nullptr;
  adsmType_t type = nullptr;
  bool moved = adsmTypeHindexed(1, &one, &shift, type_->own, &relative) == adsmSuccess;
  // The extent is the original's: a displacement moves both bounds.
  moved = moved && adsmTypeResized(relative, 0, type_->extent, &type) == adsmSuccess &&
          adsmTypeCommit(type) == adsmSuccess;
  if (moved) {
    moved = moveAs(packs, packed, shifted(buffer_, type_->trueLowerBound), count_, type, bytes);
  } else {
    reason_ = adsmLastErrorString();
  }
  for (const adsmType_t made : {relative, type}) {
    if (made != nullptr) {
      (void)adsmTypeFree(made);
    }
  }
  return moved;
}

// MPI's own packing, which faults its way through shared objects. As many elements at a time as its
// ints count.
bool Elements::moveByMpi(bool packs, std::byte* packed, std::int64_t bytes) {
  const std::int64_t chunk = std::max<std::int64_t>(1, kMaxElementBytes / type_->size);
  const std::int64_t elements = bytes / type_->size;
  for (std::int64_t done = 0; done < elements; done += chunk) {
    const auto count = static_cast<int>(std::min(chunk, elements - done));
    if (!moveSomeByMpi(packs, packed + done * type_->size, done, count)) {
      return false;
    }
  }
  const std::int64_t rest = bytes % type_->size;
  return rest == 0 || movePartByMpi(packs, packed + bytes - rest, elements, rest);
}

// `count` elements from the one of that number on.
bool Elements::moveSomeByMpi(bool packs, std::byte* packed, std::int64_t first, int count) {
  const auto room = static_cast<int>(count * type_->size);
  const auto at = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(buffer_) +
                                          static_cast<std::uintptr_t>(first * type_->extent));
  int position = 0;
  const int code =
      packs
          ? real().Pack(at, count, duplicate_.get(), packed, room, &position, ownCommunicator())
          : real().Unpack(packed, room, &position, at, count, duplicate_.get(), ownCommunicator());
  if (code != MPI_SUCCESS || position != room) {
    reason_ = "MPI does not pack the datatype";
    return false;
  }
  return true;
}

// The first `bytes` of one element. What follows them in it stays as it is.
bool Elements::movePartByMpi(bool packs, std::byte* packed, std::int64_t element,
                             std::int64_t bytes) {
  const StagingMemory whole(static_cast<std::size_t>(type_->size));
  if (whole.data() == nullptr) {
    reason_ = "no memory for " + std::to_string(type_->size) + " bytes";
    return false;
  }
  if (!moveSomeByMpi(true, whole.data(), element, 1)) {
    return false;
  }
  if (packs) {
    std::copy_n(whole.data(), bytes, packed);
    return true;
  }
  std::copy_n(packed, bytes, whole.data());
  return moveSomeByMpi(false, whole.data(), element, 1);
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
