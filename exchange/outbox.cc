// SPDX-License-Identifier: Apache-2.0
#include "exchange/outbox.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "exchange/description.h"
#include "gmac/base/log.h"
#include "gmac/base/round_up.h"

namespace gmac::exchange::internal {
namespace {

// Payloads do not share pages, so that each can be pinned.
constexpr std::size_t kAlignment = 4096;
// Memory is populated in steps of so many bytes.
constexpr std::size_t kPopulate = std::size_t{2} << 20;
// How many parcels reserve() looks at, whether they are free again, while there is room.
constexpr std::size_t kLookAt = 32;
constexpr std::chrono::milliseconds kAskForEnded{100};

}  // namespace

Result<std::shared_ptr<Outbox>> Outbox::make(int ranks, std::size_t payloadBytes,
                                             std::size_t copyBytes, const Options& options) {
  Nonce nonce{};
  ssize_t got = 0;
  do {
    got = ::getrandom(nonce.data(), sizeof nonce, 0);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof nonce) {
    return fail(adsmErrorSystem, "exchange: getrandom: {}", std::strerror(errno));
  }
  Result<SharedFile> file = SharedFile::create(ranks, payloadBytes + copyBytes);
  GMAC_TRY(file.status());
  const std::shared_ptr<Outbox> outbox(new Outbox(std::move(*file), copyBytes, nonce, options));
  GMAC_TRY(outbox->mark_.make());
  return outbox;
}

Outbox::Outbox(SharedFile file, std::size_t copyBytes, const Nonce& nonce, const Options& options)
    : file_(std::move(file)),
      payloadBytes_(file_.payloadBytes() - copyBytes),
      keptBytes_(payloadBytes_ + std::min(payloadBytes_, copyBytes)),
      nonce_(nonce),
      device_(options.device),
      pieceBytes_(options.devicePieceBytes),
      room_(0, payloadBytes_),
      copyRoom_(payloadBytes_, copyBytes),
      populated_((keptBytes_ + kPopulate - 1) / kPopulate),
      entries_(FileLayout::kSlots),
      free_(FileLayout::kSlots) {
  std::iota(free_.rbegin(), free_.rend(), 0);
}

bool Outbox::freed(std::size_t slot) const {
  return file_.slot(slot).state.load(std::memory_order_acquire) ==
         Slot::stateOf(entries_[slot].id, Phase::kFree);
}

void Outbox::release(std::size_t slot) {
  Entry& entry = entries_[slot];
  giveBack(entry.memory, {entry.piece, entry.offset}, entry.room);
  entry = Entry();
  free_.push_back(slot);
}

void Outbox::releaseFreed(std::size_t most) {
  for (std::size_t count = std::min(most, taken_.size()); count > 0 && !taken_.empty(); --count) {
    next_ = next_ < taken_.size() ? next_ : 0;
    const std::size_t slot = taken_[next_];
    if (freed(slot)) {
      release(slot);
      taken_[next_] = taken_.back();
      taken_.pop_back();
    } else {
      ++next_;
    }
  }
}

// Frees the slots of processes that have ended.
void Outbox::releaseOfEnded(const std::vector<std::shared_ptr<Peer>>& peers) {
  const auto now = std::chrono::steady_clock::now();
  if (now - askedForEnded_ < kAskForEnded) {
    return;
  }
  askedForEnded_ = now;
  std::vector<int> ended;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    if (peers[rank] != nullptr &&
        std::any_of(
            taken_.begin(), taken_.end(),
            [&](std::size_t slot) { return entries_[slot].receiver == static_cast<int>(rank); }) &&
        !peers[rank]->lives()) {
      ended.push_back(static_cast<int>(rank));
    }
  }
  std::erase_if(taken_, [&](std::size_t slot) {
    const Entry& entry = entries_[slot];
    std::atomic<std::uint64_t>& state = file_.slot(slot).state;
    if (std::find(ended.begin(), ended.end(), entry.receiver) == ended.end() ||
        // A parcel that is being written is its owner's.
        state.load(std::memory_order_relaxed) == Slot::stateOf(entry.id, Phase::kWritten)) {
      return false;
    }
    state.store(Slot::stateOf(entry.id, Phase::kFree), std::memory_order_relaxed);
    reclaimed.fetch_add(1, std::memory_order_relaxed);
    release(slot);
    return true;
  });
}

