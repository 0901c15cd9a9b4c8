// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/pinned_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "gmac/accel/host/mapping.h"
#include "gmac/accel/host/messages.h"
#include "gmac/base/descriptor.h"
#include "gmac/base/round_up.h"

namespace gmac::accel::host {

Status PinnedMemory::pin(const HostMemory& memory) {
  GMAC_TRY(link_.usable());
  const auto address = reinterpret_cast<std::uintptr_t>(memory.address);
  if (memory.fd < 0) {
    return fail(adsmErrorNotSupported,
                "the host accelerator cannot reach {} bytes of anonymous memory at {:#x}: only "
                "memory files",
                memory.bytes, address);
  }
  if (memory.bytes == 0 || memory.bytes % pageBytes() != 0 || address % pageBytes() != 0 ||
      memory.offset < 0 || static_cast<std::size_t>(memory.offset) % pageBytes() != 0) {
    return fail(adsmErrorInvalidValue,
                "pin of {} bytes at {:#x}, offset {}: not multiples of the page size {}",
                memory.bytes, address, memory.offset, pageBytes());
  }
  struct stat file {};
  if (fstat(memory.fd, &file) != 0) {
    return fail(adsmErrorInvalidValue, "fstat({}) of the memory file behind {:#x}: {}", memory.fd,
                address, std::strerror(errno));
  }
  const FileKey key{file.st_dev, file.st_ino};
  // The device process keeps the file open while a pin names it, so nothing else can get its
  // inode's number.
  std::lock_guard lock(mutex_);
  auto known = files_.find(key);
  const bool isNew = known == files_.end();
  Request request = requestFor(RequestKind::kPin, address, memory.bytes);
  request.file = isNew ? nextFile_ : known->second.number;
  request.offset = memory.offset;
  request.onlyPinOfFile = isNew ? 1 : 0;
  GMAC_TRY(link_.ask(request, isNew ? memory.fd : -1).status());
  if (isNew) {
    known = files_.emplace(key, PinnedFile{nextFile_++, 0}).first;
  }
  ++known->second.pins;
  pins_.emplace(address, Pin{memory.bytes, key});
  return Status();
}

Status PinnedMemory::unpin(const HostMemory& memory) {
  GMAC_TRY(link_.usable());
  const auto address = reinterpret_cast<std::uintptr_t>(memory.address);
  std::lock_guard lock(mutex_);
  const auto pin = pins_.find(address);
  if (pin == pins_.end() || pin->second.bytes != memory.bytes) {
    return fail(adsmErrorInvalidValue, "no {} bytes of pinned memory start at {:#x}", memory.bytes,
                address);
  }
  const auto file = files_.find(pin->second.file);
  Request request = requestFor(RequestKind::kUnpin, address, memory.bytes);
  request.file = file->second.number;
  request.onlyPinOfFile = file->second.pins == 1 ? 1 : 0;
  GMAC_TRY(link_.ask(request).status());
  if (--file->second.pins == 0) {
    files_.erase(file);
  }
  pins_.erase(pin);
  return Status();
}

Result<void*> PinnedMemory::allocate(std::size_t bytes) {
  bytes = roundUp(bytes, pageBytes());
  // Looked at first: a file that exceeds it would also bring a signal.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    return fail(adsmErrorHostMemory,
                "{} bytes of pinned memory are more than the limit of file sizes (RLIMIT_FSIZE, "
                "ulimit -f), {} bytes",
                bytes, limit.rlim_cur);
  }
  // The device process keeps the file open; here the mapping does.
  const Descriptor file(memfd_create("gmac pinned", MFD_CLOEXEC));
  Mapping memory;
  if (file && ftruncate(file.get(), static_cast<off_t>(bytes)) == 0) {
    memory = map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get());
  }
  if (!memory || madvise(memory.address(), bytes, MADV_DONTFORK) != 0) {
    return fail(adsmErrorHostMemory,
                "the host accelerator cannot map {} bytes of pinned memory: {}", bytes,
                std::strerror(errno));
  }
  GMAC_TRY(pin({memory.address(), bytes, file.get(), 0}));
  void* const address = memory.address();
  memory.forget();
  return address;
}

void PinnedMemory::free(void* address, std::size_t bytes) noexcept {
  bytes = roundUp(bytes, pageBytes());
  (void)unpin({address, bytes, -1, 0});
  munmap(address, bytes);
}

}  // namespace gmac::accel::host
