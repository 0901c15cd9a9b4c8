// SPDX-License-Identifier: Apache-2.0
//
// The fake driver's own managed memory, and its answers about memory. Its managed memory is the
// CPU's, and its hints do nothing: tests see which calls reach it.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "tests/cuda/fake_internal.h"
#include "tests/cuda/fake_state.h"

using namespace gmac::fake_cuda;  // NOLINT: the driver's functions live in no namespace

namespace {

// The one __managed__ variable, on pages of its own.
struct alignas(4096) {
  long value;
} variable;
bool closedForGood = false;

// Past the mprotect() of the library under test.
void protectVariable(int access) { syscall(SYS_mprotect, &variable, sizeof variable, access); }

}  // namespace

void gmac::fake_cuda::openVariable() {
  if (!closedForGood) protectVariable(PROT_READ | PROT_WRITE);
}

extern "C" {

#pragma GCC visibility push(default)

// As a driver does while the device works, where the CPU may not use managed memory then.
void fakeCudaCloseVariable(bool forGood) {
  closedForGood = forGood;
  protectVariable(PROT_NONE);
}

CUresult cuMemAllocManaged(CUdeviceptr* address, std::size_t bytes, unsigned) {
  FAKE_CALL();
  void* const memory = ::operator new (bytes, std::align_val_t{4096}, std::nothrow);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(memory);
  device().managed.insert(*address);
  return CUDA_SUCCESS;
}
CUresult cuMemFreeAsync(CUdeviceptr, CUstream) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuMemPrefetchAsync(CUdeviceptr, std::size_t, CUmemLocation, unsigned, CUstream) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuMemPrefetchBatchAsync(CUdeviceptr*, std::size_t*, std::size_t, CUmemLocation*,
                                 std::size_t*, std::size_t, unsigned long long, CUstream) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuMemDiscardBatchAsync(CUdeviceptr*, std::size_t*, std::size_t, unsigned long long,
                                CUstream) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuMemAdvise(CUdeviceptr, std::size_t, CUmem_advise, CUmemLocation) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuMemRangeGetAttribute(void*, std::size_t, CUmem_range_attribute, CUdeviceptr,
                                std::size_t) {
  FAKE_CALL();
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemRangeGetAttributes(void**, std::size_t*, CUmem_range_attribute*, std::size_t,
                                 CUdeviceptr, std::size_t) {
  FAKE_CALL();
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuStreamAttachMemAsync(CUstream, CUdeviceptr, std::size_t, unsigned) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetManaged(CUdeviceptr* address, std::size_t* bytes, CUlibrary, const char*) {
  FAKE_CALL();
  if (address != nullptr) *address = reinterpret_cast<CUdeviceptr>(&variable.value);
  if (bytes != nullptr) *bytes = sizeof variable.value;
  return CUDA_SUCCESS;
}
CUresult cuLibraryUnload(CUlibrary) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  FAKE_CALL();
  return allocationOf(address, base, bytes) ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  FAKE_CALL();
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto put = [&](auto value) {
    std::memcpy(data, &value, sizeof value);
    return CUDA_SUCCESS;
  };
  if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE && isPinned(address)) {
    return put(CU_MEMORYTYPE_HOST);
  }
  if (!allocationOf(address, &start, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(address);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put(0U);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put(1U);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(deviceOf(address));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(bytes);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put(allocationId(start));
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr address) {
  FAKE_CALL();
  for (unsigned i = 0; i < count; ++i) {
    // Unknown attributes read as zero.
    if (cuPointerGetAttribute(data[i], attributes[i], address) != CUDA_SUCCESS)
      std::memset(data[i], 0, sizeof(int));
  }
  return CUDA_SUCCESS;
}

// The older signatures.
#undef cuMemPrefetchAsync
#undef cuMemAdvise
CUresult cuMemPrefetchAsync(CUdeviceptr, std::size_t, CUdevice, CUstream) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuMemAdvise(CUdeviceptr, std::size_t, CUmem_advise, CUdevice) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}

#pragma GCC visibility pop
}
