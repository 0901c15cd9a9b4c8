// SPDX-License-Identifier: Apache-2.0
//
// The application's own CUDA calls on shared objects: the whole runtime with the interposer linked
// in, over the fake driver, which runs work only when it must. Functions are looked up as the CUDA
// runtime does. Needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/observe/stats.h"
#include "interpose/cuda/extent.h"
#include "interpose/cuda/hooks.h"
#include "tests/cuda/application_test.h"
#include "tests/cuda/fake_program.h"

namespace gmac::interpose {
namespace {

using fake_cuda::kBytes;
using fake_cuda::kCount;

const bool kPrepared = fake_cuda::prepare();

class ApplicationsCudaCalls : public fake_cuda::ApplicationTest {
 protected:
  void launch(CUstream stream) { fake_cuda::ApplicationTest::launch(stream, object_); }
  CUdeviceptr onDevice(std::size_t index = 0) const {
    return reinterpret_cast<CUdeviceptr>(object_ + index);
  }
  // Every element is its index plus `more`.
  void expectMore(std::uint32_t more) const {
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(object_[i], i + more) << i;
  }
};

TEST_F(ApplicationsCudaCalls, AKernelSeesTheCpusWritesAndTheCpuSeesItsResultsRoundAfterRound) {
  for (std::uint32_t round = 1; round <= 5; ++round) {
    launch(stream_);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    expectMore(round);
  }
  object_[7] = 100;
  launch(nullptr);
  ASSERT_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(object_[7], 101U);
  EXPECT_EQ(object_[8], 8U + 6);
}

TEST_F(ApplicationsCudaCalls, AnAccessBeforeAnyWaitWaitsForTheKernelItself) {
  launch(stream_);
  EXPECT_EQ(object_[kCount - 1], kCount);
  launch(stream_);
  launch(nullptr);
  object_[0] = 50;
  launch(stream_);
  EXPECT_EQ(object_[0], 51U);
  EXPECT_EQ(object_[1], 5U);
}

TEST_F(ApplicationsCudaCalls, ACopyFromAnObjectSeesTheCpusWrites) {
  std::vector<std::uint32_t> seen(kCount);
  ASSERT_EQ(DRIVER(cuMemcpyDtoH)(seen.data(), onDevice(), kBytes), CUDA_SUCCESS)
      << adsmLastErrorString();
  EXPECT_EQ(std::memcmp(seen.data(), object_, kBytes), 0);
  object_[5] = 1234;
  ASSERT_EQ(DRIVER(cuMemcpyDtoH)(seen.data(), onDevice(5), 4), CUDA_SUCCESS);
  EXPECT_EQ(seen[0], 1234U);
}

TEST_F(ApplicationsCudaCalls, ACopyIntoAnObjectKeepsItsOtherBytes) {
  const std::vector<std::uint32_t> values(1000, 9);
  object_[999] = 4711;
  ASSERT_EQ(DRIVER(cuMemcpyHtoD)(onDevice(1000), values.data(), 4000), CUDA_SUCCESS)
      << adsmLastErrorString();
  EXPECT_EQ(object_[999], 4711U);
  EXPECT_EQ(object_[1000], 9U);
  EXPECT_EQ(object_[1999], 9U);
  EXPECT_EQ(object_[2000], 2000U);
  ASSERT_EQ(DRIVER(cuMemcpyHtoDAsync)(onDevice(0), values.data(), 4000, stream_), CUDA_SUCCESS);
  EXPECT_EQ(object_[0], 9U) << "the access waits for the copy";
}

TEST_F(ApplicationsCudaCalls, AnObjectNamedAsTheCpusMemoryIsCopiedFromAndTo) {
  // cudaMemcpy(plain, object, n, cudaMemcpyHostToDevice), after a kernel has written the object.
  launch(stream_);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemcpyHtoD)(plain_, object_, kBytes), CUDA_SUCCESS) << adsmLastErrorString();
  const auto* const copied = reinterpret_cast<std::uint32_t*>(fake_cuda::backing(plain_));
  EXPECT_EQ(copied[41], 42U);
  // And back, over what the CPU has written since.
  std::fill_n(object_, kCount, 0);
  ASSERT_EQ(DRIVER(cuMemcpyDtoH)(object_, plain_, kBytes), CUDA_SUCCESS) << adsmLastErrorString();
  expectMore(1);
  std::fill_n(object_, kCount, 0);
  ASSERT_EQ(DRIVER(cuMemcpyDtoHAsync)(object_, plain_, kBytes, stream_), CUDA_SUCCESS)
      << adsmLastErrorString();
  expectMore(1);
}

