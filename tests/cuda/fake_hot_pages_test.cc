// SPDX-License-Identifier: Apache-2.0
//
// A program for managed memory that keeps its small arrays in one large allocation: a page of that
// gets one copy, in the CPU's memory, and the program's copies and fills go on, whose ranges the
// driver refuses where they lie in both. The whole runtime over the fake driver; needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/coherence/call_times.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "interpose/cuda/hooks.h"
#include "tests/cuda/fake_program.h"
#include "tests/support/child.h"

namespace gmac::interpose {
namespace {

using fake_cuda::kImage;

const bool kPrepared = [] {
  setenv("GMAC_MANAGED", "1", 0);
  fake_cuda::prepare();
  // No round is slow, and none takes longer than before, however busy the machine is.
  CallTimes::useForTests([] { return std::uint64_t{1}; });
  if (const char* const devices = std::getenv("FAKE_DEVICES")) {
    fake_cuda::setDevices(std::atoi(devices), std::getenv("FAKE_APART") == nullptr);
  }
  return true;
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
  // Until the page has one copy.
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

// The driver itself waits for what goes to memory that is not pinned, and for nothing else surely.
TEST_F(Pools, ACopyWaitsOnce) {
  const auto waits = [] { return fake_cuda::calls("cuStreamSynchronize"); };
  std::array<std::uint8_t, 64> plain{};
  const CUdeviceptr toPlain = reinterpret_cast<CUdeviceptr>(plain.data());
  void* pinned = nullptr;
  ASSERT_EQ(
      fake_cuda::control<decltype(cuMemHostAlloc)>("cuMemHostAlloc")(&pinned, plain.size(), 0),
      CUDA_SUCCESS);
  const CUdeviceptr toPinned = reinterpret_cast<CUdeviceptr>(pinned);
  const std::size_t before = waits();
  ASSERT_EQ(DRIVER(cuMemcpyDtoH)(plain.data(), at(kPage), plain.size()), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemcpy)(toPlain, at(kPage), plain.size()), CUDA_SUCCESS);
  EXPECT_EQ(waits(), before);
  EXPECT_TRUE(std::equal(plain.begin(), plain.end(), expected_.begin() + kPage));
  ASSERT_EQ(DRIVER(cuMemcpyDtoH)(pinned, at(kPage), plain.size()), CUDA_SUCCESS);
  EXPECT_EQ(waits(), before + 1);
  ASSERT_EQ(DRIVER(cuMemcpy)(toPinned, at(kPage), plain.size()), CUDA_SUCCESS);
  EXPECT_EQ(waits(), before + 2);
  ASSERT_EQ(DRIVER(cuMemcpyHtoD)(at(kPage), plain.data(), plain.size()), CUDA_SUCCESS);
  EXPECT_EQ(waits(), before + 3);
  EXPECT_EQ(DRIVER(cuMemFreeHost)(pinned), CUDA_SUCCESS);
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

// Whose number in bytes is that of one element, if it is not looked at closely.
// The fill is over when it returns, also for a stream that does not wait for the legacy one; and
// that is not the end of the round.
TEST_F(Pools, AnObjectThatIsClearedBeforeEachLaunchGetsOneCopy) {
  constexpr std::size_t kSmall = std::size_t{64} << 10;
  CUdeviceptr address = 0;
  ASSERT_EQ(DRIVER(cuMemAllocManaged)(&address, kSmall, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  auto* data = reinterpret_cast<std::uint8_t*>(address);
  std::uint64_t count = 1;
  void* args[] = {&data, &count};
  const std::uint64_t before = moved();
  for (int i = 0; i < 1000 && moved() == before; ++i) {
    ASSERT_EQ(DRIVER(cuMemsetD8)(address, 2, kSmall), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuLaunchKernel)(increment_, 1, 1, 1, 1, 1, 1, 0, stream_, args, nullptr),
              CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    ASSERT_EQ(*reinterpret_cast<volatile std::uint32_t*>(data), 0x02020203U);
  }
  EXPECT_EQ(moved(), before + 1);
  EXPECT_EQ(DRIVER(cuMemFree)(address), CUDA_SUCCESS);
}

TEST_F(Pools, AFillOfMoreElementsThanThereCanBeIsRefused) {
  constexpr std::size_t kMany = SIZE_MAX / 4 + 2;
  EXPECT_EQ(DRIVER(cuMemsetD2D32)(at(kPage), 64, 1, kMany, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DRIVER(cuMemsetD2D32)(at(kHot), 64, 1, kMany, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DRIVER(cuMemsetD32)(at(kPage), 1, kMany), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DRIVER(cuMemsetD2D16Async)(at(kPage), 64, 1, SIZE_MAX / 2 + 2, 1, stream_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(std::equal(expected_.begin(), expected_.end(), pool_));
  ASSERT_NO_FATAL_FAILURE(round());
}

// What a copy or fill of rows and layers names, in bytes: `at` is the first of the pool's.
struct Shape {
  std::size_t at, pitch, height, width, rows, layers;
};
// The page begins within a row, between two rows, between two layers, or within a layer.
constexpr Shape kShapes[] = {
    {2 * kPage - 2048, 4096, 3, 3000, 3, 1},
    {2 * kPage - 3000, 3000, 3, 3000, 3, 1},
    {2 * kPage - 5 * 4096, 4096, 8, 1000, 800, 1},
    {2 * kPage - 6 * 512, 512, 3, 500, 3, 5},
    {2 * kPage - 6 * 512 - 100, 512, 3, 512, 3, 5},
    {2 * kPage - 100, 1024, 1024, 700, 1024, 4},
    {2 * kPage - 64, kPage + 128, 1, kPage + 100, 1, 1},
};

// The other end is memory of the program's own.
TEST_F(Pools, CopiesOfRowsAndLayersGoOverItsBorders) {
  const std::uint64_t before = ended();
  std::vector<std::uint8_t> plain(8 * kPage);
  std::size_t seed = 0;
  for (const Shape& shape : kShapes) {
    const auto forEachRow = [&](auto&& use) {
      for (std::size_t layer = 0; layer < shape.layers; ++layer) {
        for (std::size_t row = 0; row < shape.rows; ++row) {
          use(expected_.begin() +
                  static_cast<long>(shape.at + (layer * shape.height + row) * shape.pitch),
              plain.begin() + static_cast<long>((layer * shape.rows + row) * shape.width));
        }
      }
    };
    // The pool's end begins within what is described.
    const std::size_t x = shape.pitch >= shape.width + 7 ? 7 : 0;
    const std::size_t y = shape.layers == 1 ? 1 : 0;
    const std::size_t z = shape.layers == 1 ? 0 : 1;
    const CUdeviceptr base = at(shape.at) - (z * shape.height + y) * shape.pitch - x;
    CUDA_MEMCPY3D_PEER from{};
    from.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    from.srcDevice = base;
    from.srcXInBytes = x;
    from.srcY = y;
    from.srcZ = z;
    from.srcPitch = shape.pitch;
    from.srcHeight = shape.layers == 1 ? y + shape.rows : shape.height;
    from.dstMemoryType = CU_MEMORYTYPE_HOST;
    from.dstHost = plain.data();
    from.dstPitch = shape.width;
    from.dstHeight = shape.rows;
    from.srcContext = from.dstContext = context_;
    from.WidthInBytes = shape.width;
    from.Height = shape.rows;
    from.Depth = shape.layers;
    ASSERT_EQ(DRIVER(cuMemcpy3DPeer)(&from), CUDA_SUCCESS) << shape.at;
    forEachRow([&](auto pool, auto packed) {
      ASSERT_TRUE(std::equal(pool, pool + static_cast<long>(shape.width), packed)) << shape.at;
    });
    for (std::uint8_t& byte : plain) byte = static_cast<std::uint8_t>(++seed * 13 >> 3);
    CUDA_MEMCPY3D to{};
    to.srcMemoryType = CU_MEMORYTYPE_HOST;
    to.srcHost = plain.data();
    to.srcPitch = shape.width;
    to.srcHeight = shape.rows;
    to.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    to.dstDevice = base + (shape.layers == 1 ? y * shape.pitch : 0);
    to.dstXInBytes = x;
    to.dstZ = z;
    to.dstPitch = shape.pitch;
    to.dstHeight = shape.layers == 1 ? 0 : shape.height;  // (which no single layer needs)
    to.WidthInBytes = shape.width;
    to.Height = shape.rows;
    to.Depth = shape.layers;
    ASSERT_EQ(DRIVER(cuMemcpy3DAsync)(&to, stream_), CUDA_SUCCESS) << shape.at;
    EXPECT_EQ(to.dstXInBytes, x) << "the caller's description";
    EXPECT_EQ(to.WidthInBytes, shape.width);
    EXPECT_EQ(to.Depth, shape.layers);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    forEachRow([&](auto pool, auto packed) { std::copy_n(packed, shape.width, pool); });
    ASSERT_TRUE(std::equal(expected_.begin(), expected_.end(), pool_)) << shape.at;
    ASSERT_EQ(ended(), before) << "the page stays where it is: " << shape.at;
  }
  ASSERT_NO_FATAL_FAILURE(round());
}

TEST_F(Pools, CopiesOfRowsWithinItGoOverBothOfItsBorders) {
  constexpr std::size_t kPitch = 1500;
  constexpr std::size_t kRows = kPage / kPitch + 100;  // more than the page
  const std::uint64_t before = ended();
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.srcDevice = at(2 * kPage - 50 * kPitch + 11);
  rows.srcPitch = kPitch;
  rows.dstDevice = at(4 * kPage + 8);
  rows.dstPitch = 777;
  rows.WidthInBytes = 777;
  rows.Height = kRows;
  ASSERT_EQ(DRIVER(cuMemcpy2DAsync)(&rows, stream_), CUDA_SUCCESS);
  for (std::size_t row = 0; row < kRows; ++row) {
    std::copy_n(expected_.begin() + static_cast<long>(2 * kPage - 50 * kPitch + 11 + row * kPitch),
                777, expected_.begin() + static_cast<long>(4 * kPage + 8 + row * 777));
  }
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  std::swap(rows.srcDevice, rows.dstDevice);
  std::swap(rows.srcPitch, rows.dstPitch);
  rows.dstDevice -= 5;
  const std::size_t calls = fake_cuda::calls("cuMemcpy2DUnaligned_v2");
  ASSERT_EQ(DRIVER(cuMemcpy2DUnaligned)(&rows), CUDA_SUCCESS);
  EXPECT_LE(fake_cuda::calls("cuMemcpy2DUnaligned_v2") - calls, 7U) << "whole rows at once";
  for (std::size_t row = 0; row < kRows; ++row) {
    std::copy_n(expected_.begin() + static_cast<long>(4 * kPage + 8 + row * 777), 777,
                expected_.begin() + static_cast<long>(2 * kPage - 50 * kPitch + 6 + row * kPitch));
  }
  EXPECT_EQ(ended(), before);
  ASSERT_NO_FATAL_FAILURE(round());
}

// What the driver refuses as a whole, or takes without a byte, it is given as it is.
TEST_F(Pools, WhatTheDriverRefusesItIsGivenAsItIs) {
  const std::uint64_t before = ended();
  std::vector<std::uint8_t> plain(4096);
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = plain.data();
  rows.srcPitch = 64;
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = at(2 * kPage - 32);
  rows.dstPitch = 50;
  rows.WidthInBytes = 64;
  rows.Height = 2;  // that overlap
  EXPECT_EQ(DRIVER(cuMemcpy2D)(&rows), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DRIVER(cuMemsetD2D8)(at(2 * kPage - 32), 50, 1, 64, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DRIVER(cuMemsetD2D32)(at(3 * kPage - 30), 64, 1, 15, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DRIVER(cuMemsetD2D32)(at(3 * kPage - 32), 66, 1, 15, 2), CUDA_ERROR_INVALID_VALUE);
  for (std::size_t* const none : {&rows.WidthInBytes, &rows.Height}) {
    const std::size_t some = std::exchange(*none, 0);
    const std::size_t calls = fake_cuda::calls("cuMemcpy2D_v2");
    rows.dstPitch = 64;
    EXPECT_EQ(DRIVER(cuMemcpy2D)(&rows), CUDA_SUCCESS);
    EXPECT_EQ(fake_cuda::calls("cuMemcpy2D_v2"), calls + 1);
    *none = some;
  }
  const std::size_t calls = fake_cuda::calls("cuMemsetD2D8_v2");
  EXPECT_EQ(DRIVER(cuMemsetD2D8)(at(2 * kPage - 32), 64, 1, 64, 0), CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda::calls("cuMemsetD2D8_v2"), calls + 1);
  if (ended() != before) {  // (Such calls may take it back.)
    ASSERT_NO_FATAL_FAILURE(heat());
  }
}

// No part of it moves. (The allocation may be larger than the program has asked for.)
TEST_F(Pools, ARangePastItsAllocationIsRefused) {
  constexpr std::size_t kMany = std::size_t{32} << 20;
  std::vector<std::uint8_t> plain(kMany, 77);
  EXPECT_EQ(DRIVER(cuMemcpyHtoD)(at(kPage), plain.data(), kMany), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(std::equal(expected_.begin(), expected_.end(), pool_));
  ASSERT_NO_FATAL_FAILURE(heat());
  EXPECT_EQ(DRIVER(cuMemcpyDtoH)(plain.data(), at(kPage), kMany), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 77), static_cast<long>(kMany));
  ASSERT_NO_FATAL_FAILURE(heat());
  EXPECT_EQ(DRIVER(cuMemsetD2D8)(at(kPage), 4096, 1, 100, kMany / 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(std::equal(expected_.begin(), expected_.end(), pool_));
  ASSERT_NO_FATAL_FAILURE(heat());
}

TEST_F(Pools, FillsOfRowsGoOverItsBorders) {
  const std::uint64_t before = ended();
  const auto expectFilled = [&](std::size_t first, std::size_t pitch, auto value, std::size_t width,
                                std::size_t height) {
    for (std::size_t row = 0; row < height; ++row) {
      for (std::size_t i = 0; i < width; ++i) {
        std::memcpy(expected_.data() + first + row * pitch + i * sizeof value, &value,
                    sizeof value);
      }
    }
  };
  ASSERT_EQ(DRIVER(cuMemsetD2D8)(at(2 * kPage - 1234), 1000, 0x21, 999, 2200), CUDA_SUCCESS);
  expectFilled(2 * kPage - 1234, 1000, std::uint8_t{0x21}, 999, 2200);
  ASSERT_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS);
  ASSERT_EQ(
      DRIVER(cuMemsetD2D16Async)(at(3 * kPage - 6 * 4096 - 2), 4096, 0x3132, 2048, 9, stream_),
      CUDA_SUCCESS);
  expectFilled(3 * kPage - 6 * 4096 - 2, 4096, std::uint16_t{0x3132}, 2048, 9);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemsetD2D32)(at(2 * kPage - 8), 0, 0x41424344, 100, 1), CUDA_SUCCESS);
  expectFilled(2 * kPage - 8, 0, std::uint32_t{0x41424344}, 100, 1);
  ASSERT_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_TRUE(std::equal(expected_.begin(), expected_.end(), pool_));
  EXPECT_EQ(ended(), before);
  ASSERT_NO_FATAL_FAILURE(round());
}

// Although the border lies within its first element, and the rest of it begins at whole ones.
TEST_F(Pools, AFillThatBeginsWithinAnElementIsRefused) {
  std::uint64_t before = ended();
  const auto expectRefused = [&](CUresult result) {
    EXPECT_EQ(result, CUDA_ERROR_INVALID_VALUE);
    EXPECT_TRUE(std::equal(expected_.begin(), expected_.end(), pool_));
    if (ended() != before) heat();
    before = ended();
  };
  expectRefused(DRIVER(cuMemsetD2D32)(at(3 * kPage - 2), 64, 1, 16, 1));
  expectRefused(DRIVER(cuMemsetD2D16Async)(at(2 * kPage - 1), 64, 1, 16, 1, stream_));
  expectRefused(DRIVER(cuMemsetD32)(at(3 * kPage - 3), 1, 16));
}

TEST_F(Pools, CopiesOfArraysGoOverItsBorders) {
  constexpr std::size_t kElement = 16;
  constexpr std::size_t kWidth = 100;
  constexpr std::size_t kRows = 5;
  constexpr std::size_t kRow = kWidth * kElement;
  const std::uint64_t before = ended();
  CUarray array = nullptr;
  const CUDA_ARRAY_DESCRIPTOR description{kWidth, kRows, CU_AD_FORMAT_FLOAT, 4};
  ASSERT_EQ(DRIVER(cuArrayCreate)(&array, &description), CUDA_SUCCESS);
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.srcDevice = at(2 * kPage - 2 * 2048 - 160);
  rows.srcPitch = 2048;
  rows.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  rows.dstArray = array;
  rows.WidthInBytes = kRow;
  rows.Height = kRows;
  ASSERT_EQ(DRIVER(cuMemcpy2D)(&rows), CUDA_SUCCESS);
  CUDA_MEMCPY2D back{};
  back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  back.srcArray = array;
  back.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  back.dstDevice = at(3 * kPage - kRow - 320);
  back.dstPitch = kRow;
  back.WidthInBytes = kRow;
  back.Height = kRows;
  ASSERT_EQ(DRIVER(cuMemcpy2DAsync)(&back, stream_), CUDA_SUCCESS);
  for (std::size_t row = 0; row < kRows; ++row) {
    std::copy_n(expected_.begin() + static_cast<long>(2 * kPage - 2 * 2048 - 160 + row * 2048),
                kRow, expected_.begin() + static_cast<long>(3 * kPage - kRow - 320 + row * kRow));
  }
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  EXPECT_TRUE(std::equal(expected_.begin(), expected_.end(), pool_));
  // Between linear memory and a row.
  ASSERT_EQ(DRIVER(cuMemcpyAtoD)(at(2 * kPage - 48), array, 160, 96), CUDA_SUCCESS);
  std::copy_n(expected_.begin() + static_cast<long>(3 * kPage - kRow - 320 + 160), 96,
              expected_.begin() + static_cast<long>(2 * kPage - 48));
  ASSERT_EQ(DRIVER(cuMemcpyHtoAAsync)(array, 16, pool_ + 3 * kPage - 32, 80, stream_),
            CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemcpyAtoD)(at(0), array, 16, 80), CUDA_SUCCESS);
  std::copy_n(expected_.begin() + static_cast<long>(3 * kPage - 32), 80, expected_.begin());
  EXPECT_TRUE(std::equal(expected_.begin(), expected_.end(), pool_));
  EXPECT_EQ(ended(), before);
  // An element of which the page has a part: no copy has a part of one.
  ASSERT_EQ(DRIVER(cuMemcpyAtoD)(at(2 * kPage - 8), array, 0, 32), CUDA_SUCCESS);
  EXPECT_EQ(ended(), before + 1);
  std::vector<std::uint8_t> plain(32);
  ASSERT_EQ(DRIVER(cuMemcpyAtoH)(plain.data(), array, 0, 32), CUDA_SUCCESS);
  std::copy_n(plain.begin(), 32, expected_.begin() + static_cast<long>(2 * kPage - 8));
  EXPECT_EQ(DRIVER(cuArrayDestroy)(array), CUDA_SUCCESS);
  ASSERT_NO_FATAL_FAILURE(heat());
}

// The fake driver reads the sources of the last entries in the call, and the others' later.
TEST_F(Pools, CopiesInBatchesGoOverItsBorders) {
  const std::uint64_t before = ended();
  std::vector<std::uint8_t> plain(kPage + 4096, 1);
  CUdeviceptr to[] = {at(kPage + 4096), at(2 * kPage - 5), at(5 * kPage), at(3 * kPage - 7)};
  const auto host = [&](std::size_t offset) {
    return reinterpret_cast<CUdeviceptr>(plain.data() + offset);
  };
  CUdeviceptr from[] = {at(2 * kPage - 100), host(0), host(1000), host(2000)};
  std::size_t sizes[] = {300, 10, 20, 30};
  CUmemcpyAttributes attributes[2] = {};
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  std::size_t firsts[] = {0, 3};
  ASSERT_EQ(DRIVER(cuMemcpyBatchAsync)(to, from, sizes, 4, attributes, firsts, 2, stream_),
            CUDA_SUCCESS);
  std::fill(plain.begin(), plain.end(), std::uint8_t{2});
  EXPECT_EQ(firsts[1], 3U) << "the caller's";
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  std::copy_n(expected_.begin() + 2 * kPage - 100, 300, expected_.begin() + kPage + 4096);
  std::fill_n(expected_.begin() + 2 * kPage - 5, 10, std::uint8_t{2});
  std::fill_n(expected_.begin() + 5 * kPage, 20, std::uint8_t{2});
  std::fill_n(expected_.begin() + 3 * kPage - 7, 30, std::uint8_t{1});
  EXPECT_TRUE(std::equal(expected_.begin(), expected_.end(), pool_));
  // The older form says which entry is wrong.
  using Older = CUresult(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*,
                         std::size_t*, std::size_t, std::size_t*, CUstream);
  sizes[2] = 0;
  std::size_t failed = 0;
  Older* const older = fake_cuda::driver<Older>("cuMemcpyBatchAsync", 12080);
  EXPECT_EQ(older(to, from, sizes, 4, attributes, firsts, 2, &failed, stream_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(failed, 2U);
  std::copy_n(expected_.begin() + 2 * kPage - 100, 300, expected_.begin() + kPage + 4096);
  firsts[1] = 4;  // there is none
  sizes[2] = 1;
  EXPECT_EQ(older(to, from, sizes, 4, attributes, firsts, 2, &failed, stream_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(failed, SIZE_MAX);
  EXPECT_EQ(ended(), before);
  ASSERT_NO_FATAL_FAILURE(round());
}

// The driver has queued some of its copies, or even all.
TEST_F(Pools, ABatchThatFailsIsWork) {
  const std::vector<std::uint8_t> plain(8, 9);
  const auto host = reinterpret_cast<CUdeviceptr>(plain.data());
  pool_[0] = expected_[0] = 1;
  CUdeviceptr to[] = {at(0), at(2 * kPage - 4), at(kPage)};
  CUdeviceptr from[] = {host, host, host};
  std::size_t sizes[] = {8, 8, 0};
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  std::size_t first = 0;
  EXPECT_EQ(DRIVER(cuMemcpyBatchAsync)(to, from, sizes, 3, &attributes, &first, 1, stream_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(pool_[0], 9);
  EXPECT_EQ(pool_[2 * kPage - 4], 9);
  EXPECT_EQ(pool_[2 * kPage + 3], 9);
  std::fill_n(expected_.begin(), 8, std::uint8_t{9});
  std::fill_n(expected_.begin() + 2 * kPage - 4, 8, std::uint8_t{9});
  // The same of rows: their second copy runs past its allocation.
  CUDA_MEMCPY3D_BATCH_OP blocks[2] = {};
  for (CUDA_MEMCPY3D_BATCH_OP& block : blocks) {
    block.src.type = block.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    block.src.op.ptr.ptr = host;
    block.dst.op.ptr.ptr = at(16);
    block.extent = {8, 1, 1};
  }
  blocks[1].extent.width = std::size_t{32} << 20;
  EXPECT_EQ(DRIVER(cuMemcpy3DBatchAsync)(2, blocks, 0, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(pool_[16], 9);
  std::fill_n(expected_.begin() + 16, 8, std::uint8_t{9});
  ASSERT_NO_FATAL_FAILURE(round());
}

// Copies of rows in batches have one kind of memory, which takes the page back.
TEST_F(Pools, CopiesOfRowsInBatchesTakeItBack) {
  const std::uint64_t before = ended();
  CUDA_MEMCPY3D_BATCH_OP block{};
  block.src.type = block.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  block.src.op.ptr.ptr = at(0);
  block.src.op.ptr.rowLength = 1000;
  block.dst.op.ptr.ptr = at(2 * kPage - 2048);
  block.dst.op.ptr.rowLength = 1000;
  block.extent = {100, 8, 1};
  ASSERT_EQ(DRIVER(cuMemcpy3DBatchAsync)(1, &block, 0, stream_), CUDA_SUCCESS);
  EXPECT_EQ(ended(), before + 1);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  for (std::size_t row = 0; row < 8; ++row) {
    std::copy_n(expected_.begin() + static_cast<long>(row * 1000), 100,
                expected_.begin() + static_cast<long>(2 * kPage - 2048 + row * 1000));
  }
  ASSERT_NO_FATAL_FAILURE(heat());
}

// The driver uses them when the pages beside the targets are closed.
TEST_F(Pools, ABatchMayBeDescribedInSharedMemory) {
  struct Description {
    CUdeviceptr to[2], from[2];
    std::size_t sizes[2];
    CUmemcpyAttributes attributes[2];
    std::size_t firsts[2];
    std::size_t failed;
  };
  const std::vector<std::uint8_t> plain(16, 6);
  const auto host = reinterpret_cast<CUdeviceptr>(plain.data());
  auto* const shared = reinterpret_cast<Description*>(pool_ + 5 * kPage);
  using Older = CUresult(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*,
                         std::size_t*, std::size_t, std::size_t*, CUstream);
  Older* const older = fake_cuda::driver<Older>("cuMemcpyBatchAsync", 12080);
  for (const std::size_t border : {2 * kPage, 4 * kPage}) {
    *shared = {{at(border - 8), at(5 * kPage + sizeof(Description))},
               {host, host},
               {16, 16},
               {},
               {0, 1},
               4711};
    for (CUmemcpyAttributes& each : shared->attributes) {
      each.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    }
    EXPECT_EQ(older(shared->to, shared->from, shared->sizes, 2, shared->attributes, shared->firsts,
                    2, &shared->failed, stream_),
              CUDA_SUCCESS);
    EXPECT_EQ(pool_[5 * kPage + sizeof(Description)], 6);
    EXPECT_EQ(shared->failed, 4711U);
    shared->sizes[1] = 0;
    EXPECT_EQ(older(shared->to, shared->from, shared->sizes, 2, shared->attributes, shared->firsts,
                    2, &shared->failed, stream_),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(shared->failed, 1U) << "the program's own number";
    // What is not to be read is given as it is.
    EXPECT_EQ(older(shared->to, shared->from, shared->sizes, 2, nullptr, shared->firsts, 2,
                    &shared->failed, stream_),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(older(shared->to, shared->from, shared->sizes, 2, shared->attributes, shared->firsts,
                    3, &shared->failed, stream_),
              CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    std::fill_n(expected_.begin() + static_cast<long>(border) - 8, 16, std::uint8_t{6});
    std::fill_n(expected_.begin() + 5 * kPage + sizeof(Description), 16, std::uint8_t{6});
    std::copy_n(pool_ + 5 * kPage, sizeof(Description), expected_.begin() + 5 * kPage);
  }
  ASSERT_NO_FATAL_FAILURE(round());
}

// A kernel that waits for the program's next step.
TEST_F(Pools, CopiesOverItsBordersDoNotWaitForAKernelThatGoesOn) {
  const std::uint64_t before = ended();
  CUstream other = nullptr;
  ASSERT_EQ(DRIVER(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  std::uint8_t* data = pool_ + 5 * kPage;
  std::uint64_t count = 1;
  void* args[] = {&data, &count};
  ASSERT_EQ(DRIVER(cuLaunchKernel)(increment_, 1, 1, 1, 1, 1, 1, 0, other, args, nullptr),
            CUDA_SUCCESS);
  fake_cuda::stall(other);
  std::promise<void> returned;
  // (A signal does not come through where a call hangs.)
  std::thread watch([ends = returned.get_future()] {
    if (ends.wait_for(std::chrono::seconds(30)) == std::future_status::ready) return;
    std::fprintf(stderr, "FAILED: a call waits for the kernel\n");
    std::_Exit(1);
  });
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.srcDevice = at(2 * kPage - 1000);
  rows.srcPitch = rows.dstPitch = 300;
  rows.dstDevice = at(0);
  rows.WidthInBytes = 300;
  rows.Height = 10;
  EXPECT_EQ(DRIVER(cuMemcpy2DAsync)(&rows, stream_), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemsetD2D16Async)(at(3 * kPage - 500), 200, 0x0707, 100, 5, stream_),
            CUDA_SUCCESS);
  CUdeviceptr to[] = {at(kPage)};
  CUdeviceptr from[] = {at(2 * kPage - 40)};
  std::size_t sizes[] = {80};
  CUmemcpyAttributes attributes{};
  std::size_t first = 0;
  EXPECT_EQ(DRIVER(cuMemcpyBatchAsync)(to, from, sizes, 1, &attributes, &first, 1, stream_),
            CUDA_SUCCESS);
  const cuuint32_t flag = 0;
  EXPECT_EQ(DRIVER(cuStreamWaitValue32)(other, reinterpret_cast<CUdeviceptr>(&flag), 1, 0),
            CUDA_SUCCESS);
  coherence::internal::openWaits = false;  // (of a real process, never)
  returned.set_value();
  watch.join();
  EXPECT_EQ(ended(), before);
  fake_cuda::stall(nullptr);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(other), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  std::uint32_t word = 0;
  std::memcpy(&word, expected_.data() + 5 * kPage, sizeof word);
  ++word;
  std::memcpy(expected_.data() + 5 * kPage, &word, sizeof word);
  std::copy_n(expected_.begin() + 2 * kPage - 1000, 3000, expected_.begin());
  std::fill_n(expected_.begin() + 3 * kPage - 500, 1000, std::uint8_t{7});
  std::copy_n(expected_.begin() + 2 * kPage - 40, 80, expected_.begin() + kPage);
  ASSERT_NO_FATAL_FAILURE(round());
}

// Its parts that were submitted are work that accesses wait for.
TEST_F(Pools, ACopyOfWhichOnePartFailsIsWork) {
  const std::vector<std::uint8_t> plain(64, 9);
  fake_cuda::failNth("cuMemcpyHtoDAsync_v2", 2, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(DRIVER(cuMemcpyHtoDAsync)(at(2 * kPage - 32), plain.data(), 64, stream_),
            CUDA_ERROR_OUT_OF_MEMORY);
  std::fill_n(expected_.begin() + 2 * kPage - 32, 32, std::uint8_t{9});
  EXPECT_EQ(pool_[2 * kPage - 1], 9);
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = plain.data();
  rows.srcPitch = 1;
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = at(2 * kPage - 20);
  rows.dstPitch = rows.WidthInBytes = 1;
  rows.srcXInBytes = 0;
  rows.Height = 40;
  fake_cuda::failNth("cuMemcpy2DAsync_v2", 2, CUDA_ERROR_OUT_OF_MEMORY);
  std::fill_n(pool_ + 2 * kPage - 20, 20, std::uint8_t{3});
  EXPECT_EQ(DRIVER(cuMemcpy2DAsync)(&rows, stream_), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(pool_[2 * kPage - 1], 9);
  ASSERT_NO_FATAL_FAILURE(round());
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

TEST_F(Pools, WhatTheDriverDoesNotRecordIsNotRecorded) {
  const std::vector<std::uint8_t> plain(64, 9);
  const auto expectNothing = [] {
    EXPECT_FALSE(coherence::recorded());
    coherence::internal::recorded = false;
  };
  CUstream stream = nullptr;
  ASSERT_EQ(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuStreamDestroy)(stream), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemcpyHtoDAsync)(at(2 * kPage - 32), plain.data(), 64, stream),
            CUDA_ERROR_INVALID_HANDLE);
  expectNothing();
  ASSERT_NO_FATAL_FAILURE(round());
  // A copy that a capture refuses.
  ASSERT_EQ(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  fake_cuda::failNext("cuMemcpyHtoDAsync_v2", CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(DRIVER(cuMemcpyHtoDAsync)(at(0), plain.data(), 64, stream), CUDA_ERROR_NOT_SUPPORTED);
  CUgraph graph = nullptr;
  ASSERT_EQ(DRIVER(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
  expectNothing();
  // One on the legacy stream, which no one can ask while another stream is captured.
  fake_cuda::failNext("cuStreamIsCapturing", CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  fake_cuda::failNext("cuMemcpyHtoDAsync_v2", CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  const std::size_t waits = fake_cuda::calls("cuStreamWaitEvent");
  EXPECT_EQ(DRIVER(cuMemcpyHtoDAsync)(at(0), plain.data(), 64, nullptr),
            CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(fake_cuda::calls("cuStreamWaitEvent"), waits) << "which would end the capture";
  expectNothing();
  // A node.
  ASSERT_EQ(DRIVER(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = at(2 * kPage - 8);
  fill.elementSize = 1;
  fill.width = 16;
  fill.height = 1;
  fake_cuda::failNext("cuGraphAddMemsetNode", CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DRIVER(cuGraphAddMemsetNode)(nullptr, graph, nullptr, 0, &fill, context_),
            CUDA_ERROR_INVALID_VALUE);
  expectNothing();
  EXPECT_FALSE(coherence::captureUnderWay());
  EXPECT_EQ(DRIVER(cuGraphDestroy)(graph), CUDA_SUCCESS);
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
  ASSERT_EQ(DRIVER(cuGraphAddMemsetNode)(&node, graph, nullptr, 0, &fill, context_), CUDA_SUCCESS);
  EXPECT_EQ(ended(), before + 1);
  EXPECT_TRUE(coherence::recorded());
  EXPECT_FALSE(coherence::captureUnderWay());
  const std::uint64_t begun = moved();
  for (int i = 0; i < 2000; ++i) ASSERT_NO_FATAL_FAILURE(round());
  EXPECT_EQ(moved(), begun);
  EXPECT_EQ(DRIVER(cuGraphDestroy)(graph), CUDA_SUCCESS);
}

// The same where the process sees several devices, whether they reach each other's memory or not.
TEST(SeveralDevices, HaveSuchPagesToo) {
  const testing::ChildEnd end = testing::runChild("Pools.*", {{"FAKE_DEVICES", "3"}});
  EXPECT_EQ(end.exitStatus, 0) << end.output;
}

TEST(SeveralDevices, HaveSuchPagesApartFromEachOther) {
  const testing::ChildEnd end =
      testing::runChild("Pools.*", {{"FAKE_DEVICES", "3"}, {"FAKE_APART", "1"}});
  EXPECT_EQ(end.exitStatus, 0) << end.output;
}

}  // namespace
}  // namespace gmac::interpose
