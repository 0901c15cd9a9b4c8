// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "parboil/vecadd/vecadd.h"

namespace parboil::vecadd {

void addBlock(const adsmThreadBlock_t* block, void** args) {
  const float* a = argument<const float*>(args, 0);
  const float* b = argument<const float*>(args, 1);
  float* c = argument<float*>(args, 2);
  const auto count = argument<std::uint64_t>(args, 3);
  const std::uint64_t begin = std::uint64_t{block->blockIdx.x} * block->blockDim.x;
  const std::uint64_t end = std::min<std::uint64_t>(begin + block->blockDim.x, count);
  for (std::uint64_t i = begin; i < end; ++i) c[i] = a[i] + b[i];
}

}  // namespace parboil::vecadd
