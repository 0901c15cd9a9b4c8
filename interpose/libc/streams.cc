// SPDX-License-Identifier: Apache-2.0
//
// fread, fwrite, fputs and puts on shared memory: these stand in for libc's functions in a program
// that is linked with the library or preloads it. The real functions transfer each piece while the
// stream is locked around all of them; libc's buffering stays as it is. Calls that involve no
// shared memory go to the real function at once.
//
// libc accesses the caller's memory in user mode, where it may fault, as long as the bytes go
// through the stream's own buffer. Only bytes that do not fit there go straight to the kernel,
// which a closed block stops. Functions that always use the buffer (fgets, fscanf, fgetws and their
// like) need no help.

// The fortified inline forms of the functions that are defined here are not wanted.
#undef _FORTIFY_SOURCE

#include <stdio.h>
#include <stdio_ext.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gmac/base/cancellation.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"
#include "interpose/base/real.h"
#include "interpose/base/scratch.h"
#include "interpose/libc/transfer.h"

// libc's headers declare that fread only writes to its buffer, so asking whether the buffer is
// shared looks like reading uninitialised memory.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

extern "C" [[noreturn]] void __chk_fail();

namespace gmac::interpose {
namespace {

constinit Real<size_t(void*, size_t, size_t, FILE*)> realFread("fread");
constinit Real<size_t(const void*, size_t, size_t, FILE*)> realFwrite("fwrite");
constinit Real<size_t(void*, size_t, size_t, FILE*)> realFreadUnlocked("fread_unlocked");
constinit Real<size_t(const void*, size_t, size_t, FILE*)> realFwriteUnlocked("fwrite_unlocked");
constinit Real<int(const char*, FILE*)> realFputs("fputs");
constinit Real<int(const char*, FILE*)> realFputsUnlocked("fputs_unlocked");
constinit Real<int(const char*)> realPuts("puts");

// libc's functions for the calls that must stay a jump; NULL until the library's constructors have
// run.
template <typename Function>
using Plain = std::atomic<Function*>;
constinit Plain<size_t(void*, size_t, size_t, FILE*)> plainFread{nullptr};
constinit Plain<size_t(const void*, size_t, size_t, FILE*)> plainFwrite{nullptr};
constinit Plain<size_t(void*, size_t, size_t, FILE*)> plainFreadUnlocked{nullptr};
constinit Plain<size_t(const void*, size_t, size_t, FILE*)> plainFwriteUnlocked{nullptr};
constinit Plain<int(const char*, FILE*)> plainFputs{nullptr};
constinit Plain<int(const char*, FILE*)> plainFputsUnlocked{nullptr};
constinit Plain<int(const char*)> plainPuts{nullptr};

[[gnu::constructor]] void resolveStreams() {
  plainFread = realFread.resolve();
  plainFwrite = realFwrite.resolve();
  plainFreadUnlocked = realFreadUnlocked.resolve();
  plainFwriteUnlocked = realFwriteUnlocked.resolve();
  plainFputs = realFputs.resolve();
  plainFputsUnlocked = realFputsUnlocked.resolve();
  plainPuts = realPuts.resolve();
}

// The most that goes through private memory at a time.
constexpr std::size_t kBounceBytes = 256 * 1024;

// Locks a stream for its scope. Recursive.
class StreamLock {
 public:
  explicit StreamLock(FILE* stream) : stream_(stream) { ::flockfile(stream_); }
  ~StreamLock() { ::funlockfile(stream_); }
  StreamLock(const StreamLock&) = delete;
  StreamLock& operator=(const StreamLock&) = delete;

