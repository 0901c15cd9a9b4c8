// SPDX-License-Identifier: Apache-2.0
//
// The vector addition of the paper's Figure 11, in the ways that CUDA offers and with shared
// objects: the CPU fills two vectors, the accelerator adds them, the CPU sums the result. All ways
// run the same CPU loops over the same values.
#ifndef GMAC_BENCH_VECADD_H_
#define GMAC_BENCH_VECADD_H_

#include <cstddef>

namespace gmac::bench {

// Seconds of each part. `sparse` is one iteration in which the CPU writes one float, the kernel
// runs over everything, and the CPU reads one float; it is no part of the whole.
struct VecaddRun {
  double allocate = 0;
  double fill = 0;
  double add = 0;
  double sum = 0;
  double release = 0;
  double sparse = 0;
  double result = 0;  // the sum's value
};

// Fills p[0..count), elements [first, first + count) of the vector `which`; first is a multiple of
// kFillChunk.
constexpr std::size_t kFillChunk = std::size_t{1} << 20;
void fillVector(float* p, std::size_t first, std::size_t count, unsigned which);
double sumVector(const float* p, std::size_t count);
// The element that sparse iteration i of a vector of `count` touches.
constexpr std::size_t sparseElement(std::size_t i, std::size_t count) {
  return i * 7919 * 1009 % count;
}

// Whether this build has CUDA and this machine a GPU.
bool cudaPresent();
// Bytes of the GPU's memory that are in use; 0 without one.
double cudaBytesInUse();

// The ways of the CUDA runtime. Throw std::runtime_error with its words. The context exists
// already.
VecaddRun addManaged(std::size_t count, std::size_t sparseIterations, bool prefetch);
// Pinned memory; each chunk is copied while the next is filled.
VecaddRun addOverlapped(std::size_t count, std::size_t sparseIterations);
void createCudaContext();

}  // namespace gmac::bench

#endif  // GMAC_BENCH_VECADD_H_
