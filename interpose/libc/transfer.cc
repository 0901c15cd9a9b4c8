// SPDX-License-Identifier: Apache-2.0
#include "interpose/libc/transfer.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

#include "gmac/base/cancellation.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"
#include "interpose/libc/pieces.h"

// libc's headers declare that functions only write to their buffers, so asking whether a buffer is
// shared looks like reading uninitialised memory.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace gmac::interpose {
namespace {

constinit std::array<std::mutex, 64> positionLocks;

// The largest alignment that direct I/O demands of buffers, lengths and offsets.
constexpr std::uintptr_t kDirectAlignment = 4096;

bool addressable(const void* address, std::size_t bytes) {
  constexpr std::uintptr_t kEnd = std::uintptr_t{1} << 47;
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  return begin < kEnd && bytes < kEnd - begin;
}

// ---- Which way ----

enum class Way {
  kAsGiven,   // no open file: the real function knows the error
  kPrivate,   // one call, on private memory
  kWhole,     // one call, on the shared memory itself
  kInPieces,  // several calls
};

// The properties of a transfer that decide the way. `place` has the bits of addresses and lengths
// that direct I/O checks.
struct Request {
  Direction direction;
  int descriptor;
  bool positioned;
  off64_t offset;
  std::size_t bytes;
  std::uintptr_t place;
};

// A direct read that meets the end of the file clears memory after the bytes that it counts.
bool mayClearMore(const Request& request, const struct stat64& status) {
  if (request.direction == Direction::kWrite) return false;
  const off64_t begin =
      request.positioned ? request.offset : ::lseek64(request.descriptor, 0, SEEK_CUR);
  off64_t end = 0;
  return __builtin_add_overflow(begin, request.bytes, &end) || end > status.st_size;
}

// A piece that starts at the limit would raise SIGXFSZ; one whole call that reaches it is only
// short.
bool limited() {
  rlimit64 limit;
  return ::getrlimit64(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur != RLIM64_INFINITY;
}

Way wayOf(const Request& request) {
  struct stat64 status;
  const int flags =
      ::fstat64(request.descriptor, &status) == 0 ? ::fcntl(request.descriptor, F_GETFL) : -1;
  if (flags < 0) return Way::kAsGiven;
  if (kindOf(status) == FileKind::kWaits) return Way::kPrivate;
  const bool direct = (flags & O_DIRECT) != 0;
  if (direct && mayClearMore(request, status)) return Way::kPrivate;
  off64_t end = 0;
  if (request.offset < 0 || __builtin_add_overflow(request.offset, request.bytes, &end)) {
    return Way::kWhole;
  }
  // The last piece would fail alone; the whole call fails as one.
  const std::uintptr_t bits =
      request.place | request.bytes | static_cast<std::uintptr_t>(request.offset);
  if (direct && bits % kDirectAlignment != 0) return Way::kWhole;
  if (request.direction == Direction::kWrite && ((flags & O_APPEND) != 0 || limited())) {
    return Way::kWhole;
  }
  return Way::kInPieces;
}

// ---- One buffer ----

// One call, on the shared memory itself.
ssize_t transferWhole(const Transfer& transfer) {
  const coherence::CpuHold hold(transfer.buffer, std::min(transfer.bytes, kMostPerCall),
                                transfer.direction == Direction::kRead);
  if (!hold.status().ok()) {
    errno = EIO;
    return -1;
  }
  return transfer.call(transfer.buffer, transfer.bytes, 0);
}

ssize_t transferPrivately(const Transfer& transfer) {
  const iovec whole = {transfer.buffer, transfer.bytes};
  return transferOnPrivateMemory(transfer.direction, {&whole, 1}, {}, [&](const Vector& privately) {
    const iovec* const parts = privately.parts;
    return privately.count == 1 ? transfer.call(parts->iov_base, parts->iov_len, 0)
                                : transfer.vectorCall(parts, static_cast<int>(privately.count), 0);
  });
}

// Locks the file position if need be.
template <typename Pieces>
ssize_t inPieces(int descriptor, bool positioned, const Pieces& pieces) {
  if (positioned) return pieces();
  const PositionLock lock(descriptor);
  return pieces();
}

ssize_t transferAsSuits(const Transfer& transfer) {
  const Way way =
      wayOf({transfer.direction, transfer.descriptor, transfer.positioned, transfer.offset,
             transfer.bytes, reinterpret_cast<std::uintptr_t>(transfer.buffer)});
  switch (way) {
    case Way::kAsGiven:
      return transfer.call(transfer.buffer, transfer.bytes, 0);
    case Way::kPrivate:
      return transferPrivately(transfer);
    case Way::kInPieces:
      if (addressable(transfer.buffer, transfer.bytes)) {
        return inPieces(transfer.descriptor, transfer.positioned,
                        [&] { return transferInPieces(transfer); });
      }
      break;
    case Way::kWhole:
      break;
  }
  return transferWhole(transfer);
}

// ---- A vector ----

ssize_t transferWhole(const VectorTransfer& transfer, const Vector& given, std::size_t done) {
  const VectorHold hold(given, transfer.direction == Direction::kRead);
  if (!hold.ok()) return -1;
  return transfer.call(given.parts, static_cast<int>(given.count), done);
}

// One long part alone.
ssize_t transferPart(const VectorTransfer& transfer, const iovec& part, std::size_t done) {
  const off64_t offset = transfer.positioned ? transfer.offset + static_cast<off64_t>(done) : 0;
  return transferInPieces({transfer.direction, transfer.descriptor,
                           static_cast<std::byte*>(part.iov_base), part.iov_len,
                           transfer.positioned, offset,
                           [&](void* buffer, std::size_t bytes, std::size_t doneOfPart) {
                             const iovec piece = {buffer, bytes};
                             return transfer.call(&piece, 1, done + doneOfPart);
                           },
                           [&](const iovec* parts, int count, std::size_t doneOfPart) {
                             return transfer.call(parts, count, done + doneOfPart);
                           }});
}

// Long shared parts in pieces; the parts between them together.
ssize_t transferInRuns(const VectorTransfer& transfer) {
  const std::size_t pieceBytes = coherence::memory().pieceBytes();
  const auto isLong = [pieceBytes](const iovec& part) {
    return part.iov_len >= pieceBytes && coherence::touchesShared(part.iov_base, part.iov_len);
  };
  const int errnoBefore = errno;
  const iovec* const end = transfer.given.parts + transfer.given.count;
  std::size_t done = 0;
  for (const iovec* part = transfer.given.parts; part != end;) {
    const iovec* const next = isLong(*part) ? part + 1 : std::find_if(part, end, isLong);
    const Vector run = {part, static_cast<std::size_t>(next - part)};
    const ssize_t count =
        isLong(*part) ? transferPart(transfer, *part, done) : transferWhole(transfer, run, done);
    if (count < 0) {
      if (done == 0) return -1;
      errno = errnoBefore;  // the call succeeds with its count; the next one meets the error
      break;
    }
    done += static_cast<std::size_t>(count);
    if (static_cast<std::size_t>(count) < run.bytes()) break;
    part = next;
  }
  return static_cast<ssize_t>(done);
}

// The bits of all addresses and lengths that direct I/O checks.
std::uintptr_t placeOf(const Vector& given) {
  std::uintptr_t place = 0;
  for (std::size_t i = 0; i < given.count; ++i) {
    place |= reinterpret_cast<std::uintptr_t>(given.parts[i].iov_base) | given.parts[i].iov_len;
  }
  return place;
}

// The kernel checks these of a whole vector before it transfers a byte, and would find them too
// late in the second of two pieces: parts beyond the address space, and more bytes than it
// transfers at once.
bool isPlainVector(const Vector& given) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < given.count; ++i) {
    if (!addressable(given.parts[i].iov_base, given.parts[i].iov_len)) return false;
    sum += given.parts[i].iov_len;
  }
  return sum <= kMostPerCall;
}

