// SPDX-License-Identifier: Apache-2.0
//
// The fake driver's memory: that of devices, by address, the CPU's that is pinned, and what other
// processes are given by handles.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <utility>

#include "tests/cuda/fake_state.h"

namespace gmac::fake_cuda {

std::byte* backingOf(CUdeviceptr address) {
  auto& memory = device().memory;
  auto after = memory.upper_bound(address);
  if (after == memory.begin()) return nullptr;
  const auto& [start, allocation] = *std::prev(after);
  const unsigned needed = working >= 0 ? bitOf(working) : ~0U;
  const bool there = address < start + allocation.bytes && (allocation.access & needed) != 0;
  return there ? allocation.backing + (address - start) : nullptr;
}

bool isPinned(CUdeviceptr address) {
  return device().given.count(reinterpret_cast<void*>(address)) != 0;
}

bool allocationOf(CUdeviceptr address, CUdeviceptr* start, std::size_t* bytes) {
  auto& memory = device().memory;
  if (backingOf(address) == nullptr) return false;
  const auto& [first, allocation] = *std::prev(memory.upper_bound(address));
  *start = first;
  *bytes = allocation.bytes;
  return true;
}

unsigned long long allocationId(CUdeviceptr start) { return device().memory.at(start).id; }

CUdevice deviceOf(CUdeviceptr address) {
  const auto& memory = device().memory;
  const auto after = memory.upper_bound(address);
  return after == memory.begin() ? -1 : std::prev(after)->second.device;
}

bool ofOneKind(CUdeviceptr address, std::size_t bytes) {
  const auto& memory = device().memory;
  auto next = memory.upper_bound(address);
  next = next == memory.begin() ? next : std::prev(next);
  bool registered = false;
  bool other = false;
  bool mapped = true;
  std::size_t allocations = 0;
  CUdeviceptr end = address;  // of the memory that follows without a gap
  for (; next != memory.end() && next->first < address + bytes; ++next) {
    const auto& [first, allocation] = *next;
    if (first + allocation.bytes <= address) continue;
    const bool ofCpu = device().registered.count(reinterpret_cast<void*>(first)) != 0;
    (ofCpu ? registered : other) = true;
    mapped = mapped && allocation.mapped();
    ++allocations;
    if (first <= end) end = first + allocation.bytes;
  }
  if (registered && other) return false;
  return allocations == 0 || (end >= address + bytes && (allocations == 1 || mapped));
}

std::byte* bytesAt(CUdeviceptr address) {
  std::byte* const backing = backingOf(address);
  return backing != nullptr ? backing : reinterpret_cast<std::byte*>(address);
}

CUdeviceptr reserveAddresses(std::size_t bytes) {
  auto* const raw = static_cast<std::byte*>(
      mmap(nullptr, bytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (raw == MAP_FAILED) return 0;
  const std::size_t skip = (kPage - number(raw) % kPage) % kPage;
  if (skip != 0) munmap(raw, skip);
  if (skip != kPage) munmap(raw + skip + bytes, kPage - skip);
  if (std::exchange(device().occupyNext, false)) mprotect(raw + skip, 4096, PROT_READ);
  return number(raw + skip);
}

bool mappedWithin(CUdeviceptr address, std::size_t bytes) {
  const auto after = device().memory.lower_bound(address);
  if (after != device().memory.end() && after->first < address + bytes) return true;
  if (after == device().memory.begin()) return false;
  const auto& [start, allocation] = *std::prev(after);
  return start + allocation.bytes > address;
}

namespace {

// Fresh memory holds anything; all of it where that is cheap.
std::byte* freshMemory(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::memset(memory, 0xA5, std::min<std::size_t>(bytes, 16 << 20));
  return static_cast<std::byte*>(memory);
}

}  // namespace

CUresult allocate(CUdeviceptr* address, std::size_t bytes) {
  bytes = (bytes + kPage - 1) / kPage * kPage;
  const CUcontext context = currentContext();
  std::size_t& used = usedOn(context->device);
  const unsigned access = bitOf(context->device);
  if (bytes == 0 || bytes > kMemory - used) return CUDA_ERROR_OUT_OF_MEMORY;
  auto& again = device().again;
  if (!again.empty() && device().memory.count(again.front()) == 0) {
    *address = again.front();
    again.pop_front();
    auto* const backing = static_cast<std::byte*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (backing == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    device().memory[*address] = {bytes, backing, access, context, context->device};
    used += bytes;
    return CUDA_SUCCESS;
  }
  const CUdeviceptr range = reserveAddresses(bytes);
  std::byte* const backing = freshMemory(bytes);
  if (range == 0 || backing == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  device().memory[range] = {bytes, backing, access, context, context->device};
  used += bytes;
  *address = range;
  return CUDA_SUCCESS;
}

CUresult release(CUdeviceptr address) {
  const auto found = device().memory.find(address);
  if (found == device().memory.end() || found->second.mapped()) return CUDA_ERROR_INVALID_VALUE;
  void* const range = reinterpret_cast<void*>(address);
  const auto& again = device().again;
  if (std::find(again.begin(), again.end(), address) == again.end()) {
    munmap(range, found->second.bytes);
  } else {
    (void)mmap(range, found->second.bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
  if (found->second.file >= 0) {
    // An importer holds a lock: what it would read after this is undefined.
    if (!found->second.imported && flock(found->second.file, LOCK_EX | LOCK_NB) != 0) {
      std::fprintf(stderr, "FAILED: memory is freed that another process has imported\n");
      std::abort();
    }
    close(found->second.file);
  }
  munmap(found->second.backing, found->second.bytes);
  usedOn(found->second.device) -= found->second.bytes;
  device().memory.erase(found);
  return CUDA_SUCCESS;
}

}  // namespace gmac::fake_cuda

using namespace gmac::fake_cuda;  // NOLINT: the driver's functions live in no namespace

namespace {

// Memory for other processes is a file from now on. The handle is where they find it.
struct IpcHandle {
  std::size_t bytes;
  int process;
  int file;
};
static_assert(sizeof(IpcHandle) <= sizeof(CUipcMemHandle));

// All but pages of zeros, which the file has already.
bool copyToFile(int file, const Allocation& allocation) {
  constexpr std::size_t kPart = 4096;
  static constexpr std::byte kZeros[kPart] = {};
  for (std::size_t at = 0; at < allocation.bytes; at += kPart) {
    if (std::memcmp(allocation.backing + at, kZeros, kPart) != 0 &&
        pwrite(file, allocation.backing + at, kPart, static_cast<off_t>(at)) != kPart) {
      return false;
    }
  }
  return true;
}

// Where the process's mapping that holds an address ends, and whether other mappings may share it.
std::pair<std::uintptr_t, bool> mappingAt(std::uintptr_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, access) == 3 && address >= begin &&
        address < end) {
      return {end, access[3] == 's'};
    }
  }
  return {address, false};
}

// The CPU's pages at reserved addresses where nothing is mapped: the device reaches them there, and
// work reaches them through the window, which becomes a second mapping of them. (Of private ones
// after the first it cannot be: work finds other pages there.)
CUresult mapRegistered(void* address, std::size_t bytes) {
  auto range = device().reserved.upper_bound(number(address));
  if (range == device().reserved.begin()) return CUDA_SUCCESS;
  --range;
  const std::size_t offset = number(address) - range->first;
  if (offset + bytes > range->second.bytes) return CUDA_SUCCESS;
  std::byte* const window = range->second.window + offset;
  for (std::size_t done = 0; done < bytes;) {
    std::byte* const page = static_cast<std::byte*>(address) + done;
    const auto [end, shared] = mappingAt(number(page));
    const std::size_t length = std::min<std::size_t>(end - number(page), bytes - done);
    void* const there = window + done;
    if (length == 0 || (!shared && done == 0) ||
        (shared ? mremap(page, 0, length, MREMAP_MAYMOVE | MREMAP_FIXED, there)
                : mmap(there, length, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)) != there) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    done += length;
  }
  device().memory[number(address)] = {bytes, window, ~0U, nullptr, -1};
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  FAKE_CALL();
  return allocate(address, bytes);
}
CUresult cuMemGetInfo(std::size_t* available, std::size_t* total) {
  FAKE_CALL();
  *available = kMemory - usedOn(currentDevice());
  *total = kMemory;
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr address) {
  FAKE_CALL();
  if (device().managed.erase(address) != 0) {
    ::operator delete (reinterpret_cast<void*>(address), std::align_val_t{4096});
    return CUDA_SUCCESS;
  }
  return release(address);
}
CUresult cuMemHostAlloc(void** address, std::size_t bytes, unsigned) {
  FAKE_CALL();
  *address = ::operator new (bytes, std::align_val_t{4096});
  device().given[*address] = currentContext();
  return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* address) {
  {
    const std::lock_guard lock(device().mutex);
    if (device().given.erase(address) == 0) return CUDA_ERROR_INVALID_VALUE;
  }
  ::operator delete (address, std::align_val_t{4096});  // gone with a lost device as well
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  FAKE_CALL();
  // Of the whole allocation, wherever in it the address lies.
  auto found = device().memory.upper_bound(address);
  if (found == device().memory.begin()) return CUDA_ERROR_INVALID_VALUE;
  --found;
  if (address - found->first >= found->second.bytes || found->second.mapped()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Allocation& allocation = found->second;
  if (allocation.file < 0) {
    const int file = memfd_create("exported", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(allocation.bytes)) != 0 ||
        !copyToFile(file, allocation) ||
        mmap(allocation.backing, allocation.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             file, 0) == MAP_FAILED) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation.file = file;
  }
  const IpcHandle made{allocation.bytes, getpid(), allocation.file};
  std::memcpy(handle, &made, sizeof made);
  return CUDA_SUCCESS;
}
CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  FAKE_CALL();
  IpcHandle given;
  std::memcpy(&given, &handle, sizeof given);
  // A process does not import its own.
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || given.process == getpid()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::string path =
      "/proc/" + std::to_string(given.process) + "/fd/" + std::to_string(given.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  const CUdeviceptr range = reserveAddresses(given.bytes);
  void* const backing = mmap(nullptr, given.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || range == 0 || backing == MAP_FAILED || flock(file, LOCK_SH | LOCK_NB) != 0) {
    close(file);
    return CUDA_ERROR_MAP_FAILED;
  }
  const CUcontext context = currentContext();
  Allocation& made = device().memory[range] = {given.bytes, static_cast<std::byte*>(backing),
                                               bitOf(context->device), context, context->device};
  made.file = file;
  made.imported = true;
  usedOn(context->device) += given.bytes;
  *address = range;
  return CUDA_SUCCESS;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  FAKE_CALL();
  return release(address);
}
CUresult cuMemHostRegister(void* address, std::size_t bytes, unsigned flags) {
  FAKE_CALL();
  if (mappedWithin(number(address), bytes)) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_MEMHOSTREGISTER_DEVICEMAP) != 0) {
    if (const CUresult mapped = mapRegistered(address, bytes); mapped != CUDA_SUCCESS) {
      return mapped;
    }
  }
  if (!device().registered.emplace(address, currentContext()).second) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  if ((flags & CU_MEMHOSTREGISTER_PORTABLE) == 0) {
    device().reached[number(address)] = {bytes, currentDevice()};
  }
  return CUDA_SUCCESS;
}
CUresult cuMemHostUnregister(void* address) {
  FAKE_CALL();
  if (device().registered.erase(address) == 0) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  device().reached.erase(number(address));
  if (const auto found = device().memory.find(number(address)); found != device().memory.end()) {
    (void)mmap(found->second.backing, found->second.bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    device().memory.erase(found);
  }
  return CUDA_SUCCESS;
}
CUresult cuMemHostGetDevicePointer(CUdeviceptr* reached, void* address, unsigned) {
  FAKE_CALL();
  if (device().registered.count(address) == 0) return CUDA_ERROR_INVALID_VALUE;
  *reached = number(address);
  return CUDA_SUCCESS;
}

#pragma GCC visibility pop
}
