// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/device_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "gmac/accel/host/mapping.h"
#include "gmac/accel/host/messages.h"
#include "gmac/base/log.h"
#include "gmac/base/memory_limit.h"

namespace gmac::accel::host {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

}  // namespace

Status DeviceMemory::roomFor(std::size_t bytes, Home home) {
  if (home == Home::kDevice) {
    return bytes <= memoryBytes_ - usedBytes_
               ? Status()
               : fail(adsmErrorAcceleratorMemory,
                      "the host accelerator has no {} bytes left: {} of its {} bytes are free",
                      bytes, memoryBytes_ - usedBytes_, memoryBytes_);
  }
  // Its pages are taken as they are touched: what was promised counts, too.
  const std::size_t spare = spareMemory();
  return cpuBytes_ <= spare && bytes <= spare - cpuBytes_
             ? Status()
             : fail(
                   adsmErrorHostMemory,
                   "{} bytes of the CPU's memory for the accelerator: {} can be spared, {} of them "
                   "are taken",
                   bytes, spare, cpuBytes_);
}

Result<DeviceAddress> DeviceMemory::allocate(std::size_t bytes, std::size_t alignment,
                                             Placement placement, Home home) {
  GMAC_TRY(link_.usable());
  if (bytes == 0 || bytes % pageBytes() != 0) {
    return fail(adsmErrorInvalidValue,
                "{} bytes of accelerator memory: not a multiple of the page size {}", bytes,
                pageBytes());
  }
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    return fail(adsmErrorInvalidValue, "alignment {} of accelerator memory: not a power of two",
                alignment);
  }
  alignment = std::max(alignment, bytes >= kHugePageBytes ? kHugePageBytes : pageBytes());
  {
    const std::lock_guard lock(mutex_);
    GMAC_TRY(roomFor(bytes, home));
  }
  const auto address = windows_.take(bytes, alignment, placement);
  if (!address) {
    return fail(placement == Placement::kSameAddress ? adsmErrorAddressConflict
                                                     : adsmErrorAcceleratorMemory,
                "the host accelerator has no {} free addresses in a row for one allocation: the "
                "longest free range has {} bytes",
                bytes, windows_.largest(placement));
  }
  const Status mapped = mapAt(*address, Allocation{bytes, placement, home});
  if (!mapped.ok()) {
    windows_.giveBack(*address, bytes, placement);
    return mapped;
  }
  return DeviceAddress{*address};
}

Result<int> DeviceMemory::fileUpTo(std::int64_t end) {
  if (!file_) {
    // A mapping of a file that its owner can shorten may end the process that reads it.
    Descriptor file(memfd_create("gmac accelerator", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file || fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
      return fail(adsmErrorSystem, "a file for accelerator memory: {}", std::strerror(errno));
    }
    file_ = std::move(file);
  }
  const Result<int> file = file_.use("the file of accelerator memory");
  GMAC_TRY(file.status());
  // Looked at first: a file that exceeds it would also bring a signal.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(end)) {
    return fail(adsmErrorSystem,
                "a file of {} bytes for accelerator memory is more than the limit of file sizes "
                "(RLIMIT_FSIZE, ulimit -f), {} bytes",
                end, limit.rlim_cur);
  }
  if (fileBytes_ < end) {
    if (ftruncate(*file, end) != 0) {
      return fail(adsmErrorSystem, "{} bytes of a file for accelerator memory: {}", end,
                  std::strerror(errno));
    }
    fileBytes_ = end;
  }
  return *file;
}