std::optional<Outbox::Place> Outbox::take(int receiver, std::size_t bytes, Memory memory) {
  if (free_.empty()) {
    return std::nullopt;
  }
  std::optional<std::uintptr_t> offset;
  std::size_t piece = 0;
  if (memory == Memory::kHost) {
    offset = room_.take(bytes, kAlignment);
  } else {
    for (; piece < pieces_.size(); ++piece) {
      if (file_.proof(receiver, piece).load(std::memory_order_acquire) == Proof::kProved) {
        offset = pieces_[piece].room.take(bytes, kAlignment);
        if (offset.has_value()) {
          break;
        }
      }
    }
  }
  if (!offset.has_value()) {
    return std::nullopt;
  }
  used_[static_cast<int>(memory)] += bytes;
  return Place{piece, *offset};
}

void Outbox::giveBack(Memory memory, const Place& place, std::size_t bytes) {
  (memory == Memory::kHost ? room_ : pieces_[place.piece].room).giveBack(place.offset, bytes);
  used_[static_cast<int>(memory)] -= bytes;
}

Status Outbox::refuse(int receiver, std::size_t bytes, Memory memory) {
  refused.fetch_add(1, std::memory_order_relaxed);
  if (memory == Memory::kHost) {
    return fail(adsmErrorHostMemory,
                "exchange: no room for {} bytes: {} of {} bytes are in use, by {} payloads that "
                "their receivers have not freed yet (most at a time: {})",
                bytes, used_[0], payloadBytes_, taken_.size(), FileLayout::kSlots);
  }
  return fail(adsmErrorAcceleratorMemory,
              "exchange: no room for {} bytes in device memory that rank {} has proved to reach: "
              "{} of {} bytes are in use",
              bytes, receiver, used_[1], pieces_.size() * pieceBytes_);
}

// Lets part of what is kept be touched.
Status Outbox::populate(std::size_t offset, std::size_t bytes) {
  for (std::size_t part = offset / kPopulate; part * kPopulate < offset + bytes; ++part) {
    if (!populated_[part]) {
      const std::size_t start = part * kPopulate;
      GMAC_TRY(file_.populatePayloads(start, std::min(kPopulate, file_.payloadBytes() - start)));
      populated_[part] = true;
    }
  }
  return Status();
}

bool Outbox::allProofs(int receiver, Proof proof) const {
  for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
    if (file_.proof(receiver, piece).load(std::memory_order_acquire) != proof) {
      return false;
    }
  }
  return true;
}

// One more piece, if the device has one. Its first page, which has the mark, is never given out.
void Outbox::exportPiece(std::size_t bytes) {
  DevicePiece& piece = file_.piece(pieces_.size());
  ssize_t got = 0;
  do {
    got = ::getrandom(piece.mark.data(), sizeof piece.mark, 0);
  } while (got < 0 && errno == EINTR);
  adsmError_t code = got == sizeof piece.mark ? adsmSuccess : adsmErrorSystem;
  // (What is exported stays the process's until it ends, so an attempt that fails later keeps it.)
  if (code == adsmSuccess && unmarked_.bytes < bytes) {
    void* address = nullptr;
    code = device_->exportMemory(bytes, &address, piece.handle.data());
    if (code == adsmSuccess) {
      unmarked_ = {address, bytes, piece.handle};
    }
  }
  if (code == adsmSuccess) {
    code = device_->copyTo(unmarked_.address, piece.mark.data(), sizeof piece.mark);
  }
  if (code != adsmSuccess) {
    exportFailed_ = code;
    exportAttempts_.failed();
    log(LogLevel::kInfo, "exchange: {} bytes of device memory cannot be exported: {}", bytes,
        got == sizeof piece.mark ? device_->causeOf(code) : "there are no random numbers");
    return;
  }
  exportFailed_ = adsmSuccess;
  exportAttempts_ = {};
  const auto made = std::exchange(unmarked_, {});
  piece.handle = made.handle;
  piece.bytes = made.bytes;
  pieces_.push_back({static_cast<std::byte*>(made.address), made.bytes,
                     RangeAllocator(kAlignment, made.bytes - kAlignment)});
  piece.exported.store(1, std::memory_order_release);
}

