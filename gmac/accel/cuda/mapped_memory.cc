// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/mapped_memory.h"

#include <cuda.h>

#include <algorithm>
#include <string>

#include "gmac/accel/cuda/driver.h"
#include "gmac/accel/cuda/queues.h"
#include "gmac/base/memory_limit.h"

namespace gmac::accel::cuda {
namespace {

CUmemLocation locationOf(Home home, int device, int node) {
  CUmemLocation location{};
  location.type =
      home == Home::kDevice ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST_NUMA;
  location.id = home == Home::kDevice ? device : node;
  return location;
}

// Undoes something; what the caller is told stays what went wrong first.
template <typename Function>
Status keepingError(const Status& status, Function undo) {
  if (status.ok()) {
    undo();
    return status;
  }
  const std::string text = lastErrorText();
  undo();
  recordError(status.code(), text);
  return status;
}

}  // namespace

int MappedMemory::attribute(int which) const noexcept {
  int value = 0;
  const CUresult result =
      driver_.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(which), device_);
  return result == CUDA_SUCCESS ? value : 0;
}

void MappedMemory::open() noexcept {
  CUdevice device = 0;
  if (driver_.cuCtxGetDevice(&device) != CUDA_SUCCESS) {
    return;
  }
  device_ = device;
  allowed_.clear();
  const auto fits = [&](Home home) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = locationOf(home, device_, node_);
    std::size_t granularity = 0;
    return driver_.cuMemGetAllocationGranularity(
               &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
           granularity != 0 && kPage % granularity == 0;
  };
  node_ = std::max(attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID), 0);
  onDevice_ = attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0 &&
              fits(Home::kDevice);
  onCpu_ = onDevice_ &&
           attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0 &&
           fits(Home::kCpu);
  directAccess_ = attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0;
  for (const std::uintptr_t address : abandoned_) {
    (void)release(address);
  }
  abandoned_.clear();
}

Result<MappedMemory::Handle> MappedMemory::create(std::size_t bytes, Home home) {
  if (home == Home::kCpu) {
    if (const std::size_t spare = spareMemory(); bytes > spare) {
      return fail(adsmErrorHostMemory,
                  "{} bytes of the CPU's memory for the accelerator: {} can be spared", bytes,
                  spare);
    }
  }
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = locationOf(home, device_, node_);
  properties.allocFlags.gpuDirectRDMACapable = home == Home::kDevice && directAccess_ ? 1 : 0;
  CUmemGenericAllocationHandle pages = 0;
  GMAC_TRY(calls_.checkAs(home == Home::kCpu ? adsmErrorHostMemory : adsmErrorAcceleratorMemory,
                          driver_.cuMemCreate, &pages, bytes,
                          static_cast<const CUmemAllocationProp*>(&properties), 0ULL));
  return Handle{pages};
}

void MappedMemory::releasePages(Handle pages) noexcept {
  static_cast<void>(calls_.check(driver_.cuMemRelease, CUmemGenericAllocationHandle{pages}));
}

Status MappedMemory::map(std::uintptr_t address, const Range& range) {
  GMAC_TRY(calls_.check(driver_.cuMemMap, CUdeviceptr{address}, range.bytes, std::size_t{0},
                        CUmemGenericAllocationHandle{range.pages}, 0ULL));
  Status access = setAccess(address, range.bytes, device_);
  for (auto other = allowed_.begin(); access.ok() && other != allowed_.end(); ++other) {
    access = setAccess(address, range.bytes, *other);
  }
  return access.ok() ? access : keepingError(access, [&] { (void)unmap(address, range.bytes); });
}

Status MappedMemory::setAccess(std::uintptr_t address, std::size_t bytes, int device) {
  CUmemAccessDesc access{};
  access.location = locationOf(Home::kDevice, device, node_);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return calls_.check(driver_.cuMemSetAccess, CUdeviceptr{address}, bytes,
                      static_cast<const CUmemAccessDesc*>(&access), std::size_t{1});
}

Status MappedMemory::allow(int device) {
  if (device == device_ || std::find(allowed_.begin(), allowed_.end(), device) != allowed_.end()) {
    return {};
  }
  for (const auto& [address, range] : ranges_) {
    GMAC_TRY(setAccess(address, range.bytes, device));
  }
  allowed_.push_back(device);
  return {};
}

