// SPDX-License-Identifier: Apache-2.0
//
// The memory of a `host` accelerator, as the application knows it: allocations, which other
// processes may be given, and what others have given.
#ifndef GMAC_ACCEL_HOST_DEVICE_MEMORY_H_
#define GMAC_ACCEL_HOST_DEVICE_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/address_windows.h"
#include "gmac/accel/exported_memory.h"
#include "gmac/accel/host/device_link.h"
#include "gmac/accel/movable_memory.h"
#include "gmac/accel/shared_addresses.h"
#include "gmac/base/descriptor.h"
#include "gmac/base/status.h"

namespace gmac::accel::host {

// Thread-safe. Owned by the accelerator; not for the fault path.
class DeviceMemory final : public MovableMemory, public SharedAddresses, public ExportedMemory {
 public:
  // `bytes` of memory, at addresses that are other accelerators', too, if it is `ofGroup`.
  DeviceMemory(DeviceLink& link, AddressWindows& windows, std::size_t bytes, bool ofGroup)
      : link_(link), windows_(windows), memoryBytes_(bytes), ofGroup_(ofGroup) {}

  // As Accelerator's.
  Result<MemoryRoom> memoryRoom();
  Result<DeviceAddress> allocate(std::size_t bytes, std::size_t alignment, Placement placement) {
    return allocate(bytes, alignment, placement, Home::kDevice);
  }
  Status free(DeviceAddress address, std::size_t bytes) { return free(address, bytes, true); }
  Memory memoryOf(const void* address) const noexcept;

  // All of its memory is the CPU's: an allocation whose home is there does not count as the
  // device's.
  Result<DeviceAddress> allocateOnCpu(std::size_t bytes, std::size_t alignment,
                                      Placement placement) override {
    return allocate(bytes, alignment, placement, Home::kCpu);
  }
  Status move(DeviceAddress address, std::size_t bytes, Home home) override;

  Status allocateAt(DeviceAddress address, std::size_t bytes, Placement placement) override;
  Status leave(DeviceAddress address, std::size_t bytes) override {
    return free(address, bytes, false);
  }

  Result<SharedAllocation> sharedAllocation(DeviceAddress address) override;
  Result<std::vector<MemoryFile>> filesOf(const SharedAllocation& allocation) override;
  Result<DeviceAddress> importFiles(std::span<const MemoryFile> files) override;
  Status releaseImport(DeviceAddress address) override;

 private:
  struct Allocation {
    std::size_t bytes;
    Placement placement;
    Home home;
    std::uint64_t number = 0;  // of its pages in file_; 0: they are anonymous
    bool handedOut = false;    // its file was
  };

  Result<DeviceAddress> allocate(std::size_t bytes, std::size_t alignment, Placement placement,
                                 Home home);
  // Maps memory under an address that is the allocation's, and counts it.
  Status mapAt(std::uintptr_t address, Allocation allocation);
  // The memory file, with those bytes; the lock is held.
  Result<int> fileUpTo(std::int64_t end);
  Status free(DeviceAddress address, std::size_t bytes, bool withItsAddress);
  // The bytes of allocations with that home, and whether it has room for more. The lock is held.
  std::size_t& usedIn(Home home) { return home == Home::kDevice ? usedBytes_ : cpuBytes_; }
  Status roomFor(std::size_t bytes, Home home);

  DeviceLink& link_;
  AddressWindows& windows_;
  const std::size_t memoryBytes_;
  const bool ofGroup_;

  mutable std::mutex mutex_;  // guards what follows
  std::map<std::uintptr_t, Allocation> allocations_;
  // The file of allocations that other processes can be given: a sparse file as long as the
  // windows, so that neighbours are one mapping of the device process, as anonymous ones are.
  Descriptor file_;
  std::int64_t fileBytes_ = 0;
  bool fileRefused_ = false;
  std::uint64_t numbers_ = 0;
  std::map<std::uintptr_t, std::size_t> imports_;  // addresses, bytes
  std::atomic<bool> anyImports_{false};            // ever; read without the lock
  std::size_t usedBytes_ = 0;                      // of the device's memory
  std::size_t cpuBytes_ = 0;                       // of allocations with the CPU's
};

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_DEVICE_MEMORY_H_