// Whether payloads may ever lie in device memory. Exports the first piece.
Status Outbox::openDevice() {
  if (device_ == nullptr) {
    return fail(adsmErrorNotSupported, "exchange: this process shares no device memory");
  }
  if (pieces_.empty() && mayExport()) {
    exportPiece(pieceBytes_);
  }
  if (pieces_.empty()) {
    return fail(adsmErrorNotSupported, "exchange: this process's device exports no memory: {}",
                errorName(exportFailed_));
  }
  return Status();
}

Result<std::size_t> Outbox::takeRoom(std::size_t bytes) {
  const std::lock_guard guard(lock_);
  std::optional<std::uintptr_t> offset = room_.take(bytes, kAlignment);
  if (!offset.has_value()) {
    releaseFreed(FileLayout::kSlots);
    offset = room_.take(bytes, kAlignment);
  }
  if (!offset.has_value()) {
    refused.fetch_add(1, std::memory_order_relaxed);
    return fail(adsmErrorHostMemory,
                "exchange: no room for {} bytes of a message: {} of {} bytes are in use", bytes,
                used_[0], payloadBytes_);
  }
  if (const Status status = populate(*offset, bytes); !status.ok()) {
    room_.giveBack(*offset, bytes);
    return status;
  }
  used_[0] += bytes;
  return std::size_t{*offset};
}

Result<std::size_t> Outbox::takeCopyRoom(std::size_t bytes) {
  const std::lock_guard guard(lock_);
  const std::optional<std::uintptr_t> offset = copyRoom_.take(bytes, kAlignment);
  if (!offset.has_value()) {
    refused.fetch_add(1, std::memory_order_relaxed);
    return fail(adsmErrorHostMemory,
                "exchange: no room for a copy of {} bytes: there are {} bytes for copies of "
                "messages under way",
                bytes, file_.payloadBytes() - payloadBytes_);
  }
  return std::size_t{*offset};
}

// (It is its caller's, so what is not kept needs no lock.)
Status Outbox::populateCopy(std::size_t offset, std::size_t bytes) {
  const std::size_t end = offset + bytes;
  if (offset < keptBytes_) {
    const std::lock_guard guard(lock_);
    GMAC_TRY(populate(offset, std::min(end, keptBytes_) - offset));
  }
  const std::size_t start = std::max(offset, keptBytes_);
  return start < end ? file_.populatePayloads(start, end - start) : Status();
}

void Outbox::giveCopyRoomBack(std::size_t offset, std::size_t bytes, bool populated) {
  const std::size_t start = std::max(offset, keptBytes_);
  if (populated && start < offset + bytes) {
    file_.emptyPayloads(start, offset + bytes - start);
  }
  const std::lock_guard guard(lock_);
  copyRoom_.giveBack(offset, bytes);
}

void Outbox::giveRoomBack(std::size_t offset, std::size_t bytes) {
  const std::lock_guard guard(lock_);
  room_.giveBack(offset, bytes);
  used_[0] -= bytes;
}

Status Outbox::exportFirstPiece() {
  const std::lock_guard guard(lock_);
  return openDevice();
}

std::optional<Outbox::DeviceRoom> Outbox::takeDeviceRoom(int receiver, std::size_t bytes) {
  const std::lock_guard guard(lock_);
  bool isLarge = false;
  for (std::size_t index = 0; index < pieces_.size(); ++index) {
    Piece& piece = pieces_[index];
    if (piece.bytes < bytes + kAlignment) {
      continue;
    }
    isLarge = true;
    if (file_.proof(receiver, index).load(std::memory_order_acquire) != Proof::kProved) {
      continue;
    }
    if (const auto offset = piece.room.take(bytes, kAlignment)) {
      return DeviceRoom{piece.address + *offset, index, *offset, bytes};
    }
  }
  // (The receiver has to prove it before the next message.)
  if (!isLarge && device_ != nullptr && pieces_.size() < FileLayout::kPieces && mayExport()) {
    exportPiece(bytes + kAlignment);
  }
  return std::nullopt;
}

void Outbox::giveDeviceRoomBack(const DeviceRoom& room) {
  const std::lock_guard guard(lock_);
  pieces_[room.piece].room.giveBack(room.offset, room.bytes);
}

