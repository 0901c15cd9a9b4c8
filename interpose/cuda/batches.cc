// SPDX-License-Identifier: Apache-2.0
//
// Many copies in one call. They are one piece of device work; its ranges are those of every copy
// that names shared memory.
#include <cuda.h>

#include <new>
#include <vector>

#include "gmac/api/adsm.h"
#include "interpose/cuda/call.h"

// cuda.h shows the newest signatures under these names; the symbols are the older ones.
#undef cuMemcpyBatchAsync
#undef cuMemcpy3DBatchAsync
extern "C" {
CUresult cuMemcpyBatchAsync(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*,
                            size_t*, size_t, size_t*, CUstream);
CUresult cuMemcpy3DBatchAsync(size_t, CUDA_MEMCPY3D_BATCH_OP*, size_t*, unsigned long long,
                              CUstream);
}

#define GMAC_CUDA_STREAM_CALLS(X)                                            \
  X(cuMemcpyBatchAsync, cuMemcpyBatchAsync, _ptsz, 12080, 13000, Batch)      \
  X(cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2, _ptsz, 13000, INT_MAX, Batch) \
  X(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync, _ptsz, 12080, 13000, Batch)  \
  X(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_v2, _ptsz, 13000, INT_MAX, Batch)

namespace gmac::interpose {
namespace {

GMAC_CUDA_STREAM_CALLS(GMAC_CUDA_STREAM_TYPE)

// The ranges of a batch, as many as there are.
class ManyRanges {
 public:
  // Records one end of a copy; returns its address for the driver.
  CUdeviceptr end(CUdeviceptr address, const Extent& cpu, bool write) {
    if (!shared(cpu.first, cpu.bytes)) return address;
    const auto* const first = reinterpret_cast<const void*>(cpu.first);
    if (!write || cpu.gaps) ranges_.push_back({first, cpu.bytes, false});
    if (write) ranges_.push_back({first, cpu.bytes, true});
    return onDevice(cpu.first);
  }
  std::span<const DeviceRange> all() const { return ranges_; }

 private:
  std::vector<DeviceRange> ranges_;
};

struct Batch {
  // The arrays may lie in shared memory themselves, so the driver gets copies of the arrays that
  // name memory.
  template <ZeroStream Zero, typename Real, typename... Rest>
  static CUresult run(Real real, CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes,
                      std::size_t count, Rest... rest) {
    if (to == nullptr || from == nullptr || bytes == nullptr)
      return direct(real, to, from, bytes, count, rest...);
    return guarded([&] {
      ManyRanges ranges;
      std::vector<CUdeviceptr> targets(to, to + count);
      std::vector<CUdeviceptr> sources(from, from + count);
      std::vector<std::size_t> sizes(bytes, bytes + count);
      for (std::size_t i = 0; i < count; ++i) {
        sources[i] = ranges.end(sources[i], {cpuAddressOf(sources[i]), sizes[i], false}, false);
        targets[i] = ranges.end(targets[i], {cpuAddressOf(targets[i]), sizes[i], false}, true);
      }
      if (ranges.all().empty()) return direct(real, to, from, bytes, count, rest...);
      return coherently(nativeStream(Zero, streamAmong(rest...)), ranges.all(), false, [&] {
        return real(targets.data(), sources.data(), sizes.data(), count, rest...);
      });
    });
  }

  template <ZeroStream Zero, typename Real, typename... Rest>
  static CUresult run(Real real, std::size_t count, CUDA_MEMCPY3D_BATCH_OP* operations,
                      Rest... rest) {
    if (operations == nullptr) return direct(real, count, operations, rest...);
    return guarded([&] {
      ManyRanges ranges;
      std::vector<CUDA_MEMCPY3D_BATCH_OP> named(operations, operations + count);
      for (CUDA_MEMCPY3D_BATCH_OP& operation : named) {
        name(ranges, operation, operation.src, false);
        name(ranges, operation, operation.dst, true);
      }
      if (ranges.all().empty()) return direct(real, count, operations, rest...);
      return coherently(nativeStream(Zero, streamAmong(rest...)), ranges.all(), false,
                        [&] { return real(count, named.data(), rest...); });
    });
  }

 private:
  // The lengths of rows and layers count elements. Their size is that of the array on the other
  // side; if both sides are linear memory, an element is a byte.
  static void name(ManyRanges& ranges, const CUDA_MEMCPY3D_BATCH_OP& operation,
                   CUmemcpy3DOperand& operand, bool write) {
    if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return;
    auto& pointer = operand.op.ptr;
    const CUextent3D& size = operation.extent;
    const std::size_t element = elementBytes(operation);
    const std::size_t width = size.width * element;
    const std::size_t pitch = pointer.rowLength != 0 ? pointer.rowLength * element : width;
    const std::size_t rows = pointer.layerHeight != 0 ? pointer.layerHeight : size.height;
    pointer.ptr = ranges.end(
        pointer.ptr,
        spanOf(cpuAddressOf(pointer.ptr), width, size.height, size.depth, pitch, pitch * rows),
        write);
  }

  GMAC_CUDA_HELPER(cuArray3DGetDescriptor, cuArray3DGetDescriptor_v2)

  static std::size_t elementBytes(const CUDA_MEMCPY3D_BATCH_OP& operation) {
    for (const CUmemcpy3DOperand* operand : {&operation.src, &operation.dst}) {
      if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) continue;
      CUDA_ARRAY3D_DESCRIPTOR array{};
      const auto describe = realOf<Call_cuArray3DGetDescriptor_v2>();
      if (describe == nullptr || describe(&array, operand->op.array.array) != CUDA_SUCCESS) break;
      return formatBytes(array.Format) * array.NumChannels;
    }
    return 1;
  }

  static std::size_t formatBytes(CUarray_format format) {
    switch (format) {
      case CU_AD_FORMAT_UNSIGNED_INT8:
      case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
      case CU_AD_FORMAT_UNSIGNED_INT16:
      case CU_AD_FORMAT_SIGNED_INT16:
      case CU_AD_FORMAT_HALF:
        return 2;
      default:
        return 4;
    }
  }

  template <typename Work>
  static CUresult guarded(Work&& work) noexcept {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
};

}  // namespace

GMAC_CUDA_TABLE(cudaBatches, GMAC_CUDA_STREAM_CALLS, GMAC_CUDA_NONE)

}  // namespace gmac::interpose
