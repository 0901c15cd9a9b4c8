// SPDX-License-Identifier: Apache-2.0
//
// The port of a process in which nothing is shared.
#include "gmac/coherence/port.h"

namespace gmac::coherence {
namespace {

Status notStarted() {
  return fail(adsmErrorInvalidValue, "device work before the runtime has started");
}

class NothingShared final : public Port {
 public:
  constexpr NothingShared() noexcept = default;
};
constinit NothingShared nothingShared;

}  // namespace

constinit std::atomic<Port*> internal::running{&nothingShared};

Port& open(Port& port) noexcept {
  Port& before = *internal::running.exchange(&port);
  notePlacesChanged();
  return before;
}

CpuHold::CpuHold(const void* address, std::size_t bytes, HoldFor purpose)
    : port_(port()),
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

bool Port::touchesShared(const void*, std::size_t) noexcept { return false; }
std::size_t Port::sharedPrefix(const void*, std::size_t bytes, bool* shared) noexcept {
  *shared = false;
  return bytes;
}
bool Port::inChildOfFork() const noexcept { return false; }
bool Port::worksHere() const noexcept { return false; }

void Port::copy(void* to, const void* from, std::size_t bytes, MoveFunction move) noexcept {
  (void)move(to, from, bytes);
}
void Port::fill(void* to, int value, std::size_t bytes, SetFunction set) noexcept {
  (void)set(to, value, bytes);
}

Status Port::hold(const void*, std::size_t, HoldFor) { return {}; }
void Port::unhold(const void*, std::size_t) {}
bool Port::lend(const void*, std::size_t, Loan*) { return false; }
void Port::giveBack(const void*, std::size_t) {}
Result<bool> Port::lendOnDevice(const void*, std::size_t, DeviceLoan*) { return false; }
void Port::giveBackOnDevice(const void*, std::size_t, const DeviceLoan&) {}

std::size_t Port::pieceBytes() const noexcept { return std::size_t{1} << 20; }
std::size_t Port::ioThreads() const noexcept { return 1; }
Status Port::startFlush(const void*, std::size_t) { return {}; }
void Port::fetchIfQuiet(const void*, std::size_t) noexcept {}
Status Port::startFetch(const void*, std::size_t) { return {}; }

Status Port::beginDeviceWork(accel::NativeStream, std::span<const DeviceRange>) {
  return notStarted();
}
Status Port::endDeviceWork(accel::NativeStream, bool) { return notStarted(); }
bool Port::mayRepeat() const noexcept { return false; }
bool Port::beginRepeated(accel::NativeStream) noexcept { return false; }
void Port::endRepeated(accel::NativeStream, bool) noexcept {}
void Port::markRepeated() noexcept {}
void Port::noneRepeats() noexcept {}

void Port::keepWhole() noexcept {}
void Port::keepWhole(std::span<const DeviceRange>) noexcept {}
DeviceWait Port::beforeDeviceWait(std::optional<accel::NativeStream>, bool) { return {}; }
Status Port::afterDeviceWait(const DeviceWait&) { return {}; }
void Port::hostFunctionQueued() {}
void Port::hostFunctionEnded() {}
void Port::streamDestroyed(accel::NativeStream) {}

Result<accel::Accelerator*> Port::ensureAccelerator() {
  return fail(adsmErrorNoAccelerator, "this process has no runtime");
}
Place Port::placeOf(const void* address, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  return {begin, begin + bytes, Current::kNotShared, 0};
}
std::ptrdiff_t Port::deviceDistance(const void*) noexcept { return 0; }
std::uintptr_t Port::cpuAddress(std::uintptr_t device) noexcept { return device; }
bool Port::prefersCpu(const void*, std::size_t) noexcept { return false; }
Status Port::beginOwnWork(std::span<const DeviceRange>) { return notStarted(); }
Status Port::endOwnWork(std::span<const DeviceRange>, accel::Ticket) { return notStarted(); }

void Port::endContext(bool) {}

bool Port::placesMemory() const noexcept { return false; }
Status Port::prefer(const void*, std::size_t, int) { return {}; }
Status Port::namedBy(const void*, int) { return {}; }

bool Port::makeRoom() { return false; }
bool Port::makeRoomForOwnWork() { return false; }
bool Port::fitsNowhere(std::size_t) { return false; }
bool Port::isKept(std::uintptr_t) { return false; }
std::size_t Port::ofOneKind(const void*, std::size_t bytes) noexcept { return bytes; }

std::size_t Port::keptBytes() const noexcept { return 0; }

bool Port::managedMode() const noexcept { return false; }
bool Port::trustsHints() const noexcept { return false; }
bool Port::reachedByCuda() const noexcept { return false; }
unsigned Port::waitLimit() const noexcept { return 0; }
Status Port::setUsers(const void* address, Users, accel::NativeStream) {
  return fail(adsmErrorInvalidPointer, "{} is in no shared object", address);
}
void Port::setReadMostly(const void*, bool) {}

}  // namespace gmac::coherence
