// SPDX-License-Identifier: Apache-2.0
//
// Private memory that MPI is given in place of shared memory. It is no shared object's, so an MPI
// library, its helper processes and the kernel may do with it as they like.
#ifndef GMAC_MPI_STAGING_MEMORY_H_
#define GMAC_MPI_STAGING_MEMORY_H_

#include <cstddef>
#include <utility>

namespace gmac::mpi {

// One range, owned; freed ranges are kept for the next, at most kKeptBytes of them. Thread-safe.
class StagingMemory {
 public:
  static constexpr std::size_t kKeptBytes = std::size_t{64} << 20;

  StagingMemory() = default;
  // `bytes` may be 0. NULL in data() when there is no memory.
  explicit StagingMemory(std::size_t bytes);
  ~StagingMemory();
  StagingMemory(StagingMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), room_(std::exchange(other.room_, 0)) {}
  StagingMemory& operator=(StagingMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(room_, other.room_);
    return *this;
  }
  // Aligned to 64 bytes.
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t room_ = 0;
};

}  // namespace gmac::mpi

#endif  // GMAC_MPI_STAGING_MEMORY_H_
