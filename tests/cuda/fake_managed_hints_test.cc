// SPDX-License-Identifier: Apache-2.0
//
// Managed memory that a program advises to be read-mostly, in managed mode: the whole runtime with
// the interposer linked in, over the fake driver, which runs the runtime's own digest kernel. Needs
// no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/coherence/port.h"
#include "gmac/observe/stats.h"
#include "tests/cuda/fake_program.h"
#include "tests/support/child.h"
#include "tests/support/digest_kernel.h"

namespace gmac {
namespace {

using fake_cuda::driver;
using ::testing::HasSubstr;

constexpr std::size_t kCount = 1'000'000;
constexpr std::size_t kBytes = kCount * sizeof(std::uint32_t);
constexpr std::size_t kBlockBytes = 64 << 10;
constexpr CUmemLocation kGpu{CU_MEM_LOCATION_TYPE_DEVICE, 0};
constexpr CUmemLocation kCpu{CU_MEM_LOCATION_TYPE_HOST, 0};

CUresult digest(const unsigned* grid, const unsigned*, unsigned, void** args) {
  testing::runDigestKernel({grid[0], grid[1], grid[2]}, args, [](void* address) {
    return static_cast<void*>(fake_cuda::device(static_cast<std::byte*>(address)));
  });
  return CUDA_SUCCESS;
}
const std::size_t kDigestSizes[] = {8, 8, 8, 8, 8, 8, 8, 8};
const fake_cuda::Kernel kDigestKernels[] = {{"gmacDigest", digest, 8, kDigestSizes}};
const fake_cuda::Image kDigestImage = {"fakecud", kDigestKernels, 1, nullptr, 0};

const bool kPrepared = [] {
  setenv("GMAC_MANAGED", "1", 0);
  setenv("GMAC_BLOCK_SIZE", "64K", 0);
  return fake_cuda::prepare();
}();

CUdeviceptr number(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

class ReadMostly : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::standIn(&kDigestImage);
    begin();
  }
  void begin() {
    ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuCtxPushCurrent)(context_), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuStreamCreate)(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuStreamCreate)(&other_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CUmodule module = nullptr;
    ASSERT_EQ(DRIVER(cuModuleLoadDataEx)(&module, &fake_cuda::kImage, 0, nullptr, nullptr),
              CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuModuleGetFunction)(&increment_, module, "increment"), CUDA_SUCCESS);
    CUdeviceptr address = 0;
    ASSERT_EQ(DRIVER(cuMemAllocManaged)(&address, kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS)
        << adsmLastErrorString();
    table_ = reinterpret_cast<std::uint32_t*>(address);
    advise(CU_MEM_ADVISE_SET_READ_MOSTLY);
    std::iota(table_, table_ + kCount, 0);
  }
  void TearDown() override {
    if (table_ != nullptr) {
      EXPECT_EQ(DRIVER(cuMemFree)(number(table_)), CUDA_SUCCESS);
    }
    CUcontext popped = nullptr;
    EXPECT_EQ(DRIVER(cuCtxPopCurrent)(&popped), CUDA_SUCCESS);
  }
  void advise(CUmem_advise advice) {
    ASSERT_EQ(driver<CUresult(CUdeviceptr, std::size_t, CUmem_advise, CUmemLocation)>(
                  "cuMemAdvise")(number(table_), kBytes, advice, kGpu),
              CUDA_SUCCESS);
  }
  // A kernel that adds one to `count` words.
  void launch(CUstream stream, std::uint32_t* first, std::uint64_t count) {
    void* args[] = {&first, &count};
    ASSERT_EQ(DRIVER(cuLaunchKernel)(increment_, 1, 1, 1, 1, 1, 1, 0, stream, args, nullptr),
              CUDA_SUCCESS)
        << adsmLastErrorString();
  }
  void wait() { ASSERT_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS); }
  void launchReading(CUstream stream) { launch(stream, table_, 0); }
  // Reads all of the table. Says how many bytes were fetched for that.
  std::uint64_t read(const std::vector<std::size_t>& changed = {}) {
    const std::uint64_t before = stats().bytesToHost.value();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto more = std::count(changed.begin(), changed.end(), i);
      wrong += table_[i] != i + static_cast<std::size_t>(more) ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0u);
    return stats().bytesToHost.value() - before;
  }

  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUstream other_ = nullptr;
  CUfunction increment_ = nullptr;
  std::uint32_t* table_ = nullptr;
};