Result<std::size_t> Outbox::reserve(int receiver, std::size_t bytes, Memory memory,
                                    const std::vector<std::shared_ptr<Peer>>& peers) {
  const std::lock_guard guard(lock_);
  if (memory == Memory::kDevice) {
    Status status = openDevice();
    if (status.ok() && allProofs(receiver, Proof::kRefused)) {
      status = fail(adsmErrorNotSupported, "exchange: rank {} does not reach this process's device",
                    receiver);
    }
    if (!status.ok()) {
      refused.fetch_add(1, std::memory_order_relaxed);
      return status;
    }
  }
  const std::size_t most = memory == Memory::kHost ? payloadBytes_ : pieceBytes_ - kAlignment;
  if (bytes > most) {
    refused.fetch_add(1, std::memory_order_relaxed);
    return fail(memory == Memory::kHost ? adsmErrorHostMemory : adsmErrorAcceleratorMemory,
                "exchange: {} bytes are more than the {} that there are", bytes, most);
  }
  const std::size_t room = roundUp(std::max<std::size_t>(bytes, 1), kAlignment);
  releaseFreed(kLookAt);
  std::optional<Place> place = take(receiver, room, memory);
  if (!place.has_value()) {
    releaseFreed(FileLayout::kSlots);
    place = take(receiver, room, memory);
  }
  if (!place.has_value()) {
    releaseOfEnded(peers);
    place = take(receiver, room, memory);
  }
  if (!place.has_value()) {
    // The next piece is for later: its receivers have to prove that they reach it.
    if (memory == Memory::kDevice && allProofs(receiver, Proof::kProved) && !free_.empty() &&
        pieces_.size() < FileLayout::kPieces && mayExport()) {
      exportPiece(pieceBytes_);
    }
    return refuse(receiver, bytes, memory);
  }
  if (memory == Memory::kHost) {
    if (const Status status = populate(place->offset, room); !status.ok()) {
      giveBack(memory, *place, room);
      refused.fetch_add(1, std::memory_order_relaxed);
      return status;
    }
  }
  const std::size_t index = free_.back();
  free_.pop_back();
  taken_.push_back(index);
  entries_[index] = {++ids_, place->offset, bytes, room, receiver, memory, place->piece};
  Slot& slot = file_.slot(index);
  slot.offset = place->offset;
  slot.bytes = bytes;
  slot.receiver = receiver;
  slot.memory = static_cast<std::uint16_t>(memory);
  slot.piece = static_cast<std::uint16_t>(place->piece);
  slot.state.store(Slot::stateOf(ids_, Phase::kWritten), std::memory_order_release);
  return index;
}

std::byte* Outbox::payload(std::size_t slot) const {
  const std::lock_guard guard(lock_);
  const Entry& entry = entries_[slot];
  return (entry.memory == Memory::kHost ? file_.payloads() : pieces_[entry.piece].address) +
         entry.offset;
}

void Outbox::describe(std::size_t slot, Description description) {
  Contents contents{};
  {
    const std::lock_guard guard(lock_);
    const Entry& entry = entries_[slot];
    contents.magic = Contents::kMagic;
    contents.nonce = nonce_;
    contents.id = entry.id;
    contents.slot = slot;
    contents.offset = entry.offset;
    contents.bytes = entry.bytes;
    contents.receiver = entry.receiver;
    contents.memory = static_cast<std::uint16_t>(entry.memory);
    contents.piece = static_cast<std::uint16_t>(entry.piece);
    sent.add(entry.memory, entry.bytes);
  }
  std::memcpy(description.data(), &contents, sizeof contents);
  file_.slot(slot).state.store(Slot::stateOf(contents.id, Phase::kDescribed),
                               std::memory_order_release);
}

bool Outbox::giveBack(std::size_t slot, Phase phase) {
  const std::lock_guard guard(lock_);
  const Entry& entry = entries_[slot];
  std::uint64_t expected = Slot::stateOf(entry.id, phase);
  if (!file_.slot(slot).state.compare_exchange_strong(
          expected, Slot::stateOf(entry.id, Phase::kFree), std::memory_order_acq_rel)) {
    return false;
  }
  if (phase == Phase::kDescribed) {
    sent.remove(entry.memory, entry.bytes);
  }
  taken_.erase(std::find(taken_.begin(), taken_.end(), slot));
  release(slot);
  return true;
}

}  // namespace gmac::exchange::internal
