// SPDX-License-Identifier: Apache-2.0
//
// Copies between linear memory, which may be shared in part, and CUDA arrays, which never are.
#include <cuda.h>

#include "interpose/cuda/call.h"
#include "interpose/cuda/parts.h"

#define GMAC_CUDA_STREAM_CALLS(X)                                           \
  X(cuMemcpyHtoA, cuMemcpyHtoA_v2, _ptds, 3020, INT_MAX, ToArray)           \
  X(cuMemcpyDtoA, cuMemcpyDtoA_v2, _ptds, 3020, INT_MAX, ToArray)           \
  X(cuMemcpyHtoAAsync, cuMemcpyHtoAAsync_v2, _ptsz, 3020, INT_MAX, ToArray) \
  X(cuMemcpyAtoH, cuMemcpyAtoH_v2, _ptds, 3020, INT_MAX, FromArray)         \
  X(cuMemcpyAtoD, cuMemcpyAtoD_v2, _ptds, 3020, INT_MAX, FromArray)         \
  X(cuMemcpyAtoHAsync, cuMemcpyAtoHAsync_v2, _ptsz, 3020, INT_MAX, FromArray)

namespace gmac::interpose {
namespace {

GMAC_CUDA_STREAM_CALLS(GMAC_CUDA_STREAM_TYPE)

GMAC_CUDA_HELPER(cuMemcpy2D, cuMemcpy2D_v2)
GMAC_CUDA_HELPER(cuMemcpy2D, cuMemcpy2D_v2_ptds)
GMAC_CUDA_HELPER(cuMemcpy2DAsync, cuMemcpy2DAsync_v2)
GMAC_CUDA_HELPER(cuMemcpy2DAsync, cuMemcpy2DAsync_v2_ptsz)

// A copy between linear memory and a one-dimensional array, made as a copy of rows: that exists for
// the memory of either side and for streams, and the one-dimensional copy does not.
template <ZeroStream Zero>
CUresult copyRow(const CUDA_MEMCPY2D& row) noexcept {
  using Function =
      std::conditional_t<Zero == ZeroStream::kLegacy, Call_cuMemcpy2D_v2, Call_cuMemcpy2D_v2_ptds>;
  const auto copy = realOf<Function>();
  return copy == nullptr ? CUDA_ERROR_NOT_FOUND : copy(&row);
}
template <ZeroStream Zero>
CUresult copyRow(const CUDA_MEMCPY2D& row, CUstream stream) noexcept {
  using Function = std::conditional_t<Zero == ZeroStream::kLegacy, Call_cuMemcpy2DAsync_v2,
                                      Call_cuMemcpy2DAsync_v2_ptsz>;
  const auto copy = realOf<Function>();
  return copy == nullptr ? CUDA_ERROR_NOT_FOUND : copy(&row, stream);
}

// Submits the copy, of which `named` makes a description. `linear`: the CPU's address of the
// memory.
template <ZeroStream Zero, typename Named, typename... Rest>
CUresult copyShared(Ranges& ranges, CUarray array, std::uintptr_t linear, std::size_t bytes,
                    Named&& named, Rest... rest) {
  const Rows rows{linear};
  CUDA_MEMCPY2D row{};
  named(row, onDevice(linear));
  row.WidthInBytes = bytes;
  row.Height = 1;
  const bool split = splitsElements(array, boxOf(row), rows);
  if (split) ranges.inParts();
  return coherently(nativeStream(Zero, streamAmong(rest...)), ranges.all(), kReturns<Rest...>,
                    [&]() -> Submitted {
                      if (!split) return copyRow<Zero>(row, rest...);
                      return inParts(boxOf(row), {&rows, 1}, [&](const Box& part) {
                        return copyRow<Zero>(partOf(row, part), rest...);
                      });
                    });
}

struct ToArray {
  template <ZeroStream Zero, typename Real, typename From, typename... Rest>
  static CUresult run(Real real, CUarray array, std::size_t offset, From from, std::size_t bytes,
                      Rest... rest) {
    const std::uintptr_t source = cpuAddressOf(from);
    if (!shared(source, bytes)) return direct(real, array, offset, from, bytes, rest...);
    Ranges ranges;
    ranges.reads(source, bytes);
    const auto named = [&](CUDA_MEMCPY2D& row, CUdeviceptr device) {
      row.srcMemoryType = CU_MEMORYTYPE_DEVICE;
      row.srcDevice = device;
      row.dstMemoryType = CU_MEMORYTYPE_ARRAY;
      row.dstArray = array;
      row.dstXInBytes = offset;
    };
    return copyShared<Zero>(ranges, array, source, bytes, named, rest...);
  }
};

struct FromArray {
  template <ZeroStream Zero, typename Real, typename To, typename... Rest>
  static CUresult run(Real real, To to, CUarray array, std::size_t offset, std::size_t bytes,
                      Rest... rest) {
    const std::uintptr_t target = cpuAddressOf(to);
    if (!shared(target, bytes)) return direct(real, to, array, offset, bytes, rest...);
    Ranges ranges;
    ranges.writes({target, bytes, false});
    const auto named = [&](CUDA_MEMCPY2D& row, CUdeviceptr device) {
      row.srcMemoryType = CU_MEMORYTYPE_ARRAY;
      row.srcArray = array;
      row.srcXInBytes = offset;
      row.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      row.dstDevice = device;
    };
    return copyShared<Zero>(ranges, array, target, bytes, named, rest...);
  }
};

}  // namespace

GMAC_CUDA_TABLE(cudaArrayCopies, GMAC_CUDA_STREAM_CALLS, GMAC_CUDA_NONE)

}  // namespace gmac::interpose
