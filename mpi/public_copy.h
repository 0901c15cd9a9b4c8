// SPDX-License-Identifier: Apache-2.0
//
// The public copy of a window in MPI's separate memory model (MPI 4.0, section 12.4): private
// memory that other processes read and write at any time, beside the application's own copy. The
// two are brought together byte by byte: what differs from the twin, which is what both held
// last, was written meanwhile, on the one side or the other.
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

// The runs in which two ranges of the same length differ, ascending, the longest that there are;
// their places count from `first`. What stands in `runs` stays.
void findDifferences(std::span<const std::byte> one, const std::byte* other, std::size_t first,
                     std::vector<ByteRun>* runs);

// Not thread-safe, but for what others write to memory() meanwhile.
class PublicCopy {
 public:
  // collect() hands over no more bytes at a time, and about so many runs at most.
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
  static constexpr std::size_t kPieceRuns = std::size_t{1} << 16;

  // Takes runs of changed bytes, whose values stand one after another in `values`. False: it has
  // not taken them, and they remain changed.
  using Take = std::function<bool(std::span<const ByteRun> runs, const std::byte* values)>;

  // Memory for `bytes` (1 or more), at an address that is `like`'s modulo 64: what is aligned for
  // an operation there is so here.
  PublicCopy(const void* like, std::size_t bytes);
  // False: there was no memory.
  bool made() const { return memory_.data() != nullptr && twin_.data() != nullptr; }

  std::size_t bytes() const { return bytes_; }
  std::byte* memory() const { return memory_.data() + shift_; }

  // Both copies hold these bytes from `first` on, and nobody else uses them yet.
  void begin(std::size_t first, std::span<const std::byte> values);

  // The application's copy has these values from `first` on: those that are new there become
  // public. No other byte of memory() is written. What others have written meanwhile stays.
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
