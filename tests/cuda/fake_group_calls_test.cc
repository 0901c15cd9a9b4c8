// SPDX-License-Identifier: Apache-2.0
//
// A CUDA program whose GPU has devices without one beside it: its own launches, copies and graphs
// bring the objects that they may use home to the GPU. The whole runtime with the interposer, over
// the fake driver. Needs no GPU.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gmac/accel/devices.h"
#include "gmac/api/adsm.h"
#include "gmac/observe/stats.h"
#include "gmac/session/runtime.h"
#include "tests/api/host_kernel.h"
#include "tests/cuda/application_test.h"
#include "tests/cuda/fake_contexts.h"
#include "tests/support/child.h"

namespace gmac::fake_cuda {
namespace {

const bool kMixed = setenv("GMAC_ACCEL", "cuda+host:2", 1) == 0 &&
                    setenv("GMAC_HOST_MEMORY", "128M", 1) == 0 &&
                    setenv("GMAC_SCHEDULER", "data", 1) == 0 &&
                    setenv("GMAC_BLOCK_SIZE", "64K", 1) == 0 && setenv("GMAC_MANAGED", "1", 1) == 0;
const bool kPrepared = [] {
  prepare();
  setDevices(3);
  shareInGroupsOf(2);  // the last one is alone
  return true;
}();

void increment(const adsmThreadBlock_t* block, void** args) {
  auto* data = *static_cast<std::uint32_t**>(args[0]);
  const auto count = *static_cast<std::uint64_t*>(args[1]);
  for (std::uint64_t i = block->blockIdx.x; i < count; i += block->gridDim.x) ++data[i];
}

class BesideOthers : public ApplicationTest {
 protected:
  void SetUp() override {
    ApplicationTest::SetUp();
    kernel_ = testing::hostKernel("increment", increment, 2, {}, &kImage);
    onHost_ = testing::hostKernel("onHost", increment, 2);
  }
  void TearDown() override {
    EXPECT_EQ(adsmKernelDestroy(kernel_), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(adsmKernelDestroy(onHost_), adsmSuccess) << adsmLastErrorString();
    ApplicationTest::TearDown();
  }
  // Adds one to each number, on a device.
  adsmError_t call(int device, std::uint32_t* data, adsmKernel_t kernel,
                   std::uint64_t count = kCount) {
    void* args[] = {&data, &count};
    const adsmUse_t use = {data, adsmReadWrite};
    return adsmCallOn(device, kernel, {4, 1, 1}, {1, 1, 1}, 0, args, &use, 1);
  }
  adsmError_t call(int device, std::uint32_t* data) { return call(device, data, kernel_); }
  static accel::Devices& devices() { return *(*Runtime::get())->memory().accelerator().devices(); }
  static std::size_t homeOf(const void* object) {
    return devices().homeOf(accel::DeviceAddress{reinterpret_cast<std::uintptr_t>(object)});
  }
  static void expectNumbers(const std::uint32_t* data, std::uint32_t added) {
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(data[i], i + added) << i;
  }
  static void verify() {
    EXPECT_TRUE((*Runtime::get())->memory().verify().ok()) << adsmLastErrorString();
  }

  adsmKernel_t kernel_ = nullptr;
  adsmKernel_t onHost_ = nullptr;
};

TEST_F(BesideOthers, AnObjectComesHomeForTheProgramsOwnLaunch) {
  std::uint32_t added = 0;
  for (const int device : {1, 2, 0, 1}) {
    ASSERT_EQ(call(device, object_), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(homeOf(object_), static_cast<std::size_t>(device));
    launch(stream_, object_);
    EXPECT_EQ(homeOf(object_), 0u);
    launch(stream_, object_);
    added += 3;
    if (device == 2) {
      expectNumbers(object_, added);  // the CPU waits for the stream
      object_[5] += 1;
      launch(stream_, object_);
      object_[5] -= 1;
      ++added;
    }
    verify();
  }
  expectNumbers(object_, added);
  verify();
}

// Work that a stream still does is waited for before an object leaves, or another device works.
TEST_F(BesideOthers, ACallElsewhereWaitsForTheProgramsOwnWork) {
  for (std::uint32_t round = 0; round < 5; ++round) {
    launch(stream_, object_);
    ASSERT_EQ(call(1 + static_cast<int>(round % 2), object_), adsmSuccess) << adsmLastErrorString();
  }
  expectNumbers(object_, 10);
}

TEST_F(BesideOthers, CopiesOfTheProgramsOwnFindItToo) {
  std::vector<std::uint32_t> plain(kCount, 9);
  ASSERT_EQ(call(1, object_), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(DRIVER(cuMemcpyDtoH)(plain.data(), reinterpret_cast<CUdeviceptr>(object_), kBytes),
            CUDA_SUCCESS)
      << adsmLastErrorString();
  expectNumbers(plain.data(), 1);
  ASSERT_EQ(call(2, object_), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(DRIVER(cuMemcpyHtoD)(reinterpret_cast<CUdeviceptr>(object_ + 10), plain.data(), 40),
            CUDA_SUCCESS)
      << adsmLastErrorString();
  ASSERT_EQ(call(1, object_), adsmSuccess) << adsmLastErrorString();
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(object_[i], i >= 10 && i < 20 ? i - 10 + 2 : i + 3) << i;
  }
}

// Parts that lie on several devices come home together.
TEST_F(BesideOthers, PartsComeHomeToo) {
  constexpr std::size_t kHalf = std::size_t{48} << 10;  // words: whole blocks
  for (const int device : {1, 2}) {
    std::uint32_t* part = object_ + (device - 1) * kHalf;
    std::uint64_t count = device == 1 ? kHalf : kCount - kHalf;
    void* args[] = {&part, &count};
    const adsmRangeUse_t use = {part, count * 4, adsmReadWrite};
    ASSERT_EQ(adsmCallRanges(device, kernel_, {4, 1, 1}, {1, 1, 1}, 0, args, &use, 1), adsmSuccess)
        << adsmLastErrorString();
  }
  launch(stream_, object_);
  EXPECT_EQ(homeOf(object_), 0u);
  expectNumbers(object_, 2);
  verify();
}

// Another GPU is no device, but reaches what lies on the first one.
TEST_F(BesideOthers, TheProgramsOwnLaunchOnAnotherGpuReachesIt) {
  Context other;
  ASSERT_NO_FATAL_FAILURE(begin(&other, 1));
  int count = 0;
  EXPECT_EQ(adsmDeviceCount(&count), adsmSuccess);
  EXPECT_EQ(count, 3);
  const CUfunction first = std::exchange(increment_, other.increment);
  for (const int device : {1, 2}) {
    const CurrentContext current(other);
    ASSERT_EQ(call(device, object_), adsmSuccess) << adsmLastErrorString();
    launch(other.stream, object_);
    EXPECT_EQ(homeOf(object_), 0u);
  }
  expectNumbers(object_, 4);
  increment_ = first;
  launch(stream_, object_);
  expectNumbers(object_, 5);
  verify();
}

TEST_F(BesideOthers, TheProgramsOwnLaunchOnAGpuThatDoesNotReachItIsRefused) {
  Context other;
  ASSERT_NO_FATAL_FAILURE(begin(&other, 2));
  std::uint64_t count = kCount;
  void* args[] = {&object_, &count};
  {
    const CurrentContext current(other);
    EXPECT_EQ(
        DRIVER(cuLaunchKernel)(other.increment, 1, 1, 1, 1, 1, 1, 0, other.stream, args, nullptr),
        CUDA_ERROR_NOT_SUPPORTED);
  }
  expectNumbers(object_, 0);
  launch(stream_, object_);
  expectNumbers(object_, 1);
  verify();
}

// A launch whose objects do not fit is refused, and changes nothing.
TEST_F(BesideOthers, ALaunchThatFindsNoRoomIsRefused) {
  ASSERT_EQ(call(1, object_), adsmSuccess) << adsmLastErrorString();
  failNext("cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY);
  std::uint64_t count = kCount;
  void* data = object_;
  void* args[] = {&data, &count};
  EXPECT_EQ(DRIVER(cuLaunchKernel)(increment_, 1, 1, 1, 1, 1, 1, 0, stream_, args, nullptr),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(std::string(adsmLastErrorString()).find("device 0"), std::string::npos)
      << adsmLastErrorString();
  EXPECT_EQ(homeOf(object_), 1u);
  expectNumbers(object_, 1);
  launch(stream_, object_);
  expectNumbers(object_, 2);
}

TEST_F(BesideOthers, AKernelRunsWhereItHasCode) {
  EXPECT_EQ(call(0, object_, onHost_), adsmErrorNoImplementation);
  const std::string words = adsmLastErrorString();
  EXPECT_NE(words.find("device 0: "), std::string::npos) << words;
  EXPECT_NE(words.find("onHost"), std::string::npos) << words;
  const std::uint64_t moved = stats().migrations.value();
  expectNumbers(object_, 0);
  ASSERT_EQ(call(1, object_), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(call(0, object_, onHost_), adsmErrorNoImplementation);
  EXPECT_EQ(homeOf(object_), 1u);
  EXPECT_EQ(stats().migrations.value(), moved + 1);
  ASSERT_EQ(call(2, object_, onHost_), adsmSuccess) << adsmLastErrorString();
  expectNumbers(object_, 2);
}

// A call that names no device goes where its kernel has code.
TEST_F(BesideOthers, TheSchedulerPassesOverDevicesWithoutCode) {
  std::uint64_t count = kCount;
  void* data = object_;
  void* args[] = {&data, &count};
  const adsmUse_t use = {object_, adsmReadWrite};
  ASSERT_EQ(call(0, object_), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(adsmCallUsing(onHost_, {4, 1, 1}, {1, 1, 1}, 0, args, &use, 1), adsmSuccess)
      << adsmLastErrorString();
  EXPECT_EQ(homeOf(object_), 1u);
  const adsmKernel_t onGpu = testing::hostKernel("increment", nullptr, 2, {}, &kImage);
  ASSERT_EQ(adsmCallUsing(onGpu, {4, 1, 1}, {1, 1, 1}, 0, args, &use, 1), adsmSuccess)
      << adsmLastErrorString();
  EXPECT_EQ(homeOf(object_), 0u);
  const adsmKernel_t nowhere = testing::hostKernel("nowhere", nullptr, 2);
  EXPECT_EQ(adsmCallUsing(nowhere, {4, 1, 1}, {1, 1, 1}, 0, args, &use, 1),
            adsmErrorNoImplementation);
  expectNumbers(object_, 3);
  for (const adsmKernel_t kernel : {onGpu, nowhere}) {
    EXPECT_EQ(adsmKernelDestroy(kernel), adsmSuccess) << adsmLastErrorString();
  }
}

std::uint32_t hostAddend = 0;
CUdeviceptr gpuAddend = 0;

void addOnHost(const adsmThreadBlock_t*, void** args) {
  **static_cast<std::uint32_t**>(args[0]) += hostAddend;
}

CUresult addOnGpu(const unsigned*, const unsigned*, unsigned, void** args) {
  std::uint32_t value = 0;
  std::memcpy(&value, backing(gpuAddend), sizeof value);
  *device(argument<std::uint32_t*>(args, 0)) += value;
  return CUDA_SUCCESS;
}

const Kernel kAdd[] = {{"add", addOnGpu, 1, kSizes}};
const Global kAddend[] = {{"addend", sizeof(std::uint32_t), &gpuAddend}};
const Image kAddImage = {"fakecud", kAdd, 1, kAddend, 1};

TEST_F(BesideOthers, AConstantIsSetWhereTheKernelHasCode) {
  const adsmConstant_t constants[] = {{"addend", sizeof hostAddend, &hostAddend, nullptr}};
  const adsmKernel_t both = testing::hostKernel("add", addOnHost, 1, constants, &kAddImage);
  const adsmKernel_t onHost = testing::hostKernel("addOnHost", addOnHost, 1, constants);
  const adsmKernel_t onGpu = testing::hostKernel("add", nullptr, 1, constants, &kAddImage);
  const adsmKernel_t nowhere = testing::hostKernel("nowhere", nullptr, 1, constants);
  const auto set = [](adsmKernel_t kernel, std::uint32_t value) {
    return adsmSetConstant(kernel, "addend", &value, sizeof value);
  };
  const auto add = [&](int device, adsmKernel_t kernel) {
    void* data = object_;
    void* args[] = {&data};
    const adsmUse_t use = {object_, adsmReadWrite};
    ASSERT_EQ(adsmCallOn(device, kernel, {1, 1, 1}, {1, 1, 1}, 0, args, &use, 1), adsmSuccess)
        << adsmLastErrorString();
  };
  ASSERT_EQ(set(both, 1), adsmSuccess) << adsmLastErrorString();
  for (const int device : {0, 1, 2}) add(device, both);
  EXPECT_EQ(object_[0], 3u);
  ASSERT_EQ(set(onHost, 10), adsmSuccess) << adsmLastErrorString();
  for (const int device : {1, 2}) add(device, onHost);
  EXPECT_EQ(object_[0], 23u);
  ASSERT_EQ(set(onGpu, 100), adsmSuccess) << adsmLastErrorString();
  add(0, onGpu);
  add(1, both);
  EXPECT_EQ(object_[0], 133u);
  EXPECT_EQ(set(nowhere, 1), adsmErrorNoImplementation);
  for (const adsmKernel_t kernel : {both, onHost, onGpu, nowhere}) {
    EXPECT_EQ(adsmKernelDestroy(kernel), adsmSuccess) << adsmLastErrorString();
  }
}

void crash(const adsmThreadBlock_t*, void**) { __builtin_trap(); }

// A launch may use every object, so it needs those that a lost device had, until they are freed.
TEST_F(BesideOthers, DISABLED_LaunchesGoOnWhenLostObjectsAreFreed) {
  auto* lost = static_cast<std::uint32_t*>(adsmAlloc(kBytes));
  ASSERT_NE(lost, nullptr) << adsmLastErrorString();
  ASSERT_EQ(call(2, lost), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(call(1, object_), adsmSuccess) << adsmLastErrorString();
  const adsmKernel_t crashes = testing::hostKernel("crash", crash, 0);
  const adsmUse_t use = {lost, adsmReadWrite};
  ASSERT_EQ(adsmCallOn(2, crashes, {1, 1, 1}, {1, 1, 1}, 0, nullptr, &use, 1), adsmSuccess);
  EXPECT_EQ(adsmSync(), adsmErrorKernel);
  std::uint64_t count = kCount;
  void* data = object_;
  void* args[] = {&data, &count};
  EXPECT_NE(DRIVER(cuLaunchKernel)(increment_, 1, 1, 1, 1, 1, 1, 0, stream_, args, nullptr),
            CUDA_SUCCESS);
  EXPECT_NE(std::string(adsmLastErrorString()).find("device 2"), std::string::npos)
      << adsmLastErrorString();
  expectNumbers(object_, 1);
  EXPECT_EQ(adsmFree(lost), adsmErrorAcceleratorLost);
  launch(stream_, object_);
  expectNumbers(object_, 2);
  EXPECT_EQ(adsmKernelDestroy(crashes), adsmSuccess) << adsmLastErrorString();
}

TEST(BesideALostDevice, LaunchesGoOnWhenLostObjectsAreFreed) {
  const auto end =
      testing::runChild("BesideOthers.DISABLED_LaunchesGoOnWhenLostObjectsAreFreed", {});
  EXPECT_EQ(end.exitStatus, 0) << "signal " << end.signal << "\n" << end.output;
}

TEST_F(BesideOthers, ManagedMemoryComesHomeToo) {
  CUcontext context = nullptr;
  ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuCtxPushCurrent)(context), CUDA_SUCCESS);
  CUdeviceptr managed = 0;
  ASSERT_EQ(DRIVER(cuMemAllocManaged)(&managed, kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS)
      << adsmLastErrorString();
  auto* const data = reinterpret_cast<std::uint32_t*>(managed);
  std::iota(data, data + kCount, 0u);
  ASSERT_EQ(call(2, data), adsmSuccess) << adsmLastErrorString();
  launch(stream_, data);
  expectNumbers(data, 2);
  EXPECT_EQ(DRIVER(cuMemFree)(managed), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuCtxPopCurrent)(&context), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gmac::fake_cuda
