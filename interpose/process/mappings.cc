// SPDX-License-Identifier: Apache-2.0
//
// Calls that would replace, move or remove the pages of shared objects: munmap, mremap, mmap with
// MAP_FIXED, shmat with SHM_REMAP, remap_file_pages and mseal. These stand in for libc's functions
// in a program that is linked with the library or preloads it. The pages of an object, and the
// addresses that are reserved for further ones, are the runtime's. A program that changed them
// would lose bytes, or meet the runtime's own mappings in place of its own. So such a call is
// refused, as for memory that is sealed (mseal), and changes nothing. Calls that involve nothing of
// the runtime's go to the real function at once.
#include <dlfcn.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include <cstdarg>
#include <cstring>

#include "gmac/base/cancellation.h"
#include "interpose/base/real.h"
#include "interpose/base/served_call.h"
#include "interpose/base/system_call.h"
#include "interpose/process/pages.h"

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

namespace gmac::interpose {
namespace {

constinit EarlyReal<SYS_mmap, void*(void*, size_t, int, int, int, off_t)> realMmap("mmap");
constinit EarlyReal<SYS_munmap, int(void*, size_t)> realMunmap("munmap");
constinit EarlyReal<SYS_mremap, void*(void*, size_t, size_t, int, void*)> realMremap("mremap");
constinit Real<void*(int, const void*, int)> realShmat("shmat");
constinit Real<int(void*, size_t, int, size_t, int)> realRemapFilePages("remap_file_pages");

// The calls whose refusal is told in a line, each once.
enum Refused : unsigned {
  kMunmap = 1,
  kMremap = 2,
  kMmap = 4,
  kShmat = 8,
  kRemap = 16,
  kSeal = 32
};

void tellRefusal(Refused which, const char* call, const Pages& pages, const char* error) noexcept {
  static constinit std::atomic<unsigned> said{0};
  if ((said.fetch_or(which) & which) != 0) return;
  log(LogLevel::kError,
      "{} of {} bytes at {} fails with {}: {} there, whose pages are gmac's; adsmFree gives an "
      "object back (this is said once)",
      call, pages.bytes, static_cast<const void*>(pages.begin), error,
      meetsObjects(pages) ? "shared objects are" : "addresses for shared objects are reserved");
}

bool refused(Refused which, const char* call, const Pages& pages, const void* caller) noexcept {
  if (!meetsOurs(pages) || inDriver(caller)) [[likely]]
    return false;
  uncancelled([&]() noexcept { tellRefusal(which, call, pages, "EPERM"); });
  errno = EPERM;
  return true;
}

// (With MAP_FIXED_NOREPLACE the kernel itself refuses pages that are mapped.)
bool replaces(int flags) noexcept {
  return (flags & MAP_FIXED) != 0 && (flags & MAP_FIXED_NOREPLACE) != MAP_FIXED_NOREPLACE;
}

bool refusesMap(const void* address, std::size_t bytes, int flags, const void* caller) noexcept {
  return replaces(flags) && refused(kMmap, "mmap with MAP_FIXED", pagesOf(address, bytes), caller);
}

// Whether mremap() asks for nothing: the address is its result.
bool asksForNothing(const void* from, std::size_t bytes, std::size_t newBytes, int flags) noexcept {
  const Pages pages = pagesOf(from, bytes);
  return pages.bytes == pagesOf(from, newBytes).bytes && (flags & ~MREMAP_MAYMOVE) == 0 &&
         meetsObjects(pages);
}

bool refusesRemap(const void* from, std::size_t bytes, std::size_t newBytes, int flags,
                  const void* to, const void* caller) noexcept {
  // Without a length, shared pages get a second mapping.
  return refused(kMremap, "mremap", pagesOf(from, std::max(bytes, std::size_t{1})), caller) ||
         ((flags & MREMAP_FIXED) != 0 && refused(kMremap, "mremap", pagesOf(to, newBytes), caller));
}

bool refusesAttach(int segment, const void* address, int flags, const void* caller) noexcept {
  if ((flags & SHM_REMAP) == 0 || address == nullptr) return false;
  auto begin = reinterpret_cast<std::uintptr_t>(address);
  if ((flags & SHM_RND) != 0) begin -= begin % SHMLBA;
  shmid_ds known{};
  const int errnoBefore = errno;
  // A segment that does not tell its length is one whose attachment fails, too, as a rule.
  const std::size_t bytes = ::shmctl(segment, IPC_STAT, &known) == 0 ? known.shm_segsz : 1;
  errno = errnoBefore;
  return refused(kShmat, "shmat with SHM_REMAP",
                 pagesOf(reinterpret_cast<const void*>(begin), bytes), caller);
}

// ---- By number. Other libraries that stand in for these functions make their calls so.

long mapByNumber(long number, const Words& words) {
  const bool refuses = refusesMap(wordAs<void*>(words[0]), wordAs<std::size_t>(words[1]),
                                  wordAs<int>(words[3]), nullptr);
  return refuses ? -1 : systemCall(number, words);
}

long remapByNumber(long number, const Words& words) {
  auto* const from = wordAs<void*>(words[0]);
  const auto bytes = wordAs<std::size_t>(words[1]);
  const auto newBytes = wordAs<std::size_t>(words[2]);
  const auto flags = wordAs<int>(words[3]);
  if (asksForNothing(from, bytes, newBytes, flags)) return words[0];
  const bool refuses = refusesRemap(from, bytes, newBytes, flags, wordAs<void*>(words[4]), nullptr);
  return refuses ? -1 : systemCall(number, words);
}

long attachByNumber(long number, const Words& words) {
  const bool refuses =
      refusesAttach(wordAs<int>(words[0]), wordAs<void*>(words[1]), wordAs<int>(words[2]), nullptr);
  return refuses ? -1 : systemCall(number, words);
}

// Calls whose first words are a range.
template <Refused kWhich, FunctionName kName>
long rangeByNumber(long number, const Words& words) {
  const Pages pages = pagesOf(wordAs<void*>(words[0]), wordAs<std::size_t>(words[1]));
  return refused(kWhich, kName.text, pages, nullptr) ? -1 : systemCall(number, words);
}

[[gnu::constructor]] void resolveMappings() {
  realMmap.resolve();
  realMunmap.resolve();
  realMremap.resolve();
  resolveAtLoad(realShmat, realRemapFilePages);
  systemCallServers[SYS_mmap] = &mapByNumber;
  systemCallServers[SYS_mremap] = &remapByNumber;
  systemCallServers[SYS_shmat] = &attachByNumber;
  systemCallServers[SYS_munmap] = &rangeByNumber<kMunmap, "munmap">;
  systemCallServers[SYS_remap_file_pages] = &rangeByNumber<kRemap, "remap_file_pages">;
  systemCallServers[SYS_mseal] = &rangeByNumber<kSeal, "mseal">;
}

}  // namespace

bool inDriver(const void* code) noexcept {
  if (code == nullptr) return false;
  return uncancelled([&]() noexcept {
    Dl_info found{};
    if (::dladdr(code, &found) == 0 || found.dli_fname == nullptr) return false;
    const char* const slash = std::strrchr(found.dli_fname, '/');
    return std::strncmp(slash != nullptr ? slash + 1 : found.dli_fname, "libcuda.so", 10) == 0;
  });
}

}  // namespace gmac::interpose

