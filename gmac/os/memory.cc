// SPDX-License-Identifier: Apache-2.0
#include "gmac/os/memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

#include "gmac/base/own_mappings.h"
#include "gmac/base/round_up.h"
#include "gmac/os/signal_mask.h"

namespace gmac::os {
namespace {

std::atomic<int> injectionCountdown{0};
std::atomic<Call> injectionCall{Call::kMap};
std::atomic<int> injectionError{0};

// Whether an injection armed by a test makes this call fail; then sets errno.
bool injected(Call call) noexcept {
  if (injectionCountdown.load(std::memory_order_relaxed) == 0) [[likely]] {
    return false;
  }
  if (injectionCall.load() != call || injectionCountdown.fetch_sub(1) != 1) {
    return false;
  }
  errno = injectionError.load();
  return true;
}

// strerror that neither allocates nor shares a buffer.
const char* errorText(int error) noexcept {
  const char* text = strerrordesc_np(error);
  return text != nullptr ? text : "unknown error";
}

int flagsOf(Access access) noexcept {
  switch (access) {
    case Access::kNone:
      return PROT_NONE;
    case Access::kRead:
      return PROT_READ;
    case Access::kReadWrite:
      return PROT_READ | PROT_WRITE;
  }
  __builtin_unreachable();
}

// mprotect past libc's functions, which interpose/ and sanitizers replace: this is the fault path.
// 0 or a negative error.
long systemProtect(void* address, std::size_t bytes, long flags) noexcept {
  long result = SYS_mprotect;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(address), "S"(bytes), "d"(flags)
               : "rcx", "r11", "memory");
  return result;
}

Status failed(const char* call, const void* address, std::size_t bytes) noexcept {
  const int error = errno;
  const adsmError_t code = error == ENOMEM ? adsmErrorHostMemory : adsmErrorSystem;
  return fail(code, "{}({}, {} bytes): {}", call, shown(address), bytes, errorText(error));
}

}  // namespace

void failNext(Call call, int n, int error) noexcept {
  injectionCountdown = 0;
  injectionCall = call;
  injectionError = error;
  injectionCountdown = n;
}

bool injectionArmed() noexcept { return injectionCountdown > 0; }

std::size_t pageBytes() noexcept {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

Result<void*> reserve(std::size_t bytes, std::size_t alignment) {
  const std::size_t extra = alignment > pageBytes() ? alignment : 0;
  void* raw = injected(Call::kMap) ? MAP_FAILED
                                   : mmap(nullptr, bytes + extra, PROT_NONE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    return failed("mmap of address space", nullptr, bytes + extra);
  }
  if (extra == 0) {
    return raw;
  }
  auto* begin = static_cast<std::byte*>(raw);
  auto* aligned =
      reinterpret_cast<std::byte*>(roundUp(reinterpret_cast<std::uintptr_t>(begin), alignment));
  const auto before = static_cast<std::size_t>(aligned - begin);
  if (before > 0) {
    munmap(begin, before);
  }
  if (extra > before) {
    munmap(aligned + bytes, extra - before);
  }
  return static_cast<void*>(aligned);
}

Status close(void* address, std::size_t bytes) {
  const own_mappings::Change own;
  if (injected(Call::kMap) ||
      mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
           0) == MAP_FAILED) {
    return failed("mmap without access", address, bytes);
  }
  return {};
}

Status unmap(void* address, std::size_t bytes) {
  const own_mappings::Change own;
  if (munmap(address, bytes) != 0) {
    return failed("munmap", address, bytes);
  }
  return {};
}

Status mapAnonymous(void* address, std::size_t bytes) {
  const own_mappings::Change own;
  if (injected(Call::kMap) || mmap(address, bytes, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
    return failed("mmap of anonymous memory", address, bytes);
  }
  // Kernels without huge pages refuse this advice; ordinary pages work as well.
  (void)madvise(address, bytes, MADV_HUGEPAGE);
  return {};
}

Result<void*> mapFile(void* address, std::size_t bytes, int fd, std::int64_t offset,
                      Access access) {
  const own_mappings::Change own;
  void* mapped = injected(Call::kMap)
                     ? MAP_FAILED
                     : mmap(address, bytes, flagsOf(access),
                            MAP_SHARED | (address != nullptr ? MAP_FIXED : 0), fd, offset);
  if (mapped == MAP_FAILED) {
    return failed("mmap of the memory file", address, bytes);
  }
  return mapped;
}

Status protect(void* address, std::size_t bytes, Access access) {
  const auto change = [&](std::size_t length) {
    const long result = systemProtect(address, length, flagsOf(access));
    if (result < 0) {
      errno = static_cast<int>(-result);
    }
    return result == 0;
  };
  if (injected(Call::kProtectLate)) {
    const int error = errno;
    (void)change(pageBytes());
    errno = error;
    return failed("mprotect", address, bytes);
  }
  return injected(Call::kProtect) || !change(bytes) ? failed("mprotect", address, bytes) : Status();
}

Status movePages(void* from, void* to, std::size_t bytes) {
  const own_mappings::Change own;
  if (injected(Call::kMove) ||
      mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) ==
          MAP_FAILED) {
    return failed("mremap", from, bytes);
  }
  return {};
}

Status keepFromChildren(void* address, std::size_t bytes) {
  const own_mappings::Change own;
  if (injected(Call::kAdvise) || madvise(address, bytes, MADV_DONTFORK) != 0) {
    return failed("madvise(MADV_DONTFORK)", address, bytes);
  }
  return {};
}

Status keepFromDumps(void* address, std::size_t bytes) {
  const own_mappings::Change own;
  if (injected(Call::kAdvise) || madvise(address, bytes, MADV_DONTDUMP) != 0) {
    return failed("madvise(MADV_DONTDUMP)", address, bytes);
  }
  return {};
}

Result<Descriptor> makeMemoryFile(const char* name) {
  Descriptor file(injected(Call::kFile) ? -1 : memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) {
    return failed("memfd_create", nullptr, 0);
  }
  return file;
}

Status keepFromShrinking(int fd) {
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return failed("fcntl(F_ADD_SEALS)", nullptr, 0);
  }
  return {};
}

Status resizeFile(int fd, std::int64_t bytes) {
  const FileSizeSignalKept kept;
  if (injected(Call::kFile) || ftruncate(fd, bytes) != 0) {
    if (errno == EFBIG) {
      rlimit limit{};
      (void)getrlimit(RLIMIT_FSIZE, &limit);
      return fail(adsmErrorHostMemory,
                  "the memory file cannot grow to {} bytes: the limit of file sizes "
                  "(RLIMIT_FSIZE, ulimit -f) is {} bytes",
                  bytes, limit.rlim_cur);
    }
    return failed("ftruncate of the memory file", nullptr, static_cast<std::size_t>(bytes));
  }
  return {};
}

Status punchHole(int fd, std::int64_t offset, std::int64_t bytes) {
  if (injected(Call::kFile) ||
      fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes) != 0) {
    return failed("fallocate(FALLOC_FL_PUNCH_HOLE)", nullptr, static_cast<std::size_t>(bytes));
  }
  return {};
}

}  // namespace gmac::os
