// SPDX-License-Identifier: Apache-2.0
//
// What a program on the fake driver has in a context: of one device of several, or of its own.
#ifndef GMAC_TESTS_CUDA_FAKE_CONTEXTS_H_
#define GMAC_TESTS_CUDA_FAKE_CONTEXTS_H_

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/cuda/fake_program.h"

namespace gmac::fake_cuda {

// prepare() for a managed-memory program on devices that do not reach each other's memory, unless
// the environment has them do so in groups, or not even the CPU's.
inline bool prepareSeparate(int devices) {
  setenv("GMAC_MANAGED", "1", 0);
  prepare();
  setDevices(devices, false);
  if (const char* const group = std::getenv("SHARE_IN_GROUPS_OF")) {
    shareInGroupsOf(std::atoi(group));
  }
  if (std::getenv("NO_CPU_MEMORY") != nullptr) {
    setAttribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
  }
  return true;
}

// A stream, and the kernel as that context has loaded it.
struct Context {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUfunction increment = nullptr;
};

// The calling thread's as long as it lives.
class CurrentContext {
 public:
  explicit CurrentContext(const Context& one) {
    EXPECT_EQ(DRIVER(cuCtxPushCurrent)(one.context), CUDA_SUCCESS);
  }
  ~CurrentContext() {
    CUcontext popped = nullptr;
    EXPECT_EQ(DRIVER(cuCtxPopCurrent)(&popped), CUDA_SUCCESS);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
};

// Makes what belongs into a context.
inline void begin(Context* one) {
  const CurrentContext current(*one);
  ASSERT_EQ(DRIVER(cuStreamCreate)(&one->stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  CUmodule module = nullptr;
  ASSERT_EQ(DRIVER(cuModuleLoadDataEx)(&module, &kImage, 0, nullptr, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuModuleGetFunction)(&one->increment, module, "increment"), CUDA_SUCCESS);
}
// The same for the primary context of a device, which it retains.
inline void begin(Context* one, CUdevice device) {
  ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&one->context, device), CUDA_SUCCESS);
  begin(one);
}

}  // namespace gmac::fake_cuda

#endif  // GMAC_TESTS_CUDA_FAKE_CONTEXTS_H_
