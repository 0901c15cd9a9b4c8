// SPDX-License-Identifier: Apache-2.0
//
// madvise and process_madvise over shared memory: these stand in for libc's functions in a program
// that is linked with the library or preloads it. Calls that involve no shared memory go to the
// real function at once. Of shared memory each advice does what the program can see of it on memory
// of malloc's: bytes that are not needed read as zero, and pages that are asked for are there. What
// is only about speed, or about children of fork, which have no objects, does nothing: the runtime
// has chosen its pages' properties itself. What an object cannot be is refused.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <cerrno>
#include <climits>
#include <cstddef>

#include "gmac/base/cancellation.h"
#include "gmac/base/fill_in_pieces.h"
#include "interpose/base/private_copy.h"
#include "interpose/base/real.h"
#include "interpose/base/served_call.h"
#include "interpose/base/system_call.h"
#include "interpose/process/pages.h"

namespace gmac::interpose {
namespace {

constinit EarlyReal<SYS_madvise, int(void*, size_t, int)> realMadvise("madvise");
constinit Real<ssize_t(int, const iovec*, size_t, int, unsigned)> realProcessMadvise(
    "process_madvise");

// Not in every libc's header.
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif

// The effect of an advice on the pages of an object.
enum class Effect {
  kNone,     // nothing that the program can see
  kZero,     // the bytes read as zero
  kFetch,    // they will be used
  kRead,     // they are there, for reading
  kWrite,    // ... and for writing
  kSystems,  // the system's own, whatever the blocks' states
  kRefused,
};

Effect effectOf(int advice) noexcept {
  switch (advice) {
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_FREE:  // the bytes may stay as they are
    case MADV_COLD:
    case MADV_PAGEOUT:
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case MADV_COLLAPSE:
    case MADV_DONTFORK:
    case MADV_DOFORK:
    case MADV_KEEPONFORK:
      return Effect::kNone;
    case MADV_DONTNEED:
    case MADV_DONTNEED_LOCKED:
      return Effect::kZero;
    case MADV_WILLNEED:
      return Effect::kFetch;
    case MADV_POPULATE_READ:
      return Effect::kRead;
    case MADV_POPULATE_WRITE:
      return Effect::kWrite;
    case MADV_DONTDUMP:
    case MADV_DODUMP:
    case MADV_HWPOISON:
    case MADV_SOFT_OFFLINE:
      return Effect::kSystems;
    default:  // MADV_REMOVE, MADV_WIPEONFORK, guard pages, and what a newer system knows
      return Effect::kRefused;
  }
}

int refuse(const Pages& pages, int advice) noexcept {
  static constinit std::atomic<bool> said{false};
  if (!said.exchange(true)) {
    log(LogLevel::kError,
        "madvise of {} bytes at {} with advice {} fails with EINVAL: shared objects are there, "
        "which can be neither cut nor wiped in children (this is said once)",
        pages.bytes, static_cast<const void*>(pages.begin), advice);
  }
  errno = EINVAL;
  return -1;
}

int advisePart(std::byte* part, std::size_t bytes, Effect effect) {
  using coherence::HoldFor;
  switch (effect) {
    case Effect::kZero:
      coherence::memory().fill(part, 0, bytes, &fillInPieces);
      break;
    case Effect::kFetch:
      (void)coherence::memory().startFetch(part, bytes);  // an access will meet the error again
      break;
    case Effect::kRead:
    case Effect::kWrite:
      return forEachHeldPiece(part, bytes,
                              effect == Effect::kRead ? HoldFor::kRead : HoldFor::kWrite, EFAULT,
                              [](std::byte*, std::size_t) { return 0; });
    default:
      break;
  }
  return 0;
}

// `real` is the real function.
template <typename Real>
int advise(const Pages& pages, int advice, Real& real) {
  const Effect effect = effectOf(advice);
  if (effect == Effect::kRefused) return refuse(pages, advice);
  if (effect == Effect::kSystems) return real(pages.begin, pages.bytes, advice);
  // As the system does it, the rest is advised where something of the range is not mapped.
  bool unmapped = false;
  const int result = forEachPart(pages, [&](std::byte* part, std::size_t bytes, bool shared) {
    if (shared) return advisePart(part, bytes, effect);
    const int advised = real(part, bytes, advice);
    unmapped |= advised != 0 && errno == ENOMEM;
    return advised != 0 && errno == ENOMEM ? 0 : advised;
  });
  if (result == 0 && unmapped) {
    errno = ENOMEM;
    return -1;
  }
  return result;
}

// The advices that a process may give to another, which has objects of its own.
bool forOthers(int advice) noexcept {
  return advice == MADV_COLD || advice == MADV_PAGEOUT || advice == MADV_WILLNEED ||
         advice == MADV_COLLAPSE;
}

template <typename Real>
ssize_t adviseOwn(int process, const iovec* ranges, std::size_t count, int advice, unsigned flags,
                  Real& real) {
  // The system says whether it knows the advice, and takes it: for the calling process alone.
  if (const ssize_t known = real(process, ranges, 0, advice, flags); known != 0) return known;
  ssize_t done = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const iovec range = ranges[i];
    if (::madvise(range.iov_base, range.iov_len, advice) != 0) return done > 0 ? done : -1;
    done += static_cast<ssize_t>(range.iov_len);
  }
  return done;
}

template <typename Real>
ssize_t adviseProcess(int process, const iovec* ranges, std::size_t count, int advice,
                      unsigned flags, Real& real) {
  if (!coherence::anythingShared() || forOthers(advice) || count > IOV_MAX ||
      !readable(ranges, count * sizeof *ranges)) [[likely]] {
    return serve<When::kAfterFault, Errors::kErrno, false, Array<1, 2>>(real, process, ranges,
                                                                        count, advice, flags);
  }
  return uncancelled(
      [&]() noexcept { return adviseOwn(process, ranges, count, advice, flags, real); });
}

// By number. Other libraries that stand in for these functions make their calls so.
long adviseByNumber(long number, const Words& words) {
  const auto real = [number](void* address, std::size_t bytes, int advice) {
    return static_cast<int>(systemCall(number, {asWord(address), asWord(bytes), asWord(advice)}));
  };
  auto* const address = wordAs<void*>(words[0]);
  const auto bytes = wordAs<std::size_t>(words[1]);
  const auto advice = wordAs<int>(words[2]);
  const Pages pages = pagesOf(address, bytes);
  if (!meetsObjects(pages)) [[likely]]
    return real(address, bytes, advice);
  return uncancelled([&]() noexcept { return advise(pages, advice, real); });
}

long adviseProcessByNumber(long number, const Words& words) {
  const auto real = [number](int process, const iovec* ranges, std::size_t count, int advice,
                             unsigned flags) -> ssize_t {
    return systemCall(
        number, {asWord(process), asWord(ranges), asWord(count), asWord(advice), asWord(flags)});
  };
  return adviseProcess(wordAs<int>(words[0]), wordAs<const iovec*>(words[1]),
                       wordAs<std::size_t>(words[2]), wordAs<int>(words[3]),
                       wordAs<unsigned>(words[4]), real);
}

[[gnu::constructor]] void resolveAdvice() {
  realMadvise.resolve();
  resolveAtLoad(realProcessMadvise);
  systemCallServers[SYS_madvise] = &adviseByNumber;
  systemCallServers[SYS_process_madvise] = &adviseProcessByNumber;
}

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names

namespace advice_calls = gmac::interpose;

extern "C" {

GMAC_INTERPOSED int madvise(void* address, size_t bytes, int advice) noexcept {
  const advice_calls::Pages pages = advice_calls::pagesOf(address, bytes);
  if (!advice_calls::meetsObjects(pages) || advice_calls::inDriver(__builtin_return_address(0)))
      [[likely]] {
    return advice_calls::realMadvise(address, bytes, advice);
  }
  return gmac::uncancelled(
      [&]() noexcept { return advice_calls::advise(pages, advice, advice_calls::realMadvise); });
}

GMAC_INTERPOSED ssize_t process_madvise(int process, const iovec* ranges, size_t count, int advice,
                                        unsigned flags) noexcept {
  return advice_calls::adviseProcess(process, ranges, count, advice, flags,
                                     advice_calls::realProcessMadvise);
}

}  // extern "C"
