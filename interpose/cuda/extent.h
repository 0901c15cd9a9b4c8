// SPDX-License-Identifier: Apache-2.0
//
// Computes which bytes a two- or three-dimensional CUDA copy touches in linear memory. Pure
// functions of the copy's description.
#ifndef GMAC_INTERPOSE_CUDA_EXTENT_H_
#define GMAC_INTERPOSE_CUDA_EXTENT_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace gmac::interpose {

// The span from the first to the last byte that one side of a copy touches. `gaps`: bytes in
// between stay untouched.
struct Extent {
  std::uintptr_t first = 0;
  std::size_t bytes = 0;  // 0: nothing, or not linear memory
  bool gaps = false;
};

// One side of a copy: a view into its description.
struct CopySide {
  CUmemorytype* type;
  std::uintptr_t base;
  std::size_t x, y, z;
  std::size_t pitch, height;
};

// The address of a byte of linear memory. A pitch or height of 0 is allowed where there is one row
// or one layer; then it is not multiplied.
inline std::uintptr_t addressIn(const CopySide& side, std::size_t x, std::size_t y, std::size_t z) {
  return side.base + (z * side.height + y) * side.pitch + x;
}

template <typename Copy>
concept ThreeDimensional = requires(const Copy& copy) {
  copy.Depth;
};

template <typename Copy>
CopySide sourceOf(Copy& copy) {
  const bool host = copy.srcMemoryType == CU_MEMORYTYPE_HOST;
  const auto base = host ? reinterpret_cast<std::uintptr_t>(copy.srcHost)
                         : static_cast<std::uintptr_t>(copy.srcDevice);
  CopySide side{&copy.srcMemoryType, base, copy.srcXInBytes, copy.srcY, 0, copy.srcPitch, 0};
  if constexpr (ThreeDimensional<Copy>) {
    side.z = copy.srcZ;
    side.height = copy.srcHeight;
  }
  return side;
}

template <typename Copy>
CopySide destinationOf(Copy& copy) {
  const bool host = copy.dstMemoryType == CU_MEMORYTYPE_HOST;
  const auto base = host ? reinterpret_cast<std::uintptr_t>(copy.dstHost)
                         : static_cast<std::uintptr_t>(copy.dstDevice);
  CopySide side{&copy.dstMemoryType, base, copy.dstXInBytes, copy.dstY, 0, copy.dstPitch, 0};
  if constexpr (ThreeDimensional<Copy>) {
    side.z = copy.dstZ;
    side.height = copy.dstHeight;
  }
  return side;
}

// The span of `depth` layers of `rows` rows of `width` bytes that start at `first`; layers are
// `layer` bytes apart.
inline Extent spanOf(std::uintptr_t first, std::size_t width, std::size_t rows, std::size_t depth,
                     std::size_t pitch, std::size_t layer) {
  if (width == 0 || rows == 0 || depth == 0) return {};
  Extent extent;
  extent.first = first;
  extent.bytes = (depth - 1) * layer + (rows - 1) * pitch + width;
  extent.gaps = extent.bytes != width * rows * depth;
  return extent;
}

template <typename Copy>
Extent extentOf(const CopySide& side, const Copy& copy) {
  if (*side.type == CU_MEMORYTYPE_ARRAY) return {};
  std::size_t depth = 1;
  if constexpr (ThreeDimensional<Copy>) depth = copy.Depth;
  return spanOf(addressIn(side, side.x, side.y, side.z), copy.WidthInBytes, copy.Height, depth,
                side.pitch, side.pitch * side.height);
}

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_CUDA_EXTENT_H_