TEST_F(ApplicationsCudaCalls, FillsReachTheCpu) {
  ASSERT_EQ(DRIVER(cuMemsetD32)(onDevice(10), 77, 20), CUDA_SUCCESS) << adsmLastErrorString();
  EXPECT_EQ(object_[9], 9U);
  EXPECT_EQ(object_[10], 77U);
  EXPECT_EQ(object_[29], 77U);
  EXPECT_EQ(object_[30], 30U);
  ASSERT_EQ(DRIVER(cuMemsetD8)(onDevice(), 1, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(object_[kCount - 1], 0x01010101U);
}

// As launches do: after work of the same stream nothing is open. But a copy from pageable memory
// may keep its caller waiting.
TEST_F(ApplicationsCudaCalls, CopiesAndFillsOfDevicesMemoryRepeat) {
  launch(stream_);
  launch(stream_);
  // (The driver's functions, and what lies where, are looked up.)
  ASSERT_EQ(DRIVER(cuMemcpyDtoDAsync)(plain_, onDevice(), 4, stream_), CUDA_SUCCESS);
  const auto repeated = [before = stats().repeatedCalls.value()] {
    return stats().repeatedCalls.value() - before;
  };
  ASSERT_EQ(DRIVER(cuMemcpyDtoDAsync)(plain_, onDevice(), kBytes, stream_), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemsetD8Async)(onDevice(3), 77, 8, stream_), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemcpyDtoDAsync)(onDevice(10), plain_, 8, stream_), CUDA_SUCCESS);
  EXPECT_EQ(repeated(), 3U);
  const std::vector<std::uint32_t> values(2, 9);
  ASSERT_EQ(DRIVER(cuMemcpyHtoDAsync)(onDevice(20), values.data(), 8, stream_), CUDA_SUCCESS);
  EXPECT_EQ(repeated(), 3U);
  EXPECT_EQ(object_[3], 0x4D4D4D4DU);
  EXPECT_EQ(object_[5], 7U);
  EXPECT_EQ(object_[10], 2U);
  EXPECT_EQ(object_[11], 3U);
  EXPECT_EQ(object_[20], 9U);
  // What the CPU has opened is released first.
  object_[30] = 4711;
  ASSERT_EQ(DRIVER(cuMemcpyDtoDAsync)(plain_, onDevice(30), 4, stream_), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemcpyDtoDAsync)(onDevice(31), plain_, 4, stream_), CUDA_SUCCESS);
  EXPECT_EQ(object_[31], 4711U);
}