// ---- libc's names

namespace mappings = gmac::interpose;

extern "C" {

GMAC_INTERPOSED void* mmap(void* address, size_t bytes, int protection, int flags, int file,
                           off_t offset) noexcept {
  if (mappings::refusesMap(address, bytes, flags, __builtin_return_address(0))) return MAP_FAILED;
  return mappings::realMmap(address, bytes, protection, flags, file, offset);
}

GMAC_INTERPOSED void* mmap64(void* address, size_t bytes, int protection, int flags, int file,
                             off64_t offset) noexcept {
  if (mappings::refusesMap(address, bytes, flags, __builtin_return_address(0))) return MAP_FAILED;
  return mappings::realMmap(address, bytes, protection, flags, file, offset);
}

GMAC_INTERPOSED int munmap(void* address, size_t bytes) noexcept {
  if (mappings::refused(mappings::kMunmap, "munmap", mappings::pagesOf(address, bytes),
                        __builtin_return_address(0))) {
    return -1;
  }
  return mappings::realMunmap(address, bytes);
}

GMAC_INTERPOSED void* mremap(void* from, size_t bytes, size_t newBytes, int flags, ...) noexcept {
  va_list more;
  va_start(more, flags);
  void* const to = (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0 ? va_arg(more, void*) : nullptr;
  va_end(more);
  if (mappings::asksForNothing(from, bytes, newBytes, flags)) return from;
  if (mappings::refusesRemap(from, bytes, newBytes, flags, to, __builtin_return_address(0)))
    return MAP_FAILED;
  return mappings::realMremap(from, bytes, newBytes, flags, to);
}

GMAC_INTERPOSED void* shmat(int segment, const void* address, int flags) noexcept {
  if (mappings::refusesAttach(segment, address, flags, __builtin_return_address(0)))
    return MAP_FAILED;
  return mappings::realShmat(segment, address, flags);
}

GMAC_INTERPOSED int remap_file_pages(void* address, size_t bytes, int protection, size_t page,
                                     int flags) noexcept {
  if (mappings::refused(mappings::kRemap, "remap_file_pages", mappings::pagesOf(address, bytes),
                        __builtin_return_address(0))) {
    return -1;
  }
  return mappings::realRemapFilePages(address, bytes, protection, page, flags);
}

}  // extern "C"
