// SPDX-License-Identifier: Apache-2.0
//
// The fake driver's copies and fills.
#include <algorithm>
#include <cstring>

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

CUresult submitRows(const CUDA_MEMCPY2D& copy, CUstream stream) {
  const auto base = [](CUmemorytype type, const void* host, CUdeviceptr device, CUarray array) {
    return type == CU_MEMORYTYPE_HOST    ? reinterpret_cast<CUdeviceptr>(host)
           : type == CU_MEMORYTYPE_ARRAY ? reinterpret_cast<CUdeviceptr>(array->bytes.data())
                                         : device;
  };
  const auto from = base(copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray);
  const auto to = base(copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray);
  const auto last = [&](std::size_t pitch) {
    return (copy.Height - 1) * pitch + copy.WidthInBytes;
  };
  if (!ofOneKind(from + copy.srcY * copy.srcPitch + copy.srcXInBytes, last(copy.srcPitch)) ||
      !ofOneKind(to + copy.dstY * copy.dstPitch + copy.dstXInBytes, last(copy.dstPitch))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return submit(stream, [=] {
    for (std::size_t row = 0; row < copy.Height; ++row) {
      std::memmove(bytesAt(to + (copy.dstY + row) * copy.dstPitch + copy.dstXInBytes),
                   bytesAt(from + (copy.srcY + row) * copy.srcPitch + copy.srcXInBytes),
                   copy.WidthInBytes);
    }
    return CUDA_SUCCESS;
  });
}

template <typename Value>
CUresult submitSet(CUdeviceptr to, Value value, std::size_t count, CUstream stream) {
  if (backingOf(to) == nullptr || !ofOneKind(to, count * sizeof value)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return submit(stream, [=] {
    std::fill_n(reinterpret_cast<Value*>(backingOf(to)), count, value);
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
  const CUresult submitted = submitRows(*copy, nullptr);
  return submitted == CUDA_SUCCESS ? finish(nullptr) : submitted;
}
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* copy, CUstream stream) {
  FAKE_CALL();
  return submitRows(*copy, stream);
}
CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D* copy, CUstream stream) {
  FAKE_CALL();
  for (std::size_t slice = 0; slice < copy->Depth; ++slice) {
    CUDA_MEMCPY2D rows{};
    rows.WidthInBytes = copy->WidthInBytes;
    rows.Height = copy->Height;
    const std::size_t from = slice * copy->srcPitch * copy->srcHeight;
    const std::size_t to = slice * copy->dstPitch * copy->dstHeight;
    rows.srcMemoryType = copy->srcMemoryType;
    rows.srcDevice = copy->srcDevice + from;
    rows.srcHost = static_cast<const std::byte*>(copy->srcHost) + from;
    rows.srcPitch = copy->srcPitch;
    rows.dstMemoryType = copy->dstMemoryType;
    rows.dstDevice = copy->dstDevice + to;
    rows.dstHost = static_cast<std::byte*>(copy->dstHost) + to;
    rows.dstPitch = copy->dstPitch;
    if (const CUresult result = submitRows(rows, stream); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
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

#pragma GCC visibility pop
}
