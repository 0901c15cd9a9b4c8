// SPDX-License-Identifier: Apache-2.0
//
// mlock and mlock2 over shared memory: these stand in for libc's functions in a program that is
// linked with the library or preloads it. The kernel brings pages that it locks into memory as an
// access would, which it cannot where a block is closed. So each piece is open for reading while
// the real function locks it; it stays locked when it is closed again. Calls that involve no shared
// memory go to the real function at once. munlock needs no help.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "gmac/base/cancellation.h"
#include "gmac/base/round_up.h"
#include "gmac/coherence/memory_port.h"
#include "interpose/base/real.h"
#include "interpose/process/pages.h"

namespace gmac::interpose {
namespace {

constinit Real<int(const void*, size_t)> realMlock("mlock");
constinit Real<int(const void*, size_t, unsigned)> realMlock2("mlock2");

[[gnu::constructor]] void resolveLockedPages() { resolveAtLoad(realMlock, realMlock2); }

// `lock` is the real function on a range.
template <typename Lock>
int lockPages(const void* address, std::size_t bytes, Lock lock) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(address) / page * page;
  const std::uintptr_t end = roundUp(reinterpret_cast<std::uintptr_t>(address) + bytes, page);
  // The system judges ranges that it would refuse.
  if (end <= begin || !coherence::touchesShared(address, bytes)) return lock(address, bytes);
  return uncancelled([&]() noexcept {
    return forEachHeldPiece(reinterpret_cast<std::byte*>(begin), end - begin,
                            coherence::HoldFor::kRead, EAGAIN, lock);
  });
}

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names ----

namespace locked_pages = gmac::interpose;

extern "C" {

GMAC_INTERPOSED int mlock(const void* address, size_t bytes) noexcept {
  if (bytes == 0 || !gmac::coherence::mayBeShared(address, bytes)) [[likely]]
    return locked_pages::realMlock(address, bytes);
  return locked_pages::lockPages(address, bytes, [](const void* piece, std::size_t length) {
    return locked_pages::realMlock(piece, length);
  });
}

// With flags it locks pages when they come.
GMAC_INTERPOSED int mlock2(const void* address, size_t bytes, unsigned flags) noexcept {
  if (flags != 0 || bytes == 0 || !gmac::coherence::mayBeShared(address, bytes)) [[likely]]
    return locked_pages::realMlock2(address, bytes, flags);
  return locked_pages::lockPages(address, bytes, [](const void* piece, std::size_t length) {
    return locked_pages::realMlock2(piece, length, 0);
  });
}

}  // extern "C"
