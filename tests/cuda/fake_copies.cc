// SPDX-License-Identifier: Apache-2.0
//
// The fake driver's copies and fills.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tests/cuda/fake_state.h"

using namespace gmac::fake_cuda;  // NOLINT: the driver's functions live in no namespace

namespace {

CUresult submitCopy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  if (!ofOneKind(to, bytes) || !ofOneKind(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return submit(stream, [=] {
    std::memmove(bytesAt(to), bytesAt(from), bytes);
    return CUDA_SUCCESS;
  });
}

// One end of a copy of rows and layers.
struct End {
  CUdeviceptr base, first;
  std::size_t x, pitch, layer;
  CUarray array;  // NULL: linear memory
  std::size_t y, height;
  CUdeviceptr at(std::size_t row, std::size_t slice) const {
    return first + slice * layer + row * pitch;
  }
};

End endOf(CUmemorytype type, const void* host, CUdeviceptr device, CUarray array, std::size_t x,
          std::size_t y, std::size_t z, std::size_t pitch, std::size_t height) {
  CUdeviceptr base = type == CU_MEMORYTYPE_HOST ? number(host) : device;
  if (type == CU_MEMORYTYPE_ARRAY) {
    base = number(array->bytes.data());
    pitch = array->description.Width * array->element;
    height = array->description.Height;
  } else {
    array = nullptr;
  }
  return {base, base + (z * height + y) * pitch + x, x, pitch, pitch * height, array, y, height};
}
End sourceOf(const CUDA_MEMCPY3D& copy) {
  return endOf(copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray, copy.srcXInBytes,
               copy.srcY, copy.srcZ, copy.srcPitch, copy.srcHeight);
}
End targetOf(const CUDA_MEMCPY3D& copy) {
  return endOf(copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray, copy.dstXInBytes,
               copy.dstY, copy.dstZ, copy.dstPitch, copy.dstHeight);
}

// Rows and layers do not overlap, a layer that has a height holds its rows, and what is copied of
// an array are elements.
bool isValid(const CUDA_MEMCPY3D& copy, const End& end) {
  if (end.array != nullptr) {
    return end.x % end.array->element == 0 && copy.WidthInBytes % end.array->element == 0;
  }
  const bool one = copy.Height <= 1 && copy.Depth <= 1;
  return (one || end.pitch >= end.x + copy.WidthInBytes) &&
         (end.height >= end.y + copy.Height || (copy.Depth <= 1 && end.height == 0 && end.y == 0));
}

template <typename Copy>
CUDA_MEMCPY3D blockOf(const Copy& copy) {
  CUDA_MEMCPY3D block{};
  block.srcXInBytes = copy.srcXInBytes;
  block.srcY = copy.srcY;
  block.srcMemoryType = copy.srcMemoryType;
  block.srcHost = copy.srcHost;
  block.srcDevice = copy.srcDevice;
  block.srcArray = copy.srcArray;
  block.srcPitch = copy.srcPitch;
  block.dstXInBytes = copy.dstXInBytes;
  block.dstY = copy.dstY;
  block.dstMemoryType = copy.dstMemoryType;
  block.dstHost = copy.dstHost;
  block.dstDevice = copy.dstDevice;
  block.dstArray = copy.dstArray;
  block.dstPitch = copy.dstPitch;
  block.WidthInBytes = copy.WidthInBytes;
  block.Height = copy.Height;
  block.srcHeight = copy.srcY + copy.Height;
  block.dstHeight = copy.dstY + copy.Height;
  block.Depth = 1;
  if constexpr (!std::is_same_v<Copy, CUDA_MEMCPY2D>) {
    block.srcZ = copy.srcZ;
    block.srcHeight = copy.srcHeight;
    block.dstZ = copy.dstZ;
    block.dstHeight = copy.dstHeight;
    block.Depth = copy.Depth;
  }
  return block;
}

CUresult submitBlock(const CUDA_MEMCPY3D& copy, CUstream stream) {
  const End from = sourceOf(copy);
  const End to = targetOf(copy);
  if (!isValid(copy, from) || !isValid(copy, to) || !ofOneKind(copy)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return submit(stream, [=] {
    for (std::size_t slice = 0; slice < copy.Depth; ++slice) {
      for (std::size_t row = 0; row < copy.Height; ++row) {
        std::memmove(bytesAt(to.at(row, slice)), bytesAt(from.at(row, slice)), copy.WidthInBytes);
      }
    }
    return CUDA_SUCCESS;
  });
}
CUresult copyBlock(const CUDA_MEMCPY3D& copy) {
  const CUresult submitted = submitBlock(copy, nullptr);
  return submitted == CUDA_SUCCESS ? finish(nullptr) : submitted;
}

template <typename Value>
CUresult submitSet(CUdeviceptr to, Value value, std::size_t count, CUstream stream) {
  if (count == 0) return CUDA_SUCCESS;
  if (count > SIZE_MAX / sizeof value) return CUDA_ERROR_INVALID_VALUE;
  if (backingOf(to) == nullptr || !ofOneKind(to, count * sizeof value) || to % sizeof value != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return submit(stream, [=] {
    std::fill_n(reinterpret_cast<Value*>(backingOf(to)), count, value);
    return CUDA_SUCCESS;
  });
}

template <typename Value>
CUresult submitSet(CUdeviceptr to, std::size_t pitch, Value value, std::size_t width,
                   std::size_t height, CUstream stream) {
  if (width > SIZE_MAX / sizeof value) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t bytes = width * sizeof value;
  if (height > 1 && (pitch < bytes || pitch % sizeof value != 0)) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0 || height == 0) return CUDA_SUCCESS;
  if (backingOf(to) == nullptr || !ofOneKind(to, (height - 1) * pitch + bytes) ||
      to % sizeof value != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return submit(stream, [=] {
    for (std::size_t row = 0; row < height; ++row) {
      std::fill_n(reinterpret_cast<Value*>(backingOf(to + row * pitch)), width, value);
    }
    return CUDA_SUCCESS;
  });
}

// Memory that was registered for one device alone is out of the others' reach.
bool reaches(CUdevice from, const void* host) {
  auto found = device().reached.upper_bound(number(host));
  if (found == device().reached.begin()) return true;
  --found;
  const auto& [bytes, owner] = found->second;
  return number(host) - found->first >= bytes || owner == from;
}

}  // namespace

bool gmac::fake_cuda::ofOneKind(const CUDA_MEMCPY3D& copy) {
  if (copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0) return true;
  // (By its base the driver may find out what memory it is.)
  const auto is = [&](const End& end) {
    return ofOneKind(end.base,
                     end.at(copy.Height - 1, copy.Depth - 1) + copy.WidthInBytes - end.base);
  };
  return is(sourceOf(copy)) && is(targetOf(copy));
}

extern "C" {

#pragma GCC visibility push(default)

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  FAKE_CALL();
  FAKE_HANDLE(stream);
  const CUdevice by = streamOf(stream).context->device;
  if (!reaches(by, from)) return CUDA_ERROR_INVALID_VALUE;
  device().copiedIn[static_cast<std::size_t>(by)] += bytes;
  return backingOf(to) == nullptr ? CUDA_ERROR_INVALID_VALUE
                                  : submitCopy(to, number(from), bytes, stream);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  FAKE_CALL();
  FAKE_HANDLE(stream);
  const CUdevice by = streamOf(stream).context->device;
  if (!reaches(by, to)) return CUDA_ERROR_INVALID_VALUE;
  device().copiedOut[static_cast<std::size_t>(by)] += bytes;
  return backingOf(from) == nullptr ? CUDA_ERROR_INVALID_VALUE
                                    : submitCopy(number(to), from, bytes, stream);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  FAKE_CALL();
  FAKE_HANDLE(stream);
  const CUdevice by = streamOf(stream).context->device;
  device().copiedWithin[static_cast<std::size_t>(by)] += bytes;
  return submitCopy(to, from, bytes, stream);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  FAKE_CALL();
  return submitCopy(to, from, bytes, stream);
}
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  FAKE_CALL();
  const CUresult submitted = submitCopy(to, from, bytes, nullptr);
  return submitted == CUDA_SUCCESS ? finish(nullptr) : submitted;
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  FAKE_CALL();
  if (backingOf(to) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult submitted = submitCopy(to, number(from), bytes, nullptr);
  return submitted == CUDA_SUCCESS ? finish(nullptr) : submitted;
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  FAKE_CALL();
  if (backingOf(from) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult submitted = submitCopy(number(to), from, bytes, nullptr);
  return submitted == CUDA_SUCCESS ? finish(nullptr) : submitted;
}
CUresult cuMemcpy2D(const CUDA_MEMCPY2D* copy) {
  FAKE_CALL();
  return copyBlock(blockOf(*copy));
}
CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D* copy) {
  FAKE_CALL();
  return copyBlock(blockOf(*copy));
}
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* copy, CUstream stream) {
  FAKE_CALL();
  return submitBlock(blockOf(*copy), stream);
}
CUresult cuMemcpy3D(const CUDA_MEMCPY3D* copy) {
  FAKE_CALL();
  return copyBlock(*copy);
}
CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D* copy, CUstream stream) {
  FAKE_CALL();
  return submitBlock(*copy, stream);
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* copy) {
  FAKE_CALL();
  if (copy->srcContext == nullptr || copy->dstContext == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return copyBlock(blockOf(*copy));
}
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
  FAKE_CALL();
  if (copy->srcContext == nullptr || copy->dstContext == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return submitBlock(blockOf(*copy), stream);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  FAKE_CALL();
  return submitSet(to, value, count, stream);
}
CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, std::size_t count) {
  FAKE_CALL();
  return submitSet(to, value, count, nullptr);
}
CUresult cuMemsetD32(CUdeviceptr to, unsigned value, std::size_t count) {
  FAKE_CALL();
  return submitSet(to, value, count, nullptr);
}
CUresult cuMemsetD2D8(CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width,
                      std::size_t height) {
  FAKE_CALL();
  return submitSet(to, pitch, value, width, height, nullptr);
}
CUresult cuMemsetD2D16Async(CUdeviceptr to, std::size_t pitch, unsigned short value,
                            std::size_t width, std::size_t height, CUstream stream) {
  FAKE_CALL();
  return submitSet(to, pitch, value, width, height, stream);
}
CUresult cuMemsetD2D32(CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width,
                       std::size_t height) {
  FAKE_CALL();
  return submitSet(to, pitch, value, width, height, nullptr);
}

#pragma GCC visibility pop
}
