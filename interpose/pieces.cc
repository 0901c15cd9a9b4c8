// SPDX-License-Identifier: Apache-2.0
#include "interpose/pieces.h"

#include <algorithm>
#include <cerrno>

#include "gmac/coherence.h"

namespace gmac::interpose {

ssize_t transferInPieces(const Transfer& transfer) {
  const std::size_t pieceBytes = coherence::pieceBytes();
  const std::size_t bytes = std::min(transfer.bytes, kMostPerCall);
  const int errnoBefore = errno;
  std::size_t done = 0;
  while (done < bytes) {
    std::byte* const at = transfer.buffer + done;
    const std::size_t piece = nextPiece(at, bytes - done, pieceBytes);
    ssize_t count = -1;
    {
      const coherence::CpuHold hold(at, piece, transfer.direction == Direction::kRead);
      if (hold.status().ok()) {
        count = transfer.call(at, piece, done);
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

}  // namespace gmac::interpose
