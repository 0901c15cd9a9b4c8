// SPDX-License-Identifier: Apache-2.0
#include "interpose/libc/parallel_read.h"

#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "gmac/coherence/memory_port.h"
#include "gmac/observe/trace.h"
#include "interpose/base/scratch.h"

namespace gmac::interpose {
namespace {

// Private memory for one piece, in huge pages where the system has them. Pages that were touched
// are kept for the next piece. Owned by one thread's run().
class PieceMemory {
 public:
  explicit PieceMemory(std::size_t bytes) : bytes_(bytes) {
    for (std::atomic<void*>& slot : kept_) {
      data_ = slot.exchange(nullptr);
      if (data_ != nullptr) return;
    }
    // Aligned, so that huge pages fit.
    void* const memory = ::mmap(nullptr, 2 * bytes_, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;
    auto* const begin = static_cast<std::byte*>(memory);
    const std::size_t before = (bytes_ - reinterpret_cast<std::uintptr_t>(begin) % bytes_) % bytes_;
    data_ = begin + before;
    if (before > 0) ::munmap(begin, before);
    ::munmap(begin + before + bytes_, bytes_ - before);
    (void)::madvise(data_, bytes_, MADV_HUGEPAGE);
  }
  ~PieceMemory() {
    if (data_ == nullptr) return;
    for (std::atomic<void*>& slot : kept_) {
      void* none = nullptr;
      if (slot.compare_exchange_strong(none, data_)) return;
    }
    ::munmap(data_, bytes_);
  }
  PieceMemory(const PieceMemory&) = delete;
  PieceMemory& operator=(const PieceMemory&) = delete;
  // NULL when there is no memory.
  void* data() const { return data_; }

 private:
  // All pieces of a process are of one size, a power of two.
  static constinit inline std::array<std::atomic<void*>, 4> kept_{};

  std::size_t bytes_;
  void* data_ = nullptr;
};

}  // namespace

// The order of the pieces, as seen by the thread that has one of them.
class ParallelRead::Turn {
 public:
  Turn(ParallelRead& read, std::uint32_t piece) : read_(read), piece_(piece) {}

  // Waits until every earlier piece has been read in full. False when one was not; then this piece
  // must not be stored.
  bool await() {
    for (;;) {
      const std::uint32_t turn = read_.turn_.load(std::memory_order_acquire);
      if (turn == piece_) return true;
      if (turn == kNobodys) return false;
      read_.turn_.wait(turn);
    }
  }
  // Passes the turn on to the next piece.
  void pass() { leaveTo(piece_ + 1); }
  // Ends the turns: no later piece is stored. `ends`: the call ends here too.
  void end(std::size_t count, bool ends, int error) {
    read_.shortDone_ = read_.beginOf(piece_) + count;
    read_.ended_ = ends;
    read_.error_ = error;
    leaveTo(kNobodys);
  }

 private:
  void leaveTo(std::uint32_t turn) {
    read_.turn_.store(turn, std::memory_order_release);
    read_.turn_.notify_all();
  }

  ParallelRead& read_;
  const std::uint32_t piece_;
};

ParallelRead::ParallelRead(std::byte* buffer, std::size_t bytes, std::size_t pieceBytes,
                           const RealCall& readAt)
    : buffer_(buffer),
      bytes_(bytes),
      pieceBytes_(pieceBytes),
      firstBytes_(nextPiece(buffer, bytes, pieceBytes)),
      pieceCount_(static_cast<std::uint32_t>((bytes - firstBytes_) / pieceBytes + 1)),
      readAt_(readAt) {}

std::size_t ParallelRead::beginOf(std::uint32_t piece) const {
  return piece == 0 ? 0 : firstBytes_ + (piece - 1) * pieceBytes_;
}

std::size_t ParallelRead::done() const {
  const std::uint32_t turn = turn_.load(std::memory_order_acquire);
  return turn == kNobodys ? shortDone_ : beginOf(turn);
}

void ParallelRead::run() {
  const PieceMemory scratch(pieceBytes_);
  if (scratch.data() == nullptr) return;
  for (;;) {
    const std::uint32_t piece = next_.fetch_add(1, std::memory_order_relaxed);
    if (piece >= pieceCount_ || !readPiece(piece, scratch.data())) return;
  }
}

// False when further pieces are of no use.
bool ParallelRead::readPiece(std::uint32_t piece, void* scratch) {
  Turn turn(*this, piece);
  const std::size_t begin = beginOf(piece);
  const std::size_t bytes = beginOf(piece + 1) - begin;
  std::byte* const to = buffer_ + begin;
  ssize_t count = 0;
  int error = 0;
  {
    const TraceSpan span("io", "read piece", {"bytes", bytes});
    count = readAt_(scratch, bytes, begin);
    if (count < 0) error = errno;
  }
  if (!turn.await()) return false;
  const bool whole = count == static_cast<ssize_t>(bytes);
  if (count <= 0) {
    turn.end(0, true, error);
    return false;
  }
  {
    // The read overwrites these bytes, so they are not fetched first.
    const coherence::CpuHold hold(to, static_cast<std::size_t>(count),
                                  coherence::HoldFor::kOverwrite);
    if (!hold.status().ok()) {
      // Perhaps no mappings are left, and none can be freed while others hold the object.
      turn.end(0, false, 0);
      return false;
    }
    if (whole) {
      turn.pass();
    } else {
      turn.end(static_cast<std::size_t>(count), true, 0);
    }
    std::memcpy(to, scratch, static_cast<std::size_t>(count));
  }
  // Only a hint: if this fails, the call that needs the copy makes it.
  if (whole) (void)coherence::memory().startFlush(to, bytes);
  return whole;
}

}  // namespace gmac::interpose
