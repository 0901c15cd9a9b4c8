// SPDX-License-Identifier: Apache-2.0
//
// read, write, pread, pwrite, fread and fwrite (and their 64, unlocked and fortified forms) on
// shared memory: these stand in for libc's functions in a program that is linked with the library
// or preloads it. A system call cannot fault its way to a closed block as a program does (it would
// fail with EFAULT), so the bytes are opened first.
//
// To the byte, a call means what it means on plain memory: return value, errno, short counts, end
// of file. What involves no shared memory goes to the real function at once.
//
//  - Regular files: the transfer is cut into pieces, so that the copies of one piece hide behind
//  the next. A piece that
//    comes out short or fails ends the call. Calls with a file position of their own (read, write)
//    hold a lock meanwhile, as the kernel does, so that two threads' transfers on one descriptor do
//    not mix. Whatever could make the pieces differ from the whole goes in one call: appending, a
//    limit on file sizes, an offset that overflows.
//  - Whatever may wait for somebody else (pipes, sockets, terminals): the transfer goes through
//  private memory. Holding
//    shared memory while waiting would make a kernel call of the thread that is waited for wait,
//    too.
//  - fread and fwrite use the real functions for each piece with the stream locked around all of
//  them; what a stream
//    buffers, and where, stays libc's business.
//
// All functions are thread-safe. They may be cancellation points, so none is noexcept.

// The fortified inline forms of the functions that are defined here, and their renamed large-file
// forms, are not wanted.
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "gmac/coherence.h"
#include "gmac/log.h"
#include "gmac/stats.h"
#include "gmac/trace.h"

// libc's headers say that these functions only write to their buffers, so that asking whether a
// buffer is shared looks like reading what is not initialised.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

extern "C" [[noreturn]] void __chk_fail();

namespace gmac::interpose {
namespace {

// ---- The real functions ----

// The oldest version of glibc's symbols on this machine's architecture: all functions here have had
// it ever since. Versioned look-ups also stay clear of the dlsym that the library itself stands in
// for.
#if defined(__x86_64__)
constexpr const char* kLibcVersion = "GLIBC_2.2.5";
#elif defined(__aarch64__)
constexpr const char* kLibcVersion = "GLIBC_2.17";
#else
#error "name this architecture's oldest glibc version"
#endif

// The next definition of a function after this library's: libc's, or that of another library that
// stands in between. Resolved when first called, since constructors of other libraries may do I/O
// before this library's run.
template <typename Function>
class Real;

template <typename Return, typename... Args>
class Real<Return(Args...)> {
 public:
  using Function = Return(Args...);

  constexpr explicit Real(const char* name) : name_(name) {}

  Return operator()(Args... args) {
    Function* function = function_.load(std::memory_order_relaxed);
    if (function == nullptr) [[unlikely]]
      function = resolve();
    return function(args...);
  }

  Function* resolve() {
    const int savedErrno = errno;
    auto* const function = reinterpret_cast<Function*>(::dlvsym(RTLD_NEXT, name_, kLibcVersion));
    if (function == nullptr) {
      log(LogLevel::kError, "libc's {} was not found: {}", name_, ::dlerror());
      std::abort();
    }
    function_.store(function, std::memory_order_relaxed);
    errno = savedErrno;
    return function;
  }

