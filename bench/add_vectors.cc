// SPDX-License-Identifier: Apache-2.0
#include "bench/add_vectors.h"

#include <algorithm>

#include "bench/measure.h"

namespace gmac::bench {
namespace {

void addOnHost(const adsmThreadBlock_t* block, void** args) {
  float* const sum = *static_cast<float**>(args[0]);
  const float* const a = *static_cast<const float**>(args[1]);
  const float* const b = *static_cast<const float**>(args[2]);
  const std::size_t count = *static_cast<std::size_t*>(args[3]);
  const std::size_t first = static_cast<std::size_t>(block->blockIdx.x) * block->blockDim.x;
  const std::size_t end = std::min(count, first + block->blockDim.x);
  for (std::size_t i = first; i < end; ++i) {
    sum[i] = a[i] + b[i];
  }
}

}  // namespace

const adsmKernelDesc_t& addVectorsKernel() {
  static constexpr std::size_t kSizes[] = {sizeof(float*), sizeof(float*), sizeof(float*),
                                           sizeof(std::size_t)};
  static const adsmKernelDesc_t kKernel = describeKernel("addVectors", kSizes, &addOnHost);
  return kKernel;
}

}  // namespace gmac::bench
