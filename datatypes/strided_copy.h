// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_DATATYPES_STRIDED_COPY_H_
#define GMAC_DATATYPES_STRIDED_COPY_H_

#include <cstdint>

namespace datatypes {

// One strided copy of CUDA's: `depth` planes of `height` rows of `width` bytes. A plain copy has
// one of each.
struct StridedCopy {
  std::int64_t sourceOffset = 0;
  std::int64_t targetOffset = 0;
  std::int64_t width = 0;
  std::int64_t height = 1;
  std::int64_t depth = 1;
  std::int64_t rowPitch = 0;    // of the source; the target is dense
  std::int64_t planePitch = 0;  // a multiple of rowPitch
};

}  // namespace datatypes

#endif  // GMAC_DATATYPES_STRIDED_COPY_H_