 private:
  FILE* stream_;
};

// Streams without a descriptor may run code of the program, which may wait for anything.
bool streamWaits(FILE* stream) {
  const int savedErrno = errno;
  const int descriptor = ::fileno_unlocked(stream);
  const bool waits = descriptor < 0 || kindOf(descriptor) != FileKind::kRegular;
  errno = savedErrno;
  return waits;
}

std::size_t realTransfer(Direction direction, void* buffer, std::size_t bytes, FILE* stream,
                         bool waits) {
  const auto call = [&] {
    return direction == Direction::kRead ? realFreadUnlocked(buffer, 1, bytes, stream)
                                         : realFwriteUnlocked(buffer, 1, bytes, stream);
  };
  return waits ? cancellably(call) : call();
}

// Transfers one piece to or from the shared memory itself. errno is the real function's.
std::size_t transferHeld(Direction direction, std::byte* buffer, std::size_t bytes, FILE* stream,
                         bool waits) {
  const int errnoBefore = errno;
  int errnoAfter = EIO;
  std::size_t count = 0;
  {
    const coherence::CpuHold hold(buffer, bytes, direction == Direction::kRead);
    if (hold.status().ok()) {
      errno = errnoBefore;
      count = realTransfer(direction, buffer, bytes, stream, waits);
      errnoAfter = errno;
    }
  }
  errno = errnoAfter;
  return count;
}

// Transfers one piece through private memory.
std::size_t transferBounced(Direction direction, std::byte* buffer, std::size_t bytes, FILE* stream,
                            std::byte* bounce) {
  const int errnoBefore = errno;
  if (direction == Direction::kWrite) {
    if (!copyFromShared(bounce, buffer, bytes)) return 0;
    errno = errnoBefore;
    return realTransfer(direction, bounce, bytes, stream, true);
  }
  const std::size_t count = realTransfer(direction, bounce, bytes, stream, true);
  const int errnoAfter = errno;
  if (!copyToShared(buffer, bounce, count)) return 0;
  errno = errnoAfter;
  return count;
}

// The stream is locked (or need not be). Returns bytes.
std::size_t transferStream(Direction direction, const void* buffer, std::size_t bytes,
                           FILE* stream) {
  const bool reads = direction == Direction::kRead;
  const Timed timed(reads ? Phase::kIoRead : Phase::kIoWrite);
  TraceSpan span("io", reads ? "fread" : "fwrite", {"bytes", bytes});
  const int errnoBefore = errno;
  const bool waits = streamWaits(stream);
  const std::size_t pieceBytes = waits ? kBounceBytes : coherence::memory().pieceBytes();
  const Scratch bounce(waits ? std::min(bytes, kBounceBytes) : 1);
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(buffer));
  std::size_t done = 0;
  bool failed = false;
  while (done < bytes && !failed) {
    const std::size_t piece = nextPiece(begin + done, bytes - done, pieceBytes);
    errno = errnoBefore;
    const std::size_t count =
        waits && bounce.data() != nullptr
            ? transferBounced(direction, begin + done, piece, stream, bounce.data())
            : transferHeld(direction, begin + done, piece, stream, waits);
    done += count;
    failed = count < piece;
  }
  if (!failed) errno = errnoBefore;
  span.setSecond({"count", done});
  return done;
}

// Whether so many bytes certainly go through the stream's own buffer. The stream is locked (or need
// not be).
constexpr std::size_t kLeastBuffer = 128;  // libc bypasses a smaller one
bool fitsStreamBuffer(std::size_t bytes, FILE* stream) {
  const std::size_t room = ::__fbufsize(stream);
  return room >= kLeastBuffer && bytes < room;
}

// Whether an address alone shows that a range is not shared: a few instructions and no call, for
// programs that move a few bytes at a time. Most buffers lie below or above all objects so far.
inline bool surelyPlain(const void* buffer, std::size_t size, std::size_t count) {
  namespace ranges = shared_ranges::internal;
  const auto begin = reinterpret_cast<std::uintptr_t>(buffer);
  std::uintptr_t end = 0;
  return begin >= ranges::highest.load(std::memory_order_relaxed) ||
         (!__builtin_mul_overflow(size, count, &end) && !__builtin_add_overflow(begin, end, &end) &&
          end <= ranges::lowest.load(std::memory_order_relaxed));
}

// Whether libc copies so many bytes between the caller's memory and the stream's own buffer, in
// user mode: fitsStreamBuffer() in a few instructions, for byte streams.
inline bool surelyBuffered(std::size_t size, std::size_t count, const FILE* stream) {
  std::size_t bytes = 0;
  const auto room = static_cast<std::size_t>(stream->_IO_buf_end - stream->_IO_buf_base);
  return stream->_mode <= 0 && room >= kLeastBuffer &&
         !__builtin_mul_overflow(size, count, &bytes) && bytes < room;
}

// Whether `count` items of `size` bytes at `buffer` may need help. Products that overflow do not:
// libc decides what they mean. Neither do bytes that go through the stream's buffer. That is
// checked without the stream's lock: only setvbuf replaces a buffer, and no program may call it
// during a transfer.
bool mayNeedHelp(const void* buffer, std::size_t size, std::size_t count, FILE* stream) {
  std::size_t bytes = 0;
  return coherence::anythingShared() && !__builtin_mul_overflow(size, count, &bytes) && bytes > 0 &&
         coherence::mayBeShared(buffer, bytes) && !fitsStreamBuffer(bytes, stream);
}

// Whether a text of unknown length is shared.
bool textIsShared(const char* text) {
  return coherence::mayBeShared(text, 1) && coherence::touchesShared(text, 1);
}

// The stream is locked (or need not be). Returns a count of items.
std::size_t transferItems(Direction direction, const void* buffer, std::size_t size,
                          std::size_t count, FILE* stream) {
  const std::size_t bytes = size * count;
  if (fitsStreamBuffer(bytes, stream) || !coherence::touchesShared(buffer, bytes)) {
    return direction == Direction::kRead
               ? realFreadUnlocked(const_cast<void*>(buffer), size, count, stream)
               : realFwriteUnlocked(buffer, size, count, stream);
  }
  return cancellationPoint([&] { return transferStream(direction, buffer, bytes, stream); }) / size;
}

// The stream is locked (or need not be).
bool writeText(const char* text, std::size_t bytes, FILE* stream) {
  return transferItems(Direction::kWrite, text, 1, bytes, stream) == bytes;
}

}  // namespace
}  // namespace gmac::interpose

