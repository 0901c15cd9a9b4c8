// SPDX-License-Identifier: Apache-2.0
#include "interpose/libc/pieces.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>

#include "gmac/coherence/memory_port.h"
#include "gmac/os/helper_threads.h"
#include "interpose/base/real.h"
#include "interpose/base/scratch.h"
#include "interpose/libc/parallel_read.h"

namespace gmac::interpose {
namespace {

constinit Real<ssize_t(int, void*, size_t, off64_t)> realPread("pread64");
[[gnu::constructor]] void resolvePread() { resolveAtLoad(realPread); }

// With fewer pieces, waking other threads costs more than it gains.
constexpr std::size_t kLeastPieces = 4;
// Each thread holds one piece in private memory.
constexpr std::size_t kMostPieceBytes = std::size_t{8} << 20;
// A write begins with small pieces, so that its first byte is written soon, and goes on with larger
// ones: each piece costs a system call and a hold.
constexpr std::size_t kMostWritePieceBytes = std::size_t{8} << 20;
// The most that a write's fetches run ahead of it.
constexpr std::size_t kFetchAheadBytes = std::size_t{32} << 20;

// The result of a transfer or a part of it.
struct Outcome {
  std::size_t done = 0;
  bool ended = false;  // before all was transferred: the call ends too
  int error = 0;       // why, if it failed; 0 if it was short
};

// Fetches ahead of a write: far enough that the write never waits for a copy, and not so far that
// bytes that may never be written displace others in the CPU's caches or delay the program's other
// copies.
class FetchAhead {
 public:
  FetchAhead(const std::byte* buffer, std::size_t bytes) : buffer_(buffer), bytes_(bytes) {}
  // Called before the write begins the piece that ends at `end`.
  void pieceUntil(std::size_t end) {
    started_ = std::max(started_, end);
    if (started_ >= bytes_ || started_ - end > kFetchAheadBytes / 2) return;
    const std::size_t until = std::min(bytes_, end + kFetchAheadBytes);
    // Only a hint: a piece that was not fetched ahead is fetched when it is held.
    (void)coherence::memory().startFetch(buffer_ + started_, until - started_);
    started_ = until;
  }

