// SPDX-License-Identifier: Apache-2.0
//
// A program's data in pieces, more than a GPU's memory holds; also for .cu files.
#ifndef GMAC_BENCH_WORKING_SET_H_
#define GMAC_BENCH_WORKING_SET_H_

#include <cstddef>
#include <memory>

namespace gmac::bench {

inline constexpr unsigned kSweepBlocks = 1056;
inline constexpr unsigned kSweepThreads = 256;

// By the CUDA runtime alone: the pieces lie in pinned memory of the CPU, and are copied to the GPU,
// worked on, and copied back, through two buffers there, so that both directions of the bus and the
// kernels run at the same time. Throws std::runtime_error.
class StreamedByHand {
 public:
  virtual ~StreamedByHand() = default;
  // Starts addOneToAll on a piece.
  virtual void use(std::size_t piece) = 0;
  virtual void sync() = 0;
  virtual unsigned firstWord(std::size_t piece) const = 0;
};
std::unique_ptr<StreamedByHand> streamByHand(std::size_t pieces, std::size_t bytes);

// Takes all of the GPU's free memory but so many bytes, while it lives.
class Reservation {
 public:
  virtual ~Reservation() = default;
};
std::unique_ptr<Reservation> leaveFree(std::size_t bytes);

}  // namespace gmac::bench

#endif  // GMAC_BENCH_WORKING_SET_H_
