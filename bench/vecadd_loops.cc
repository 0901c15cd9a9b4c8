// SPDX-License-Identifier: Apache-2.0
//
// The CPU's part of the vector addition, compiled once for all ways, and what a build without CUDA
// says of CUDA.
#include <algorithm>
#include <stdexcept>

#include "bench/vecadd.h"

namespace gmac::bench {

void fillVector(float* p, std::size_t first, std::size_t count, unsigned which) {
  for (std::size_t done = 0; done < count; done += kFillChunk) {
    auto seed = static_cast<unsigned>((first + done) / kFillChunk * 2 + which);
    float* const chunk = p + done;
    const std::size_t part = std::min(kFillChunk, count - done);
    for (std::size_t i = 0; i < part; ++i) {
      seed = seed * 1664525U + 1013904223U;
      chunk[i] = static_cast<float>(seed >> 8) * (1.0F / 16777216);
    }
  }
}

double sumVector(const float* p, std::size_t count) {
  double sums[4] = {};
  const std::size_t whole = count / 4 * 4;
  for (std::size_t i = 0; i < whole; i += 4) {
    sums[0] += p[i];
    sums[1] += p[i + 1];
    sums[2] += p[i + 2];
    sums[3] += p[i + 3];
  }
  for (std::size_t i = whole; i < count; ++i) {
    sums[0] += p[i];
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
}

#if !GMAC_HAVE_CUDA
bool cudaPresent() { return false; }
double cudaBytesInUse() { return 0; }
void createCudaContext() {}
VecaddRun addManaged(std::size_t, std::size_t, bool) {
  throw std::runtime_error("built without the CUDA toolkit");
}
VecaddRun addOverlapped(std::size_t, std::size_t) {
  throw std::runtime_error("built without the CUDA toolkit");
}
#endif

}  // namespace gmac::bench
