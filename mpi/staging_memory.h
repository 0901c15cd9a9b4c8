// SPDX-License-Identifier: Apache-2.0
//
// Private memory that MPI is given in place of shared memory or a device's. It is no shared
// object's, so an MPI library, its helper processes and the kernel may do with it as they like.
#ifndef GMAC_MPI_STAGING_MEMORY_H_
#define GMAC_MPI_STAGING_MEMORY_H_

#include <cstddef>
#include <utility>

namespace gmac::mpi {

// One range, owned; freed ranges are kept for the next, at most kKeptBytes of them, those that were
// freed last. Thread-safe.
class StagingMemory {
 public:
  static constexpr std::size_t kKeptBytes = std::size_t{64} << 20;
  static constexpr std::size_t kLeastPinned = std::size_t{1} << 20;

  // Lets a device reach memory at the speed of its bus, whole pages, and ends that.
  struct Pinning {
    bool (*pin)(void* memory, std::size_t bytes);
    void (*unpin)(void* memory, std::size_t bytes);
  };

  StagingMemory() = default;
  // `bytes` may be 0. NULL in data() when there is no memory.
  explicit StagingMemory(std::size_t bytes);
  ~StagingMemory();
  StagingMemory(StagingMemory&& other) noexcept { swap(other); }
  StagingMemory& operator=(StagingMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  // Aligned to 64 bytes.
  std::byte* data() const { return range_.data; }
  // A device is to read or write it: pins a range of kLeastPinned bytes or more that was used
  // before. (Pinning takes longer than two copies of memory that is not, so one message alone is
  // not worth it.) It stays pinned as long as it is kept.
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
  static void giveBack(const Range& range);
  void swap(StagingMemory& other) { std::swap(range_, other.range_); }

  Range range_;
};

}  // namespace gmac::mpi

#endif  // GMAC_MPI_STAGING_MEMORY_H_
