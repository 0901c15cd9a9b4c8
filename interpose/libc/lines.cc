// SPDX-License-Identifier: Apache-2.0
//
// getline and getdelim into a buffer that is shared: these stand in for libc's functions in a
// program that is linked with the library or preloads it.
//
// libc fills a line's buffer in user mode, which works on shared memory, but passes it to realloc
// when the line is longer, which works on malloc's memory only. So the line is read into memory
// from malloc and copied to the shared buffer. A buffer that is too small is replaced, as realloc
// would do it: by a larger shared object, which the program also frees with adsmFree; then the old
// one is freed. A buffer that starts inside an object cannot be replaced: the call then fails with
// ENOMEM, as where realloc fails.
#undef _FORTIFY_SOURCE

#include <stdio.h>
#include <stdlib.h>

#include <cerrno>
#include <cstddef>
#include <memory>

#include "gmac/api/adsm.h"
#include "gmac/base/cancellation.h"
#include "gmac/coherence/memory_port.h"
#include "interpose/base/real.h"
#include "interpose/base/scratch.h"

namespace gmac::interpose {
namespace {

constinit Real<ssize_t(char**, size_t*, int, FILE*)> realGetdelim("getdelim");

[[gnu::constructor]] void resolveLines() { resolveAtLoad(realGetdelim); }

// A buffer from malloc, which libc may replace by a longer one.
struct Line {
  char* text;
  std::size_t room;

  explicit Line(std::size_t wanted)
      : text(static_cast<char*>(std::malloc(wanted))), room(text == nullptr ? 0 : wanted) {}
  ~Line() { std::free(text); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
};

// Replaces `*buffer`, of `*room` bytes, by an object of `wanted` bytes.
bool replace(char** buffer, std::size_t* room, std::size_t wanted) {
  char* const old = *buffer;
  const bool samePlace = adsmSafe(old) == old;
  auto* const larger = static_cast<char*>(samePlace ? adsmAlloc(wanted) : adsmSafeAlloc(wanted));
  if (larger != nullptr && adsmFree(old) == adsmSuccess) {
    *buffer = larger;
    *room = wanted;
    return true;
  }
  if (larger != nullptr) static_cast<void>(adsmFree(larger));
  return false;
}

ssize_t getdelimShared(char** buffer, std::size_t* room, int delimiter, FILE* stream) {
  const int errnoBefore = errno;
  // As large as the shared buffer, so that libc grows it exactly when it would have grown that one.
  Line line(*room);
  const ssize_t length =
      cancellably([&] { return realGetdelim(&line.text, &line.room, delimiter, stream); });
  if (length < 0) return length;
  const std::size_t bytes = static_cast<std::size_t>(length) + 1;
  if (bytes > *room && !replace(buffer, room, line.room)) {
    errno = ENOMEM;
    return -1;
  }
  if (!copyToShared(*buffer, line.text, bytes)) return -1;
  errno = errnoBefore;
  return length;
}

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names ----

namespace io = gmac::interpose;

extern "C" {

GMAC_INTERPOSED ssize_t __getdelim(char** buffer, size_t* room, int delimiter, FILE* stream) {
  // libc ignores a buffer of no size.
  if (!gmac::coherence::anythingShared() || buffer == nullptr || room == nullptr || *room == 0 ||
      !gmac::coherence::touchesShared(*buffer, 1)) [[likely]] {
    return io::realGetdelim(buffer, room, delimiter, stream);
  }
  return gmac::cancellationPoint(
      [&] { return io::getdelimShared(buffer, room, delimiter, stream); });
}

GMAC_INTERPOSED ssize_t getdelim(char** buffer, size_t* room, int delimiter, FILE* stream) {
  return __getdelim(buffer, room, delimiter, stream);
}

GMAC_INTERPOSED ssize_t getline(char** buffer, size_t* room, FILE* stream) {
  return __getdelim(buffer, room, '\n', stream);
}

}  // extern "C"