Status MappedMemory::unmap(std::uintptr_t address, std::size_t bytes) {
  return calls_.check(driver_.cuMemUnmap, CUdeviceptr{address}, bytes);
}

Result<std::uintptr_t> MappedMemory::reserve(std::size_t bytes, std::size_t alignment) {
  CUdeviceptr address = 0;
  GMAC_TRY(
      calls_.check(driver_.cuMemAddressReserve, &address, bytes, alignment, CUdeviceptr{0}, 0ULL));
  return static_cast<std::uintptr_t>(address);
}

Result<std::uintptr_t> MappedMemory::reserveAndMap(const Range& range, std::size_t alignment) {
  Result<std::uintptr_t> address = reserve(range.bytes, alignment);
  if (!address.ok()) {
    return address;
  }
  const Status mapped = map(*address, range);
  if (!mapped.ok()) {
    return keepingError(mapped, [&] {
      (void)calls_.check(driver_.cuMemAddressFree, CUdeviceptr{*address}, range.bytes);
    });
  }
  return address;
}

Result<std::uintptr_t> MappedMemory::allocate(std::size_t bytes, std::size_t alignment, Home home) {
  Result<Handle> pages = create(bytes, home);
  if (!pages.ok()) {
    return pages.status();
  }
  const Range range{bytes, *pages, home};
  Result<std::uintptr_t> address = reserveAndMap(range, std::max(alignment, kPage));
  if (!address.ok()) {
    return keepingError(address.status(), [&] { releasePages(*pages); });
  }
  ranges_.emplace(*address, range);
  return address;
}

Status MappedMemory::copy(std::uintptr_t to, std::uintptr_t from, std::size_t bytes, Stream stream,
                          Event event) {
  GMAC_TRY(calls_.copyWithin(to, from, bytes, stream));
  GMAC_TRY(calls_.record(event, stream));
  return awaitEvent(calls_, event);
}

// The new pages are filled at an address of their own, so that a failure before the exchange
// changes nothing.
Status MappedMemory::move(std::uintptr_t address, Home home, Stream stream, Event event) {
  const auto found = ranges_.find(address);
  if (found == ranges_.end() || !offers(home)) {
    return fail(adsmErrorNotSupported, "the accelerator's memory at {:#x} cannot move", address);
  }
  Range& range = found->second;
  if (range.home == home) {
    return {};
  }
  Result<Handle> pages = create(range.bytes, home);
  if (!pages.ok()) {
    return pages.status();
  }
  const Range moved{range.bytes, *pages, home};
  const auto undo = [&](const Status& status) {
    return keepingError(status, [&] { releasePages(*pages); });
  };
  Result<std::uintptr_t> aside = reserveAndMap(moved, kPage);
  if (!aside.ok()) {
    return undo(aside.status());
  }
  const Status copied = copy(*aside, address, range.bytes, stream, event);
  const Status left = keepingError(copied, [&] {
    (void)unmap(*aside, range.bytes);
    (void)calls_.check(driver_.cuMemAddressFree, CUdeviceptr{*aside}, range.bytes);
  });
  if (!left.ok()) {
    return undo(left);
  }
  if (const Status unmapped = unmap(address, range.bytes); !unmapped.ok()) {
    return undo(unmapped);
  }
  if (const Status mapped = map(address, moved); !mapped.ok()) {
    return undo(keepingError(mapped, [&] {
      // Without any pages there, what kernels find at the address would not be theirs.
      if (!map(address, range).ok()) {
        calls_.health().end("the pages of an object could not be mapped again");
      }
    }));
  }
  releasePages(range.pages);
  range = moved;
  return {};
}

Status MappedMemory::giveBack(std::uintptr_t address, const Range& range) {
  GMAC_TRY(unmap(address, range.bytes));
  releasePages(range.pages);
  return calls_.check(driver_.cuMemAddressFree, CUdeviceptr{address}, range.bytes);
}

Status MappedMemory::release(std::uintptr_t address) {
  const auto found = ranges_.find(address);
  const Range range = found->second;
  ranges_.erase(found);
  return giveBack(address, range);
}

Result<MemoryRoom> MappedMemory::room() {
  MemoryRoom room;
  GMAC_TRY(calls_.check(driver_.cuMemGetInfo, &room.free, &room.total));
  return room;
}

void MappedMemory::abandon(std::uintptr_t address) { abandoned_.push_back(address); }

}  // namespace gmac::accel::cuda