TEST_F(ReadMostly, WhatNoKernelHasWrittenIsNotFetched) {
  for (int round = 0; round < 3; ++round) {
    launchReading(stream_);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    const std::uint64_t unchanged = stats().bytesUnchanged.value();
    EXPECT_EQ(read(), 0u);
    EXPECT_GE(stats().bytesUnchanged.value() - unchanged, kBytes);
  }
}

TEST_F(ReadMostly, WhatAKernelHasWrittenIsSeenAndItsBlockAloneIsFetched) {
  const std::size_t at = kCount / 2;
  launch(stream_, table_ + at, 1);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  EXPECT_EQ(read({at}), kBlockBytes);
  launch(stream_, table_ + at, 1);
  wait();
  EXPECT_EQ(read({at, at}), kBlockBytes);
  launchReading(stream_);
  EXPECT_EQ(read({at, at}), 0u);
}

// Nothing that was submitted runs before somebody asks about it.
TEST_F(ReadMostly, ItIsReadBesideAKernelThatRuns) {
  launch(stream_, table_ + 7, 1);
  const std::uint64_t faults = stats().readFaults.value();
  EXPECT_EQ(read(), 0u);
  EXPECT_EQ(stats().readFaults.value(), faults);
  table_[8] += 1;
  EXPECT_EQ(read({7, 8}), 0u) << "the write has waited for the kernel, and fetched the block";
}

TEST_F(ReadMostly, WhateverSaysThatAKernelIsOverIsAnAcquire) {
  CUevent before = nullptr;
  CUevent after = nullptr;
  ASSERT_EQ(DRIVER(cuEventCreate)(&before, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuEventCreate)(&after, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  std::vector<std::size_t> changed;
  const auto expectAcquired = [&](const char* how) {
    EXPECT_EQ(read(changed), kBlockBytes) << how;
  };
  const auto launchOne = [&] {
    changed.push_back(changed.size() * 1000);
    ASSERT_EQ(DRIVER(cuEventRecord)(before, stream_), CUDA_SUCCESS);
    launch(stream_, table_ + changed.back(), 1);
    ASSERT_EQ(DRIVER(cuEventRecord)(after, stream_), CUDA_SUCCESS);
  };
  launchOne();
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  expectAcquired("cuStreamSynchronize");
  launchOne();
  while (DRIVER(cuStreamQuery)(stream_) == CUDA_ERROR_NOT_READY) {
  }
  expectAcquired("cuStreamQuery");
  launchOne();
  ASSERT_EQ(DRIVER(cuEventSynchronize)(after), CUDA_SUCCESS);
  expectAcquired("cuEventSynchronize");
  launchOne();
  while (DRIVER(cuEventQuery)(after) == CUDA_ERROR_NOT_READY) {
  }
  expectAcquired("cuEventQuery");
  launchOne();
  float milliseconds = 0;
  using ElapsedTime = CUresult(float*, CUevent, CUevent);
  while (driver<ElapsedTime>("cuEventElapsedTime")(&milliseconds, before, after) ==
         CUDA_ERROR_NOT_READY) {
  }
  expectAcquired("cuEventElapsedTime");
  launchOne();
  std::uint32_t word = 0;
  ASSERT_EQ(DRIVER(cuMemcpyDtoH)(&word, number(table_ + changed.back()), sizeof word),
            CUDA_SUCCESS);
  expectAcquired("cuMemcpyDtoH");
  CUdeviceptr other = 0;
  ASSERT_EQ(DRIVER(cuMemAlloc)(&other, sizeof word), CUDA_SUCCESS);
  launchOne();
  ASSERT_EQ(DRIVER(cuMemcpyDtoH)(&word, other, sizeof word), CUDA_SUCCESS);
  expectAcquired("cuMemcpyDtoH of other memory");
  launchOne();
  ASSERT_EQ(DRIVER(cuMemcpyDtoHAsync)(&word, other, sizeof word, stream_), CUDA_SUCCESS);
  expectAcquired("cuMemcpyDtoHAsync to pageable memory");
  launchOne();
  ASSERT_EQ(DRIVER(cuMemsetD8)(other, 0, sizeof word), CUDA_SUCCESS);
  expectAcquired("cuMemsetD8 of other memory");
  launchOne();
  ASSERT_EQ(DRIVER(cuMemcpyAsync)(other, other + 2, 1, stream_), CUDA_SUCCESS);
  const std::uint64_t faults = stats().readFaults.value();
  EXPECT_EQ(table_[changed.back()], changed.back()) << "a copy that tells nothing";
  EXPECT_EQ(stats().readFaults.value(), faults);
  wait();
  expectAcquired("cuCtxSynchronize, later");
  EXPECT_EQ(DRIVER(cuMemFree)(other), CUDA_SUCCESS);
  launchOne();
  ASSERT_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS);
  expectAcquired("cuCtxSynchronize");
  EXPECT_EQ(DRIVER(cuEventDestroy)(before), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuEventDestroy)(after), CUDA_SUCCESS);
}

