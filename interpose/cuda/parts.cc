// SPDX-License-Identifier: Apache-2.0
#include "interpose/cuda/parts.h"

#include <algorithm>

namespace gmac::interpose {
namespace {

GMAC_CUDA_HELPER(cuArray3DGetDescriptor, cuArray3DGetDescriptor_v2)

// How many of `count` pieces of so many bytes, `stride` bytes apart, are of one kind, from the
// first on.
std::size_t ofOneKind(std::uintptr_t first, std::size_t bytes, std::size_t stride,
                      std::size_t count) noexcept {
  if (count == 0) return 0;
  const std::size_t all = (count - 1) * stride + bytes;
  const std::size_t most = coherence::work().ofOneKind(reinterpret_cast<const void*>(first), all);
  if (most >= all) return count;
  return most < bytes ? 0 : (most - bytes) / stride + 1;
}

}  // namespace

Box partOf(const Box& whole, const Box& at, std::span<const Rows> ends) noexcept {
  const auto first = [&](const Rows& rows) {
    return rows.first + at.z * rows.layer + at.y * rows.pitch + at.x;
  };
  Box part{at.x, at.y, at.z, whole.width, whole.rows, whole.layers - at.z};
  if (at.x == 0 && at.y == 0) {
    for (const Rows& rows : ends) {
      const std::size_t bytes = (whole.rows - 1) * rows.pitch + whole.width;
      part.layers = ofOneKind(first(rows), bytes, rows.layer, part.layers);
    }
    if (part.layers != 0) return part;
  }
  part.layers = 1;
  part.rows = whole.rows - at.y;
  if (at.x == 0) {
    for (const Rows& rows : ends) {
      part.rows = ofOneKind(first(rows), whole.width, rows.pitch, part.rows);
    }
    if (part.rows != 0) return part;
  }
  part.rows = 1;
  part.width = whole.width - at.x;
  for (const Rows& rows : ends) part.width = ofOneKind(first(rows), 1, 1, part.width);
  return part;
}

std::size_t elementBytes(CUarray array, std::size_t rare) noexcept {
  const auto describe = realOf<Call_cuArray3DGetDescriptor_v2>();
  CUDA_ARRAY3D_DESCRIPTOR description{};
  if (describe == nullptr || describe(&description, array) != CUDA_SUCCESS) return 0;
  switch (description.Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return description.NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return std::size_t{2} * description.NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return std::size_t{4} * description.NumChannels;
    default:
      return rare * description.NumChannels;
  }
}

bool splitsElements(CUarray array, const Box& whole, const Rows& linear) noexcept {
  const Box part = partOf(whole, {}, {&linear, 1});
  if (part.layers == whole.layers && part.rows == whole.rows && part.width == whole.width) {
    return false;
  }
  const std::size_t bytes = elementBytes(array, 0);
  return bytes != 0 && linear.first % bytes == 0 &&
         ((whole.rows <= 1 && whole.layers <= 1) || linear.pitch % bytes == 0);
}

}  // namespace gmac::interpose