Status DeviceMemory::mapAt(std::uintptr_t address, Allocation allocation) {
  Request request = requestFor(RequestKind::kAllocate, address, allocation.bytes);
  int fd = -1;
  {
    const std::lock_guard lock(mutex_);
    GMAC_TRY(roomFor(allocation.bytes, allocation.home));
    if (sharesMemory() && !ofGroup_ && !fileRefused_) {
      request.offset = windows_.offsetOf(address, allocation.placement);
      const Result<int> file =
          fileUpTo(request.offset + static_cast<std::int64_t>(allocation.bytes));
      if (file.ok()) {
        fd = *file;
        request.file = static_cast<std::uint32_t>(Backing::kFile);
        allocation.number = ++numbers_;
      } else {
        fileRefused_ = true;
        log(LogLevel::kInfo, "other processes cannot be given memory of the host accelerator: {}",
            lastErrorText());
      }
    }
    usedIn(allocation.home) += allocation.bytes;
  }
  const Status mapped = link_.ask(request, fd).status();
  const std::lock_guard lock(mutex_);
  if (mapped.ok()) {
    allocations_.emplace(address, allocation);
  } else {
    usedIn(allocation.home) -= allocation.bytes;
  }
  return mapped;
}

Status DeviceMemory::allocateAt(DeviceAddress address, std::size_t bytes, Placement placement) {
  GMAC_TRY(link_.usable());
  return mapAt(static_cast<std::uintptr_t>(address), Allocation{bytes, placement, Home::kDevice});
}

Status DeviceMemory::free(DeviceAddress address, std::size_t bytes, bool withItsAddress) {
  GMAC_TRY(link_.usable());
  const auto number = static_cast<std::uintptr_t>(address);
  Allocation allocation{};
  {
    std::lock_guard lock(mutex_);
    const auto found = allocations_.find(number);
    if (found == allocations_.end() || found->second.bytes != bytes) {
      return fail(adsmErrorInvalidValue,
                  "no {} bytes of the host accelerator's memory start at {:#x}", bytes, number);
    }
    allocation = found->second;
    allocations_.erase(found);
  }
  if (allocation.handedOut) {
    sharedMemoryEnds(allocation.number);
  }
  Request request = requestFor(RequestKind::kFree, number, bytes);
  request.file =
      static_cast<std::uint32_t>(allocation.number != 0 ? Backing::kFile : Backing::kAnonymous);
  const Status unmapped = link_.ask(request).status();
  {
    const std::lock_guard lock(mutex_);
    if (!unmapped.ok()) {
      allocations_.emplace(number, allocation);
      return unmapped;
    }
    usedIn(allocation.home) -= bytes;
  }
  // The pages are freed, and read as zero for the next allocation there.
  if (allocation.number != 0 &&
      fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                windows_.offsetOf(number, allocation.placement), static_cast<off_t>(bytes)) != 0) {
    return fail(adsmErrorSystem, "{} bytes of the host accelerator's memory are not freed: {}",
                bytes, std::strerror(errno));
  }
  if (withItsAddress) {
    windows_.giveBack(number, bytes, allocation.placement);
  }
  return Status();
}

Status DeviceMemory::move(DeviceAddress address, std::size_t bytes, Home home) {
  GMAC_TRY(link_.usable());
  if (home == Home::kMirror) {
    return fail(adsmErrorNotSupported, "the device process does not reach the CPU's own pages");
  }
  std::lock_guard lock(mutex_);
  const auto found = allocations_.find(static_cast<std::uintptr_t>(address));
  if (found == allocations_.end() || found->second.bytes != bytes) {
    return fail(adsmErrorInvalidValue,
                "no {} bytes of the host accelerator's memory start at {:#x}", bytes,
                static_cast<std::uintptr_t>(address));
  }
  Home& now = found->second.home;
  if (now != home) {
    GMAC_TRY(roomFor(bytes, home));
    usedIn(now) -= bytes;
    usedIn(home) += bytes;
    now = home;
  }
  return {};
}

Result<SharedAllocation> DeviceMemory::sharedAllocation(DeviceAddress address) {
  const auto number = static_cast<std::uintptr_t>(address);
  const std::lock_guard lock(mutex_);
  auto found = allocations_.upper_bound(number);
  if (found == allocations_.begin() || number - (--found)->first >= found->second.bytes ||
      found->second.number == 0) {
    return fail(adsmErrorNotSupported, "the memory at {:#x} of the host accelerator has no file",
                number);
  }
  return SharedAllocation{DeviceAddress{found->first}, found->second.bytes, found->second.number};
}