 private:
  const char* name_;
  std::atomic<Function*> function_{nullptr};
};

constinit Real<ssize_t(int, void*, size_t)> realRead("read");
constinit Real<ssize_t(int, const void*, size_t)> realWrite("write");
constinit Real<ssize_t(int, void*, size_t, off64_t)> realPread("pread64");
constinit Real<ssize_t(int, const void*, size_t, off64_t)> realPwrite("pwrite64");
constinit Real<size_t(void*, size_t, size_t, FILE*)> realFread("fread");
constinit Real<size_t(const void*, size_t, size_t, FILE*)> realFwrite("fwrite");
constinit Real<size_t(void*, size_t, size_t, FILE*)> realFreadUnlocked("fread_unlocked");
constinit Real<size_t(const void*, size_t, size_t, FILE*)> realFwriteUnlocked("fwrite_unlocked");

[[gnu::constructor]] void resolveAll() {
  realRead.resolve();
  realWrite.resolve();
  realPread.resolve();
  realPwrite.resolve();
  realFread.resolve();
  realFwrite.resolve();
  realFreadUnlocked.resolve();
  realFwriteUnlocked.resolve();
}

// ---- What is common ----

enum class Direction { kRead, kWrite };

constexpr Phase phaseOf(Direction direction) {
  return direction == Direction::kRead ? Phase::kIoRead : Phase::kIoWrite;
}

// What the kernel transfers at most in one call: the largest int, in whole pages.
constexpr std::size_t kMostPerCall = INT_MAX & ~std::size_t{4095};

// What goes through private memory at a time where the size of a piece means nothing.
constexpr std::size_t kBounceBytes = 256 * 1024;

enum class FileKind {
  kBad,      // no open file: the real function knows what to say
  kRegular,  // never waits for anybody
  kWaits,
};

FileKind kindOf(int descriptor) {
  struct stat64 status;
  if (::fstat64(descriptor, &status) != 0) return FileKind::kBad;
  if (S_ISREG(status.st_mode)) return FileKind::kRegular;
  // A directory fails at once and a block device waits for no process.
  return S_ISDIR(status.st_mode) || S_ISBLK(status.st_mode) ? FileKind::kRegular : FileKind::kWaits;
}

// The length of the next piece: up to a multiple of the piece size as an address, so that no block
// is in two pieces.
std::size_t nextPiece(const void* address, std::size_t bytes, std::size_t pieceBytes) {
  const auto offset = reinterpret_cast<std::uintptr_t>(address) % pieceBytes;
  return std::min(bytes, pieceBytes - offset);
}

// Private memory for bytes on their way. Pages are taken as they are touched, so a large request
// that transfers little costs little. Owned by one call, on its stack (and given back when the
// thread is cancelled in it).
class Bounce {
 public:
  explicit Bounce(std::size_t bytes) : bytes_(bytes) {
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = memory == MAP_FAILED ? nullptr : memory;
  }
  ~Bounce() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }
  Bounce(const Bounce&) = delete;
  Bounce& operator=(const Bounce&) = delete;
  // NULL when there is no memory.
  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

// Copies between private and shared memory; false (errno EIO) when the shared bytes cannot be had.
bool copyToShared(void* to, const void* from, std::size_t bytes) {
  const std::size_t pieceBytes = coherence::pieceBytes();
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    const std::size_t piece = nextPiece(target, bytes, pieceBytes);
    const coherence::CpuHold hold(target, piece, true);
    if (!hold.status().ok()) {
      errno = EIO;
      return false;
    }
    std::memcpy(target, source, piece);
    target += piece;
    source += piece;
    bytes -= piece;
  }
  return true;
}

bool copyFromShared(void* to, const void* from, std::size_t bytes) {
  const std::size_t pieceBytes = coherence::pieceBytes();
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    const std::size_t piece = nextPiece(source, bytes, pieceBytes);
    const coherence::CpuHold hold(source, piece, false);
    if (!hold.status().ok()) {
      errno = EIO;
      return false;
    }
    std::memcpy(target, source, piece);
    target += piece;
    source += piece;
    bytes -= piece;
  }
  return true;
}

// ---- Descriptors ----

// Stand in for the lock that the kernel holds on a file position during a call. By descriptor, so
// that duplicates of one in several threads are not told; a lock is shared by descriptors far
// apart.
constinit std::array<std::mutex, 64> positionLocks;

// Three ways to make one call. `call` is the real function as (buffer, bytes, bytes done before),
// and answers with a count or -1.
template <Direction kDirection, typename Call>
ssize_t transferWhole(const void* buffer, std::size_t bytes, const Call& call) {
  const coherence::CpuHold hold(buffer, bytes, kDirection == Direction::kRead);
  if (!hold.status().ok()) {
    errno = EIO;
    return -1;
  }
  return call(const_cast<void*>(buffer), bytes, 0);
}

template <Direction kDirection, typename Call>
ssize_t transferInPieces(const void* buffer, std::size_t bytes, const Call& call) {
  const std::size_t pieceBytes = coherence::pieceBytes();
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(buffer));
  bytes = std::min(bytes, kMostPerCall);
  const int errnoBefore = errno;
  std::size_t done = 0;
  while (done < bytes) {
    const std::size_t piece = nextPiece(begin + done, bytes - done, pieceBytes);
    ssize_t count = -1;
    {
      const coherence::CpuHold hold(begin + done, piece, kDirection == Direction::kRead);
      if (hold.status().ok()) {
        count = call(begin + done, piece, done);
      } else {
        errno = EIO;
      }
    }
    if (count < 0) {
      if (done == 0) return -1;
      errno = errnoBefore;  // the call succeeds with what there is; the next one meets the error
      break;
    }
    done += static_cast<std::size_t>(count);
    if (static_cast<std::size_t>(count) < piece) break;
  }
  return static_cast<ssize_t>(done);
}

