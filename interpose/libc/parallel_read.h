// SPDX-License-Identifier: Apache-2.0
//
// One read of a regular file by several threads.
#ifndef GMAC_INTERPOSE_LIBC_PARALLEL_READ_H_
#define GMAC_INTERPOSE_LIBC_PARALLEL_READ_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gmac/os/helper_threads.h"
#include "interpose/libc/transfer.h"

namespace gmac::interpose {

// Reads [buffer, buffer + bytes), which lies in one shared object, with the result of one thread
// that reads it from front to back. Each thread takes the next free piece, reads it into private
// memory, and waits until every earlier piece has been read in full. Only then it copies its piece
// to the shared memory and starts the copy to the accelerator. So when a piece is short or fails
// (the file was truncated, the disk is broken), nothing after it has been touched. Lives on the
// stack of the thread that makes the call; run() is thread-safe.
class ParallelRead final : public os::SharedWork {
 public:
  // `readAt` is called by any thread and in any order. The range ends at the end of a piece.
  ParallelRead(std::byte* buffer, std::size_t bytes, std::size_t pieceBytes,
               const RealCall& readAt);

  std::size_t pieceCount() const { return pieceCount_; }

  void run() override;

  // How many bytes were read, from the front. Valid once every thread has returned from run().
  std::size_t done() const;
  // Whether the call ends here, before all was read. If not, the rest could not be read in parallel
  // and can be read by one thread.
  bool ended() const { return ended_; }
  // errno of the piece that failed, 0 when it was only short.
  int error() const { return error_; }

 private:
  class Turn;
  static constexpr std::uint32_t kNobodys = UINT32_MAX;

  std::size_t beginOf(std::uint32_t piece) const;
  bool readPiece(std::uint32_t piece, void* scratch);

  std::byte* const buffer_;
  const std::size_t bytes_;
  const std::size_t pieceBytes_;
  const std::size_t firstBytes_;
  const std::uint32_t pieceCount_;
  const RealCall& readAt_;
  std::atomic<std::uint32_t> next_{0};  // the piece that nobody has
  std::atomic<std::uint32_t> turn_{0};  // how many pieces have been read in full, from the front
  // Written by the thread whose turn it is when it is the last.
  std::size_t shortDone_ = 0;
  bool ended_ = false;
  int error_ = 0;
};

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_LIBC_PARALLEL_READ_H_