ssize_t transferAsSuits(const VectorTransfer& transfer) {
  const Vector& given = transfer.given;
  const std::size_t bytes = given.bytes();
  const Way way = wayOf({transfer.direction, transfer.descriptor, transfer.positioned,
                         transfer.offset, bytes, placeOf(given)});
  switch (way) {
    case Way::kAsGiven:
      return transfer.call(given.parts, static_cast<int>(given.count), 0);
    case Way::kPrivate:
      return transferOnPrivateMemory(transfer.direction, given, {}, [&](const Vector& privately) {
        return transfer.call(privately.parts, static_cast<int>(privately.count), 0);
      });
    case Way::kInPieces:
      if (transfer.mayBeCut && bytes > coherence::memory().pieceBytes() && isPlainVector(given)) {
        return inPieces(transfer.descriptor, transfer.positioned,
                        [&] { return transferInRuns(transfer); });
      }
      break;
    case Way::kWhole:
      break;
  }
  return transferWhole(transfer, given, 0);
}

template <typename AnyTransfer>
ssize_t timed(const AnyTransfer& transfer, const char* name, std::size_t bytes) {
  const Timed timed(transfer.direction == Direction::kRead ? Phase::kIoRead : Phase::kIoWrite);
  TraceSpan span("io", name, {"bytes", bytes});
  // A successful call keeps errno, whatever the runtime did meanwhile.
  const int errnoBefore = errno;
  const ssize_t count = transferAsSuits(transfer);
  if (count >= 0) errno = errnoBefore;
  span.setSecond({"count", static_cast<std::uint64_t>(std::max<ssize_t>(count, 0))});
  return count;
}

}  // namespace

