// SPDX-License-Identifier: Apache-2.0
//
// Devices' memory in a process in which nothing is shared.
#include "gmac/coherence/device_memory_port.h"

namespace gmac::coherence {

bool DeviceMemoryPort::placesMemory() const noexcept { return false; }
Status DeviceMemoryPort::prefer(const void*, std::size_t, int, bool) { return {}; }
Status DeviceMemoryPort::namedBy(const void*, int) { return {}; }
bool DeviceMemoryPort::makeRoom() { return false; }
bool DeviceMemoryPort::makeRoomForOwnWork() { return false; }
bool DeviceMemoryPort::isKept(std::uintptr_t) { return false; }
std::size_t DeviceMemoryPort::keptBytes() const noexcept { return 0; }
bool DeviceMemoryPort::fitsNowhere(std::size_t) { return false; }
bool DeviceMemoryPort::managedMode() const noexcept { return false; }
bool DeviceMemoryPort::trustsHints() const noexcept { return false; }
bool DeviceMemoryPort::reachedByCuda() const noexcept { return false; }
unsigned DeviceMemoryPort::waitLimit() const noexcept { return 0; }
Status DeviceMemoryPort::setUsers(const void* address, Users, accel::NativeStream) {
  return fail(adsmErrorInvalidPointer, "{} is in no shared object", address);
}
void DeviceMemoryPort::setReadMostly(const void*, bool) {}

}  // namespace gmac::coherence