TEST_F(ReadMostly, KernelsOnTwoStreamsAreSeen) {
  launch(stream_, table_ + 5, 1);
  launch(other_, table_ + kCount - 1, 1);
  wait();
  EXPECT_EQ(read({5, kCount - 1}),
            kBlockBytes + kBytes % kBlockBytes / 4096 * 4096 + (kBytes % 4096 != 0 ? 4096 : 0));
  launch(other_, table_ + 5, 1);
  table_[kCount / 2] += 7;
  launch(stream_, table_ + kCount / 2, 1);
  wait();
  EXPECT_EQ(table_[kCount / 2], kCount / 2 + 8);
  EXPECT_EQ(table_[5], 7u);
}

TEST_F(ReadMostly, AGraphsKernelsAreSeen) {
  CUgraph graph = nullptr;
  ASSERT_EQ(DRIVER(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
  std::uint32_t* first = table_ + 9;
  std::uint64_t count = 1;
  void* args[] = {&first, &count};
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = increment_;
  node.gridDimX = node.gridDimY = node.gridDimZ = 1;
  node.blockDimX = node.blockDimY = node.blockDimZ = 1;
  node.kernelParams = args;
  CUgraphNode handle = nullptr;
  ASSERT_EQ(driver<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,
                            const CUDA_KERNEL_NODE_PARAMS*)>("cuGraphAddKernelNode")(
                &handle, graph, nullptr, 0, &node),
            CUDA_SUCCESS);
  CUgraphExec executable = nullptr;
  ASSERT_EQ(driver<CUresult(CUgraphExec*, CUgraph, unsigned long long)>(
                "cuGraphInstantiateWithFlags")(&executable, graph, 0),
            CUDA_SUCCESS);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(DRIVER(cuGraphLaunch)(executable, stream_), CUDA_SUCCESS);
    // Also without a wait: a graph may hold functions of the CPU, which are not told of its
    // kernels.
    if (round == 0) {
      ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    }
    EXPECT_EQ(read(std::vector<std::size_t>(static_cast<std::size_t>(round) + 1, 9)), kBlockBytes);
  }
  EXPECT_EQ(DRIVER(cuGraphExecDestroy)(executable), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuGraphDestroy)(graph), CUDA_SUCCESS);
}

