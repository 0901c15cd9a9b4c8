// SPDX-License-Identifier: Apache-2.0
//
// The fake driver's physical pages, and their places at addresses that a program has reserved.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/cuda/fake_state.h"

using namespace gmac::fake_cuda;  // NOLINT: the driver's functions live in no namespace

namespace {

// In the name of the file, so that another process knows what it is given. The device's number
// follows.
constexpr char kPagesName[] = "gmac fake device ";

void dropPages(CUmemGenericAllocationHandle handle) {
  const auto found = device().pages.find(handle);
  if (--found->second.uses != 0) return;
  close(found->second.file);
  if (found->second.device >= 0 && !found->second.imported) {
    usedOn(found->second.device) -= found->second.bytes;
  }
  device().pages.erase(found);
}

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  FAKE_CALL();
  *bytes = kPage;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr,
                             unsigned long long) {
  FAKE_CALL();
  if (bytes == 0 || bytes % kPage != 0) return CUDA_ERROR_INVALID_VALUE;
  *address = reserveAddresses(bytes);
  if (*address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const window =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  device().reserved[*address] = {bytes, static_cast<std::byte*>(window)};
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  FAKE_CALL();
  const auto found = device().reserved.find(address);
  if (found == device().reserved.end() || found->second.bytes != bytes ||
      mappedWithin(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  munmap(reinterpret_cast<void*>(address), bytes);
  munmap(found->second.window, bytes);
  device().reserved.erase(found);
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  FAKE_CALL();
  const bool onDevice = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const int home = onDevice ? properties->location.id : -1;
  if (bytes == 0 || bytes % kPage != 0) return CUDA_ERROR_INVALID_VALUE;
  if (onDevice && !isDevice(home)) return CUDA_ERROR_INVALID_DEVICE;
  if (onDevice && bytes > kMemory - usedOn(home)) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::string name = kPagesName + std::to_string(home);
  const int file = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  // Fresh pages hold anything; all of them where that is cheap.
  const std::vector<std::byte> anything(std::min<std::size_t>(bytes, 16 << 20), std::byte{0xA5});
  if (pwrite(file, anything.data(), anything.size(), 0) < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (onDevice) usedOn(home) += bytes;
  *handle = ++device().lastPages;
  const bool exportable =
      (properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
  device().pages[*handle] = {bytes, file, home, exportable};
  return CUDA_SUCCESS;
}
CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  FAKE_CALL();
  const auto found = device().pages.find(handle);
  if (found == device().pages.end() || !found->second.exportable || flags != 0 ||
      type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int file = dup(found->second.file);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  std::memcpy(shareable, &file, sizeof file);
  return CUDA_SUCCESS;
}
// The pages live as long as anybody has them: another process's count, too.
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) {
  FAKE_CALL();
  const auto given = static_cast<int>(number(shareable));
  const std::string link = "/proc/self/fd/" + std::to_string(given);
  std::array<char, 256> name{};
  struct stat status {};
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(given, &status) != 0 ||
      readlink(link.c_str(), name.data(), name.size() - 1) < 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const char* const described = std::strstr(name.data(), kPagesName);
  if (described == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int home = std::atoi(described + sizeof kPagesName - 1);
  const int file = fcntl(given, F_DUPFD_CLOEXEC, 3);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *handle = ++device().lastPages;
  device().pages[*handle] = {static_cast<std::size_t>(status.st_size), file, home, true, true};
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  FAKE_CALL();
  if (device().pages.count(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
  dropPages(handle);
  return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  FAKE_CALL();
  auto range = device().reserved.upper_bound(address);
  const auto pages = device().pages.find(handle);
  if (range == device().reserved.begin() || offset != 0 || pages == device().pages.end() ||
      pages->second.bytes != bytes || address % kPage != 0 || mappedWithin(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  --range;
  if (address + bytes > range->first + range->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  std::byte* const backing = range->second.window + (address - range->first);
  if (mmap(backing, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pages->second.file, 0) ==
      MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++pages->second.uses;
  device().mapped[address] = handle;
  device().memory[address] = {bytes, backing, 0, nullptr, pages->second.device};
  return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                        std::size_t count) {
  FAKE_CALL();
  const auto found = device().memory.find(address);
  if (found == device().memory.end() || !found->second.mapped() || found->second.bytes != bytes ||
      count != 1 || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      !isDevice(access->location.id)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUdevice home = found->second.device;
  if (home >= 0 && !device().reach(home, access->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  // A kernel that writes what its device may only read ends the process.
  if (found->second.access == 0 || access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    const int mode =
        access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE : PROT_READ;
    if (mprotect(found->second.backing, bytes, mode) != 0) return CUDA_ERROR_INVALID_VALUE;
  }
  found->second.access |= bitOf(access->location.id);
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  FAKE_CALL();
  const auto found = device().memory.find(address);
  if (found == device().memory.end() || !found->second.mapped() || found->second.bytes != bytes ||
      device().mapped.count(address) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  (void)mmap(found->second.backing, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  device().memory.erase(found);
  dropPages(device().mapped[address]);
  device().mapped.erase(address);
  return CUDA_SUCCESS;
}

#pragma GCC visibility pop
}
