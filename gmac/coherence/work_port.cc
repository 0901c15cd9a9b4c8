// SPDX-License-Identifier: Apache-2.0
//
// Device work in a process in which nothing is shared.
#include "gmac/coherence/work_port.h"

namespace gmac::coherence {
namespace {

Status notStarted() {
  return fail(adsmErrorInvalidValue, "device work before the runtime has started");
}

}  // namespace

Status WorkPort::beginDeviceWork(accel::NativeStream, std::span<const DeviceRange>) {
  return notStarted();
}
Status WorkPort::endDeviceWork(accel::NativeStream, bool) { return notStarted(); }
bool WorkPort::mayRepeat(bool) const noexcept { return false; }
bool WorkPort::beginRepeated(accel::NativeStream, bool) noexcept { return false; }
bool WorkPort::fetchesAtWaits() const noexcept { return false; }
void WorkPort::endRepeated(accel::NativeStream, bool) noexcept {}
void WorkPort::markRepeated() noexcept {}
void WorkPort::noneRepeats() noexcept {}
void WorkPort::keepWhole() noexcept {}
void WorkPort::keepWhole(std::span<const DeviceRange>) noexcept {}
DeviceWait WorkPort::beforeDeviceWait(std::optional<accel::NativeStream>, bool) { return {}; }
Status WorkPort::afterDeviceWait(const DeviceWait&) { return {}; }
void WorkPort::hostFunctionQueued() {}
void WorkPort::hostFunctionEnded() {}
void WorkPort::streamDestroyed(accel::NativeStream) {}
Status WorkPort::beginOwnWork(std::span<const DeviceRange>) { return notStarted(); }
Status WorkPort::endOwnWork(std::span<const DeviceRange>, accel::Ticket) { return notStarted(); }
std::size_t WorkPort::ofOneKind(const void*, std::size_t bytes) noexcept { return bytes; }
void WorkPort::endContext(bool) {}
Result<accel::Accelerator*> WorkPort::ensureAccelerator() {
  return fail(adsmErrorNoAccelerator, "this process has no runtime");
}

}  // namespace gmac::coherence