 private:
  const std::byte* buffer_;
  std::size_t bytes_;
  std::size_t started_ = 0;
};

// Transfers [from, bytes) of the buffer from front to back.
Outcome inOrder(const Transfer& transfer, std::size_t from, std::size_t bytes) {
  const bool reads = transfer.direction == Direction::kRead;
  const std::size_t pieceBytes = coherence::memory().pieceBytes();
  FetchAhead ahead(transfer.buffer, reads ? 0 : bytes);
  Outcome outcome{from};
  while (outcome.done < bytes) {
    std::byte* const at = transfer.buffer + outcome.done;
    const std::size_t most =
        reads ? pieceBytes
              : std::max(pieceBytes, std::min(std::bit_floor(outcome.done), kMostWritePieceBytes));
    const std::size_t piece = nextPiece(at, bytes - outcome.done, most);
    ahead.pieceUntil(outcome.done + piece);
    ssize_t count = -1;
    {
      const coherence::CpuHold hold(at, piece, reads);
      if (hold.status().ok()) {
        count = transfer.call(at, piece, outcome.done);
      } else {
        errno = EIO;
      }
    }
    if (count < static_cast<ssize_t>(piece)) {
      outcome.ended = true;
      outcome.error = count < 0 ? errno : 0;
      outcome.done += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
      break;
    }
    outcome.done += piece;
    // Only a hint: if this fails, the call that needs the copy makes it.
    if (reads && piece == pieceBytes) (void)coherence::memory().startFlush(at, piece);
  }
  return outcome;
}

std::size_t parallelPieceBytes() {
  return std::min(coherence::memory().pieceBytes(), kMostPieceBytes);
}

// The bytes of a transfer that the file has now, and, from their front, the whole pieces that lie
// in one object, which several threads may read. The kernel answers for bytes past the end of the
// file. A piece that ended where the file ends would break direct I/O's alignment.
struct Extent {
  std::size_t inFile = 0;
  std::size_t inParallel = 0;  // 0 also when it is too little to gain
};
Extent extentOf(const Transfer& transfer, std::size_t bytes, off64_t offset) {
  struct stat64 status;
  if (::fstat64(transfer.descriptor, &status) != 0 || !S_ISREG(status.st_mode) ||
      offset >= status.st_size) {
    return {};
  }
  bytes = std::min(bytes, static_cast<std::size_t>(status.st_size - offset));
  bool shared = false;
  const std::size_t inObject = coherence::memory().sharedPrefix(transfer.buffer, bytes, &shared);
  const std::size_t pieceBytes = parallelPieceBytes();
  const auto begin = reinterpret_cast<std::uintptr_t>(transfer.buffer);
  const auto end = (begin + inObject) / pieceBytes * pieceBytes;
  const bool worthIt =
      shared && end >= begin + kLeastPieces * pieceBytes && coherence::memory().ioThreads() > 1;
  return {bytes, worthIt ? end - begin : 0};
}

// A read with an offset. Several threads read as much of the front as they may; this thread reads
// the rest in order.
Outcome readAt(const Transfer& transfer, std::size_t bytes, std::size_t inParallel) {
  Outcome outcome;
  if (inParallel > 0) {
    ParallelRead read(transfer.buffer, inParallel, parallelPieceBytes(), transfer.call);
    {
      const os::Helpers helpers(read,
                                std::min(coherence::memory().ioThreads(), read.pieceCount()) - 1);
      read.run();
    }
    outcome = {read.done(), read.ended(), read.error()};
  }
  return outcome.ended ? outcome : inOrder(transfer, outcome.done, bytes);
}

// A read of more than one piece at the descriptor's own position. It moves the position once past
// all bytes that the file has, and moves it back over the bytes that it did not read, so that no
// other reader of the same open file gets these bytes.
Outcome readAtPosition(const Transfer& transfer, std::size_t bytes) {
  const off64_t position = ::lseek64(transfer.descriptor, 0, SEEK_CUR);
  if (position < 0) return inOrder(transfer, 0, bytes);
  const Extent extent = extentOf(transfer, bytes, position);
  if (extent.inFile == 0) return inOrder(transfer, 0, bytes);
  const auto taken = static_cast<off64_t>(extent.inFile);
  const off64_t end = ::lseek64(transfer.descriptor, taken, SEEK_CUR);
  if (end < 0) return inOrder(transfer, 0, bytes);
  const off64_t offset = end - taken;
  const auto call = [&](void* buffer, std::size_t length, std::size_t done) {
    return realPread(transfer.descriptor, buffer, length, offset + static_cast<off64_t>(done));
  };
  Transfer placed{transfer};
  placed.positioned = true;
  placed.offset = offset;
  placed.call = call;
  const Outcome outcome = readAt(placed, bytes, extent.inParallel);
  // The file has grown: read past the part that was taken.
  const off64_t correction = static_cast<off64_t>(outcome.done) - taken;
  if (correction != 0) (void)::lseek64(transfer.descriptor, correction, SEEK_CUR);
  return outcome;
}

Outcome transferAll(const Transfer& transfer, std::size_t bytes) {
  const bool onePiece =
      nextPiece(transfer.buffer, bytes, coherence::memory().pieceBytes()) == bytes;
  if (transfer.direction == Direction::kWrite || onePiece) return inOrder(transfer, 0, bytes);
  if (!transfer.positioned) return readAtPosition(transfer, bytes);
  return readAt(transfer, bytes, extentOf(transfer, bytes, transfer.offset).inParallel);
}

}  // namespace

ssize_t transferInPieces(const Transfer& transfer) {
  const std::size_t bytes = std::min(transfer.bytes, kMostPerCall);
  const int errnoBefore = errno;
  const Outcome outcome = transferAll(transfer, bytes);
  if (outcome.done == 0 && outcome.error != 0) {
    errno = outcome.error;
    return -1;
  }
  // One piece whose blocks are larger than a piece.
  if (transfer.direction == Direction::kRead && outcome.done >= coherence::memory().pieceBytes()) {
    (void)coherence::memory().startFlush(transfer.buffer, outcome.done);
  }
  // If bytes were transferred before the failure, the call succeeds with their count; the next call
  // meets the error.
  errno = errnoBefore;
  return static_cast<ssize_t>(outcome.done);
}

}  // namespace gmac::interpose