template <Direction kDirection, typename Call>
ssize_t transferThroughBounce(const void* buffer, std::size_t bytes, const Call& call) {
  bytes = std::min(bytes, kMostPerCall);
  const Bounce bounce(bytes);
  if (bounce.data() == nullptr) return transferWhole<kDirection>(buffer, bytes, call);
  if constexpr (kDirection == Direction::kRead) {
    const ssize_t count = call(bounce.data(), bytes, 0);
    if (count > 0 &&
        !copyToShared(const_cast<void*>(buffer), bounce.data(), static_cast<std::size_t>(count))) {
      return -1;
    }
    return count;
  } else {
    if (!copyFromShared(bounce.data(), buffer, bytes)) return -1;
    return call(bounce.data(), bytes, 0);
  }
}

// Whether a transfer in pieces is the same as a whole one.
template <Direction kDirection>
bool mayBeCut(int descriptor, std::size_t bytes, off64_t offset) {
  off64_t end = 0;
  if (offset < 0 || __builtin_add_overflow(offset, bytes, &end)) return false;
  if constexpr (kDirection == Direction::kWrite) {
    const int flags = ::fcntl(descriptor, F_GETFL);
    if (flags < 0 || (flags & O_APPEND) != 0) return false;
    // A piece that starts at the limit would raise SIGXFSZ; a whole call that reaches it is just
    // short.
    rlimit64 limit;
    if (::getrlimit64(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur != RLIM64_INFINITY) return false;
  }
  return true;
}

// `offset` is 0 and `positioned` false for calls that use the descriptor's own position.
template <Direction kDirection, typename Call>
ssize_t transfer(int descriptor, const void* buffer, std::size_t bytes, off64_t offset,
                 bool positioned, const Call& call) {
  const Timed timed(phaseOf(kDirection));
  TraceSpan span("io", kDirection == Direction::kRead ? "read" : "write", {"bytes", bytes});
  // errno of a successful call is what it was, whatever the runtime did meanwhile.
  const int errnoBefore = errno;
  ssize_t count = -1;
  const FileKind kind = kindOf(descriptor);
  if (kind == FileKind::kBad) {
    count = call(const_cast<void*>(buffer), bytes, 0);
  } else if (kind == FileKind::kWaits) {
    count = transferThroughBounce<kDirection>(buffer, bytes, call);
  } else if (!mayBeCut<kDirection>(descriptor, bytes, offset)) {
    count = transferWhole<kDirection>(buffer, bytes, call);
  } else if (positioned) {
    count = transferInPieces<kDirection>(buffer, bytes, call);
  } else {
    const std::lock_guard lock(positionLocks[static_cast<unsigned>(descriptor) % 64]);
    count = transferInPieces<kDirection>(buffer, bytes, call);
  }
  if (count >= 0) errno = errnoBefore;
  span.setSecond({"count", static_cast<std::uint64_t>(std::max<ssize_t>(count, 0))});
  return count;
}

// Whether a call on `bytes` bytes (as the kernel takes them: more than SSIZE_MAX is an error of its
// own) is ours.
bool isOurs(const void* buffer, std::size_t bytes) {
  return coherence::touchesShared(buffer, bytes) && bytes <= SSIZE_MAX;
}

ssize_t readShared(int descriptor, void* buffer, std::size_t bytes) {
  return transfer<Direction::kRead>(descriptor, buffer, bytes, 0, false,
                                    [&](void* piece, std::size_t length, std::size_t) {
                                      return realRead(descriptor, piece, length);
                                    });
}

ssize_t writeShared(int descriptor, const void* buffer, std::size_t bytes) {
  return transfer<Direction::kWrite>(descriptor, buffer, bytes, 0, false,
                                     [&](const void* piece, std::size_t length, std::size_t) {
                                       return realWrite(descriptor, piece, length);
                                     });
}

ssize_t preadShared(int descriptor, void* buffer, std::size_t bytes, off64_t offset) {
  return transfer<Direction::kRead>(descriptor, buffer, bytes, offset, true,
                                    [&](void* piece, std::size_t length, std::size_t done) {
                                      return realPread(descriptor, piece, length,
                                                       offset + static_cast<off64_t>(done));
                                    });
}

ssize_t pwriteShared(int descriptor, const void* buffer, std::size_t bytes, off64_t offset) {
  return transfer<Direction::kWrite>(descriptor, buffer, bytes, offset, true,
                                     [&](const void* piece, std::size_t length, std::size_t done) {
                                       return realPwrite(descriptor, piece, length,
                                                         offset + static_cast<off64_t>(done));
                                     });
}

// ---- Streams ----

// Locks a stream for its scope; a thread that has it locked may lock it again.
class StreamLock {
 public:
  explicit StreamLock(FILE* stream) : stream_(stream) { ::flockfile(stream_); }
  ~StreamLock() { ::funlockfile(stream_); }
  StreamLock(const StreamLock&) = delete;
  StreamLock& operator=(const StreamLock&) = delete;

 private:
  FILE* stream_;
};

// Streams that no descriptor stands behind may run code of the program, which may wait for
// anything.
bool streamWaits(FILE* stream) {
  const int savedErrno = errno;
  const int descriptor = ::fileno_unlocked(stream);
  const bool waits = descriptor < 0 || kindOf(descriptor) != FileKind::kRegular;
  errno = savedErrno;
  return waits;
}

// The stream is locked (or need not be). Returns bytes.
std::size_t streamReadShared(void* buffer, std::size_t bytes, FILE* stream) {
  const Timed timed(Phase::kIoRead);
  TraceSpan span("io", "fread", {"bytes", bytes});
  const int errnoBefore = errno;
  const bool waits = streamWaits(stream);
  const std::size_t pieceBytes = waits ? kBounceBytes : coherence::pieceBytes();
  const Bounce bounce(waits ? std::min(bytes, kBounceBytes) : 1);
  auto* const begin = static_cast<std::byte*>(buffer);
  std::size_t done = 0;
  bool failed = false;
  while (done < bytes && !failed) {
    const std::size_t piece = nextPiece(begin + done, bytes - done, pieceBytes);
    std::size_t count = 0;
    if (waits && bounce.data() != nullptr) {
      count = realFreadUnlocked(bounce.data(), 1, piece, stream);
      const int errnoOfRead = errno;
      if (!copyToShared(begin + done, bounce.data(), count)) return done;
      errno = errnoOfRead;
    } else {
      int errnoOfRead = EIO;
      {
        const coherence::CpuHold hold(begin + done, piece, true);
        if (hold.status().ok()) {
          errno = errnoBefore;
          count = realFreadUnlocked(begin + done, 1, piece, stream);
          errnoOfRead = errno;
        }
      }
      errno = errnoOfRead;
    }
    done += count;
    failed = count < piece;
  }
  if (!failed) errno = errnoBefore;
  span.setSecond({"count", done});
  return done;
}

std::size_t streamWriteShared(const void* buffer, std::size_t bytes, FILE* stream) {
  const Timed timed(Phase::kIoWrite);
  TraceSpan span("io", "fwrite", {"bytes", bytes});
  const int errnoBefore = errno;
  const bool waits = streamWaits(stream);
  const std::size_t pieceBytes = waits ? kBounceBytes : coherence::pieceBytes();
  const Bounce bounce(waits ? std::min(bytes, kBounceBytes) : 1);
  const auto* const begin = static_cast<const std::byte*>(buffer);
  std::size_t done = 0;
  bool failed = false;
  while (done < bytes && !failed) {
    const std::size_t piece = nextPiece(begin + done, bytes - done, pieceBytes);
    std::size_t count = 0;
    if (waits && bounce.data() != nullptr) {
      if (!copyFromShared(bounce.data(), begin + done, piece)) return done;
      errno = errnoBefore;
      count = realFwriteUnlocked(bounce.data(), 1, piece, stream);
    } else {
      int errnoOfWrite = EIO;
      {
        const coherence::CpuHold hold(begin + done, piece, false);
        if (hold.status().ok()) {
          errno = errnoBefore;
          count = realFwriteUnlocked(begin + done, 1, piece, stream);
          errnoOfWrite = errno;
        }
      }
      errno = errnoOfWrite;
    }
    done += count;
    failed = count < piece;
  }
  if (!failed) errno = errnoBefore;
  span.setSecond({"count", done});
  return done;
}

// Whether `count` items of `size` bytes at `buffer` are ours; `bytes` is how many that are. What
// overflows is not: libc decides what that means.
bool itemsAreOurs(const void* buffer, std::size_t size, std::size_t count, std::size_t* bytes) {
  return !__builtin_mul_overflow(size, count, bytes) && coherence::touchesShared(buffer, *bytes);
}

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names ----

#define GMAC_INTERPOSED __attribute__((visibility("default")))

namespace io = gmac::interpose;

extern "C" {

GMAC_INTERPOSED ssize_t read(int descriptor, void* buffer, size_t bytes) {
  if (!io::isOurs(buffer, bytes)) [[likely]]
    return io::realRead(descriptor, buffer, bytes);
  return io::readShared(descriptor, buffer, bytes);
}

GMAC_INTERPOSED ssize_t write(int descriptor, const void* buffer, size_t bytes) {
  if (!io::isOurs(buffer, bytes)) [[likely]]
    return io::realWrite(descriptor, buffer, bytes);
  return io::writeShared(descriptor, buffer, bytes);
}

GMAC_INTERPOSED ssize_t pread64(int descriptor, void* buffer, size_t bytes, off64_t offset) {
  if (!io::isOurs(buffer, bytes)) [[likely]] {
    return io::realPread(descriptor, buffer, bytes, offset);
  }
  return io::preadShared(descriptor, buffer, bytes, offset);
}

GMAC_INTERPOSED ssize_t pwrite64(int descriptor, const void* buffer, size_t bytes, off64_t offset) {
  if (!io::isOurs(buffer, bytes)) [[likely]] {
    return io::realPwrite(descriptor, buffer, bytes, offset);
  }
  return io::pwriteShared(descriptor, buffer, bytes, offset);
}

// off_t and off64_t are the same on the architectures named above.
GMAC_INTERPOSED ssize_t pread(int descriptor, void* buffer, size_t bytes, off_t offset) {
  return pread64(descriptor, buffer, bytes, offset);
}

GMAC_INTERPOSED ssize_t pwrite(int descriptor, const void* buffer, size_t bytes, off_t offset) {
  return pwrite64(descriptor, buffer, bytes, offset);
}

GMAC_INTERPOSED size_t fread(void* buffer, size_t size, size_t count, FILE* stream) {
  std::size_t bytes = 0;
  if (!io::itemsAreOurs(buffer, size, count, &bytes)) [[likely]] {
    return io::realFread(buffer, size, count, stream);
  }
  const io::StreamLock lock(stream);
  return io::streamReadShared(buffer, bytes, stream) / size;
}

GMAC_INTERPOSED size_t fread_unlocked(void* buffer, size_t size, size_t count, FILE* stream) {
  std::size_t bytes = 0;
  if (!io::itemsAreOurs(buffer, size, count, &bytes)) [[likely]] {
    return io::realFreadUnlocked(buffer, size, count, stream);
  }
  return io::streamReadShared(buffer, bytes, stream) / size;
}

GMAC_INTERPOSED size_t fwrite(const void* buffer, size_t size, size_t count, FILE* stream) {
  std::size_t bytes = 0;
  if (!io::itemsAreOurs(buffer, size, count, &bytes)) [[likely]] {
    return io::realFwrite(buffer, size, count, stream);
  }
  const io::StreamLock lock(stream);
  return io::streamWriteShared(buffer, bytes, stream) / size;
}

GMAC_INTERPOSED size_t fwrite_unlocked(const void* buffer, size_t size, size_t count,
                                       FILE* stream) {
  std::size_t bytes = 0;
  if (!io::itemsAreOurs(buffer, size, count, &bytes)) [[likely]] {
    return io::realFwriteUnlocked(buffer, size, count, stream);
  }
  return io::streamWriteShared(buffer, bytes, stream) / size;
}

// What a compiler makes of the calls above where it knows the buffer's size (_FORTIFY_SOURCE).

GMAC_INTERPOSED ssize_t __read_chk(int descriptor, void* buffer, size_t bytes, size_t room) {
  if (bytes > room) __chk_fail();
  return read(descriptor, buffer, bytes);
}

GMAC_INTERPOSED ssize_t __pread_chk(int descriptor, void* buffer, size_t bytes, off_t offset,
                                    size_t room) {
  if (bytes > room) __chk_fail();
  return pread64(descriptor, buffer, bytes, offset);
}

GMAC_INTERPOSED ssize_t __pread64_chk(int descriptor, void* buffer, size_t bytes, off64_t offset,
                                      size_t room) {
  if (bytes > room) __chk_fail();
  return pread64(descriptor, buffer, bytes, offset);
}

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
