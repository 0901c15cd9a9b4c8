// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/memory_door.h"

#include <algorithm>

#include "gmac/base/cancellation.h"
#include "gmac/coherence/options.h"
#include "gmac/coherence/parts.h"

namespace gmac {

// The interposed functions ask these two before they turn cancellation off.
bool MemoryDoor::touchesShared(const void* address, std::size_t bytes) noexcept {
  return uncancelled([&]() noexcept { return parts_.lookup.touchesShared(address, bytes); });
}

std::size_t MemoryDoor::sharedPrefix(const void* address, std::size_t bytes,
                                     bool* shared) noexcept {
  return uncancelled([&]() noexcept { return parts_.lookup.sharedPrefix(address, bytes, shared); });
}

bool MemoryDoor::inChildOfFork() const noexcept { return parts_.forked(); }

bool MemoryDoor::worksHere() const noexcept { return Lock::worksHere(); }

Status MemoryDoor::hold(const void* address, std::size_t bytes, coherence::HoldFor purpose) {
  if (parts_.forked()) {
    return {};
  }
  GMAC_TRY(parts_.launches.order(address, bytes, true));
  return parts_.access.hold(address, bytes, purpose);
}

void MemoryDoor::unhold(const void* address, std::size_t bytes) {
  if (!parts_.forked()) {
    parts_.access.unhold(address, bytes);
  }
}

void MemoryDoor::copy(void* to, const void* from, std::size_t bytes,
                      coherence::MoveFunction move) noexcept {
  if (parts_.forked()) {
    (void)move(to, from, bytes);
    return;
  }
  // (An error that keeps an object open comes back where it is to be closed next.)
  (void)parts_.launches.order(to, bytes, false);
  (void)parts_.launches.order(from, bytes, false);
  parts_.bulk.copy(to, from, bytes, move);
}

void MemoryDoor::fill(void* to, int value, std::size_t bytes, coherence::SetFunction set) noexcept {
  if (parts_.forked()) {
    (void)set(to, value, bytes);
    return;
  }
  (void)parts_.launches.order(to, bytes, false);
  parts_.bulk.fill(to, value, bytes, set);
}

bool MemoryDoor::lend(const void* address, std::size_t bytes, coherence::Loan* loan) {
  return !parts_.forked() && parts_.launches.order(address, bytes, true).ok() &&
         parts_.access.lend(address, bytes, loan);
}

void MemoryDoor::giveBack(const void* address, std::size_t bytes) {
  if (!parts_.forked()) {
    parts_.access.giveBack(address, bytes);
  }
}

Result<bool> MemoryDoor::lendOnDevice(const void* address, std::size_t bytes,
                                      coherence::DeviceLoan* loan) {
  return parts_.forked() ? Result<bool>(false) : parts_.deviceLoans.lend(address, bytes, loan);
}

void MemoryDoor::giveBackOnDevice(const void* address, std::size_t bytes,
                                  const coherence::DeviceLoan& loan) {
  if (!parts_.forked()) {
    parts_.deviceLoans.giveBack(address, bytes, loan);
  }
}

std::size_t MemoryDoor::pieceBytes() const noexcept {
  return std::max(MemoryPort::pieceBytes(), options_.blockBytes);
}

std::size_t MemoryDoor::ioThreads() const noexcept {
  return parts_.forked() ? 1 : options_.ioThreads;
}

Status MemoryDoor::startFlush(const void* address, std::size_t bytes) {
  return parts_.forked() ? Status() : parts_.early.startFlush(address, bytes);
}

Status MemoryDoor::startFetch(const void* address, std::size_t bytes) {
  return parts_.forked() ? Status() : parts_.early.startFetch(address, bytes);
}

void MemoryDoor::fetchIfQuiet(const void* address, std::size_t bytes) noexcept {
  if (!parts_.forked() && parts_.early.startFetch(address, bytes).ok()) {
    (void)parts_.early.fetchNext();
  }
}

coherence::Place MemoryDoor::placeOf(const void* address, std::size_t bytes) noexcept {
  return uncancelled([&]() noexcept { return parts_.lookup.placeOf(address, bytes); });
}

bool MemoryDoor::prefersCpu(const void* address, std::size_t bytes) noexcept {
  return !parts_.forked() && parts_.movedPieces.prefersCpu(address, bytes);
}

std::ptrdiff_t MemoryDoor::deviceDistance(const void* address) noexcept {
  return parts_.lookup.deviceDistance(address);
}

std::uintptr_t MemoryDoor::cpuAddress(std::uintptr_t device) noexcept {
  return parts_.lookup.cpuAddress(device);
}

}  // namespace gmac