TEST_F(ApplicationsCudaCalls, RowsLeaveTheBytesBetweenThemAlone) {
  const std::vector<std::uint32_t> values(20, 5);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = values.data();
  copy.srcPitch = 8;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;  // as cudaMemcpy2D of kind HostToHost would name it
  copy.dstHost = object_;
  copy.dstPitch = 4000;
  copy.dstXInBytes = 16;
  copy.dstY = 1;
  copy.WidthInBytes = 8;
  copy.Height = 10;
  object_[1003] = 31;
  ASSERT_EQ(DRIVER(cuMemcpy2D)(&copy), CUDA_SUCCESS) << adsmLastErrorString();
  EXPECT_EQ(object_[1003], 31U);
  EXPECT_EQ(object_[1004], 5U);
  EXPECT_EQ(object_[1005], 5U);
  EXPECT_EQ(object_[1006], 1006U);
  EXPECT_EQ(object_[10'005], 5U);
  EXPECT_EQ(object_[11'004], 11'004U);
}

TEST_F(ApplicationsCudaCalls, WhatCannotBeCoherentIsRefusedWithAReason) {
  EXPECT_EQ(DRIVER(cuMemHostRegister)(object_, 4096, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_NE(std::string(adsmLastErrorString()).find("cuMemHostRegister"), std::string::npos)
      << adsmLastErrorString();
  EXPECT_EQ(DRIVER(cuMemFree)(onDevice()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_NE(std::string(adsmLastErrorString()).find("adsmFree"), std::string::npos)
      << adsmLastErrorString();
  expectMore(0);
}

TEST_F(ApplicationsCudaCalls, AFailedLaunchLeavesObjectsAsTheyWere) {
  fake_cuda::failNext("cuLaunchKernel", CUDA_ERROR_INVALID_VALUE);
  std::uint64_t count = kCount;
  void* args[] = {&object_, &count};
  EXPECT_EQ(DRIVER(cuLaunchKernel)(increment_, 1, 1, 1, 1, 1, 1, 0, stream_, args, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  expectMore(0);
  launch(stream_);
  expectMore(1);
}

// The system gives the number of a thread that has ended to a later one.
TEST_F(ApplicationsCudaCalls, AThreadsStreamFollowsFlushesThatALaterOneStillWaitsFor) {
  auto* const other = static_cast<std::uint32_t*>(adsmAlloc(kBytes));
  ASSERT_NE(other, nullptr) << adsmLastErrorString();
  const auto launchOn = [&](void* data) {
    std::thread::id id;
    std::thread([&] {
      id = std::this_thread::get_id();
      CUcontext context = nullptr;
      ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
      ASSERT_EQ(DRIVER(cuCtxPushCurrent)(context), CUDA_SUCCESS);
      fake_cuda::ApplicationTest::launch(CU_STREAM_PER_THREAD, data);
      // Without a question to the other thread's stream.
      if (data == other) {
        ASSERT_EQ(DRIVER(cuStreamSynchronize)(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
      }
      ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRelease)(0), CUDA_SUCCESS);
    }).join();
    return id;
  };
  other[7] = 7;
  const std::thread::id first = launchOn(object_);  // flushes both
  ASSERT_EQ(launchOn(other), first);
  EXPECT_EQ(other[7], 8U);
  expectMore(1);
  EXPECT_EQ(adsmFree(other), adsmSuccess) << adsmLastErrorString();
}

TEST_F(ApplicationsCudaCalls, CopiesThatTouchNoObjectGoStraightToTheDriver) {
  std::vector<std::uint32_t> values(10, 3);
  const std::size_t events = fake_cuda::calls("cuEventRecord");
  ASSERT_EQ(DRIVER(cuMemcpyHtoD)(plain_, values.data(), 40), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemcpyDtoH)(values.data(), plain_, 40), CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda::calls("cuEventRecord"), events);
}

TEST(DriverFunctions, AreFoundByEveryNameThatARuntimeAsksFor) {
  for (const char* symbol :
       {"cuLaunchKernel", "cuMemcpyHtoD_v2", "cuGetProcAddress_v2", "cuMemFree_v2"}) {
    const HookEntry* const entry = hookOfSymbol(symbol);
    ASSERT_NE(entry, nullptr) << symbol;
    EXPECT_EQ(dlsym(fake_cuda::library(), symbol), entry->hook) << symbol;
  }
  EXPECT_EQ(hookOfSymbol("cuMemcpyHtoD"), nullptr) << "a signature of the 32-bit time";
  EXPECT_EQ(reinterpret_cast<void*>(DRIVER(cuMemcpyHtoD)), hookOfSymbol("cuMemcpyHtoD_v2")->hook);
  EXPECT_EQ(reinterpret_cast<void*>(DRIVER(cuGetProcAddress)),
            hookOfSymbol("cuGetProcAddress_v2")->hook);
  EXPECT_EQ(hookOfSymbol("cuStreamGetFlags"), nullptr);
}

TEST(DriverFunctions, HaveAVariantForTheThreadsOwnStream) {
  const auto perThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const auto legacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  EXPECT_STREQ(hookOfRequest("cuMemcpyHtoD", 13000, perThread)->symbol, "cuMemcpyHtoD_v2_ptds");
  EXPECT_STREQ(hookOfRequest("cuMemcpyHtoD", 13000, legacy)->symbol, "cuMemcpyHtoD_v2");
  EXPECT_STREQ(hookOfRequest("cuLaunchKernel", 13000, CU_GET_PROC_ADDRESS_DEFAULT)->symbol,
               "cuLaunchKernel");
  EXPECT_STREQ(hookOfRequest("cuEventSynchronize", 13000, perThread)->symbol, "cuEventSynchronize");
  EXPECT_STREQ(hookOfRequest("cuMemcpyBatchAsync", 12080, legacy)->symbol, "cuMemcpyBatchAsync");
  EXPECT_STREQ(hookOfRequest("cuMemcpyBatchAsync", 13000, perThread)->symbol,
               "cuMemcpyBatchAsync_v2_ptsz");
  EXPECT_STREQ(hookOfRequest("cuGetProcAddress", 11030, legacy)->symbol, "cuGetProcAddress");
  EXPECT_EQ(hookOfRequest("cuMemcpyHtoD", 2000, legacy), nullptr);
  EXPECT_EQ(hookOfRequest("cuStreamGetFlags", 13000, legacy), nullptr);
}

TEST(DriverFunctions, ThatNobodyBroughtAreFoundInTheDriver) {
  // A program that is linked with libcuda calls the exported symbol.
  const auto exported =
      reinterpret_cast<decltype(&::cuCtxSynchronize)>(hookOfSymbol("cuCtxSynchronize")->exported);
  const std::size_t before = fake_cuda::calls("cuCtxSynchronize");
  EXPECT_EQ(exported(), CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda::calls("cuCtxSynchronize"), before + 1);
}

TEST(WrappedDlsym, StillAnswersForEverythingElse) {
  void* const libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(libc, nullptr);
  EXPECT_EQ(dlsym(libc, "getpid"), dlsym(RTLD_DEFAULT, "getpid"));
  // Counted from this program, the next getpid is the C library's. Were the wrapper's address the
  // caller's, it would be, too; but the program's own symbols must not be found.
  EXPECT_EQ(dlsym(RTLD_NEXT, "getpid"), dlsym(libc, "getpid"));
  dlerror();
  EXPECT_EQ(dlsym(libc, "no such function"), nullptr);
  EXPECT_NE(dlerror(), nullptr);
  EXPECT_EQ(dlsym(libc, "cuLaunchKernel"), nullptr);
  EXPECT_NE(dlerror(), nullptr);
}

TEST(Extents, SpanFromTheFirstToTheLastByteTouched) {
  CUDA_MEMCPY2D flat{};
  flat.srcMemoryType = CU_MEMORYTYPE_HOST;
  flat.srcHost = reinterpret_cast<void*>(0x1000);
  flat.srcXInBytes = 4;
  flat.srcY = 2;
  flat.srcPitch = 100;
  flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  flat.dstDevice = 0x8000;
  flat.dstPitch = 10;
  flat.WidthInBytes = 10;
  flat.Height = 3;
  const Extent from = extentOf(sourceOf(flat), flat);
  EXPECT_EQ(from.first, 0x1000U + 204);
  EXPECT_EQ(from.bytes, 210U);
  EXPECT_TRUE(from.gaps);
  const Extent to = extentOf(destinationOf(flat), flat);
  EXPECT_EQ(to.first, 0x8000U);
  EXPECT_EQ(to.bytes, 30U);
  EXPECT_FALSE(to.gaps);

  CUDA_MEMCPY3D deep{};
  deep.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  deep.srcDevice = 0x4000;
  deep.srcZ = 1;
  deep.srcPitch = 10;
  deep.srcHeight = 5;
  deep.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  deep.WidthInBytes = 10;
  deep.Height = 5;
  deep.Depth = 4;
  const Extent layers = extentOf(sourceOf(deep), deep);
  EXPECT_EQ(layers.first, 0x4000U + 50);
  EXPECT_EQ(layers.bytes, 200U);
  EXPECT_FALSE(layers.gaps);
  EXPECT_EQ(extentOf(destinationOf(deep), deep).bytes, 0U) << "arrays are no linear memory";
  deep.Height = 0;
  EXPECT_EQ(extentOf(sourceOf(deep), deep).bytes, 0U);
}

}  // namespace
}  // namespace gmac::interpose
