// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/exported_memory.h"

#include <atomic>

namespace gmac::accel {
namespace {

constinit std::atomic<bool> shares{false};
constinit std::atomic<void (*)(std::uint64_t)> listener{nullptr};

Status noHandles() {
  return fail(adsmErrorNotSupported, "this accelerator's memory has no handles");
}

Status noFiles() { return fail(adsmErrorNotSupported, "this accelerator's memory has no files"); }

}  // namespace

Result<DeviceAddress> ExportedMemory::exportMemory(std::size_t, MemoryHandle*) {
  return noHandles();
}
Result<DeviceAddress> ExportedMemory::importMemory(const MemoryHandle&) { return noHandles(); }
Status ExportedMemory::handleOf(DeviceAddress, MemoryHandle*) { return noHandles(); }

Result<SharedAllocation> ExportedMemory::sharedAllocation(DeviceAddress) { return noFiles(); }
Result<std::vector<MemoryFile>> ExportedMemory::filesOf(const SharedAllocation&) {
  return noFiles();
}
Result<DeviceAddress> ExportedMemory::importFiles(std::span<const MemoryFile>) { return noFiles(); }

void shareMemory() noexcept { shares.store(true, std::memory_order_release); }
bool sharesMemory() noexcept { return shares.load(std::memory_order_acquire); }

void onSharedMemoryEnd(void (*ended)(std::uint64_t)) noexcept {
  listener.store(ended, std::memory_order_release);
}

void sharedMemoryEnds(std::uint64_t number) {
  if (auto* const ended = listener.load(std::memory_order_acquire)) {
    ended(number);
  }
}

}  // namespace gmac::accel
