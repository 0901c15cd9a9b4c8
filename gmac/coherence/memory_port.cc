// SPDX-License-Identifier: Apache-2.0
//
// Holds, loans, and the memory of a process in which nothing is shared.
#include "gmac/coherence/memory_port.h"

namespace gmac::coherence {

CpuHold::CpuHold(const void* address, std::size_t bytes, HoldFor purpose)
    : port_(memory()),
      address_(address),
      status_(port_.hold(address, bytes, purpose)),
      bytes_(status_.ok() ? bytes : 0) {}

CpuHold::~CpuHold() {
  if (bytes_ > 0) {
    port_.unhold(address_, bytes_);
  }
}

namespace {
constinit std::atomic<void (*)(Lent)> borrower{nullptr};
}  // namespace

void onReclaim(void (*giveBack)(Lent)) noexcept {
  borrower.store(giveBack, std::memory_order_release);
}

void reclaimLoans(Lent lent) {
  if (void (*const giveBack)(Lent) = borrower.load(std::memory_order_acquire)) {
    giveBack(lent);
  }
}

bool MemoryPort::touchesShared(const void*, std::size_t) noexcept { return false; }
std::size_t MemoryPort::sharedPrefix(const void*, std::size_t bytes, bool* shared) noexcept {
  *shared = false;
  return bytes;
}
bool MemoryPort::inChildOfFork() const noexcept { return false; }
bool MemoryPort::worksHere() const noexcept { return false; }
void MemoryPort::copy(void* to, const void* from, std::size_t bytes, MoveFunction move) noexcept {
  (void)move(to, from, bytes);
}
void MemoryPort::fill(void* to, int value, std::size_t bytes, SetFunction set) noexcept {
  (void)set(to, value, bytes);
}
Status MemoryPort::hold(const void*, std::size_t, HoldFor) { return {}; }
void MemoryPort::unhold(const void*, std::size_t) {}
bool MemoryPort::lend(const void*, std::size_t, Loan*) { return false; }
void MemoryPort::giveBack(const void*, std::size_t) {}
Result<bool> MemoryPort::lendOnDevice(const void*, std::size_t, DeviceLoan*) { return false; }
void MemoryPort::giveBackOnDevice(const void*, std::size_t, const DeviceLoan&) {}
std::size_t MemoryPort::pieceBytes() const noexcept { return std::size_t{1} << 20; }
std::size_t MemoryPort::ioThreads() const noexcept { return 1; }
Status MemoryPort::startFlush(const void*, std::size_t) { return {}; }
Status MemoryPort::startFetch(const void*, std::size_t) { return {}; }
void MemoryPort::fetchIfQuiet(const void*, std::size_t) noexcept {}
Place MemoryPort::placeOf(const void* address, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  return {begin, begin + bytes, Current::kNotShared, 0};
}
std::ptrdiff_t MemoryPort::deviceDistance(const void*) noexcept { return 0; }
std::uintptr_t MemoryPort::cpuAddress(std::uintptr_t device) noexcept { return device; }
bool MemoryPort::prefersCpu(const void*, std::size_t) noexcept { return false; }

}  // namespace gmac::coherence