Result<std::vector<MemoryFile>> DeviceMemory::filesOf(const SharedAllocation& allocation) {
  GMAC_TRY(link_.usable());
  const auto start = static_cast<std::uintptr_t>(allocation.start);
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(start);
  if (found == allocations_.end() || found->second.number == 0 ||
      found->second.number != allocation.number) {
    return fail(adsmErrorInvalidValue, "memory at {:#x} of the host accelerator is freed", start);
  }
  const Result<int> own = file_.use("the file of accelerator memory");
  GMAC_TRY(own.status());
  const int file = fcntl(*own, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (file < 0) {
    return fail(adsmErrorSystem, "a descriptor of accelerator memory: {}", std::strerror(errno));
  }
  found->second.handedOut = true;
  return std::vector<MemoryFile>{
      {file, windows_.offsetOf(start, found->second.placement), found->second.bytes}};
}

Result<DeviceAddress> DeviceMemory::importFiles(std::span<const MemoryFile> files) {
  GMAC_TRY(link_.usable());
  const auto refused = [](const char* why) {
    return fail(adsmErrorInvalidValue,
                "these files are no memory of another process's host accelerator: {}", why);
  };
  if (files.size() != 1) {
    return refused("it has one");
  }
  const MemoryFile& from = files.front();
  struct stat status {};
  const int seals = fcntl(from.file, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(from.file, &status) != 0 ||
      from.offset < 0 || from.bytes == 0 || from.bytes % pageBytes() != 0 ||
      static_cast<std::size_t>(from.offset) % pageBytes() != 0 || from.offset > status.st_size ||
      from.bytes > static_cast<std::size_t>(status.st_size - from.offset)) {
    return refused("it is no file of so many bytes that cannot shrink");
  }
  const auto address = windows_.take(from.bytes, pageBytes(), Placement::kAnywhere);
  if (!address) {
    return fail(adsmErrorAcceleratorMemory,
                "the host accelerator has no {} free addresses for another process's memory",
                from.bytes);
  }
  Request request = requestFor(RequestKind::kAllocate, *address, from.bytes);
  request.file = static_cast<std::uint32_t>(Backing::kReadOnly);
  request.offset = from.offset;
  if (const Status mapped = link_.ask(request, from.file).status(); !mapped.ok()) {
    windows_.giveBack(*address, from.bytes, Placement::kAnywhere);
    return mapped;
  }
  const std::lock_guard lock(mutex_);
  imports_.emplace(*address, from.bytes);
  anyImports_.store(true, std::memory_order_release);
  return DeviceAddress{*address};
}

Status DeviceMemory::releaseImport(DeviceAddress address) {
  GMAC_TRY(link_.usable());
  const auto number = static_cast<std::uintptr_t>(address);
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = imports_.find(number);
    if (found == imports_.end()) {
      return fail(adsmErrorInvalidValue, "the host accelerator has imported nothing at {:#x}",
                  number);
    }
    bytes = found->second;
  }
  Request request = requestFor(RequestKind::kFree, number, bytes);
  request.file = static_cast<std::uint32_t>(Backing::kReadOnly);
  GMAC_TRY(link_.ask(request).status());
  {
    const std::lock_guard lock(mutex_);
    imports_.erase(number);
  }
  windows_.giveBack(number, bytes, Placement::kAnywhere);
  return {};
}

Memory DeviceMemory::memoryOf(const void* address) const noexcept {
  if (!anyImports_.load(std::memory_order_acquire)) {
    return Memory::kPageable;
  }
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(mutex_);
  auto found = imports_.upper_bound(number);
  return found != imports_.begin() && number - (--found)->first < found->second ? Memory::kDevice
                                                                                : Memory::kPageable;
}

Result<MemoryRoom> DeviceMemory::memoryRoom() {
  GMAC_TRY(link_.usable());
  std::lock_guard lock(mutex_);
  return MemoryRoom{memoryBytes_, memoryBytes_ - usedBytes_};
}

}  // namespace gmac::accel::host
