// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_TESTS_CUDA_APPLICATION_TEST_H_
#define GMAC_TESTS_CUDA_APPLICATION_TEST_H_

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>

#include "gmac/api/adsm.h"
#include "tests/cuda/fake_program.h"

namespace gmac::fake_cuda {

inline constexpr std::size_t kCount = 100'000;
inline constexpr std::size_t kBytes = kCount * sizeof(std::uint32_t);

// An application on the fake driver: an object of kCount numbers, each its own index, memory of the
// device that is no object's, a stream and a kernel.
class ApplicationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    object_ = static_cast<std::uint32_t*>(adsmAlloc(kBytes));
    ASSERT_NE(object_, nullptr) << adsmLastErrorString();
    ASSERT_EQ(DRIVER(cuStreamCreate)(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CUmodule module = nullptr;
    ASSERT_EQ(DRIVER(cuModuleLoadDataEx)(&module, &kImage, 0, nullptr, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuModuleGetFunction)(&increment_, module, "increment"), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuMemAlloc)(&plain_, kBytes), CUDA_SUCCESS);
    std::iota(object_, object_ + kCount, 0);
  }
  void TearDown() override {
    EXPECT_EQ(DRIVER(cuMemFree)(plain_), CUDA_SUCCESS);
    EXPECT_EQ(adsmFree(object_), adsmSuccess) << adsmLastErrorString();
  }
  // Adds one to each of the kCount numbers at `data`.
  void launch(CUstream stream, void* data) {
    std::uint64_t count = kCount;
    void* args[] = {&data, &count};
    ASSERT_EQ(
        DRIVER(cuLaunchKernel)(increment_, kCount / 100, 1, 1, 100, 1, 1, 0, stream, args, nullptr),
        CUDA_SUCCESS)
        << adsmLastErrorString();
  }

  std::uint32_t* object_ = nullptr;
  CUdeviceptr plain_ = 0;  // memory of the device that is no object's
  CUstream stream_ = nullptr;
  CUfunction increment_ = nullptr;
};

}  // namespace gmac::fake_cuda

#endif  // GMAC_TESTS_CUDA_APPLICATION_TEST_H_
