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
// The least that is given memory at once.
constexpr std::size_t kPopulate = std::size_t{2} << 20;
// How many parcels reserve() looks at, whether they are free again, while there is room.
constexpr std::size_t kLookAt = 32;
constexpr std::chrono::milliseconds kAskForEnded{100};

}  // namespace

bool Peer::lives() const {
  if (met_.process <= 0 || met_.start == 0) {
    return true;
  }
  const std::optional<std::uint64_t> start = startOfProcess(met_.process);
  return start.has_value() && *start == met_.start;
}

Result<std::shared_ptr<Outbox>> Outbox::make(int ranks, std::size_t payloadBytes) {
  Nonce nonce{};
  ssize_t got = 0;
  do {
    got = ::getrandom(nonce.data(), sizeof nonce, 0);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof nonce) {
    return fail(adsmErrorSystem, "exchange: getrandom: {}", std::strerror(errno));
  }
  Result<SharedFile> file = SharedFile::create(ranks, payloadBytes);
  GMAC_TRY(file.status());
  const std::shared_ptr<Outbox> outbox(new Outbox(std::move(*file), nonce));
  GMAC_TRY(outbox->mark_.make());
  return outbox;
}

Outbox::Outbox(SharedFile file, const Nonce& nonce)
    : file_(std::move(file)),
      nonce_(nonce),
      room_(0, file_.payloadBytes()),
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
  room_.giveBack(entry.offset, entry.room);
  used_ -= entry.room;
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

// What a process that has ended cannot free.
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

// Room for so many bytes, as an offset.
std::optional<std::size_t> Outbox::take(std::size_t bytes) {
  if (free_.empty()) {
    return std::nullopt;
  }
  return room_.take(bytes, kAlignment);
}

Status Outbox::refuse(std::size_t bytes) {
  refused.fetch_add(1, std::memory_order_relaxed);
  return fail(adsmErrorHostMemory,
              "exchange: no room for {} bytes: {} of {} bytes are in use, by {} payloads that "
              "their receivers have not freed yet (most at a time: {})",
              bytes, used_, file_.payloadBytes(), taken_.size(), FileLayout::kSlots);
}

Result<std::size_t> Outbox::reserve(int receiver, std::size_t bytes,
                                    const std::vector<std::shared_ptr<Peer>>& peers) {
  const std::lock_guard guard(lock_);
  if (bytes > file_.payloadBytes()) {
    refused.fetch_add(1, std::memory_order_relaxed);
    return fail(adsmErrorHostMemory, "exchange: {} bytes are more than the {} that there are",
                bytes, file_.payloadBytes());
  }
  const std::size_t room = roundUp(std::max<std::size_t>(bytes, 1), kAlignment);
  releaseFreed(kLookAt);
  std::optional<std::size_t> offset = take(room);
  if (!offset.has_value()) {
    releaseFreed(FileLayout::kSlots);
    offset = take(room);
  }
  if (!offset.has_value()) {
    releaseOfEnded(peers);
    offset = take(room);
  }
  if (!offset.has_value()) {
    return refuse(bytes);
  }
  if (const std::size_t end = *offset + room; end > populated_) {
    const std::size_t wanted = std::min(roundUp(end, kPopulate), file_.payloadBytes());
    const Status status = file_.populatePayloads(populated_, wanted - populated_);
    if (!status.ok()) {
      room_.giveBack(*offset, room);
      refused.fetch_add(1, std::memory_order_relaxed);
      return status;
    }
    populated_ = wanted;
  }
  const std::size_t index = free_.back();
  free_.pop_back();
  taken_.push_back(index);
  used_ += room;
  entries_[index] = {++ids_, *offset, bytes, room, receiver};
  Slot& slot = file_.slot(index);
  slot.offset = *offset;
  slot.bytes = bytes;
  slot.receiver = receiver;
  slot.memory = static_cast<std::uint32_t>(Memory::kHost);
  slot.state.store(Slot::stateOf(ids_, Phase::kWritten), std::memory_order_release);
  return index;
}

std::byte* Outbox::payload(std::size_t slot) const {
  const std::lock_guard guard(lock_);
  return file_.payloads() + entries_[slot].offset;
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
    contents.memory = static_cast<std::uint32_t>(Memory::kHost);
    sent.add(Memory::kHost, entry.bytes);
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
    sent.remove(Memory::kHost, entry.bytes);
  }
  taken_.erase(std::find(taken_.begin(), taken_.end(), slot));
  release(slot);
  return true;
}

}  // namespace gmac::exchange::internal
