// SPDX-License-Identifier: Apache-2.0
//
// Device memory that the program frees while other processes have it: the whole runtime with the
// interposer linked in, over the fake driver. Needs no GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <set>
#include <thread>

#include "gmac/api/adsm.h"
#include "gmac/session/device_memory.h"
#include "tests/cuda/fake_program.h"

namespace gmac {
namespace {

const bool kPrepared = fake_cuda::prepare();

// Addresses that somebody else has.
std::set<CUdeviceptr> had;
std::atomic<bool> lateAnswer{true};
int asked = 0;

int mayFree(void* start) {
  ++asked;
  return lateAnswer && had.count(reinterpret_cast<CUdeviceptr>(start)) != 0 ? 0 : 1;
}

constexpr std::size_t kBytes = std::size_t{64} << 20;

class DeferredFrees : public ::testing::Test {
 protected:
  void SetUp() override {
    void* const object = adsmAlloc(4096);  // starts the runtime, whose context it is
    ASSERT_TRUE(object != nullptr && adsmFree(object) == adsmSuccess);
    ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuCtxPushCurrent)(context_), CUDA_SUCCESS);
    gmacOnDeviceFree(&mayFree);
    had.clear();
    lateAnswer = true;
    room_ = room();
  }
  static std::size_t room() {
    std::size_t bytes = 0;
    std::size_t all = 0;
    EXPECT_EQ(DRIVER(cuMemGetInfo)(&bytes, &all), CUDA_SUCCESS);
    return bytes;
  }
  static CUdeviceptr allocate(std::size_t bytes = kBytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(DRIVER(cuMemAlloc)(&address, bytes), CUDA_SUCCESS);
    return address;
  }

  CUcontext context_ = nullptr;
  std::size_t room_ = 0;
};

TEST_F(DeferredFrees, WhatNobodyHasIsFreedAtOnce) {
  asked = 0;
  const CUdeviceptr address = allocate();
  EXPECT_EQ(DRIVER(cuMemFree)(address), CUDA_SUCCESS);
  EXPECT_EQ(room(), room_);
  EXPECT_EQ(asked, 1);
}

TEST_F(DeferredFrees, WhatSomebodyHasIsFreedWhenItIsGivenBack) {
  const CUdeviceptr first = allocate();
  const CUdeviceptr second = allocate();
  had = {first, second};
  EXPECT_EQ(DRIVER(cuMemFree)(first), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemFreeAsync)(second, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(room(), room_ - 2 * kBytes);
  gmacFreeKept();
  EXPECT_EQ(room(), room_ - 2 * kBytes);
  had = {second};
  gmacFreeKept();
  EXPECT_EQ(room(), room_ - kBytes);
  // By the next free, too.
  had = {};
  EXPECT_EQ(DRIVER(cuMemFree)(allocate()), CUDA_SUCCESS);
  EXPECT_EQ(room(), room_);
}

TEST_F(DeferredFrees, ItIsFreedOnceAndASecondFreeFails) {
  const CUdeviceptr address = allocate();
  had = {address};
  EXPECT_EQ(DRIVER(cuMemFree)(address), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemFree)(address), CUDA_ERROR_INVALID_VALUE);
  had = {};
  gmacFreeKept();
  EXPECT_EQ(room(), room_);
  EXPECT_EQ(DRIVER(cuMemFree)(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DeferredFrees, AnAllocationThatFindsNoMemoryWaitsForIt) {
  const CUdeviceptr address = allocate(room_ / 2);
  had = {address};
  EXPECT_EQ(DRIVER(cuMemFree)(address), CUDA_SUCCESS);
  std::thread other([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    lateAnswer = false;
  });
  const CUdeviceptr large = allocate(room_ / 4 * 3);
  other.join();
  EXPECT_EQ(DRIVER(cuMemFree)(large), CUDA_SUCCESS);
  EXPECT_GE(room(), room_);  // (The runtime, too, has given back what it kept.)
}

TEST_F(DeferredFrees, AnAllocationDoesNotWaitForEver) {
  const CUdeviceptr address = allocate(room_ / 2);
  had = {address};
  EXPECT_EQ(DRIVER(cuMemFree)(address), CUDA_SUCCESS);
  CUdeviceptr large = 0;
  EXPECT_EQ(DRIVER(cuMemAlloc)(&large, room_ / 4 * 3), CUDA_ERROR_OUT_OF_MEMORY);
  had = {};
  gmacFreeKept();
  EXPECT_EQ(room(), room_);
}

}  // namespace
}  // namespace gmac