TEST_F(ReadMostly, AFunctionOfTheCpuInTheStreamSeesWhatTheKernelWrote) {
  launch(stream_, table_ + 3, 1);
  struct Seen {
    const std::uint32_t* table;
    std::uint32_t value;
  } seen{table_, 0};
  ASSERT_EQ(DRIVER(cuLaunchHostFunc)(
                stream_,
                [](void* argument) {
                  auto& what = *static_cast<Seen*>(argument);
                  what.value = what.table[3];
                },
                &seen),
            CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  EXPECT_EQ(seen.value, 4u);
}

TEST_F(ReadMostly, CopiesIntoTheTableAreSeen) {
  launchReading(stream_);
  EXPECT_EQ(read(), 0u);
  std::uint32_t value = 12 + 1;
  ASSERT_EQ(DRIVER(cuMemcpyHtoD)(number(table_ + 12), &value, sizeof value), CUDA_SUCCESS);
  (void)read({12});
}

TEST_F(ReadMostly, APrefetchToTheCpuComparesAhead) {
  launch(stream_, table_ + 1, 1);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  const std::uint64_t unchanged = stats().bytesUnchanged.value();
  const std::uint64_t fetched = stats().bytesToHost.value();
  ASSERT_EQ(driver<CUresult(CUdeviceptr, std::size_t, CUmemLocation, unsigned, CUstream)>(
                "cuMemPrefetchAsync")(number(table_), kBytes, kCpu, 0, stream_),
            CUDA_SUCCESS);
  while (stats().bytesUnchanged.value() - unchanged < kBytes - 2 * kBlockBytes) {
    std::this_thread::yield();
  }
  (void)read({1});
  EXPECT_EQ(stats().bytesToHost.value() - fetched, kBlockBytes);
}

TEST_F(ReadMostly, AdviceThatIsWithdrawnIsForgotten) {
  advise(CU_MEM_ADVISE_UNSET_READ_MOSTLY);
  launchReading(stream_);
  EXPECT_GE(read(), kBytes);
  advise(CU_MEM_ADVISE_SET_READ_MOSTLY);
  launchReading(stream_);
  EXPECT_EQ(read(), 0u);
}

TEST_F(ReadMostly, TheDriverMayRefuseTheDigest) {
  fake_cuda::failNext("cuLaunchKernel", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  launch(stream_, table_ + 1, 1);  // the digest's launch fails, the program's goes on
  EXPECT_GE(read({1}), kBytes);
  launch(stream_, table_ + 2, 1);
  wait();
  fake_cuda::failNext("cuLaunchKernel", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  (void)read({1, 2});
  launchReading(stream_);
  (void)read({1, 2});
  launchReading(stream_);
  EXPECT_EQ(read({1, 2}), 0u);
}

TEST_F(ReadMostly, AfterADeviceResetItGoesOn) {
  launchReading(stream_);
  EXPECT_EQ(read(), 0u);
  ASSERT_EQ(driver<CUresult(CUdevice)>("cuDevicePrimaryCtxReset", 7000)(0), CUDA_SUCCESS);
  table_ = nullptr;
  CUcontext popped = nullptr;
  EXPECT_EQ(DRIVER(cuCtxPopCurrent)(&popped), CUDA_SUCCESS);
  begin();
  launch(stream_, table_ + 8, 1);
  wait();
  EXPECT_EQ(read({8}), kBlockBytes);
}

// ---- In processes of their own, with other variables

class ReadMostlyAnywhere : public ReadMostly {};

TEST_F(ReadMostlyAnywhere, DISABLED_OneByteIsSeen) {
  for (std::size_t round = 0; round < 4; ++round) {
    // (Batch fetches in the wait.)
    const std::uint64_t before = stats().bytesToHost.value();
    launchReading(stream_);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    (void)read(std::vector<std::size_t>(round, 77));
    EXPECT_EQ(stats().bytesToHost.value(), before);
    launch(stream_, table_ + 77, 1);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    (void)read(std::vector<std::size_t>(round + 1, 77));
    EXPECT_GT(stats().bytesToHost.value(), before);
  }
}

TEST(ReadMostlyPrograms, AreServedUnderEveryProtocol) {
  for (const char* protocol : {"rolling", "lazy", "batch"}) {
    const testing::ChildEnd end = testing::runChild("ReadMostlyAnywhere.DISABLED_OneByteIsSeen",
                                                    {{"GMAC_PROTOCOL", protocol}});
    EXPECT_EQ(end.exitStatus, 0) << protocol << ": " << end.output;
    EXPECT_THAT(end.output, HasSubstr("1 test"));
  }
}

// Without an implementation of the digest everything is fetched.
class WithoutDigests : public ReadMostly {
 protected:
  void SetUp() override {
    fake_cuda::standIn(nullptr);
    begin();
  }
};

TEST_F(WithoutDigests, DISABLED_EverythingIsFetched) {
  launch(stream_, table_ + 77, 1);
  EXPECT_GE(read({77}), kBytes);
}

TEST(ReadMostlyPrograms, AreServedWithoutDigestsToo) {
  const testing::ChildEnd end =
      testing::runChild("WithoutDigests.DISABLED_EverythingIsFetched", {});
  EXPECT_EQ(end.exitStatus, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr("1 test"));
}

}  // namespace
}  // namespace gmac
