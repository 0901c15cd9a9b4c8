// SPDX-License-Identifier: Apache-2.0
//
// Small pieces of device memory, because the driver takes longer to allocate one than to fill it.
#ifndef GMAC_DATATYPE_ENGINE_DEVICE_ARENA_H_
#define GMAC_DATATYPE_ENGINE_DEVICE_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gmac/base/range_allocator.h"
#include "gmac/base/status.h"
#include "gmac/datatype/engine/device.h"

namespace gmac::datatype {

// Pieces of slabs, first fit. Slabs are freed with the arena or by trim(). Not thread-safe;
// owned by Tables, under its lock. Not for the fault handler.
class DeviceArena {
 public:
  explicit DeviceArena(Device& device) : device_(device) {}
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  // Aligned to 256 bytes. adsmErrorAcceleratorMemory.
  Result<std::uint64_t> allocate(std::size_t bytes);
  void free(std::uint64_t address, std::size_t bytes);
  // Frees slabs without pieces.
  void trim();

 private:
  static constexpr std::size_t kSlabBytes = std::size_t{8} << 20;
  struct Slab {
    std::uint64_t address;
    std::size_t bytes;
    RangeAllocator pieces;
  };

  Device& device_;
  std::vector<Slab> slabs_;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_DEVICE_ARENA_H_
