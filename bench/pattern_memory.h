// SPDX-License-Identifier: Apache-2.0
//
// Memory that the CPU and kernels share, as the access patterns (patterns.h) use it; also for .cu
// files.
#ifndef GMAC_BENCH_PATTERN_MEMORY_H_
#define GMAC_BENCH_PATTERN_MEMORY_H_

#include <cstddef>
#include <memory>

namespace gmac::bench {

inline constexpr std::size_t kTouchedPage = 4096;
inline constexpr unsigned kTouchThreads = 256;  // of a block

// The blocks of the kernel touchPages.
inline unsigned touchBlocks(std::size_t bytes) {
  const std::size_t pages = (bytes + kTouchedPage - 1) / kTouchedPage;
  return static_cast<unsigned>((pages + kTouchThreads - 1) / kTouchThreads);
}

// Throws std::runtime_error.
class PatternMemory {
 public:
  virtual ~PatternMemory() = default;
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* data) = 0;
  // Starts touchPages, which adds 1 to the first word of each page.
  virtual void launch(std::byte* data, std::size_t bytes) = 0;
  virtual void sync() = 0;
};

// CUDA's managed memory.
std::unique_ptr<PatternMemory> makeManagedMemory();

}  // namespace gmac::bench

#endif  // GMAC_BENCH_PATTERN_MEMORY_H_
