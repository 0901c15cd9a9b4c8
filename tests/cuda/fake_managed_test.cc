// SPDX-License-Identifier: Apache-2.0
//
// A managed-memory program's calls, in managed mode: the whole runtime with the interposer linked
// in, over the fake driver, whose own managed memory calls reach for what no device has room for,
// and for nothing else. Needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/coherence/device_memory_port.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "interpose/cuda/hooks.h"
#include "interpose/cuda/managed_objects.h"
#include "tests/cuda/fake_program.h"
#include "tests/support/child.h"

namespace gmac::interpose {
namespace {

using ::testing::HasSubstr;

using fake_cuda::driver;
using fake_cuda::kImage;
using fake_cuda::kSizes;

const bool kPrepared = [] {
  setenv("GMAC_MANAGED", "1", 0);
  return fake_cuda::prepare();
}();
// cuda.h's macro would give these another name.
auto* prefetchAsync() {
  return driver<CUresult(CUdeviceptr, std::size_t, CUmemLocation, unsigned, CUstream)>(
      "cuMemPrefetchAsync");
}
auto* advise() {
  return driver<CUresult(CUdeviceptr, std::size_t, CUmem_advise, CUmemLocation)>("cuMemAdvise");
}

constexpr CUmemLocation kGpu{CU_MEM_LOCATION_TYPE_DEVICE, 0};
constexpr CUmemLocation kCpu{CU_MEM_LOCATION_TYPE_HOST, 0};
constexpr std::size_t kCount = 100'000;
constexpr std::size_t kBytes = kCount * sizeof(std::uint32_t);

// All tests run in one process: the runtime reads its variables once.
class ManagedPrograms : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuCtxPushCurrent)(context_), CUDA_SUCCESS);
    begin();
  }
  // Makes a program's handles in a context.
  void begin() {
    ASSERT_EQ(DRIVER(cuStreamCreate)(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuStreamCreate)(&other_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CUmodule module = nullptr;
    ASSERT_EQ(DRIVER(cuModuleLoadDataEx)(&module, &kImage, 0, nullptr, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuModuleGetFunction)(&increment_, module, "increment"), CUDA_SUCCESS);
    data_ = allocate(kBytes);
    ASSERT_NE(data_, nullptr);
    std::iota(data_, data_ + kCount, 0);
  }
  void TearDown() override {
    fake_cuda::stall(nullptr);
    if (data_ != nullptr) {
      EXPECT_EQ(DRIVER(cuMemFree)(number(data_)), CUDA_SUCCESS);
    }
    CUcontext popped = nullptr;
    EXPECT_EQ(DRIVER(cuCtxPopCurrent)(&popped), CUDA_SUCCESS);
  }

  static std::uint32_t* allocate(std::size_t bytes, unsigned flags = CU_MEM_ATTACH_GLOBAL) {
    CUdeviceptr address = 0;
    EXPECT_EQ(DRIVER(cuMemAllocManaged)(&address, bytes, flags), CUDA_SUCCESS)
        << adsmLastErrorString();
    return reinterpret_cast<std::uint32_t*>(address);
  }
  static CUdeviceptr number(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }
  void launch(CUstream stream, std::uint32_t* data) {
    std::uint64_t count = kCount;
    void* args[] = {&data, &count};
    ASSERT_EQ(
        DRIVER(cuLaunchKernel)(increment_, kCount / 100, 1, 1, 100, 1, 1, 0, stream, args, nullptr),
        CUDA_SUCCESS)
        << adsmLastErrorString();
  }
  // By a kernel that works on memory of the CPU's.
  void crash() {
    int nothing = 0;
    std::uint64_t count = 1;
    int* wrong = &nothing;
    void* args[] = {&wrong, &count};
    ASSERT_EQ(DRIVER(cuLaunchKernel)(increment_, 1, 1, 1, 1, 1, 1, 0, stream_, args, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  // As CUDA's runtime does it for cudaDeviceReset().
  static void resetDevice() {
    ASSERT_EQ(driver<CUresult(CUdevice)>("cuDevicePrimaryCtxReset", 7000)(0), CUDA_SUCCESS);
  }
  // Handles of kernels may mean others from now on.
  static void unloadAModule() {
    CUmodule module = nullptr;
    ASSERT_EQ(DRIVER(cuModuleLoadDataEx)(&module, &kImage, 0, nullptr, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuModuleUnload)(module), CUDA_SUCCESS);
  }
  void beginAgain() {
    ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context_, 0), CUDA_SUCCESS);
    begin();
  }
  void expectMore(std::uint32_t more) const {
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(data_[i], i + more) << i;
  }
  template <typename Value>
  static Value attributeOf(CUpointer_attribute attribute, const void* address) {
    Value value{};
    EXPECT_EQ(DRIVER(cuPointerGetAttribute)(&value, attribute, number(address)), CUDA_SUCCESS)
        << attribute;
    return value;
  }
  template <std::size_t kWords = 1>
  static std::array<int, kWords> rangeAttribute(CUmem_range_attribute attribute,
                                                const void* address, std::size_t bytes) {
    std::array<int, kWords> value;
    value.fill(-77);
    EXPECT_EQ(DRIVER(cuMemRangeGetAttribute)(value.data(), sizeof value, attribute, number(address),
                                             bytes),
              CUDA_SUCCESS);
    return value;
  }

  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUstream other_ = nullptr;
  CUfunction increment_ = nullptr;
  std::uint32_t* data_ = nullptr;
};

// ---- Allocation

TEST_F(ManagedPrograms, ManagedMemoryIsASharedObject) {
  for (std::uint32_t round = 1; round <= 3; ++round) {
    launch(stream_, data_);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    expectMore(round);
  }
  data_[5] = 100;
  launch(nullptr, data_);
  EXPECT_EQ(data_[5], 101U) << "the access waits";
  EXPECT_EQ(fake_cuda::calls("cuMemAllocManaged"), 0U);
  EXPECT_EQ(adsmSafe(data_), data_);
}

// Slabs of memory that others had before are cleared at once, with the CPU or by the device.
TEST_F(ManagedPrograms, ManySmallObjectsComeAndGo) {
  constexpr std::size_t kSmall = 20'000;  // (two of them are more than the C library is left)
  std::uint32_t values = 0;
  for (int round = 0; round < 6; ++round) {
    std::vector<std::uint32_t*> objects(200);
    for (std::uint32_t*& object : objects) {
      object = allocate(kSmall - static_cast<std::size_t>(round % 3) * 8'000);
      ASSERT_NE(object, nullptr);
      *object = ++values;
      std::uint64_t count = 1;
      void* args[] = {&object, &count};
      ASSERT_EQ(DRIVER(cuLaunchKernel)(increment_, 1, 1, 1, 1, 1, 1, 0, stream_, args, nullptr),
                CUDA_SUCCESS);
    }
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    std::uint32_t expected = values - static_cast<std::uint32_t>(objects.size());
    for (const std::uint32_t* object : objects) {
      ASSERT_EQ(*object, ++expected + 1);
      ASSERT_EQ(DRIVER(cuMemFree)(number(object)), CUDA_SUCCESS);
    }
  }
}

TEST_F(ManagedPrograms, AllocationFailsAsProgramsExpect) {
  CUdeviceptr address = 1234;
  const auto allocateManaged = DRIVER(cuMemAllocManaged);
  EXPECT_EQ(allocateManaged(&address, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allocateManaged(nullptr, 10, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allocateManaged(&address, 10, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allocateManaged(&address, 10, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allocateManaged(&address, std::size_t{1} << 40, CU_MEM_ATTACH_GLOBAL),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(address, 1234U) << "a failed call changes nothing";
  CUcontext popped = nullptr;
  ASSERT_EQ(DRIVER(cuCtxPopCurrent)(&popped), CUDA_SUCCESS);
  EXPECT_EQ(allocateManaged(&address, 10, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_EQ(DRIVER(cuCtxPushCurrent)(popped), CUDA_SUCCESS);
}

TEST_F(ManagedPrograms, AnotherContextGetsManagedMemoryToo) {
  CUcontext another = nullptr;
  ASSERT_EQ(DRIVER(cuCtxCreate)(&another, nullptr, 0, 0), CUDA_SUCCESS);
  std::uint32_t* const own = allocate(kBytes);
  own[3] = 30;
  const std::size_t waits = fake_cuda::calls("cuStreamSynchronize");
  // The stream is of the first context, whatever the thread's is.
  ASSERT_EQ(DRIVER(cuMemcpyDtoDAsync)(number(data_), number(own), kBytes, stream_), CUDA_SUCCESS)
      << adsmLastErrorString();
  ASSERT_EQ(DRIVER(cuMemsetD8Async)(number(own), 1, kBytes, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda::calls("cuStreamSynchronize"), waits) << "nothing waits for the device";
  EXPECT_EQ(data_[3], 30U);
  EXPECT_EQ(own[3], 0x01010101U);
  const std::size_t destroyed = fake_cuda::calls("cuCtxDestroy_v2");
  ASSERT_EQ(DRIVER(cuCtxDestroy)(another), CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda::calls("cuCtxDestroy_v2"), destroyed + 1);
  own[4] = 1;
  EXPECT_EQ(own[5], 0x01010101U) << "objects live on";
  EXPECT_EQ(DRIVER(cuMemFree)(number(own)), CUDA_SUCCESS);
}

TEST_F(ManagedPrograms, FreeingIsForTheStartAndOnce) {
  const auto free = DRIVER(cuMemFree);
  EXPECT_EQ(free(number(data_ + 4)), CUDA_ERROR_INVALID_VALUE);
  expectMore(0);
  EXPECT_EQ(free(number(data_)), CUDA_SUCCESS);
  EXPECT_EQ(adsmSafe(data_), nullptr);
  EXPECT_EQ(free(number(data_)), CUDA_ERROR_INVALID_VALUE);
  data_ = nullptr;
  std::uint32_t* const small = allocate(64);
  EXPECT_EQ(DRIVER(cuMemFreeAsync)(number(small), stream_), CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda::calls("cuMemFreeAsync"), 0U);
  // Also objects of adsmAlloc(): the program knows no difference.
  EXPECT_EQ(free(number(adsmAlloc(100))), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemFreeHost)(allocate(64)), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ManagedPrograms, OtherMemoryStaysTheDrivers) {
  CUdeviceptr plain = 0;
  ASSERT_EQ(DRIVER(cuMemAlloc)(&plain, kBytes), CUDA_SUCCESS);
  const std::vector<std::uint32_t> values(100, 9);
  ASSERT_EQ(DRIVER(cuMemcpyHtoD)(plain, values.data(), 400), CUDA_SUCCESS);
  // Between the two, as cudaMemcpyDefault does.
  ASSERT_EQ(DRIVER(cuMemcpy)(number(data_), plain, 400), CUDA_SUCCESS);
  EXPECT_EQ(data_[99], 9U);
  EXPECT_EQ(data_[100], 100U);
  EXPECT_EQ(prefetchAsync()(plain, 400, kGpu, 0, stream_), CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda::calls("cuMemPrefetchAsync_v2"), 1U);
  EXPECT_EQ(advise()(plain, 400, CU_MEM_ADVISE_SET_READ_MOSTLY, kGpu), CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda::calls("cuMemAdvise_v2"), 1U);
  EXPECT_EQ(DRIVER(cuStreamAttachMemAsync)(stream_, plain, 0, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda::calls("cuStreamAttachMemAsync"), 1U);
  int value = 0;
  EXPECT_EQ(DRIVER(cuMemRangeGetAttribute)(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, plain, 4),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(fake_cuda::calls("cuMemRangeGetAttribute"), 1U);
  unsigned managed = 5;
  EXPECT_EQ(DRIVER(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, plain),
            CUDA_SUCCESS);
  EXPECT_EQ(managed, 0U);
  EXPECT_EQ(DRIVER(cuMemFree)(plain), CUDA_SUCCESS);
}

// ---- Prefetching

TEST_F(ManagedPrograms, PrefetchingToTheDeviceFlushesEarly) {
  const std::size_t flushes = fake_cuda::calls("cuMemcpyHtoDAsync_v2");
  ASSERT_EQ(prefetchAsync()(number(data_), kBytes, kGpu, 0, stream_), CUDA_SUCCESS)
      << adsmLastErrorString();
  EXPECT_GT(fake_cuda::calls("cuMemcpyHtoDAsync_v2"), flushes);
  const std::size_t before = fake_cuda::calls("cuMemcpyHtoDAsync_v2");
  launch(stream_, data_);
  EXPECT_EQ(fake_cuda::calls("cuMemcpyHtoDAsync_v2"), before) << "it has been flushed already";
  expectMore(1);
}

TEST_F(ManagedPrograms, PrefetchingToTheCpuFetchesWhatKernelsWrote) {
  launch(stream_, data_);
  const std::size_t fetches = fake_cuda::calls("cuMemcpyDtoHAsync_v2");
  ASSERT_EQ(prefetchAsync()(number(data_), kBytes, kCpu, 0, stream_), CUDA_SUCCESS)
      << adsmLastErrorString();
  // By a thread of its own, when the kernel is over; nobody touches the object meanwhile.
  for (int i = 0; i < 10'000 && fake_cuda::calls("cuMemcpyDtoHAsync_v2") == fetches; ++i)
    usleep(1000);
  EXPECT_EQ(fake_cuda::calls("cuMemcpyDtoHAsync_v2"), fetches + 1);
  expectMore(1);
  EXPECT_EQ(fake_cuda::calls("cuMemcpyDtoHAsync_v2"), fetches + 1) << "it has been fetched already";
}

TEST_F(ManagedPrograms, PrefetchingPartOfAnObjectLeavesTheRest) {
  launch(stream_, data_);
  ASSERT_EQ(prefetchAsync()(number(data_ + 1000), 400, kCpu, 0, stream_), CUDA_SUCCESS);
  launch(stream_, data_);
  ASSERT_EQ(prefetchAsync()(number(data_ + 1000), 400, kGpu, 0, stream_), CUDA_SUCCESS);
  expectMore(2);
}

TEST_F(ManagedPrograms, ThePrefetchOfOlderProgramsTakesADevice) {
  const auto old =
      driver<CUresult(CUdeviceptr, std::size_t, CUdevice, CUstream)>("cuMemPrefetchAsync", 11000);
  launch(stream_, data_);
  EXPECT_EQ(old(number(data_), kBytes, CU_DEVICE_CPU, stream_), CUDA_SUCCESS);
  EXPECT_EQ(rangeAttribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, data_, kBytes)[0],
            CU_DEVICE_CPU);
  EXPECT_EQ(old(number(data_), kBytes, 0, stream_), CUDA_SUCCESS);
  EXPECT_EQ(rangeAttribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, data_, kBytes)[0], 0);
  EXPECT_EQ(old(number(data_), kBytes, 17, stream_), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(fake_cuda::calls("cuMemPrefetchAsync"), 0U);
  expectMore(1);
}

TEST_F(ManagedPrograms, PrefetchChecksItsArguments) {
  EXPECT_EQ(prefetchAsync()(number(data_), 0, kGpu, 0, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(prefetchAsync()(number(data_), kBytes * 2, kGpu, 0, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(prefetchAsync()(number(data_), kBytes, kGpu, 1, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(prefetchAsync()(number(data_), kBytes, {CU_MEM_LOCATION_TYPE_DEVICE, 3}, 0, stream_),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(prefetchAsync()(number(data_), kBytes, {CU_MEM_LOCATION_TYPE_INVALID, 0}, 0, stream_),
            CUDA_ERROR_INVALID_VALUE);
  fake_cuda::capture(stream_);
  EXPECT_EQ(prefetchAsync()(number(data_), kBytes, kGpu, 0, stream_),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  fake_cuda::capture(nullptr);
  EXPECT_EQ(rangeAttribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, data_, kBytes)[0],
            CU_DEVICE_INVALID);
}

TEST_F(ManagedPrograms, BatchesOfPrefetchesAndDiscards) {
  std::uint32_t* const second = allocate(kBytes);
  CUdeviceptr addresses[] = {number(data_), number(second)};
  std::size_t sizes[] = {kBytes, kBytes};
  CUmemLocation locations[] = {kGpu, kCpu};
  std::size_t indices[] = {0, 1};
  ASSERT_EQ(DRIVER(cuMemPrefetchBatchAsync)(addresses, sizes, 2, locations, indices, 2, 0, stream_),
            CUDA_SUCCESS);
  EXPECT_EQ(rangeAttribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, data_, kBytes)[0], 0);
  EXPECT_EQ(rangeAttribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, second, kBytes)[0],
            CU_DEVICE_CPU);
  EXPECT_EQ(fake_cuda::calls("cuMemPrefetchBatchAsync"), 0U);
  // One of the two is the driver's.
  CUdeviceptr plain = 0;
  ASSERT_EQ(DRIVER(cuMemAlloc)(&plain, kBytes), CUDA_SUCCESS);
  addresses[1] = plain;
  ASSERT_EQ(DRIVER(cuMemPrefetchBatchAsync)(addresses, sizes, 2, locations, indices, 2, 0, stream_),
            CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda::calls("cuMemPrefetchBatchAsync"), 1U);
  EXPECT_EQ(DRIVER(cuMemDiscardBatchAsync)(addresses, sizes, 2, 0, stream_), CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda::calls("cuMemDiscardBatchAsync"), 1U);
  sizes[0] = 2 * kBytes;
  EXPECT_EQ(DRIVER(cuMemDiscardBatchAsync)(addresses, sizes, 2, 0, stream_),
            CUDA_ERROR_INVALID_VALUE);
  indices[0] = 1;
  EXPECT_EQ(DRIVER(cuMemPrefetchBatchAsync)(addresses, sizes, 2, locations, indices, 2, 0, stream_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DRIVER(cuMemFree)(number(second)), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemFree)(plain), CUDA_SUCCESS);
}

// ---- Advice

TEST_F(ManagedPrograms, AdviceIsKeptAndAnswered) {
  const auto mostly = [&](std::size_t first, std::size_t bytes) {
    return rangeAttribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, data_ + first, bytes)[0];
  };
  EXPECT_EQ(mostly(0, kBytes), 0);
  ASSERT_EQ(advise()(number(data_), kBytes, CU_MEM_ADVISE_SET_READ_MOSTLY, kGpu), CUDA_SUCCESS);
  EXPECT_EQ(mostly(0, kBytes), 1);
  ASSERT_EQ(advise()(number(data_), 4096, CU_MEM_ADVISE_UNSET_READ_MOSTLY, kGpu), CUDA_SUCCESS);
  EXPECT_EQ(mostly(0, kBytes), 0) << "not all of it";
  EXPECT_EQ(mostly(1024, 4096), 1);
  EXPECT_EQ(mostly(1023, 4), 0);

  const auto preferred = [&](CUmem_range_attribute attribute, std::size_t bytes) {
    return rangeAttribute(attribute, data_, bytes)[0];
  };
  EXPECT_EQ(preferred(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, kBytes), CU_DEVICE_INVALID);
  EXPECT_EQ(preferred(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, kBytes),
            CU_MEM_LOCATION_TYPE_INVALID);
  ASSERT_EQ(advise()(number(data_), kBytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kGpu),
            CUDA_SUCCESS);
  EXPECT_EQ(preferred(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, kBytes), 0);
  EXPECT_EQ(preferred(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, kBytes),
            CU_MEM_LOCATION_TYPE_DEVICE);
  ASSERT_EQ(advise()(number(data_), 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kCpu),
            CUDA_SUCCESS);
  EXPECT_EQ(preferred(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 4096), CU_DEVICE_CPU);
  EXPECT_EQ(preferred(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, kBytes), CU_DEVICE_INVALID);
  ASSERT_EQ(advise()(number(data_), 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
                     {CU_MEM_LOCATION_TYPE_HOST_NUMA, 1}),
            CUDA_SUCCESS);
  EXPECT_EQ(preferred(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, 4096),
            CU_MEM_LOCATION_TYPE_HOST_NUMA);
  EXPECT_EQ(preferred(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, 4096), 1);
  ASSERT_EQ(advise()(number(data_), kBytes, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, kGpu),
            CUDA_SUCCESS);
  EXPECT_EQ(preferred(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 4096), CU_DEVICE_INVALID);
  expectMore(0);
}

TEST_F(ManagedPrograms, WhoAccessesARangeIsAList) {
  using Three = std::array<int, 3>;
  const auto by = [&](std::size_t bytes) {
    return rangeAttribute<3>(CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, data_, bytes);
  };
  const int none = CU_DEVICE_INVALID;
  EXPECT_EQ(by(kBytes), (Three{none, none, none}));
  ASSERT_EQ(advise()(number(data_), kBytes, CU_MEM_ADVISE_SET_ACCESSED_BY, kGpu), CUDA_SUCCESS);
  ASSERT_EQ(advise()(number(data_), kBytes, CU_MEM_ADVISE_SET_ACCESSED_BY, kGpu), CUDA_SUCCESS);
  ASSERT_EQ(advise()(number(data_), 4096, CU_MEM_ADVISE_SET_ACCESSED_BY, kCpu), CUDA_SUCCESS);
  EXPECT_EQ(by(kBytes), (Three{0, none, none}));
  EXPECT_EQ(by(4096), (Three{CU_DEVICE_CPU, 0, none}));
  ASSERT_EQ(advise()(number(data_), kBytes, CU_MEM_ADVISE_UNSET_ACCESSED_BY, kGpu), CUDA_SUCCESS);
  EXPECT_EQ(by(4096), (Three{CU_DEVICE_CPU, none, none}));
}

TEST_F(ManagedPrograms, AdviceAndItsQueriesCheckTheirArguments) {
  // Numbers that are none of the values, but that variables of these types can hold.
  EXPECT_EQ(advise()(number(data_), 0, CU_MEM_ADVISE_SET_READ_MOSTLY, kGpu),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(advise()(number(data_), 2 * kBytes, CU_MEM_ADVISE_SET_READ_MOSTLY, kGpu),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(advise()(number(data_), 4096, CU_MEM_ADVISE_SET_ACCESSED_BY,
                     {CU_MEM_LOCATION_TYPE_DEVICE, 9}),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(advise()(number(data_), 4096, static_cast<CUmem_advise>(7), kGpu),
            CUDA_ERROR_INVALID_VALUE);
  const auto get = DRIVER(cuMemRangeGetAttribute);
  std::int64_t value = 0;
  const auto mostly = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
  EXPECT_EQ(get(&value, 8, mostly, number(data_), 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(nullptr, 4, mostly, number(data_), 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(&value, 4, mostly, number(data_), 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(&value, 4, mostly, number(data_), 2 * kBytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(&value, 3, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, number(data_), 4),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(&value, 4, static_cast<CUmem_range_attribute>(15), number(data_), 4),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ManagedPrograms, SeveralRangeAttributesAtOnce) {
  ASSERT_EQ(advise()(number(data_), kBytes, CU_MEM_ADVISE_SET_READ_MOSTLY, kGpu), CUDA_SUCCESS);
  int mostly = 0;
  int preferred = 0;
  int by[2] = {5, 5};
  void* data[] = {&mostly, &preferred, by};
  std::size_t sizes[] = {4, 4, 8};
  CUmem_range_attribute attributes[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                                        CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY};
  ASSERT_EQ(DRIVER(cuMemRangeGetAttributes)(data, sizes, attributes, 3, number(data_), kBytes),
            CUDA_SUCCESS);
  EXPECT_EQ(mostly, 1);
  EXPECT_EQ(preferred, CU_DEVICE_INVALID);
  EXPECT_EQ(by[0], CU_DEVICE_INVALID);
  EXPECT_EQ(by[1], CU_DEVICE_INVALID);
  EXPECT_EQ(DRIVER(cuMemRangeGetAttributes)(data, sizes, attributes, 0, number(data_), kBytes),
            CUDA_ERROR_INVALID_VALUE);
}

// Nothing tells whether a kernel has written what is only mostly read.
TEST_F(ManagedPrograms, AKernelsWriteToReadMostlyMemoryIsSeen) {
  ASSERT_EQ(advise()(number(data_), kBytes, CU_MEM_ADVISE_SET_READ_MOSTLY, kGpu), CUDA_SUCCESS);
  expectMore(0);
  launch(stream_, data_);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  expectMore(1);
}

// ---- Attachment

TEST_F(ManagedPrograms, AnAttachmentThatPromisesNothingChangesNothing) {
  ASSERT_EQ(DRIVER(cuStreamAttachMemAsync)(other_, number(data_), 0, CU_MEM_ATTACH_SINGLE),
            CUDA_SUCCESS);
  launch(stream_, data_);
  expectMore(1);
  ASSERT_EQ(DRIVER(cuStreamAttachMemAsync)(nullptr, number(data_), kBytes, CU_MEM_ATTACH_HOST),
            CUDA_SUCCESS);
  launch(stream_, data_);
  expectMore(2);
}

TEST_F(ManagedPrograms, AttachmentChecksItsArguments) {
  const auto attach = DRIVER(cuStreamAttachMemAsync);
  const std::size_t before = fake_cuda::calls("cuStreamAttachMemAsync");
  EXPECT_EQ(attach(stream_, number(data_), kBytes / 2, CU_MEM_ATTACH_SINGLE),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(attach(stream_, number(data_ + 1), 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(attach(nullptr, number(data_), 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(attach(stream_, number(data_), 0, 7), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(attach(stream_, number(data_), kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda::calls("cuStreamAttachMemAsync"), before);
}

// A pool that is larger than the device, as some libraries make it: pinned memory of the CPU's
// would be taken for all of it.
TEST_F(ManagedPrograms, WhatNoDeviceHoldsStaysTheDrivers) {
  constexpr std::size_t kTooLarge = std::size_t{1} << 30;
  const int made = fake_cuda::calls("cuMemAllocManaged");
  const std::uint64_t told = stats().driverAllocations.value();
  std::uint32_t* const pool = allocate(kTooLarge);
  ASSERT_NE(pool, nullptr);
  EXPECT_EQ(fake_cuda::calls("cuMemAllocManaged"), made + 1);
  EXPECT_EQ(stats().driverAllocations.value(), told + 1);
  EXPECT_FALSE(coherence::memory().touchesShared(pool, kTooLarge));
  // It stands beside shared objects.
  pool[kTooLarge / sizeof *pool - 1] = 7;
  launch(stream_, data_);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  expectMore(1);
  EXPECT_EQ(DRIVER(cuMemFree)(number(pool)), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemFree)(number(pool)), CUDA_ERROR_INVALID_VALUE);
  // What the driver refuses is none. The application's variable may lie in a closed page.
  fake_cuda::failNext("cuMemAllocManaged", CUDA_ERROR_OUT_OF_MEMORY);
  CUdeviceptr none = 7;
  EXPECT_EQ(DRIVER(cuMemAllocManaged)(&none, kTooLarge, CU_MEM_ATTACH_GLOBAL),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(none, 7U);
  EXPECT_EQ(stats().driverAllocations.value(), told + 1);
  launch(stream_, data_);
  auto* const inObject = reinterpret_cast<CUdeviceptr*>(data_);
  ASSERT_EQ(DRIVER(cuMemAllocManaged)(inObject, kTooLarge, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemFree)(*inObject), CUDA_SUCCESS);
}

// On a device that cannot use managed memory while the CPU does, it is a promise.
class ManagedProgramsOnOlderDevices : public ManagedPrograms {
 protected:
  void SetUp() override {
    fake_cuda::setAttribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0);
    ManagedPrograms::SetUp();
  }
  void TearDown() override {
    ManagedPrograms::TearDown();
    fake_cuda::setAttribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1);
  }
};

// The driver's memory would be closed to the CPU while a kernel runs, and is no larger than the
// device.
TEST_F(ManagedProgramsOnOlderDevices, WhatNoDeviceHoldsIsAnObject) {
  constexpr std::size_t kTooLarge = std::size_t{1} << 30;
  const std::uint64_t told = stats().driverAllocations.value();
  std::uint32_t* const object = allocate(kTooLarge);
  ASSERT_NE(object, nullptr);
  EXPECT_EQ(stats().driverAllocations.value(), told);
  EXPECT_TRUE(coherence::memory().touchesShared(object, kTooLarge));
  EXPECT_EQ(DRIVER(cuMemFree)(number(object)), CUDA_SUCCESS);
}

TEST_F(ManagedProgramsOnOlderDevices, AnAttachedObjectIsLeftAloneByOtherStreams) {
  std::uint32_t* const second = allocate(kBytes);
  std::fill_n(second, kCount, 7);
  ASSERT_EQ(DRIVER(cuStreamAttachMemAsync)(stream_, number(data_), 0, CU_MEM_ATTACH_SINGLE),
            CUDA_SUCCESS);
  const std::size_t flushes = fake_cuda::calls("cuMemcpyHtoDAsync_v2");
  launch(other_, second);
  EXPECT_EQ(fake_cuda::calls("cuMemcpyHtoDAsync_v2"), flushes + 1) << "only what may be used";
  const std::size_t queries = fake_cuda::calls("cuEventQuery");
  data_[0] = 55;
  EXPECT_EQ(fake_cuda::calls("cuEventQuery"), queries) << "nothing to wait for";
  launch(stream_, data_);
  EXPECT_EQ(data_[0], 56U) << "its own stream's kernel is waited for";
  EXPECT_EQ(second[9], 8U);
  // A copy that names it may come from any stream.
  const std::vector<std::uint32_t> values(10, 77);
  ASSERT_EQ(DRIVER(cuMemcpyHtoDAsync)(number(data_), values.data(), 40, other_), CUDA_SUCCESS);
  EXPECT_EQ(data_[9], 77U);
  EXPECT_EQ(data_[10], 11U);
  EXPECT_EQ(DRIVER(cuMemFree)(number(second)), CUDA_SUCCESS);
}

TEST_F(ManagedProgramsOnOlderDevices, AStreamsEndGivesItsObjectsBackToEverybody) {
  CUstream third = nullptr;
  ASSERT_EQ(DRIVER(cuStreamCreate)(&third, 0), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuStreamAttachMemAsync)(third, number(data_), 0, CU_MEM_ATTACH_SINGLE),
            CUDA_SUCCESS);
  launch(third, data_);
  ASSERT_EQ(DRIVER(cuStreamDestroy)(third), CUDA_SUCCESS);
  launch(stream_, data_);
  expectMore(2);
}

TEST_F(ManagedProgramsOnOlderDevices, WhatTheCpuKeepsWaitsForNoKernel) {
  std::uint32_t* const mine = allocate(100, CU_MEM_ATTACH_HOST);
  mine[0] = 1;
  launch(stream_, data_);
  const std::size_t queries = fake_cuda::calls("cuEventQuery");
  mine[0] = 2;
  EXPECT_EQ(mine[0], 2U);
  EXPECT_EQ(fake_cuda::calls("cuEventQuery"), queries);
  // And for everybody again, in time for the next kernel.
  ASSERT_EQ(DRIVER(cuStreamAttachMemAsync)(stream_, number(mine), 0, CU_MEM_ATTACH_GLOBAL),
            CUDA_SUCCESS);
  std::uint64_t count = 1;
  std::uint32_t* argumentOne = mine;
  void* args[] = {&argumentOne, &count};
  ASSERT_EQ(DRIVER(cuLaunchKernel)(increment_, 1, 1, 1, 1, 1, 1, 0, other_, args, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(mine[0], 3U);
  EXPECT_EQ(DRIVER(cuMemFree)(number(mine)), CUDA_SUCCESS);
}

// There the driver closes variables for the CPU while the device works, also for what the runtime
// has the device do.
class ManagedVariables : public ManagedProgramsOnOlderDevices {
 protected:
  void SetUp() override {
    ManagedProgramsOnOlderDevices::SetUp();
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    ASSERT_EQ(DRIVER(cuLibraryGetManaged)(&address, &bytes, library_, "counter"), CUDA_SUCCESS);
    ASSERT_EQ(bytes, sizeof *variable_);
    variable_ = reinterpret_cast<volatile long*>(address);
  }
  void TearDown() override {
    EXPECT_EQ(DRIVER(cuLibraryUnload)(library_), CUDA_SUCCESS);
    close(false);
    EXPECT_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS);  // opens it
    ManagedProgramsOnOlderDevices::TearDown();
  }
  static void close(bool forGood) {
    fake_cuda::control<void(bool)>("fakeCudaCloseVariable")(forGood);
  }
  static std::size_t waits() { return fake_cuda::calls("cuCtxSynchronize"); }

  // Whether the program's own handler hears of the access.
  bool faults() {
    struct sigaction before;
    struct sigaction own = {};
    own.sa_handler = [](int) { siglongjmp(jump, 1); };
    EXPECT_EQ(::sigaction(SIGSEGV, &own, &before), 0);
    const bool faulted = sigsetjmp(jump, 1) != 0;
    if (!faulted) *variable_ = 1;
    EXPECT_EQ(::sigaction(SIGSEGV, &before, nullptr), 0);
    return faulted;
  }

  static sigjmp_buf jump;
  const CUlibrary library_ = reinterpret_cast<CUlibrary>(&jump);
  volatile long* variable_ = nullptr;
};
sigjmp_buf ManagedVariables::jump;

TEST_F(ManagedVariables, AnAccessWaitsForTheDevice) {
  *variable_ = 5;
  close(false);
  const std::size_t before = waits();
  EXPECT_EQ(*variable_, 5);
  EXPECT_EQ(waits(), before + 1);
  close(false);
  *variable_ = 6;
  EXPECT_EQ(waits(), before + 2);
  EXPECT_EQ(*variable_, 6);
  EXPECT_EQ(waits(), before + 2) << "it is open";
}

TEST_F(ManagedVariables, OneThatStaysClosedIsTheProgramsFault) {
  close(true);
  EXPECT_TRUE(faults());
  close(false);
  EXPECT_FALSE(faults());
}

// A kernel that waits for the CPU never ends.
TEST_F(ManagedVariables, DISABLED_TalkToARunningKernel) {
  launch(stream_, data_);
  fake_cuda::stall(stream_);
  close(false);
  *variable_ = 1;
}

TEST(ManagedVariablesThat, TalkToARunningKernelEndWithAReason) {
  const testing::ChildEnd end = testing::runChild("ManagedVariables.DISABLED_TalkToARunningKernel",
                                                  {{"GMAC_WAIT_LIMIT", "1"}});
  EXPECT_EQ(end.signal, SIGABRT) << end.output;
  EXPECT_THAT(end.output, HasSubstr("has waited 1 seconds"));
  EXPECT_THAT(end.output, HasSubstr("GMAC_WAIT_LIMIT"));
}

TEST_F(ManagedVariables, OneOfAnUnloadedLibraryIsNoMore) {
  ASSERT_EQ(DRIVER(cuLibraryUnload)(library_), CUDA_SUCCESS);
  close(false);
  const std::size_t before = waits();
  EXPECT_TRUE(faults());
  EXPECT_EQ(waits(), before);
  // And one of a library that is loaded again is.
  CUdeviceptr address = 0;
  EXPECT_EQ(DRIVER(cuLibraryGetManaged)(&address, nullptr, library_, "counter"), CUDA_SUCCESS);
  EXPECT_FALSE(faults());
  EXPECT_EQ(waits(), before + 1);
}

TEST_F(ManagedPrograms, ManagedVariablesAreTheDrivers) {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  EXPECT_EQ(DRIVER(cuLibraryGetManaged)(&address, &bytes, nullptr, "counter"), CUDA_SUCCESS);
  EXPECT_NE(address, 0U);
}

// ---- Questions

TEST_F(ManagedPrograms, ManagedMemoryAnswersAsManagedMemory) {
  const auto* const inside = data_ + 1000;
  EXPECT_EQ(attributeOf<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside), 1U);
  EXPECT_EQ(attributeOf<CUmemorytype>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside),
            CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(attributeOf<const void*>(CU_POINTER_ATTRIBUTE_HOST_POINTER, inside), inside);
  EXPECT_EQ(attributeOf<const void*>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside), inside);
  EXPECT_EQ(attributeOf<const void*>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside), data_);
  EXPECT_EQ(attributeOf<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside), kBytes);
  EXPECT_EQ(attributeOf<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside), 0U);
  EXPECT_EQ(attributeOf<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, inside), 1U);
  EXPECT_EQ(attributeOf<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside), 0);
  // Small ones share their pages, not their answers.
  std::uint32_t* const small[] = {allocate(64), allocate(64)};
  EXPECT_EQ(attributeOf<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, small[1] + 3), 64U);
  EXPECT_EQ(attributeOf<const void*>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, small[1] + 3),
            small[1]);
  EXPECT_NE(attributeOf<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, small[0]),
            attributeOf<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, small[1]));
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(DRIVER(cuMemGetAddressRange)(&base, &bytes, number(small[1]) + 5), CUDA_SUCCESS);
  EXPECT_EQ(base, number(small[1]));
  EXPECT_EQ(bytes, 64U);
  for (std::uint32_t* object : small) EXPECT_EQ(DRIVER(cuMemFree)(number(object)), CUDA_SUCCESS);
}

TEST_F(ManagedPrograms, SeveralAttributesAtOnceAsTheRuntimeAsks) {
  unsigned managed = 0;
  const void* host = nullptr;
  const void* onDevice = nullptr;
  CUmemorytype type{};
  void* data[] = {&managed, &host, &onDevice, &type};
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_HOST_POINTER,
      CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
  ASSERT_EQ(DRIVER(cuPointerGetAttributes)(4, attributes, data, number(data_ + 2)), CUDA_SUCCESS);
  EXPECT_EQ(managed, 1U);
  EXPECT_EQ(host, data_ + 2);
  EXPECT_EQ(onDevice, data_ + 2);
  EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
}

TEST_F(ManagedPrograms, AnObjectOfAdsmAllocIsDeviceMemoryWithAnAddressOnTheCpu) {
  void* const object = adsmAlloc(kBytes);
  EXPECT_EQ(attributeOf<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, object), 0U);
  EXPECT_EQ(attributeOf<void*>(CU_POINTER_ATTRIBUTE_HOST_POINTER, object), object);
  EXPECT_EQ(attributeOf<void*>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, object), object);
  EXPECT_EQ(adsmFree(object), adsmSuccess);
}

TEST_F(ManagedPrograms, AnswersCanBeWrittenIntoManagedMemory) {
  launch(stream_, data_);
  auto* const value = reinterpret_cast<int*>(data_);
  ASSERT_EQ(DRIVER(cuMemRangeGetAttribute)(value, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                                           number(data_), 4),
            CUDA_SUCCESS);
  EXPECT_EQ(*value, CU_DEVICE_INVALID);
  EXPECT_EQ(data_[1], 2U);
}

TEST_F(ManagedPrograms, ADeviceWithoutManagedMemoryHasOurs) {
  int has = 0;
  fake_cuda::setAttribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0);
  fake_cuda::setAttribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0);
  EXPECT_EQ(DRIVER(cuDeviceGetAttribute)(&has, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(has, 1);
  EXPECT_EQ(DRIVER(cuDeviceGetAttribute)(&has, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(has, 0) << "everything else is the device's own answer";
  fake_cuda::setAttribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1);
}

// ---- Threads and streams

TEST_F(ManagedPrograms, ThreadsWithStreamsOfTheirOwnKeepTheirResults) {
  constexpr std::uint32_t kRounds = 40;
  std::atomic<int> wrong{0};
  const auto program = [&](CUstream stream) {
    ASSERT_EQ(DRIVER(cuCtxPushCurrent)(context_), CUDA_SUCCESS);
    std::uint32_t* const mine = allocate(kBytes);
    std::iota(mine, mine + kCount, 0);
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      launch(stream, mine);
      DRIVER(cuStreamSynchronize)(stream);
      if (mine[round] != round + round || mine[kCount - 1] != kCount - 1 + round) ++wrong;
      mine[round] += 5;
      mine[round] -= 5;
    }
    EXPECT_EQ(DRIVER(cuMemFree)(number(mine)), CUDA_SUCCESS);
  };
  std::thread first(program, stream_);
  std::thread second(program, other_);
  first.join();
  second.join();
  EXPECT_EQ(wrong, 0);
}

// ---- What the CPU looks at after each wait

TEST_F(ManagedPrograms, ASmallResultComesBackBehindItsKernel) {
  const std::vector<std::function<CUresult()>> waits = {
      [&] { return DRIVER(cuStreamSynchronize)(stream_); },
      [&] { return DRIVER(cuCtxSynchronize)(); },
      [&] { return DRIVER(cuStreamSynchronize)(CU_STREAM_LEGACY); },
  };
  std::uint32_t* result = nullptr;
  std::vector<std::uint32_t*> results;
  std::uint32_t value = 0;
  const auto launchOn = [&](CUstream stream) {
    std::uint64_t count = 100;
    void* args[] = {&result, &count};
    ASSERT_EQ(DRIVER(cuLaunchKernel)(increment_, 1, 1, 1, 100, 1, 1, 0, stream, args, nullptr),
              CUDA_SUCCESS);
    ++value;
  };
  for (std::size_t kind = 0; kind < waits.size(); ++kind) {
    const auto look = [&] {
      launchOn(kind == 2 ? CU_STREAM_LEGACY : stream_);
      ASSERT_EQ(waits[kind](), CUDA_SUCCESS);
      ASSERT_EQ(result[70], value) << "wait " << kind;
    };
    // (After as many rounds as all waits have, it would have one copy, and so would the next one in
    // its memory.)
    result = allocate(std::size_t{64} << 10);
    results.push_back(result);
    value = result[70];
    for (int i = 0; i < 3; ++i) look();
    const std::uint64_t faults = stats().readFaults.value();
    const std::uint64_t copies = stats().readBacks.value();
    for (int i = 0; i < 16; ++i) look();
    EXPECT_GE(stats().readBacks.value() - copies, 14U) << "wait " << kind;
    // Every eighth time a fault confirms the guess.
    EXPECT_LE(stats().readFaults.value() - faults, 4U) << "wait " << kind;
  }
  for (const std::uint32_t* one : results) {
    EXPECT_EQ(DRIVER(cuMemFree)(number(one)), CUDA_SUCCESS);
  }
}

// ---- Ends

TEST_F(ManagedPrograms, ResettingTheDeviceTakesEverything) {
  adsmKernelDesc_t description{};
  description.name = "increment";
  description.paramCount = 2;
  description.paramSizes = kSizes;
  description.cudaImage = &kImage;
  description.cudaName = "increment";
  adsmKernel_t kernel = nullptr;
  ASSERT_EQ(adsmKernelCreate(&description, &kernel), adsmSuccess) << adsmLastErrorString();
  const auto call = [&] {
    std::uint64_t count = kCount;
    void* args[] = {&data_, &count};
    EXPECT_EQ(adsmCall(kernel, {1, 1, 1}, {1, 1, 1}, 0, args), adsmSuccess)
        << adsmLastErrorString();
  };
  void* const plain = adsmAlloc(kBytes);
  std::uint32_t* const small = allocate(64);
  small[0] = 1;
  call();
  launch(stream_, data_);
  for (std::uint32_t round = 1; round <= 3; ++round) {
    resetDevice();
    EXPECT_EQ(fake_cuda::living().handles, 0U);
    EXPECT_EQ(fake_cuda::living().pinned, 0U);
    for (void* const gone : {static_cast<void*>(data_), static_cast<void*>(small), plain}) {
      EXPECT_EQ(adsmSafe(gone), nullptr);
      EXPECT_EQ(adsmFree(gone), adsmErrorInvalidPointer);
    }
    EXPECT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
    beginAgain();
    launch(stream_, data_);
    call();
    EXPECT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
    expectMore(2);
    launch(other_, data_);
    data_[1] = 7;
    launch(stream_, data_);
    EXPECT_EQ(data_[0], 4U);
    EXPECT_EQ(data_[1], 8U);
  }
  EXPECT_EQ(adsmKernelDestroy(kernel), adsmSuccess);
}

TEST_F(ManagedPrograms, TheRuntimesOwnPartsEndBeforeTheReset) {
  const std::size_t streams = fake_cuda::calls("cuStreamCreate");
  const std::size_t ended = fake_cuda::calls("cuStreamDestroy_v2");
  resetDevice();
  EXPECT_EQ(fake_cuda::calls("cuStreamDestroy_v2"), ended + 4);
  EXPECT_EQ(fake_cuda::calls("cuStreamCreate"), streams) << "and begin when they are needed";
  beginAgain();
  EXPECT_EQ(fake_cuda::calls("cuStreamCreate"), streams + 2 + 4);
  launch(stream_, data_);
  expectMore(1);
}

TEST_F(ManagedPrograms, AResetRecoversFromACrashedKernel) {
  ASSERT_NO_FATAL_FAILURE(crash());
  CUdeviceptr address = 0;
  EXPECT_NE(DRIVER(cuMemAllocManaged)(&address, kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  resetDevice();
  beginAgain();
  launch(stream_, data_);
  expectMore(1);
}

// As with memory of the driver's own.
TEST_F(ManagedPrograms, ACrashedKernelIsWhatEveryLaterCallSays) {
  CUdeviceptr small = 0;
  ASSERT_EQ(DRIVER(cuMemAllocManaged)(&small, 64, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  ASSERT_NO_FATAL_FAILURE(crash());
  CUdeviceptr address = 0;
  // Of memory that needs the driver, and of memory that does not.
  EXPECT_EQ(DRIVER(cuMemAllocManaged)(&address, std::size_t{64} << 20, CU_MEM_ATTACH_GLOBAL),
            CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(DRIVER(cuMemAllocManaged)(&address, 100, CU_MEM_ATTACH_GLOBAL),
            CUDA_ERROR_ILLEGAL_ADDRESS);
  int copied = 0;
  EXPECT_EQ(DRIVER(cuMemcpyDtoH)(&copied, number(data_), 4), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(DRIVER(cuMemsetD8)(number(data_), 0, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(DRIVER(cuMemFree)(small), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(DRIVER(cuMemFree)(number(data_)), CUDA_ERROR_ILLEGAL_ADDRESS);
  resetDevice();
  beginAgain();
  launch(stream_, data_);
  expectMore(1);
}

// The call itself, or one that the runtime makes for it.
TEST_F(ManagedPrograms, AFailureOfTheDriversIsToldByItsNumber) {
  launch(stream_, data_);
  for (const char* call : {"cuStreamWaitEvent", "cuEventRecord"}) {
    data_[0] = 1;
    fake_cuda::failNext(call, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    int copied = 0;
    EXPECT_EQ(DRIVER(cuMemcpyDtoH)(&copied, number(data_), 4), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        << call << ": " << adsmLastErrorString();
    fake_cuda::failNext(call, CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuMemcpyDtoH)(&copied, number(data_), 4), CUDA_SUCCESS);
    EXPECT_EQ(copied, 1);
  }
}

TEST_F(ManagedPrograms, ResettingAnotherDeviceChangesNothing) {
  const auto reset = DRIVER(cuDevicePrimaryCtxReset);
  EXPECT_EQ(reset(1), CUDA_ERROR_INVALID_DEVICE);
  launch(stream_, data_);
  expectMore(1);
}

// ---- Arguments in managed memory

// The fake driver ends the process when a call comes while it reads them.
class ManagedProgramsArguments : public ManagedPrograms {
 protected:
  struct Arguments {
    std::uint32_t* data;
    std::uint64_t count;
    void* pointers[2];
    std::size_t bytes;
    void* extra[5];
    CUlaunchConfig config;
    CUlaunchAttribute attribute;
  };
  void SetUp() override {
    ManagedPrograms::SetUp();
    arguments_ = reinterpret_cast<Arguments*>(allocate(1 << 20));
    Arguments& all = *arguments_;
    all = {};
    all.data = data_;
    all.count = kCount;
    all.pointers[0] = &all.data;
    all.pointers[1] = &all.count;
    all.bytes = 16;
    void* const extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &all.data, CU_LAUNCH_PARAM_BUFFER_SIZE,
                           &all.bytes, CU_LAUNCH_PARAM_END};
    std::copy(std::begin(extra), std::end(extra), all.extra);
    all.config.gridDimX = all.config.gridDimY = all.config.gridDimZ = 1;
    all.config.blockDimX = all.config.blockDimY = all.config.blockDimZ = 1;
    all.config.hStream = stream_;
    all.config.attrs = &all.attribute;
    all.config.numAttrs = 1;
    // Their pages are closed, and the accelerator has the bytes.
    close();
  }
  void TearDown() override {
    EXPECT_EQ(DRIVER(cuMemFree)(number(arguments_)), CUDA_SUCCESS);
    ManagedPrograms::TearDown();
  }
  void close() {
    std::uint32_t* none = data_;
    std::uint64_t count = 0;
    void* args[] = {&none, &count};
    ASSERT_EQ(DRIVER(cuLaunchKernel)(increment_, 1, 1, 1, 1, 1, 1, 0, stream_, args, nullptr),
              CUDA_SUCCESS);
  }
  CUresult launchWith(CUfunction function, void** args, void** extra) {
    return DRIVER(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream_, args, extra);
  }

  Arguments* arguments_ = nullptr;
};

TEST_F(ManagedProgramsArguments, AreReadBeforeTheDriverIsEntered) {
  // Their array, too.
  EXPECT_EQ(launchWith(increment_, arguments_->pointers, nullptr), CUDA_SUCCESS);
  expectMore(1);
  // Some of them, by the other kind of handle.
  std::uint64_t count = kCount;
  void* args[] = {&arguments_->data, &count};
  close();
  EXPECT_EQ(launchWith(fake_cuda::asKernel(increment_), args, nullptr), CUDA_SUCCESS);
  expectMore(2);
  std::uint32_t* data = data_;
  void* last[] = {&data, &arguments_->count};
  close();
  EXPECT_EQ(launchWith(fake_cuda::asKernel(increment_), last, nullptr), CUDA_SUCCESS);
  expectMore(3);
  // Bytes that a kernel has just changed.
  void* one[] = {&data, &count};
  arguments_->count = kCount - 1;
  data = reinterpret_cast<std::uint32_t*>(&arguments_->count);
  count = 1;
  EXPECT_EQ(launchWith(increment_, one, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(launchWith(increment_, arguments_->pointers, nullptr), CUDA_SUCCESS);
  expectMore(4);
}

TEST_F(ManagedProgramsArguments, LeadingOnesAreReadWhereTheDriverDoesNotSayHowManyThereAre) {
  unloadAModule();  // what it has said before does not count
  fake_cuda::failNext("cuFuncGetParamInfo", CUDA_ERROR_NOT_SUPPORTED);
  fake_cuda::failNext("cuKernelGetParamInfo", CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(launchWith(increment_, arguments_->pointers, nullptr), CUDA_SUCCESS);
  expectMore(1);
}

TEST_F(ManagedPrograms, TheDriverIsAskedOnceForAKernelsParameters) {
  launch(stream_, data_);
  const std::size_t asked = fake_cuda::calls("cuFuncGetParamInfo");
  EXPECT_GT(asked, 0U);
  for (int i = 0; i < 10; ++i) launch(stream_, data_);
  EXPECT_EQ(fake_cuda::calls("cuFuncGetParamInfo"), asked);
  unloadAModule();
  launch(stream_, data_);
  EXPECT_GT(fake_cuda::calls("cuFuncGetParamInfo"), asked);
  expectMore(12);
}

TEST_F(ManagedPrograms, LaunchesSeldomAskWhetherOlderOnesAreDone) {
  constexpr int kLaunches = 5000;
  std::uint64_t none = 0;
  void* args[] = {&data_, &none};
  const std::size_t queries = fake_cuda::calls("cuEventQuery");
  for (int i = 0; i < kLaunches; ++i) {
    ASSERT_EQ(DRIVER(cuLaunchKernel)(increment_, 1, 1, 1, 1, 1, 1, 0, i % 3 == 0 ? other_ : stream_,
                                     args, nullptr),
              CUDA_SUCCESS);
    if (i % 100 == 0) {
      ASSERT_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS);
    }
  }
  EXPECT_LT(fake_cuda::calls("cuEventQuery") - queries, kLaunches / 50);
  launch(stream_, data_);
  expectMore(1);
}

// One number means another stream in each thread.
TEST_F(ManagedPrograms, EveryThreadsOwnStreamIsWaitedFor) {
  std::uint32_t* const others = allocate(kBytes);
  launch(CU_STREAM_PER_THREAD, data_);
  std::thread([&] {
    ASSERT_EQ(DRIVER(cuCtxPushCurrent)(context_), CUDA_SUCCESS);
    launch(CU_STREAM_PER_THREAD, others);
  }).join();
  expectMore(1);
  EXPECT_EQ(others[5], 1U);
  EXPECT_EQ(DRIVER(cuMemFree)(number(others)), CUDA_SUCCESS);
}

// ---- The end of the process

// An object of the program's that was there before CUDA.
struct AtExit {
  std::function<void()> look;
  ~AtExit() {
    if (look) look();
  }
} atExit;

TEST_F(ManagedPrograms, DISABLED_AStaticDestructorLooksAtIt) {
  std::uint32_t* const large = allocate(std::size_t{96} << 20);
  for (std::size_t i = 0; i < (std::size_t{96} << 20) / sizeof *large; i += 4096) {
    large[i] = 7;
  }
  std::uint32_t* const second = allocate(kBytes);
  second[5] = 1;
  for (const int step : {1, 2}) {
    launch(stream_, data_);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    ASSERT_EQ(data_[5], 5U + step);
    launch(stream_, data_);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    data_[5] = 5U + step;
  }
  launch(stream_, data_);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  const std::uint64_t before = stats().bytesToHost.value();
  atExit.look = [data = data_, second, before] {
    fake_cuda::failAll(CUDA_ERROR_DEINITIALIZED);
    bool right = stats().bytesToHost.value() - before < 2 * kBytes + (std::size_t{2} << 20);
    right = right && second[5] == 1;
    second[5] = 2;  // and the first one's block may have to make room
    for (std::size_t i = 0; i < kCount; ++i) {
      right = right && data[i] == (i == 5 ? 8 : i + 5);
      data[i] = 9;
    }
    _exit(right && data[kCount - 1] == 9 ? 0 : 1);
  };
  std::exit(HasFailure() ? 2 : 3);
}

TEST(ManagedProgramsAtExit, StaticDestructorsReadAfterCudaHasEnded) {
  const testing::ChildEnd end = testing::runChild(
      "ManagedPrograms.DISABLED_AStaticDestructorLooksAtIt", {{"GMAC_ROLLING_SIZE", "2"}});
  EXPECT_EQ(end.exitStatus, 0) << end.output;
}

// ---- What is kept of freed memory

TEST_F(ManagedPrograms, KeptMemoryIsUsedAgainAndReadsAsZero) {
  const std::size_t allocations = fake_cuda::calls("cuMemCreate");
  const std::size_t pinned = fake_cuda::calls("cuMemHostRegister_v2");
  launch(stream_, data_);
  EXPECT_EQ(DRIVER(cuMemFree)(number(data_)), CUDA_SUCCESS);
  std::uint32_t* const again = allocate(kBytes);
  EXPECT_EQ(again, data_);
  EXPECT_EQ(fake_cuda::calls("cuMemCreate"), allocations);
  EXPECT_EQ(again[kCount / 2], 0U);
  launch(stream_, again);
  EXPECT_EQ(again[kCount / 2], 1U);
  EXPECT_EQ(fake_cuda::calls("cuMemHostRegister_v2"), pinned);
}

TEST_F(ManagedPrograms, KeptMemoryIsGivenBackBeforeAnAllocationOfTheProgramsFails) {
  CUdeviceptr plain = 0;
  EXPECT_EQ(DRIVER(cuMemFree)(number(data_)), CUDA_SUCCESS);
  EXPECT_GE(coherence::deviceMemory().keptBytes(), kBytes);
  const std::size_t freed = fake_cuda::calls("cuMemRelease");
  fake_cuda::failNext("cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(DRIVER(cuMemAlloc)(&plain, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(coherence::deviceMemory().keptBytes(), 0U);
  EXPECT_GT(fake_cuda::calls("cuMemRelease"), freed);
  // With nothing kept it fails as ever.
  fake_cuda::failNext("cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY);
  CUdeviceptr none = 0;
  EXPECT_EQ(DRIVER(cuMemAlloc)(&none, kBytes), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(DRIVER(cuMemFree)(plain), CUDA_SUCCESS);
  data_ = nullptr;
}

TEST_F(ManagedPrograms, KeptMemoryCountsAsFree) {
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  std::uint32_t* const more = allocate(8 << 20);
  ASSERT_EQ(DRIVER(cuMemGetInfo)(&before, &total), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemFree)(number(more)), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemGetInfo)(&after, &total), CUDA_SUCCESS);
  EXPECT_EQ(after - before, std::size_t{8} << 20);
}

TEST_F(ManagedProgramsArguments, MayBeOneBuffer) {
  EXPECT_EQ(launchWith(increment_, nullptr, arguments_->extra), CUDA_SUCCESS);
  expectMore(1);
  std::size_t bytes = 16;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &arguments_->data, CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &bytes, CU_LAUNCH_PARAM_END};
  close();
  EXPECT_EQ(launchWith(increment_, nullptr, extra), CUDA_SUCCESS);
  expectMore(2);
}

TEST_F(ManagedProgramsArguments, AreReadInEveryKindOfLaunch) {
  EXPECT_EQ(DRIVER(cuLaunchCooperativeKernel)(increment_, 1, 1, 1, 1, 1, 1, 0, stream_,
                                              arguments_->pointers),
            CUDA_SUCCESS);
  expectMore(1);
  close();
  EXPECT_EQ(
      DRIVER(cuLaunchKernelEx)(&arguments_->config, increment_, arguments_->pointers, nullptr),
      CUDA_SUCCESS);
  expectMore(2);
  CUgraph graph = nullptr;
  ASSERT_EQ(DRIVER(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = increment_;
  node.gridDimX = node.gridDimY = node.gridDimZ = 1;
  node.blockDimX = node.blockDimY = node.blockDimZ = 1;
  node.kernelParams = arguments_->pointers;
  CUgraphNode added = nullptr;
  close();
  ASSERT_EQ(DRIVER(cuGraphAddKernelNode)(&added, graph, nullptr, 0, &node), CUDA_SUCCESS);
  CUgraphNodeParams any{};
  any.type = CU_GRAPH_NODE_TYPE_KERNEL;
  any.kernel.kern = reinterpret_cast<CUkernel>(fake_cuda::asKernel(increment_));
  any.kernel.gridDimX = any.kernel.gridDimY = any.kernel.gridDimZ = 1;
  any.kernel.blockDimX = any.kernel.blockDimY = any.kernel.blockDimZ = 1;
  any.kernel.extra = arguments_->extra;
  close();
  ASSERT_EQ(DRIVER(cuGraphAddNode)(&added, graph, nullptr, nullptr, 0, &any), CUDA_SUCCESS);
  CUgraphExec executable = nullptr;
  ASSERT_EQ(DRIVER(cuGraphInstantiateWithFlags)(&executable, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuGraphLaunch)(executable, stream_), CUDA_SUCCESS);
  expectMore(4);
  EXPECT_EQ(DRIVER(cuGraphExecDestroy)(executable), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuGraphDestroy)(graph), CUDA_SUCCESS);
}

TEST_F(ManagedPrograms, PrivateArgumentsStayTheCallers) {
  const std::size_t fetches = fake_cuda::calls("cuMemcpyDtoHAsync_v2");
  launch(stream_, data_);
  launch(stream_, data_);
  EXPECT_EQ(fake_cuda::calls("cuMemcpyDtoHAsync_v2"), fetches);
  expectMore(2);
}

// ---- In processes of their own, with other variables

// A kernel that waits for the CPU never ends.
TEST_F(ManagedPrograms, DISABLED_TalksToARunningKernel) {
  launch(stream_, data_);
  fake_cuda::stall(stream_);
  data_[0] = 1;
}

TEST(ManagedProgramsThat, TalkToARunningKernelAreEndedWithAReason) {
  const testing::ChildEnd end = testing::runChild("ManagedPrograms.DISABLED_TalksToARunningKernel",
                                                  {{"GMAC_WAIT_LIMIT", "1"}});
  EXPECT_EQ(end.signal, SIGABRT) << end.output;
  EXPECT_THAT(end.output, HasSubstr("has waited 1 seconds"));
  EXPECT_THAT(end.output, HasSubstr("GMAC_WAIT_LIMIT"));
}

TEST_F(ManagedPrograms, DISABLED_AskAboutAddressesBetweenLaunches) {
  void* const plain = adsmAlloc(kBytes);
  std::uint64_t before = 0;
  constexpr std::uint32_t kFirst = 3;
  constexpr std::uint32_t kLaunches = 13;
  for (std::uint32_t i = 0; i < kLaunches; ++i) {
    if (i == kFirst) before = stats().repeatedCalls.value();
    for (void* const object : {static_cast<void*>(data_ + i), plain}) {
      EXPECT_EQ(attributeOf<void*>(CU_POINTER_ATTRIBUTE_HOST_POINTER, object), object);
      EXPECT_EQ(attributeOf<void*>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, object), object);
      EXPECT_EQ(attributeOf<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, object),
                object == plain ? 0U : 1U);
    }
    CUdeviceptr base = 0;
    ASSERT_EQ(DRIVER(cuMemGetAddressRange)(&base, nullptr, number(data_ + i)), CUDA_SUCCESS);
    EXPECT_EQ(base, number(data_));
    launch(stream_, data_);
  }
  EXPECT_EQ(stats().repeatedCalls.value() - before, kLaunches - kFirst);
  EXPECT_EQ(adsmFree(plain), adsmSuccess);
  expectMore(kLaunches);
}

// Nobody takes the lock for it under which launches would be noted that repeat. (Other tests leave
// contexts that keep launches from that.)
TEST(ManagedProgramsThat, AskAboutAddressesBetweenLaunchesRepeatThem) {
  const testing::ChildEnd end =
      testing::runChild("ManagedPrograms.DISABLED_AskAboutAddressesBetweenLaunches", {});
  EXPECT_EQ(end.exitStatus, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr("1 test"));
}

TEST_F(ManagedPrograms, DISABLED_AreTrustedToOnlyRead) {
  std::uint32_t* const table = allocate(kBytes);
  std::fill_n(table, kCount, 4);
  const auto advice = [&](std::uint32_t* object, CUmem_advise how) {
    ASSERT_EQ(advise()(number(object), kBytes, how, kGpu), CUDA_SUCCESS);
  };
  advice(table, CU_MEM_ADVISE_SET_READ_MOSTLY);
  launch(stream_, data_);
  const std::size_t fetches = fake_cuda::calls("cuMemcpyDtoHAsync_v2");
  const std::size_t queries = fake_cuda::calls("cuEventQuery");
  EXPECT_EQ(std::count(table, table + kCount, 4U), static_cast<long>(kCount));
  EXPECT_EQ(fake_cuda::calls("cuMemcpyDtoHAsync_v2"), fetches) << "the call has not closed it";
  EXPECT_EQ(fake_cuda::calls("cuEventQuery"), queries) << "and there is no kernel to wait for";
  // A write of the CPU waits for the kernel that may be reading, and reaches the next one.
  table[7] = 70;
  EXPECT_GT(fake_cuda::calls("cuEventQuery"), queries);
  launch(stream_, data_);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<std::uint32_t*>(fake_cuda::backing(number(table + 7))), 70U);
  expectMore(2);
  // Advice that is withdrawn, and advice for a part only, are no promise.
  advice(table, CU_MEM_ADVISE_UNSET_READ_MOSTLY);
  launch(stream_, table);
  EXPECT_EQ(table[7], 71U);
}

TEST_F(ManagedPrograms, DISABLED_AreTrustedToAttach) {
  ASSERT_EQ(DRIVER(cuStreamAttachMemAsync)(stream_, number(data_), 0, CU_MEM_ATTACH_SINGLE),
            CUDA_SUCCESS);
  std::uint32_t* const second = allocate(kBytes);
  launch(other_, second);
  const std::size_t queries = fake_cuda::calls("cuEventQuery");
  data_[0] = 55;
  EXPECT_EQ(fake_cuda::calls("cuEventQuery"), queries) << "another stream's kernel";
}

TEST(ManagedProgramsThat, AreTrusted) {
  const testing::ChildEnd end =
      testing::runChild("ManagedPrograms.DISABLED_AreTrustedTo*", {{"GMAC_MANAGED", "trust"}});
  EXPECT_EQ(end.exitStatus, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr("2 tests"));
}

// A program that ends with a reset, and one that goes on where it must not.
TEST_F(ManagedPrograms, DISABLED_EndWithAReset) {
  launch(stream_, data_);
  resetDevice();
  data_ = nullptr;
}

TEST_F(ManagedPrograms, DISABLED_TouchWhatAResetTook) {
  resetDevice();
  data_[0] = 1;
}

TEST(ManagedProgramsThat, EndWithAResetEndWell) {
  for (const char* protocol : {"rolling", "lazy", "batch"}) {
    const testing::ChildEnd end =
        testing::runChild("ManagedPrograms.DISABLED_EndWithAReset", {{"GMAC_PROTOCOL", protocol}});
    EXPECT_EQ(end.exitStatus, 0) << protocol << ": " << end.output;
  }
}

TEST(ManagedProgramsThat, TouchWhatAResetTookDieOfIt) {
  const testing::ChildEnd end =
      testing::runChild("ManagedPrograms.DISABLED_TouchWhatAResetTook", {});
  EXPECT_EQ(end.signal, SIGSEGV) << end.output;
}

// The program's first managed memory is in a context of its own.
TEST(ManagedProgramsOfTheirOwn, DISABLED_DestroyTheirContext) {
  CUcontext own = nullptr;
  ASSERT_EQ(DRIVER(cuCtxCreate)(&own, nullptr, 0, 0), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  ASSERT_EQ(DRIVER(cuMemAllocManaged)(&address, kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(coherence::work().nativeContext(), reinterpret_cast<std::uintptr_t>(own));
  ASSERT_EQ(DRIVER(cuCtxDestroy)(own), CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda::calls("cuCtxDestroy_v2"), 1U);
  EXPECT_EQ(adsmSafe(reinterpret_cast<void*>(address)), nullptr);
  EXPECT_EQ(coherence::work().nativeContext(), 0U);
  CUcontext primary = nullptr;
  ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&primary, 0), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuCtxPushCurrent)(primary), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemAllocManaged)(&address, kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS)
      << adsmLastErrorString();
  EXPECT_EQ(coherence::work().nativeContext(), reinterpret_cast<std::uintptr_t>(primary));
  *reinterpret_cast<int*>(address) = 1;
}

TEST(ManagedProgramsThat, DestroyTheirContextStartAfresh) {
  const testing::ChildEnd end =
      testing::runChild("ManagedProgramsOfTheirOwn.DISABLED_DestroyTheirContext", {});
  EXPECT_EQ(end.exitStatus, 0) << end.output;
}

// The CPU's accelerator has no CUDA kernels.
TEST_F(ManagedPrograms, DISABLED_HaveNoDevice) {}

TEST(ManagedProgramsThat, HaveNoCudaAcceleratorAreToldSo) {
  const testing::ChildEnd end =
      testing::runChild("ManagedPrograms.DISABLED_HaveNoDevice", {{"GMAC_ACCEL", "host"}});
  EXPECT_NE(end.exitStatus, 0);
  EXPECT_THAT(end.output, HasSubstr("GMAC_ACCEL"));
  EXPECT_THAT(end.output, HasSubstr("no managed memory of 400000 bytes"));
}

// Without managed mode the driver's managed memory is the driver's.
TEST_F(ManagedPrograms, DISABLED_AreLeftAlone) {
  EXPECT_EQ(fake_cuda::calls("cuMemAllocManaged"), 1U);
  EXPECT_EQ(adsmSafe(data_), nullptr);
  data_ = nullptr;
}

TEST(ManagedProgramsThat, RunWithoutManagedModeAreLeftAlone) {
  const testing::ChildEnd end =
      testing::runChild("ManagedPrograms.DISABLED_AreLeftAlone", {{"GMAC_MANAGED", "0"}});
  EXPECT_EQ(end.exitStatus, 0) << end.output;
}

}  // namespace
}  // namespace gmac::interpose
