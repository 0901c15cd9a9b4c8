// SPDX-License-Identifier: Apache-2.0
//
// Copies and fills in parts. The driver refuses a range that lies in two kinds of memory, as an
// object does of which pages have one copy, in the CPU's memory (WorkPort::ofOneKind()).
#ifndef GMAC_INTERPOSE_CUDA_PARTS_H_
#define GMAC_INTERPOSE_CUDA_PARTS_H_

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "interpose/cuda/call.h"
#include "interpose/cuda/extent.h"

namespace gmac::interpose {

// A copy or fill of rows and layers, or a part of one: where it begins, and its size. `x` and
// `width` are in bytes.
struct Box {
  std::size_t x = 0, y = 0, z = 0;
  std::size_t width = 0, rows = 1, layers = 1;
  bool empty() const { return width == 0 || rows == 0 || layers == 0; }
};

// Where its rows lie at one end, as the CPU's addresses. Rows are `pitch` bytes apart.
struct Rows {
  std::uintptr_t first;
  std::size_t pitch = 0;
  std::size_t layer = 0;  // from one layer to the next, in bytes
};

// The ends of a copy that may be in two kinds of memory.
class Ends {
 public:
  void add(const Rows& rows) { rows_[count_++] = rows; }
  std::span<const Rows> all() const { return {rows_.data(), count_}; }

 private:
  std::array<Rows, 2> rows_{};
  std::size_t count_ = 0;
};

// The longest part of `whole` from (x, y, z) of `at` on that lies in one kind of memory at each
// end: whole layers, else whole rows of one layer, else bytes of one row. Between
// beginDeviceWork() and endDeviceWork().
Box partOf(const Box& whole, const Box& at, std::span<const Rows> ends) noexcept;

// Calls `submit`, a CUresult(const Box&), for all such parts; with the whole where it is empty.
// Ends with the first error.
template <typename Submit>
Submitted inParts(const Box& whole, std::span<const Rows> ends, Submit submit) {
  if (whole.empty()) return submit(whole);
  Submitted done(CUDA_SUCCESS, false);
  for (Box at; at.z < whole.layers;) {
    const Box part = partOf(whole, at, ends);
    done.result = submit(part);
    if (done.result != CUDA_SUCCESS) break;
    done.any = true;
    at.x += part.width;
    if (at.x < whole.width) continue;
    at.x = 0;
    at.y += part.rows;
    if (at.y < whole.rows) continue;
    at.y = 0;
    at.z += part.layers;
  }
  return done;
}

// The same for a copy of one range.
template <typename Submit>
Submitted inParts(std::uintptr_t to, std::uintptr_t from, std::size_t bytes, Submit submit) {
  const Rows ends[] = {{to}, {from}};
  return inParts({.width = bytes}, ends,
                 [&](const Box& part) { return submit(part.x, part.width); });
}

// Whether the driver takes rows of that width, which begin `x` bytes and `y` rows into what is
// described, one by one where it takes all of them. (It refuses rows that overlap, but no single
// one.)
inline bool areApart(const Box& whole, std::size_t x, std::size_t y, std::size_t pitch,
                     std::size_t height) {
  return ((whole.rows <= 1 && whole.layers <= 1) || pitch >= x + whole.width) &&
         (height >= y + whole.rows || (whole.layers <= 1 && height == 0));
}

// The bytes of an array's element; 0: not known. `rare`: those of a channel in the rarer formats.
std::size_t elementBytes(CUarray array, std::size_t rare) noexcept;

// Whether a copy between an array and linear memory lies in two kinds of memory now, and parts of
// it are of whole elements, as the driver has it.
bool splitsElements(CUarray array, const Box& whole, const Rows& linear) noexcept;

// A copy's description.
template <typename Copy>
Box boxOf(const Copy& copy) {
  Box box{.width = copy.WidthInBytes, .rows = copy.Height};
  if constexpr (ThreeDimensional<Copy>) box.layers = copy.Depth;
  return box;
}

// Its shared ends; `named`: what nameDevice() has returned for it.
template <typename Copy>
Ends endsOf(Copy& copy, const NamedCopy& named) {
  Ends ends;
  const auto add = [&](const CopySide& side, const Extent& extent) {
    ends.add({extent.first, side.pitch, side.pitch * side.height});
  };
  if (named.fromShared) add(sourceOf(copy), named.from);
  if (named.toShared) add(destinationOf(copy), named.to);
  return ends;
}

// Whether it may be made in parts. Where not, it is one for the driver to judge.
template <typename Copy>
bool mayBeSplit(Copy& copy, const Ends& ends) {
  const Box whole = boxOf(copy);
  const auto may = [&](const CopySide& side, CUarray array, std::size_t height) {
    // (The other end is the shared one.)
    return *side.type == CU_MEMORYTYPE_ARRAY ? splitsElements(array, whole, ends.all().front())
                                             : areApart(whole, side.x, side.y, side.pitch, height);
  };
  const CopySide from = sourceOf(copy);
  const CopySide to = destinationOf(copy);
  return may(from, copy.srcArray, from.height) && may(to, copy.dstArray, to.height);
}

// The description of a part. In linear memory it begins where the part does: where it began in
// another kind of memory, or had rows beyond its height, the driver would refuse it.
template <typename Copy>
Copy partOf(const Copy& copy, const Box& part) {
  Copy result = copy;
  result.WidthInBytes = part.width;
  result.Height = part.rows;
  if constexpr (ThreeDimensional<Copy>) result.Depth = part.layers;
  const auto begin = [&](const CopySide& side, auto& host, CUdeviceptr& device, std::size_t& x,
                         std::size_t& y, std::size_t* z) {
    if (*side.type == CU_MEMORYTYPE_ARRAY) {
      x += part.x;
      y += part.y;
      if (z != nullptr) *z += part.z;
      return;
    }
    const std::uintptr_t first = addressIn(side, side.x + part.x, side.y + part.y, side.z + part.z);
    x = y = 0;
    if (z != nullptr) *z = 0;
    if (*side.type == CU_MEMORYTYPE_HOST) {
      host = reinterpret_cast<std::remove_reference_t<decltype(host)>>(first);
    } else {
      device = first;
    }
  };
  std::size_t* fromZ = nullptr;
  std::size_t* toZ = nullptr;
  if constexpr (ThreeDimensional<Copy>) {
    fromZ = &result.srcZ;
    toZ = &result.dstZ;
  }
  begin(sourceOf(result), result.srcHost, result.srcDevice, result.srcXInBytes, result.srcY, fromZ);
  begin(destinationOf(result), result.dstHost, result.dstDevice, result.dstXInBytes, result.dstY,
        toZ);
  return result;
}

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_CUDA_PARTS_H_
