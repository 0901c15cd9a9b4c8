// SPDX-License-Identifier: Apache-2.0
#include "interpose/transfer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "gmac/coherence.h"
#include "gmac/stats.h"
#include "gmac/trace.h"
#include "interpose/pieces.h"

// libc's headers say that functions only write to their buffers, so that asking whether a buffer is
// shared looks like reading what is not initialised.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace gmac::interpose {
namespace {

constinit std::array<std::mutex, 64> positionLocks;

// In one call, on the shared memory itself.
ssize_t transferWhole(const Transfer& transfer) {
  const coherence::CpuHold hold(transfer.buffer, transfer.bytes,
                                transfer.direction == Direction::kRead);
  if (!hold.status().ok()) {
    errno = EIO;
    return -1;
  }
  return transfer.call(transfer.buffer, transfer.bytes, 0);
}

// In one call, on private memory.
ssize_t transferThroughBounce(const Transfer& transfer) {
  const std::size_t bytes = std::min(transfer.bytes, kMostPerCall);
  const Bounce bounce(bytes);
  if (bounce.data() == nullptr) return transferWhole(transfer);
  if (transfer.direction == Direction::kWrite) {
    if (!copyFromShared(bounce.data(), transfer.buffer, bytes)) return -1;
    return transfer.call(bounce.data(), bytes, 0);
  }
  const ssize_t count = transfer.call(bounce.data(), bytes, 0);
  if (count > 0 && !copyToShared(transfer.buffer, bounce.data(), static_cast<std::size_t>(count))) {
    return -1;
  }
  return count;
}

// Whether a transfer in pieces is the same as a whole one.
bool mayBeCut(const Transfer& transfer) {
  off64_t end = 0;
  if (transfer.offset < 0 || __builtin_add_overflow(transfer.offset, transfer.bytes, &end)) {
    return false;
  }
  if (transfer.direction == Direction::kWrite) {
    const int flags = ::fcntl(transfer.descriptor, F_GETFL);
    if (flags < 0 || (flags & O_APPEND) != 0) return false;
    // A piece that starts at the limit would raise SIGXFSZ; a whole call that reaches it is just
    // short.
    rlimit64 limit;
    if (::getrlimit64(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur != RLIM64_INFINITY) return false;
  }
  return true;
}

ssize_t transferAsSuits(const Transfer& transfer) {
  switch (kindOf(transfer.descriptor)) {
    case FileKind::kBad:
      return transfer.call(transfer.buffer, transfer.bytes, 0);
    case FileKind::kWaits:
      return transferThroughBounce(transfer);
    case FileKind::kRegular:
      break;
  }
  if (!mayBeCut(transfer)) return transferWhole(transfer);
  if (transfer.positioned) return transferInPieces(transfer);
  const PositionLock lock(transfer.descriptor);
  return transferInPieces(transfer);
}

// Copies piece by piece, each with the shared side held open; `shared` says where in it a piece is.
template <typename CopyPiece>
bool copyHeld(const void* shared, std::size_t bytes, bool write, const CopyPiece& copyPiece) {
  const std::size_t pieceBytes = coherence::pieceBytes();
  const auto* const begin = static_cast<const std::byte*>(shared);
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = nextPiece(begin + done, bytes - done, pieceBytes);
    const coherence::CpuHold hold(begin + done, piece, write);
    if (!hold.status().ok()) {
      errno = EIO;
      return false;
    }
    copyPiece(done, piece);
    done += piece;
  }
  return true;
}

}  // namespace

ssize_t transfer(const Transfer& transfer) {
  const bool reads = transfer.direction == Direction::kRead;
  const Timed timed(reads ? Phase::kIoRead : Phase::kIoWrite);
  TraceSpan span("io", reads ? "read" : "write", {"bytes", transfer.bytes});
  // errno of a successful call is what it was, whatever the runtime did meanwhile.
  const int errnoBefore = errno;
  const ssize_t count = transferAsSuits(transfer);
  if (count >= 0) errno = errnoBefore;
  span.setSecond({"count", static_cast<std::uint64_t>(std::max<ssize_t>(count, 0))});
  return count;
}

bool isOurs(const void* buffer, std::size_t bytes) {
  return coherence::touchesShared(buffer, bytes) && bytes <= SSIZE_MAX;
}

FileKind kindOf(int descriptor) {
  struct stat64 status;
  if (::fstat64(descriptor, &status) != 0) return FileKind::kBad;
  if (S_ISREG(status.st_mode)) return FileKind::kRegular;
  // A directory fails at once and a block device waits for no process.
  return S_ISDIR(status.st_mode) || S_ISBLK(status.st_mode) ? FileKind::kRegular : FileKind::kWaits;
}

std::size_t nextPiece(const void* address, std::size_t bytes, std::size_t pieceBytes) {
  const auto offset = reinterpret_cast<std::uintptr_t>(address) % pieceBytes;
  return std::min(bytes, pieceBytes - offset);
}

PositionLock::PositionLock(int descriptor)
    : lock_(positionLocks[static_cast<unsigned>(descriptor) % positionLocks.size()]) {}

Bounce::Bounce(std::size_t bytes) : bytes_(bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  data_ = memory == MAP_FAILED ? nullptr : memory;
}

Bounce::~Bounce() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

bool copyToShared(void* to, const void* from, std::size_t bytes) {
  return copyHeld(to, bytes, true, [&](std::size_t done, std::size_t piece) {
    std::memcpy(static_cast<std::byte*>(to) + done, static_cast<const std::byte*>(from) + done,
                piece);
  });
}

bool copyFromShared(void* to, const void* from, std::size_t bytes) {
  return copyHeld(from, bytes, false, [&](std::size_t done, std::size_t piece) {
    std::memcpy(static_cast<std::byte*>(to) + done, static_cast<const std::byte*>(from) + done,
                piece);
  });
}

}  // namespace gmac::interpose
