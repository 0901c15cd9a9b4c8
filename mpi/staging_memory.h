// SPDX-License-Identifier: Apache-2.0
//
// Private memory that MPI is given in place of shared objects or device memory. MPI, its helper
// processes and the kernel may access it freely.
#ifndef GMAC_MPI_STAGING_MEMORY_H_
#define GMAC_MPI_STAGING_MEMORY_H_

#include <cstddef>
#include <utility>

#include "mpi/large_ranges.h"

namespace gmac::mpi {

// Owns one range. Freed ranges are kept for reuse, the most recently freed first, up to kKeptBytes
// in all, and those over kLongest bytes as LargeRanges keep them; besides, each thread keeps a few
// of kLeastRoom bytes for itself, without a lock, until it ends. Thread-safe.
class StagingMemory {
 public:
  static constexpr std::size_t kKeptBytes = std::size_t{256} << 20;
  static constexpr std::size_t kLongest = kKeptBytes / 2;  // a message may need two
  static constexpr std::size_t kLeastRoom = 4096;          // of a range
  static constexpr std::size_t kLeastPinned = std::size_t{1} << 20;

  // Pins and unpins whole pages, so that a device copies at the speed of its bus.
  struct Pinning {
    bool (*pin)(void* memory, std::size_t bytes);
    void (*unpin)(void* memory, std::size_t bytes);
  };

  StagingMemory() = default;
  // `bytes` may be 0. data() is NULL if there is no memory.
  explicit StagingMemory(std::size_t bytes);
  ~StagingMemory();
  StagingMemory(StagingMemory&& other) noexcept { swap(other); }
  StagingMemory& operator=(StagingMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  // Begins at a page.
  std::byte* data() const { return range_.data; }
  // Call it before a device reads or writes the range. Pins a range of kLeastPinned bytes or more
  // that has been reused; for a single message pinning would take longer than it saves. The range
  // stays pinned as long as it is kept.
  void pin(const Pinning& pinning);

 private:
  struct Range {
    std::byte* data = nullptr;
    std::size_t room = 0;
    bool again = false;                // has been freed and kept before
    const Pinning* pinning = nullptr;  // that has pinned it
    bool refused = false;              // by that which was asked
  };
  struct Kept;
  static Kept& kept();
  static LargeRanges& largeRanges();
  static void giveBack(const Range& range);
  void swap(StagingMemory& other) { std::swap(range_, other.range_); }

  Range range_;
};

}  // namespace gmac::mpi

#endif  // GMAC_MPI_STAGING_MEMORY_H_
