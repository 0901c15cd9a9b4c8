// SPDX-License-Identifier: Apache-2.0
//
// Memory by the driver's virtual memory management: a range of addresses, and physical pages that
// are mapped there. Other pages can take their place under the same addresses.
#ifndef GMAC_ACCEL_CUDA_MAPPED_MEMORY_H_
#define GMAC_ACCEL_CUDA_MAPPED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "gmac/accel/cuda/device_calls.h"
#include "gmac/accel/movable_memory.h"
#include "gmac/base/status.h"

namespace gmac::accel::cuda {

class Driver;

// Guarded by its owner, a StreamAccelerator. Every function but forget() is called in the device's
// context (DeviceScope).
class MappedMemory {
 public:
  // Pages of either home have this size.
  static constexpr std::size_t kPage = std::size_t{2} << 20;

  MappedMemory(const Driver& driver, DeviceCalls& calls) : driver_(driver), calls_(calls) {}
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  // Asks what the device can do, and gives back what was mapped when an earlier context was lost.
  void open() noexcept;
  bool offers(Home home) const noexcept { return home == Home::kDevice ? onDevice_ : onCpu_; }

  // `bytes` is a multiple of kPage. The contents are undefined.
  Result<std::uintptr_t> allocate(std::size_t bytes, std::size_t alignment, Home home);
  // Moves pages; see MovableMemory::move(). `stream` and `event` are for the copy, which is waited
  // for.
  Status move(std::uintptr_t address, Home home, Stream stream, Event event);
  Status release(std::uintptr_t address);
  Result<MemoryRoom> room();
  // Lets kernels of another device, which can reach this one's memory, use all of it from now on.
  Status allow(int device);
  // The context is lost, with the range in it: open() gives it back.
  void abandon(std::uintptr_t address);

 private:
  using Handle = unsigned long long;  // CUmemGenericAllocationHandle
  struct Range {
    std::size_t bytes;
    Handle pages;
    Home home;
  };

  Result<Handle> create(std::size_t bytes, Home home);
  Status map(std::uintptr_t address, const Range& range);
  Status setAccess(std::uintptr_t address, std::size_t bytes, int device);
  Status unmap(std::uintptr_t address, std::size_t bytes);
  Result<std::uintptr_t> reserve(std::size_t bytes, std::size_t alignment);
  Result<std::uintptr_t> reserveAndMap(const Range& range, std::size_t alignment);
  Status giveBack(std::uintptr_t address, const Range& range);
  Status copy(std::uintptr_t to, std::uintptr_t from, std::size_t bytes, Stream stream,
              Event event);
  int attribute(int which) const noexcept;
  void releasePages(Handle pages) noexcept;

  const Driver& driver_;
  DeviceCalls& calls_;
  int device_ = 0;
  int node_ = 0;  // of the CPU's memory next to the device
  bool onDevice_ = false;
  bool onCpu_ = false;
  bool directAccess_ = false;  // by network cards
  std::vector<int> allowed_;   // the other devices that use it
  std::map<std::uintptr_t, Range> ranges_;
  std::vector<std::uintptr_t> abandoned_;
};

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_MAPPED_MEMORY_H_
