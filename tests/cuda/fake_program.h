// SPDX-License-Identifier: Apache-2.0
//
// A program on the fake driver, in its own process: the runtime's environment, one kernel, and
// driver functions found as the CUDA runtime finds them.
#ifndef GMAC_TESTS_CUDA_FAKE_PROGRAM_H_
#define GMAC_TESTS_CUDA_FAKE_PROGRAM_H_

#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tests/cuda/fake_library.h"

namespace gmac::fake_cuda {

// The runtime starts with the first object, on the fake driver, unless the caller wants something
// else. For the initialiser of a global.
inline bool prepare() {
  library();
  setenv("GMAC_ACCEL", "cuda", 0);
  // Pages that were pinned and moved are beyond a driver that copies with the CPU.
  setenv("GMAC_TEST_MIRROR", "file", 0);
  return true;
}

// (uint32_t* data, uint64_t count): adds one to each.
inline CUresult increment(const unsigned*, const unsigned*, unsigned, void** args) {
  auto* const data = device(argument<std::uint32_t*>(args, 0));
  if (data == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto count = argument<std::uint64_t>(args, 1);
  for (std::uint64_t i = 0; i < count; ++i) ++data[i];
  return CUDA_SUCCESS;
}
inline const std::size_t kSizes[] = {sizeof(void*), sizeof(std::uint64_t)};
inline const Kernel kKernels[] = {{"increment", increment, 2, kSizes}};
inline const Image kImage = {"fakecud", kKernels, 1, nullptr, 0};

// A driver function by the way that the CUDA runtime goes.
template <typename Function>
Function* driver(const char* name, int version = CUDA_VERSION) {
  static const auto find =
      reinterpret_cast<decltype(&::cuGetProcAddress)>(dlsym(library(), "cuGetProcAddress_v2"));
  void* found = nullptr;
  EXPECT_EQ(find(name, &found, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, nullptr), CUDA_SUCCESS)
      << name;
  return reinterpret_cast<Function*>(found);
}
#define DRIVER(function) ::gmac::fake_cuda::driver<decltype(::function)>(#function)

}  // namespace gmac::fake_cuda

#endif  // GMAC_TESTS_CUDA_FAKE_PROGRAM_H_
