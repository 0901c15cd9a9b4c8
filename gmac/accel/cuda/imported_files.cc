// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/imported_files.h"

#include <cuda.h>

#include <numeric>
#include <utility>

#include "gmac/accel/cuda/driver.h"
#include "gmac/accel/cuda/mapped_memory.h"
#include "gmac/base/keeping_error.h"

namespace gmac::accel::cuda {

std::size_t ImportedFiles::Import::bytes() const {
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

Result<std::uintptr_t> ImportedFiles::add(std::span<const MemoryFile> files) {
  if (files.empty()) {
    return fail(adsmErrorInvalidValue, "no files are no memory of another process's device");
  }
  Import import;
  std::size_t bytes = 0;
  for (const MemoryFile& file : files) {
    // (A file of the driver's is mapped from its beginning only.)
    if (file.file < 0 || file.offset != 0 || file.bytes == 0 ||
        file.bytes % MappedMemory::kPage != 0 || file.bytes > SIZE_MAX / 2 - bytes) {
      return fail(adsmErrorInvalidValue,
                  "{} bytes at offset {} of file {} are no memory of another process's device",
                  file.bytes, file.offset, file.file);
    }
    bytes += file.bytes;
    import.sizes.push_back(file.bytes);
  }
  CUdeviceptr address = 0;
  GMAC_TRY(calls_.checkAs(adsmErrorAcceleratorMemory, driver_.cuMemAddressReserve, &address, bytes,
                          MappedMemory::kPage, CUdeviceptr{0}, 0ULL));
  std::uintptr_t next = address;
  for (const MemoryFile& file : files) {
    if (const Status mapped = map(next, file); !mapped.ok()) {
      return keepingError(mapped, [&] { (void)giveBack(address, import); });
    }
    next += file.bytes;
    ++import.mapped;
  }
  imports_.emplace(address, std::move(import));
  return static_cast<std::uintptr_t>(address);
}

Status ImportedFiles::map(std::uintptr_t address, const MemoryFile& file) {
  CUmemGenericAllocationHandle pages = 0;
  // The driver takes the number of a descriptor for a pointer.
  void* const number = reinterpret_cast<void*>(static_cast<std::uintptr_t>(file.file));
  const CUresult result = driver_.cuMemImportFromShareableHandle(
      &pages, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) {
    return calls_.failAs(
        result == CUDA_ERROR_INVALID_VALUE ? adsmErrorInvalidValue : adsmErrorNotSupported, result,
        driver_.cuMemImportFromShareableHandle.name, "another process's memory");
  }
  // (What is mapped keeps them.)
  return keepingError(mapPages(address, file.bytes, pages), [&] {
    (void)calls_.check(driver_.cuMemRelease, CUmemGenericAllocationHandle{pages});
  });
}

Status ImportedFiles::mapPages(std::uintptr_t address, std::size_t bytes,
                               unsigned long long pages) {
  GMAC_TRY(calls_.checkAs(adsmErrorNotSupported, driver_.cuMemMap, CUdeviceptr{address}, bytes,
                          std::size_t{0}, CUmemGenericAllocationHandle{pages}, 0ULL));
  const Status access = letRead(address, bytes);
  return access.ok() ? access : keepingError(access, [&] {
    (void)calls_.check(driver_.cuMemUnmap, CUdeviceptr{address}, bytes);
  });
}

// Not all drivers let a device read alone.
Status ImportedFiles::letRead(std::uintptr_t address, std::size_t bytes) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = calls_.deviceNumber();
  Status status;
  for (const CUmemAccess_flags flags :
       {CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}) {
    access.flags = flags;
    status = calls_.checkAs(adsmErrorNotSupported, driver_.cuMemSetAccess, CUdeviceptr{address},
                            bytes, static_cast<const CUmemAccessDesc*>(&access), std::size_t{1});
    if (status.ok() || calls_.health().lost()) {
      break;
    }
  }
  return status;
}

Status ImportedFiles::giveBack(std::uintptr_t address, Import& import) {
  std::uintptr_t end =
      std::accumulate(import.sizes.begin(),
                      import.sizes.begin() + static_cast<std::ptrdiff_t>(import.mapped), address);
  for (; import.mapped > 0; --import.mapped) {
    const std::size_t bytes = import.sizes[import.mapped - 1];
    GMAC_TRY(calls_.check(driver_.cuMemUnmap, CUdeviceptr{end - bytes}, bytes));
    end -= bytes;
  }
  return calls_.check(driver_.cuMemAddressFree, CUdeviceptr{address}, import.bytes());
}

Status ImportedFiles::release(std::uintptr_t address) {
  const auto found = imports_.find(address);
  GMAC_TRY(giveBack(address, found->second));
  imports_.erase(found);
  return {};
}

}  // namespace gmac::accel::cuda
