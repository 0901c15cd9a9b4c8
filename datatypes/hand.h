// SPDX-License-Identifier: Apache-2.0
//
// Which kernel written for one layout alone a workload is compared with, and its parameters.
#ifndef GMAC_DATATYPES_HAND_H_
#define GMAC_DATATYPES_HAND_H_

#include <cstdint>
#include <vector>

namespace datatypes {

enum class HandKernel {
  kContiguous,    // count: bytes
  kVector,        // count blocks of blockBytes, stride bytes apart
  kTriangle,      // count: columns; blockBytes: columns a step of the stair, 1 for none
  kSubarray4d,    // count: the side
  kIndexed,       // count blocks of blockBytes; displacements in 8 bytes
  kIndexedPairs,  // count pairs; displacements in 8 bytes, two a pair
  kStructs,       // count
  kTranspose,     // count: rows and columns, a multiple of 32
  kNestedVector,  // count inner vectors
};

struct Hand {
  HandKernel kernel = HandKernel::kContiguous;
  std::int64_t count = 0;
  std::int64_t blockBytes = 0;
  std::int64_t stride = 0;
  // In device memory while the kernel runs, as such a program would keep them.
  std::vector<std::int32_t> displacements;
};

}  // namespace datatypes

#endif  // GMAC_DATATYPES_HAND_H_