ssize_t transfer(const Transfer& transfer) {
  return cancellationPoint([&] {
    return timed(transfer, transfer.direction == Direction::kRead ? "read" : "write",
                 transfer.bytes);
  });
}

ssize_t transfer(const VectorTransfer& transfer) {
  return cancellationPoint([&] {
    return timed(transfer, transfer.direction == Direction::kRead ? "readv" : "writev",
                 transfer.given.bytes());
  });
}

namespace {

// Calls visit(address, bytes, offset in the vector) for each shared stretch.
template <typename Visit>
void visitShared(const Vector& given, const Visit& visit) {
  const std::size_t most = given.bytes();
  std::size_t offset = 0;
  for (std::size_t i = 0; i < given.count && offset < most; ++i) {
    auto* at = static_cast<std::byte*>(given.parts[i].iov_base);
    std::size_t left = std::min(given.parts[i].iov_len, most - offset);
    while (left > 0) {
      bool shared = false;
      const std::size_t stretch = coherence::memory().sharedPrefix(at, left, &shared);
      if (shared) visit(at, stretch, offset);
      at += stretch;
      offset += stretch;
      left -= stretch;
    }
  }
}

// For a vector without room for private parts (IOV_MAX). The call itself still gives the right
// result, but a kernel call of the peer would wait for it. A direct read may clear memory before it
// finds that it must fail: that memory is restored.
ssize_t callAsGiven(const Vector& given, bool reads,
                    const FunctionView<ssize_t(const Vector&)>& call) {
  const VectorHold hold(given, reads);
  if (!hold.ok()) return -1;
  if (!reads) return cancellably([&] { return call(given); });
  const Scratch kept(given.bytes(), true);
  if (kept.data() == nullptr) {
    errno = ENOMEM;
    return -1;
  }
  visitShared(given, [&](const std::byte* at, std::size_t bytes, std::size_t offset) {
    (void)copyFromShared(kept.data() + offset, at, bytes);
  });
  const ssize_t count = cancellably([&] { return call(given); });
  if (count < 0) {
    const int error = errno;
    visitShared(given, [&](std::byte* at, std::size_t bytes, std::size_t offset) {
      (void)copyToShared(at, kept.data() + offset, bytes);
    });
    errno = error;
  }
  return count;
}

}  // namespace

ssize_t transferOnPrivateMemory(Direction direction, const Vector& given, PrivateOptions options,
                                FunctionView<ssize_t(const Vector& privately)> call) {
  const bool reads = direction == Direction::kRead;
  const int errnoBefore = errno;
  StandIn standIn(given, options.kernelKeeps);
  if (!standIn.ok()) return callAsGiven(given, reads, call);
  if ((!reads || options.prefilled) && !standIn.copyIn()) return -1;
  const ssize_t count = cancellably([&] { return call(standIn.vector()); });
  if (count >= 0) errno = errnoBefore;
  if (!reads || count <= 0) return count;
  return standIn.copyOut(static_cast<std::size_t>(count)) ? count : -1;
}

bool isOurs(const void* buffer, std::size_t bytes) {
  return coherence::touchesShared(buffer, bytes) && bytes <= SSIZE_MAX;
}

FileKind kindOf(const struct stat64& status) {
  // A directory fails at once and a block device waits for no process.
  const bool waits =
      !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode) && !S_ISBLK(status.st_mode);
  return waits ? FileKind::kWaits : FileKind::kRegular;
}

FileKind kindOf(int descriptor) {
  struct stat64 status;
  return ::fstat64(descriptor, &status) == 0 ? kindOf(status) : FileKind::kBad;
}

PositionLock::PositionLock(int descriptor)
    : lock_(positionLocks[static_cast<unsigned>(descriptor) % positionLocks.size()]) {}

}  // namespace gmac::interpose
