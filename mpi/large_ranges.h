// SPDX-License-Identifier: Apache-2.0
//
// Memory for messages that are too large for their memory to be kept for good. The system makes a
// GiB of new pages in a quarter of a second, as long as such a message takes.
#ifndef GMAC_MPI_LARGE_RANGES_H_
#define GMAC_MPI_LARGE_RANGES_H_

#include <cstddef>
#include <mutex>
#include <vector>

namespace gmac::mpi {

// Keeps the addresses of freed ranges, the most recently freed first, and tells the system that
// their pages are free (MADV_FREE): it takes them when anybody needs memory, and until then the
// next message finds them there. Keeps an eighth of the memory that the process may have, and
// nothing where its addresses are limited (RLIMIT_AS). Thread-safe.
class LargeRanges {
 public:
  struct Range {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  // `most`: how many bytes are kept.
  explicit LargeRanges(std::size_t most) : most_(most) {}
  LargeRanges(const LargeRanges&) = delete;
  LargeRanges& operator=(const LargeRanges&) = delete;

  // At least so many bytes, in whole huge pages (of 2 MiB); data is NULL if there is no memory.
  Range take(std::size_t bytes);
  void free(const Range& range);

 private:
  void unmapAllBut(std::size_t kept);  // bytes

  const std::size_t most_;
  std::mutex mutex_;
  std::vector<Range> free_;  // the one that was freed last comes last
  std::size_t bytes_ = 0;    // of all of them
};

}  // namespace gmac::mpi

#endif  // GMAC_MPI_LARGE_RANGES_H_
