// SPDX-License-Identifier: Apache-2.0
//
// A program for managed memory that keeps its small arrays in one large allocation: a page of that
// gets one copy, in the CPU's memory, and the program's copies and fills go on, whose ranges the
// driver refuses where they lie in both. The whole runtime over the fake driver; needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/coherence/port.h"
#include "gmac/observe/stats.h"
#include "interpose/cuda/hooks.h"
#include "tests/cuda/fake_program.h"

namespace gmac::interpose {
namespace {

using fake_cuda::kImage;

const bool kPrepared = [] {
  setenv("GMAC_MANAGED", "1", 0);
  return fake_cuda::prepare();
}();

constexpr std::size_t kPage = std::size_t{2} << 20;
constexpr std::size_t kBytes = 6 * kPage;
constexpr std::size_t kHot = 2 * kPage + 64;  // of a word, in the page that becomes hot

// All tests run in one process: the last one ends what they look at.
class Pools : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuCtxPushCurrent)(context_), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuStreamCreate)(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CUmodule module = nullptr;
    ASSERT_EQ(DRIVER(cuModuleLoadDataEx)(&module, &kImage, 0, nullptr, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuModuleGetFunction)(&increment_, module, "increment"), CUDA_SUCCESS);
    CUdeviceptr address = 0;
    ASSERT_EQ(DRIVER(cuMemAllocManaged)(&address, kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS)
        << adsmLastErrorString();
    pool_ = reinterpret_cast<std::uint8_t*>(address);
    for (std::size_t i = 0; i < kBytes; ++i) pool_[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
    expected_.assign(pool_, pool_ + kBytes);
    ASSERT_NO_FATAL_FAILURE(heat());
  }
  void TearDown() override {
    EXPECT_TRUE(std::equal(expected_.begin(), expected_.end(), pool_));
    EXPECT_EQ(DRIVER(cuMemFree)(at(0)), CUDA_SUCCESS);
    CUcontext popped = nullptr;
    EXPECT_EQ(DRIVER(cuCtxPopCurrent)(&popped), CUDA_SUCCESS);
  }
  CUdeviceptr at(std::size_t offset) const { return reinterpret_cast<CUdeviceptr>(pool_ + offset); }
  // A kernel adds one to a word, the program waits, and the CPU adds one.
  void round() {
    std::uint8_t* data = pool_ + kHot;
    std::uint64_t count = 1;
    void* args[] = {&data, &count};
    ASSERT_EQ(DRIVER(cuLaunchKernel)(increment_, 1, 1, 1, 1, 1, 1, 0, stream_, args, nullptr),
              CUDA_SUCCESS)
        << adsmLastErrorString();
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    std::uint32_t before = 0;
    std::memcpy(&before, expected_.data() + kHot, sizeof before);
    std::uint32_t word = 0;
    std::memcpy(&word, pool_ + kHot, sizeof word);
    ASSERT_EQ(word, before + 1);
    *reinterpret_cast<std::uint32_t*>(pool_ + kHot) = ++word;
    std::memcpy(expected_.data() + kHot, &word, sizeof word);
  }
  // Until the page has one copy. (How long rounds take decides: the machine may be busy.)
  void heat() {
    const std::uint64_t before = moved();
    for (int i = 0; i < 100'000 && moved() == before; ++i) ASSERT_NO_FATAL_FAILURE(round());
    ASSERT_EQ(moved(), before + 1);
    for (int i = 0; i < 8; ++i) ASSERT_NO_FATAL_FAILURE(round());
  }
  static std::uint64_t moved() { return stats().zeroCopies.value(); }
  static std::uint64_t ended() { return stats().zeroCopiesEnded.value(); }

  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUfunction increment_ = nullptr;
  std::uint8_t* pool_ = nullptr;
  std::vector<std::uint8_t> expected_;
};

TEST_F(Pools, CopiesOfOneRangeGoOverItsBorders) {
  const std::uint64_t before = ended();
  std::vector<std::uint8_t> plain(kBytes);
  ASSERT_EQ(DRIVER(cuMemcpyDtoH)(plain.data(), at(0), kBytes), CUDA_SUCCESS);
  EXPECT_EQ(plain, expected_);
  // To it, from another place in it, and by addresses of any kind.
  constexpr std::size_t kPart = kPage + 4096;
  const std::size_t first = 2 * kPage - 1000;
  std::fill_n(plain.begin(), kPart, std::uint8_t{42});
  ASSERT_EQ(DRIVER(cuMemcpyHtoD)(at(first), plain.data(), kPart), CUDA_SUCCESS);
  std::fill_n(expected_.begin() + first, kPart, std::uint8_t{42});
  ASSERT_EQ(DRIVER(cuMemcpyDtoDAsync)(at(4 * kPage - 5), at(first + 7), kPart, stream_),
            CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  std::copy_n(expected_.begin() + first + 7, kPart, expected_.begin() + 4 * kPage - 5);
  ASSERT_EQ(DRIVER(cuMemcpy)(at(first + 3), at(0), kPart), CUDA_SUCCESS);
  std::copy_n(expected_.begin(), kPart, expected_.begin() + static_cast<long>(first) + 3);
  ASSERT_EQ(DRIVER(cuMemcpyHtoDAsync)(at(3 * kPage), pool_ + kPage, kPage + 9, stream_),
            CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  std::copy_n(expected_.begin() + kPage, kPage + 9, expected_.begin() + 3 * kPage);
  EXPECT_EQ(ended(), before) << "the page stays where it is";
  ASSERT_NO_FATAL_FAILURE(round());
}

TEST_F(Pools, FillsGoOverItsBorders) {
  const std::uint64_t before = ended();
  ASSERT_EQ(DRIVER(cuMemsetD8)(at(2 * kPage - 3), 9, kPage + 7), CUDA_SUCCESS);
  std::fill_n(expected_.begin() + 2 * kPage - 3, kPage + 7, std::uint8_t{9});
  ASSERT_EQ(DRIVER(cuMemsetD32)(at(3 * kPage - 8), 0x05050505, 4), CUDA_SUCCESS);
  std::fill_n(expected_.begin() + 3 * kPage - 8, 16, std::uint8_t{5});
  ASSERT_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(ended(), before);
  ASSERT_NO_FATAL_FAILURE(round());
}

// A copy of rows has one kind of memory, which takes the page back.
TEST_F(Pools, CopiesOfRowsOverItsBordersTakeItBack) {
  constexpr std::size_t kPitch = kPage / 4;
  const std::uint64_t before = ended();
  std::vector<std::uint8_t> plain(100 * 8, 3);
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = plain.data();
  rows.srcPitch = 100;
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = at(2 * kPage);
  rows.dstPitch = kPitch;
  rows.WidthInBytes = 100;
  rows.Height = 4;  // that is all of the page
  ASSERT_EQ(DRIVER(cuMemcpy2D)(&rows), CUDA_SUCCESS);
  EXPECT_EQ(ended(), before);
  rows.Height = 8;
  ASSERT_EQ(DRIVER(cuMemcpy2D)(&rows), CUDA_SUCCESS);
  EXPECT_EQ(ended(), before + 1);
  for (std::size_t row = 0; row < 8; ++row) {
    std::fill_n(expected_.begin() + static_cast<long>(2 * kPage + row * kPitch), 100,
                std::uint8_t{3});
  }
  ASSERT_NO_FATAL_FAILURE(heat());
}

TEST_F(Pools, WhatTheProgramAsksAboutItIsAsOfAnyManagedMemory) {
  for (const std::size_t offset : {std::size_t{0}, kHot, 3 * kPage}) {
    CUmemorytype type{};
    ASSERT_EQ(DRIVER(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at(offset)),
              CUDA_SUCCESS);
    EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
    unsigned managed = 0;
    ASSERT_EQ(DRIVER(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at(offset)),
              CUDA_SUCCESS);
    EXPECT_EQ(managed, 1U);
    CUdeviceptr start = 0;
    ASSERT_EQ(
        DRIVER(cuPointerGetAttribute)(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at(offset)),
        CUDA_SUCCESS);
    EXPECT_EQ(start, at(0)) << offset;
    std::size_t bytes = 0;
    ASSERT_EQ(DRIVER(cuMemGetAddressRange)(&start, &bytes, at(offset)), CUDA_SUCCESS);
    EXPECT_EQ(start, at(0)) << offset;
    EXPECT_EQ(bytes, kBytes) << offset;
  }
}

// Kernels use memory of both kinds.
TEST_F(Pools, AGraphOfKernelsLeavesItWhereItIs) {
  const std::uint64_t before = ended();
  CUgraph graph = nullptr;
  ASSERT_EQ(DRIVER(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
  std::uint8_t* data = pool_ + kHot;
  std::uint8_t* apart = pool_ + 4 * kPage;
  std::uint64_t count = 1;
  for (std::uint8_t** const each : {&data, &apart}) {
    void* args[] = {each, &count};
    CUDA_KERNEL_NODE_PARAMS node{};
    node.func = increment_;
    node.gridDimX = node.gridDimY = node.gridDimZ = 1;
    node.blockDimX = node.blockDimY = node.blockDimZ = 1;
    node.kernelParams = args;
    CUgraphNode made = nullptr;
    ASSERT_EQ(DRIVER(cuGraphAddKernelNode)(&made, graph, nullptr, 0, &node), CUDA_SUCCESS);
  }
  // Nor does a copy of other memory matter.
  std::vector<std::uint8_t> plain(8, 5);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = plain.data();
  copy.dstHost = plain.data() + 4;
  copy.WidthInBytes = 4;
  copy.Height = copy.Depth = 1;
  ASSERT_EQ(DRIVER(cuGraphAddMemcpyNode)(nullptr, graph, nullptr, 0, &copy, context_),
            CUDA_SUCCESS);
  CUgraphExec executable = nullptr;
  ASSERT_EQ(DRIVER(cuGraphInstantiateWithFlags)(&executable, graph, 0), CUDA_SUCCESS);
  const auto add = [](std::uint8_t* bytes) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes, sizeof word);
    ++word;
    std::memcpy(bytes, &word, sizeof word);
  };
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(DRIVER(cuGraphLaunch)(executable, stream_), CUDA_SUCCESS);
    add(expected_.data() + kHot);
    add(expected_.data() + 4 * kPage);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    for (const std::size_t offset : {kHot, 4 * kPage}) {
      ASSERT_EQ(std::memcmp(pool_ + offset, expected_.data() + offset, 4), 0) << offset;
      add(expected_.data() + offset);
      add(pool_ + offset);
    }
  }
  EXPECT_EQ(ended(), before);
  EXPECT_FALSE(coherence::recorded());
  EXPECT_EQ(DRIVER(cuGraphExecDestroy)(executable), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuGraphDestroy)(graph), CUDA_SUCCESS);
}

// What is recorded meanwhile may be a copy.
TEST_F(Pools, ItIsBackWhileAStreamIsCapturedAndMayLeaveAfterwards) {
  const std::uint64_t before = ended();
  CUstream captured = nullptr;
  ASSERT_EQ(DRIVER(cuStreamCreate)(&captured, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuStreamBeginCapture)(captured, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(ended(), before + 1);
  EXPECT_NE(DRIVER(cuStreamBeginCapture)(captured, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  const std::uint64_t begun = moved();
  for (int i = 0; i < 2000; ++i) ASSERT_NO_FATAL_FAILURE(round());
  EXPECT_EQ(moved(), begun);
  std::uint8_t* data = pool_;
  std::uint64_t count = 0;
  void* args[] = {&data, &count};
  ASSERT_EQ(DRIVER(cuLaunchKernel)(increment_, 1, 1, 1, 1, 1, 1, 0, captured, args, nullptr),
            CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(DRIVER(cuStreamEndCapture)(captured, &graph), CUDA_SUCCESS);
  EXPECT_FALSE(coherence::recorded());
  ASSERT_NO_FATAL_FAILURE(heat());
}

// Copies of a graph run later, whatever has moved by then.
TEST_F(Pools, YACapturedCopyEndsIt) {
  CUstream captured = nullptr;
  ASSERT_EQ(DRIVER(cuStreamCreate)(&captured, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  CUdeviceptr plain = 0;
  ASSERT_EQ(DRIVER(cuMemAlloc)(&plain, kPage), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuStreamBeginCapture)(captured, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemcpyDtoDAsync)(plain, at(2 * kPage - 32), 64, captured), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(DRIVER(cuStreamEndCapture)(captured, &graph), CUDA_SUCCESS);
  EXPECT_TRUE(coherence::recorded());
  const std::uint64_t begun = moved();
  for (int i = 0; i < 2000; ++i) ASSERT_NO_FATAL_FAILURE(round());
  EXPECT_EQ(moved(), begun);
  EXPECT_EQ(DRIVER(cuMemFree)(plain), CUDA_SUCCESS);
  coherence::internal::recorded = false;  // (of a real process, never)
}

// Nodes of a graph run later, whatever has moved by then.
TEST_F(Pools, ZAGraphEndsIt) {
  const std::uint64_t before = ended();
  CUgraph graph = nullptr;
  ASSERT_EQ(DRIVER(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = at(2 * kPage - 8);
  fill.value = 7;
  fill.elementSize = 1;
  fill.width = 16;
  fill.height = 1;
  CUgraphNode node = nullptr;
  (void)DRIVER(cuGraphAddMemsetNode)(&node, graph, nullptr, 0, &fill, context_);
  EXPECT_EQ(ended(), before + 1);
  const std::uint64_t begun = moved();
  for (int i = 0; i < 2000; ++i) ASSERT_NO_FATAL_FAILURE(round());
  EXPECT_EQ(moved(), begun);
  EXPECT_EQ(DRIVER(cuGraphDestroy)(graph), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gmac::interpose
