// SPDX-License-Identifier: Apache-2.0
//
// The kernel of SharedSource as a module.
#include "datatypes/pattern.h"

extern "C" __global__ void fillWithPattern(unsigned long long* words, unsigned long long count,
                                           unsigned long long wordsInBlock) {
  const unsigned long long first = blockIdx.x * wordsInBlock;
  const unsigned long long end = min(count, first + wordsInBlock);
  for (unsigned long long i = first + threadIdx.x; i < end; i += blockDim.x) {
    words[i] = datatypes::patternWord(i);
  }
}
