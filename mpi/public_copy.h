// SPDX-License-Identifier: Apache-2.0
//
// The public copy of a window in MPI's separate memory model (MPI 4.0, section 12.4): private
// memory that other processes read and write at any time, beside the application's own copy. The
// two are reconciled byte by byte against the twin, which keeps what both held last: a byte that
// differs from the twin was written on that side meanwhile.
#ifndef GMAC_MPI_PUBLIC_COPY_H_
#define GMAC_MPI_PUBLIC_COPY_H_

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "mpi/staging_memory.h"

namespace gmac::mpi {

// A run of bytes, from the beginning of the window.
struct ByteRun {
  std::size_t first;
  std::size_t bytes;
  friend bool operator==(const ByteRun&, const ByteRun&) = default;
};

// Appends to `runs` the maximal runs in which two ranges of the same length differ, in ascending
// order. Their offsets count from `first`.
void findDifferences(std::span<const std::byte> one, const std::byte* other, std::size_t first,
                     std::vector<ByteRun>* runs);

// Not thread-safe, except that other processes may write to memory() at any time.
class PublicCopy {
 public:
  // collect() hands over no more bytes at a time, and about so many runs at most.
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
  static constexpr std::size_t kPieceRuns = std::size_t{1} << 16;

  // Takes runs of changed bytes, whose values stand one after another in `values`. False: it has
  // not taken them, and they remain changed.
  using Take = std::function<bool(std::span<const ByteRun> runs, const std::byte* values)>;

  // Allocates `bytes` (1 or more) at an address that equals `like` modulo 64, so that elements keep
  // their alignment.
  PublicCopy(const void* like, std::size_t bytes);
  // False: there was no memory.
  bool made() const { return memory_.data() != nullptr && twin_.data() != nullptr; }

  std::size_t bytes() const { return bytes_; }
  std::byte* memory() const { return memory_.data() + shift_; }

  // Both copies hold these bytes from `first` on, and nobody else uses them yet.
  void begin(std::size_t first, std::span<const std::byte> values);

  // The application's copy has these values from `first` on. Publishes those that differ from the
  // twin, and writes no other byte of memory(). What others have written meanwhile stays.
  void publish(std::size_t first, std::span<const std::byte> values);

  // Hands over what others have written to `bytes` from `first` on. False: `take` said so; or there
  // is no memory, and it was not called.
  bool collect(std::size_t first, std::size_t bytes, const Take& take);

 private:
  std::size_t bytes_;
  std::size_t shift_;
  StagingMemory memory_;
  StagingMemory twin_;
};

}  // namespace gmac::mpi

#endif  // GMAC_MPI_PUBLIC_COPY_H_
