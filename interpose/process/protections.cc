// SPDX-License-Identifier: Apache-2.0
//
// mprotect and pkey_mprotect over shared memory: these stand in for libc's functions in a program
// that is linked with the library or preloads it. The protection of an object's pages records which
// blocks are current on the CPU. A program that changed it would read stale bytes and lose its own
// writes. To its program an object is always readable and writable: a request for that succeeds and
// does nothing; any other is refused. Calls that involve no shared memory go to the real function
// at once. (libc's own calls do not pass here.)
#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

#include "gmac/base/log.h"
#include "gmac/coherence/port.h"
#include "interpose/base/real.h"
#include "interpose/base/served_call.h"
#include "interpose/base/system_call.h"
#include "interpose/process/pages.h"

namespace gmac::interpose {
namespace {

constinit Real<int(void*, size_t, int)> realMprotect("mprotect");
constinit Real<int(void*, size_t, int, int)> realPkeyMprotect("pkey_mprotect");

constexpr int kObjectProtection = PROT_READ | PROT_WRITE;

int refuse(const char* function, const void* address, std::size_t bytes, int protection) noexcept {
  static constinit std::atomic<bool> said{false};
  if (!said.exchange(true)) {
    log(LogLevel::kError,
        "{}({}, {}, {:#x}) fails with EACCES: shared objects are there, whose pages can "
        "be readable and writable ({:#x}) only (this is said once)",
        function, address, bytes, protection, kObjectProtection);
  }
  errno = EACCES;
  return -1;
}

// `change` is the real function on a range. `plain`: the call asks for no protection key.
template <typename Change>
int changeProtection(const char* function, void* address, std::size_t bytes, int protection,
                     bool plain, Change change) {
  const Pages pages = pagesOf(address, bytes);
  if (!meetsObjects(pages)) return change(address, bytes);
  if (protection != kObjectProtection || !plain) {
    return refuse(function, address, bytes, protection);
  }
  return forEachPart(pages, [&](std::byte* part, std::size_t length, bool shared) {
    return shared ? 0 : change(part, length);
  });
}

// mprotect and pkey_mprotect. Other libraries that stand in for these functions make their calls
// so.
long protectByNumber(long number, const Words& words) {
  const bool keyed = number == SYS_pkey_mprotect;
  return changeProtection(keyed ? "pkey_mprotect" : "mprotect", wordAs<void*>(words[0]),
                          wordAs<std::size_t>(words[1]), wordAs<int>(words[2]),
                          !keyed || wordAs<int>(words[3]) <= 0,
                          [&](void* part, std::size_t length) {
                            Words kernels = words;
                            kernels[0] = asWord(part);
                            kernels[1] = asWord(length);
                            return static_cast<int>(systemCall(number, kernels));
                          });
}

[[gnu::constructor]] void resolveProtections() {
  resolveAtLoad(realMprotect, realPkeyMprotect);
  systemCallServers[SYS_mprotect] = &protectByNumber;
  systemCallServers[SYS_pkey_mprotect] = &protectByNumber;
}

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names ----

namespace protections = gmac::interpose;

extern "C" {

GMAC_INTERPOSED int mprotect(void* address, size_t bytes, int protection) noexcept {
  if (bytes == 0 || !gmac::coherence::mayBeShared(address, bytes)) [[likely]]
    return protections::realMprotect(address, bytes, protection);
  return protections::changeProtection("mprotect", address, bytes, protection, true,
                                       [&](void* part, std::size_t length) {
                                         return protections::realMprotect(part, length, protection);
                                       });
}

GMAC_INTERPOSED int pkey_mprotect(void* address, size_t bytes, int protection, int key) noexcept {
  if (bytes == 0 || !gmac::coherence::mayBeShared(address, bytes)) [[likely]]
    return protections::realPkeyMprotect(address, bytes, protection, key);
  return protections::changeProtection(
      "pkey_mprotect", address, bytes, protection, key <= 0, [&](void* part, std::size_t length) {
        return protections::realPkeyMprotect(part, length, protection, key);
      });
}

}  // extern "C"