// ---- Calls that may touch shared memory ----

namespace gmac::interpose {
namespace {

[[gnu::noinline]] std::size_t readItems(void* buffer, std::size_t size, std::size_t count,
                                        FILE* stream) {
  if (!mayNeedHelp(buffer, size, count, stream)) return realFread(buffer, size, count, stream);
  const StreamLock lock(stream);
  return transferItems(Direction::kRead, buffer, size, count, stream);
}

[[gnu::noinline]] std::size_t readItemsUnlocked(void* buffer, std::size_t size, std::size_t count,
                                                FILE* stream) {
  if (!mayNeedHelp(buffer, size, count, stream))
    return realFreadUnlocked(buffer, size, count, stream);
  return transferItems(Direction::kRead, buffer, size, count, stream);
}

[[gnu::noinline]] std::size_t writeItems(const void* buffer, std::size_t size, std::size_t count,
                                         FILE* stream) {
  if (!mayNeedHelp(buffer, size, count, stream)) return realFwrite(buffer, size, count, stream);
  const StreamLock lock(stream);
  return transferItems(Direction::kWrite, buffer, size, count, stream);
}

[[gnu::noinline]] std::size_t writeItemsUnlocked(const void* buffer, std::size_t size,
                                                 std::size_t count, FILE* stream) {
  if (!mayNeedHelp(buffer, size, count, stream))
    return realFwriteUnlocked(buffer, size, count, stream);
  return transferItems(Direction::kWrite, buffer, size, count, stream);
}

[[gnu::noinline]] int putText(const char* text, FILE* stream) {
  if (surelyBuffered(1, std::strlen(text), stream) || !textIsShared(text))
    return realFputs(text, stream);
  const StreamLock lock(stream);
  return writeText(text, std::strlen(text), stream) ? 1 : EOF;
}

[[gnu::noinline]] int putTextUnlocked(const char* text, FILE* stream) {
  if (surelyBuffered(1, std::strlen(text), stream) || !textIsShared(text))
    return realFputsUnlocked(text, stream);
  return writeText(text, std::strlen(text), stream) ? 1 : EOF;
}

[[gnu::noinline]] int putLine(const char* text) {
  if (surelyBuffered(1, std::strlen(text), stdout) || !textIsShared(text)) return realPuts(text);
  const StreamLock lock(stdout);
  const std::size_t bytes = std::strlen(text);
  if (!writeText(text, bytes, stdout) || ::putc_unlocked('\n', stdout) == EOF) return EOF;
  return static_cast<int>(std::min<std::size_t>(bytes + 1, INT_MAX));
}

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names ----

// Each jumps to libc's own function unless it may need help. (That keeps a program of eight million
// short reads as fast as it was.)

namespace io = gmac::interpose;

extern "C" {

GMAC_INTERPOSED size_t fread(void* buffer, size_t size, size_t count, FILE* stream) {
  auto* const real = io::plainFread.load(std::memory_order_relaxed);
  if (real != nullptr &&
      (io::surelyPlain(buffer, size, count) || io::surelyBuffered(size, count, stream))) [[likely]]
    return real(buffer, size, count, stream);
  return io::readItems(buffer, size, count, stream);
}

GMAC_INTERPOSED size_t fread_unlocked(void* buffer, size_t size, size_t count, FILE* stream) {
  auto* const real = io::plainFreadUnlocked.load(std::memory_order_relaxed);
  if (real != nullptr &&
      (io::surelyPlain(buffer, size, count) || io::surelyBuffered(size, count, stream))) [[likely]]
    return real(buffer, size, count, stream);
  return io::readItemsUnlocked(buffer, size, count, stream);
}

GMAC_INTERPOSED size_t fwrite(const void* buffer, size_t size, size_t count, FILE* stream) {
  auto* const real = io::plainFwrite.load(std::memory_order_relaxed);
  if (real != nullptr &&
      (io::surelyPlain(buffer, size, count) || io::surelyBuffered(size, count, stream))) [[likely]]
    return real(buffer, size, count, stream);
  return io::writeItems(buffer, size, count, stream);
}

GMAC_INTERPOSED size_t fwrite_unlocked(const void* buffer, size_t size, size_t count,
                                       FILE* stream) {
  auto* const real = io::plainFwriteUnlocked.load(std::memory_order_relaxed);
  if (real != nullptr &&
      (io::surelyPlain(buffer, size, count) || io::surelyBuffered(size, count, stream))) [[likely]]
    return real(buffer, size, count, stream);
  return io::writeItemsUnlocked(buffer, size, count, stream);
}

GMAC_INTERPOSED int fputs(const char* text, FILE* stream) {
  auto* const real = io::plainFputs.load(std::memory_order_relaxed);
  if (real != nullptr && io::surelyPlain(text, 1, 1)) [[likely]]
    return real(text, stream);
  return io::putText(text, stream);
}

GMAC_INTERPOSED int fputs_unlocked(const char* text, FILE* stream) {
  auto* const real = io::plainFputsUnlocked.load(std::memory_order_relaxed);
  if (real != nullptr && io::surelyPlain(text, 1, 1)) [[likely]]
    return real(text, stream);
  return io::putTextUnlocked(text, stream);
}

GMAC_INTERPOSED int puts(const char* text) {
  auto* const real = io::plainPuts.load(std::memory_order_relaxed);
  if (real != nullptr && io::surelyPlain(text, 1, 1)) [[likely]]
    return real(text);
  return io::putLine(text);
}

// The forms that a compiler calls instead where it knows the buffer's size (_FORTIFY_SOURCE).

GMAC_INTERPOSED size_t __fread_chk(void* buffer, size_t room, size_t size, size_t count,
                                   FILE* stream) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(size, count, &bytes) || bytes > room) __chk_fail();
  return fread(buffer, size, count, stream);
}

GMAC_INTERPOSED size_t __fread_unlocked_chk(void* buffer, size_t room, size_t size, size_t count,
                                            FILE* stream) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(size, count, &bytes) || bytes > room) __chk_fail();
  return fread_unlocked(buffer, size, count, stream);
}

}  // extern "C"
