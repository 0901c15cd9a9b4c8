// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/port.h"

#include <cstdlib>
#include <span>
#include <string_view>

#include "gmac/base/cancellation.h"
#include "gmac/coherence/kept_memory.h"
#include "gmac/session/config.h"
#include "gmac/session/runtime.h"

namespace gmac::coherence {
namespace {

// The started runtime's; NULL where it has none.
accel::NativeStreams* nativeStreams(Runtime* runtime) noexcept {
  return runtime != nullptr ? runtime->manager().accelerator().nativeStreams() : nullptr;
}

}  // namespace

bool touchesShared(const void* address, std::size_t bytes) noexcept {
  Runtime* runtime = Runtime::started();
  return runtime != nullptr && bytes > 0 && shared_ranges::mayBeShared(address, bytes) &&
         uncancelled([&]() noexcept { return runtime->manager().touchesShared(address, bytes); });
}

bool inChildOfFork() noexcept {
  Runtime* runtime = Runtime::started();
  return runtime != nullptr && runtime->manager().forked();
}

std::size_t sharedPrefix(const void* address, std::size_t bytes, bool* shared) noexcept {
  Runtime* runtime = Runtime::started();
  if (runtime == nullptr) {
    *shared = false;
    return bytes;
  }
  return uncancelled(
      [&]() noexcept { return runtime->manager().sharedPrefix(address, bytes, shared); });
}

void copy(void* to, const void* from, std::size_t bytes, MoveFunction move) noexcept {
  Runtime* runtime = Runtime::started();
  if (runtime == nullptr) {
    (void)move(to, from, bytes);
    return;
  }
  runtime->manager().copy(to, from, bytes, move);
}

void fill(void* to, int value, std::size_t bytes, SetFunction set) noexcept {
  Runtime* runtime = Runtime::started();
  if (runtime == nullptr) {
    (void)set(to, value, bytes);
    return;
  }
  runtime->manager().fill(to, value, bytes, set);
}

CpuHold::CpuHold(const void* address, std::size_t bytes, HoldFor purpose)
    : address_(address), bytes_(bytes) {
  Runtime* runtime = Runtime::started();
  if (runtime != nullptr) {
    status_ = runtime->manager().hold(address, bytes, purpose);
  }
  if (runtime == nullptr || !status_.ok()) {
    bytes_ = 0;
  }
}

CpuHold::~CpuHold() {
  if (bytes_ > 0) {
    Runtime::started()->manager().unhold(address_, bytes_);
  }
}

std::size_t pieceBytes() noexcept {
  constexpr std::size_t kLeast = std::size_t{1} << 20;
  Runtime* runtime = Runtime::started();
  return runtime == nullptr ? kLeast : std::max(kLeast, runtime->manager().options().blockBytes);
}

std::size_t ioThreads() noexcept {
  Runtime* runtime = Runtime::started();
  return runtime == nullptr || runtime->manager().forked() ? 1 : runtime->ioThreads();
}

Status startFlush(const void* address, std::size_t bytes) {
  Runtime* runtime = Runtime::started();
  return runtime != nullptr ? runtime->manager().startFlush(address, bytes) : Status();
}

Status startFetch(const void* address, std::size_t bytes) {
  Runtime* runtime = Runtime::started();
  return runtime != nullptr ? runtime->manager().startFetch(address, bytes) : Status();
}

Status beginDeviceWork(accel::NativeStream stream, const DeviceRange* ranges, std::size_t count) {
  Runtime* runtime = Runtime::started();
  if (runtime == nullptr) {
    return fail(adsmErrorInvalidValue, "device work before the runtime has started");
  }
  return runtime->manager().beginDeviceWork(stream, std::span(ranges, count));
}

Status endDeviceWork(accel::NativeStream stream, bool submitted) {
  return Runtime::started()->manager().endDeviceWork(stream, submitted);
}

bool giveBackKept() {
  Runtime* runtime = Runtime::started();
  return runtime != nullptr && !runtime->manager().forked() && runtime->manager().giveBackKept();
}

bool isKept(std::uintptr_t device) {
  Runtime* runtime = Runtime::started();
  return runtime != nullptr && !runtime->manager().forked() && runtime->manager().isKept(device);
}

std::size_t keptBytes() noexcept {
  Runtime* runtime = Runtime::started();
  return runtime == nullptr ? 0 : runtime->manager().keptBytes();
}

Result<accel::Accelerator*> accelerator() {
  auto runtime = Runtime::get();
  if (!runtime.ok()) {
    return runtime.status();
  }
  return &(*runtime)->manager().accelerator();
}

std::size_t currentPrefix(const void* address, std::size_t bytes, Current* current) noexcept {
  Runtime* runtime = Runtime::started();
  *current = Current::kNotShared;
  return runtime == nullptr ? bytes : runtime->manager().currentPrefix(address, bytes, current);
}

std::ptrdiff_t deviceDistance(const void* address) noexcept {
  Runtime* runtime = Runtime::started();
  return runtime == nullptr ? 0 : runtime->manager().deviceDistance(address);
}

Status beginOwnWork(const DeviceRange* ranges, std::size_t count) {
  return Runtime::started()->manager().beginOwnWork(std::span(ranges, count));
}

Status endOwnWork(const DeviceRange* ranges, std::size_t count, accel::Ticket ticket) {
  return Runtime::started()->manager().endOwnWork(std::span(ranges, count), ticket);
}

Status afterDeviceWait() {
  Runtime* runtime = Runtime::started();
  return runtime != nullptr ? runtime->manager().afterDeviceWait() : Status();
}

std::uintptr_t nativeContext() noexcept {
  accel::NativeStreams* const native = nativeStreams(Runtime::started());
  return native != nullptr ? native->nativeContext() : 0;
}

int primaryDevice() noexcept {
  accel::NativeStreams* const native = nativeStreams(Runtime::started());
  return native != nullptr ? native->primaryDevice() : -1;
}

void contextEnds(bool workFinished) {
  if (Runtime* runtime = Runtime::started()) runtime->manager().endContext(workFinished);
}

void hostFunctionQueued() {
  if (Runtime* runtime = Runtime::started()) runtime->manager().hostFunctionQueued();
}

void hostFunctionEnded() {
  if (Runtime* runtime = Runtime::started()) runtime->manager().hostFunctionEnded();
}

std::uintptr_t cpuAddress(std::uintptr_t device) noexcept {
  Runtime* runtime = Runtime::started();
  return runtime != nullptr ? runtime->manager().cpuAddress(device) : device;
}

bool managedMode() noexcept {
  // A bad value of a variable is reported when the runtime starts.
  static const bool managed = [] {
    const auto config = readConfig([](const char* name) {
      return std::string_view(name) == "GMAC_MANAGED" ? std::getenv(name) : nullptr;
    });
    return !config.ok() || config->managed;
  }();
  return managed;
}

bool trustsHints() noexcept {
  Runtime* runtime = Runtime::started();
  return runtime != nullptr && runtime->manager().options().trustHints;
}

bool reachedByCuda() noexcept {
  Runtime* runtime = Runtime::started();
  return runtime != nullptr && runtime->manager().accelerator().name() != "host";
}

Status setUsers(const void* address, Users users, accel::NativeStream stream) {
  Runtime* runtime = Runtime::started();
  if (runtime == nullptr) {
    return fail(adsmErrorInvalidPointer, "{} is no shared object's", address);
  }
  const auto kind = users == Users::kEverybody ? Object::Users::kEverybody
                    : users == Users::kCpu     ? Object::Users::kCpu
                                               : Object::Users::kOneStream;
  return runtime->manager().setUsers(address, kind, stream);
}

void setReadMostly(const void* address, bool readMostly) {
  if (Runtime* runtime = Runtime::started()) {
    runtime->manager().setReadMostly(address, readMostly);
  }
}

void streamDestroyed(accel::NativeStream stream) {
  if (Runtime* runtime = Runtime::started()) {
    runtime->manager().streamDestroyed(stream);
  }
}

}  // namespace gmac::coherence
