// SPDX-License-Identifier: Apache-2.0
//
// Calls on several devices that reach each other's memory: the runtime over the fake driver, which
// runs work only when it must, so that what nothing orders runs in the wrong order. Needs no GPU.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/api/adsm_datatype.h"
#include "gmac/coherence/device_memory_port.h"
#include "gmac/observe/stats.h"
#include "gmac/session/runtime.h"
#include "tests/cuda/fake_program.h"
#include "tests/support/child.h"

namespace gmac::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;

using fake_cuda::argument;
using fake_cuda::device;

constexpr int kDevices = 3;
constexpr std::size_t kWords = std::size_t{3} << 18;
constexpr std::size_t kBytes = kWords * sizeof(std::uint32_t);

// (uint32_t* to, const uint32_t* from, uint64_t count): adds, and adds the constant.
CUdeviceptr constantAddress = 0;             // in the module that was loaded last
std::vector<CUdeviceptr> constantAddresses;  // in all of them: a kernel reaches that of its device
CUresult addTo(const unsigned*, const unsigned*, unsigned, void** args) {
  auto* const to = device(argument<std::uint32_t*>(args, 0));
  const auto* const from = device(argument<std::uint32_t*>(args, 1));
  if (to == nullptr || from == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (std::uint64_t i = 0; i < argument<std::uint64_t>(args, 2); ++i) to[i] += from[i];
  return CUDA_SUCCESS;
}
CUresult addConstant(const unsigned*, const unsigned*, unsigned, void** args) {
  auto* const to = device(argument<std::uint32_t*>(args, 0));
  const std::uint32_t* constant = nullptr;
  for (const CUdeviceptr address : constantAddresses) {
    const auto* const here = device(reinterpret_cast<std::uint32_t*>(address));
    constant = here != nullptr ? here : constant;
  }
  if (to == nullptr || constant == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (std::uint64_t i = 0; i < argument<std::uint64_t>(args, 1); ++i) to[i] += *constant;
  return CUDA_SUCCESS;
}
CUresult crash(const unsigned*, const unsigned*, unsigned, void**) {
  return CUDA_ERROR_ILLEGAL_ADDRESS;
}
const std::size_t kSizes[] = {sizeof(void*), sizeof(void*), sizeof(std::uint64_t)};
const fake_cuda::Kernel kKernels[] = {{"increment", fake_cuda::increment, 2, kSizes},
                                      {"addTo", addTo, 3, kSizes},
                                      {"crash", crash, 0, nullptr}};
const fake_cuda::Global kGlobals[] = {{"constant", sizeof(std::uint32_t), &constantAddress}};
const fake_cuda::Image kImage = {"fakecud", kKernels, std::size(kKernels), nullptr, 0};
const fake_cuda::Kernel kConstantKernel = {"addConstant", addConstant, 2, kSizes};
const fake_cuda::Image kConstantImage = {"fakecud", &kConstantKernel, 1, kGlobals, 1};

const bool kPrepared = [] {
  setenv("GMAC_MANAGED", "1", 0);
  fake_cuda::prepare();
  fake_cuda::setDevices(kDevices, true);
  return true;
}();

class DeviceCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    increment_ = make("increment", 2);
    addTo_ = make("addTo", 3);
    addConstant_ = make("addConstant", 2, &kConstantImage);
    crash_ = make("crash", 0);
  }
  void TearDown() override {
    for (const adsmKernel_t kernel : {increment_, addTo_, addConstant_, crash_}) {
      EXPECT_EQ(adsmKernelDestroy(kernel), adsmSuccess) << adsmLastErrorString();
    }
  }

  static adsmKernel_t make(const char* name, std::size_t parameters,
                           const fake_cuda::Image* image = &kImage) {
    static const adsmConstant_t kConstant = {"constant", sizeof(std::uint32_t), nullptr, nullptr};
    adsmKernelDesc_t desc = {};
    desc.name = name;
    desc.paramCount = parameters;
    desc.paramSizes = parameters == 3 ? kSizes : kSizes + 1;
    desc.cudaImage = image;
    desc.cudaName = name;
    desc.constantCount = 1;
    desc.constants = &kConstant;
    adsmKernel_t kernel = nullptr;
    EXPECT_EQ(adsmKernelCreate(&desc, &kernel), adsmSuccess) << adsmLastErrorString();
    return kernel;
  }
  // Each word is its index.
  static std::uint32_t* allocate(bool fill = true, bool striped = false) {
    auto* const words = static_cast<std::uint32_t*>(striped ? adsmAllocStriped(kBytes, 0, nullptr)
                                                            : adsmAlloc(kBytes));
    EXPECT_NE(words, nullptr) << adsmLastErrorString();
    for (std::size_t i = 0; fill && i < kWords; ++i) words[i] = static_cast<std::uint32_t>(i);
    return words;
  }
  static void release(std::uint32_t* words) {
    EXPECT_EQ(adsmFree(words), adsmSuccess) << adsmLastErrorString();
  }
  adsmError_t increment(int on, std::uint32_t* words, bool listed = true) const {
    return callWith(increment_, on, words, listed);
  }
  static adsmError_t callWith(adsmKernel_t kernel, int on, std::uint32_t* words, bool listed) {
    std::uint64_t count = kWords;
    void* args[] = {&words, &count};
    const adsmUse_t use = {words, adsmReadWrite};
    return adsmCallOn(on, kernel, {1, 1, 1}, {1, 1, 1}, 0, args, listed ? &use : nullptr,
                      listed ? 1 : 0);
  }
  adsmError_t add(int on, std::uint32_t* to, std::uint32_t* from) const {
    std::uint64_t count = kWords;
    void* args[] = {&to, &from, &count};
    const adsmUse_t uses[] = {{to, adsmReadWrite}, {from, adsmRead}};
    return adsmCallOn(on, addTo_, {1, 1, 1}, {1, 1, 1}, 0, args, uses, 2);
  }
  static void expectWords(const std::uint32_t* words, std::uint32_t times, std::uint32_t more) {
    for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(words[i], i * times + more) << i;
  }
  static void expectSynced() { EXPECT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString(); }
  static void verify() {
    EXPECT_TRUE((*Runtime::get())->memory().verify().ok()) << adsmLastErrorString();
  }

  void oneCopyIsReachedByAll(std::uint64_t count);

  adsmKernel_t increment_ = nullptr;
  adsmKernel_t addTo_ = nullptr;
  adsmKernel_t addConstant_ = nullptr;
  adsmKernel_t crash_ = nullptr;
};

TEST_F(DeviceCalls, DevicesAreListed) {
  int count = 0;
  ASSERT_EQ(adsmDeviceCount(&count), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(count, kDevices);
  for (int on = 0; on < count; ++on) {
    adsmDeviceInfo_t info;
    ASSERT_EQ(adsmDeviceInfo(on, &info), adsmSuccess) << adsmLastErrorString();
    EXPECT_STREQ(info.kind, "cuda");
    EXPECT_STRNE(info.name, "");
    EXPECT_GT(info.memoryBytes, 0U);
    EXPECT_LE(info.freeBytes, info.memoryBytes);
    EXPECT_EQ(info.bus, fmt::format("0001:{:02x}:01.0", 0x1a + on));
    EXPECT_EQ(info.peers, ((1U << kDevices) - 1U) & ~(1U << on));
  }
}

TEST_F(DeviceCalls, EachCallRunsOnItsDevice) {
  std::uint32_t* const words = allocate();
  std::size_t before[kDevices];
  const auto callsOn = [](std::size_t on) { return stats().deviceCalls[on].value(); };
  for (std::size_t on = 0; on < kDevices; ++on) before[on] = callsOn(on);
  for (int on = 0; on < kDevices; ++on) {
    ASSERT_EQ(increment(on, words), adsmSuccess) << adsmLastErrorString();
  }
  expectWords(words, 1, kDevices);
  for (std::size_t on = 0; on < kDevices; ++on) EXPECT_EQ(callsOn(on), before[on] + 1) << on;
  release(words);
}

// A word that the CPU and a device change in turn, of an object that is small, or of a large one's
// first page.
void DeviceCalls::oneCopyIsReachedByAll(std::uint64_t count) {
  constexpr std::uint64_t kUsed = 64;  // by the kernels, which have to be short
  auto* words = static_cast<std::uint32_t*>(adsmAlloc(count * sizeof(std::uint32_t)));
  ASSERT_NE(words, nullptr) << adsmLastErrorString();
  std::iota(words, words + count, 0);
  std::uint32_t more = 0;
  const auto call = [&](int on) {
    std::uint64_t used = kUsed;
    void* args[] = {&words, &used};
    const adsmUse_t use = {words, adsmReadWrite};
    ASSERT_EQ(adsmCallOn(on, increment_, {64, 1, 1}, {256, 1, 1}, 0, args, &use, 1), adsmSuccess)
        << adsmLastErrorString();
    ++more;
  };
  const auto round = [&](int on) {
    words[9] += 1;
    ASSERT_NO_FATAL_FAILURE(call(on));
    ASSERT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
    words[9] -= 1;
    ASSERT_EQ(words[9], 9 + more);
  };
  const auto expectAll = [&] {
    for (std::uint32_t i = 0; i < count; ++i) ASSERT_EQ(words[i], i + (i < kUsed ? more : 0)) << i;
  };
  const std::uint64_t before = stats().zeroCopies.value();
  const std::uint64_t ended = stats().zeroCopiesEnded.value();
  for (int i = 0; i < 100'000 && stats().zeroCopies.value() == before; ++i) {
    ASSERT_NO_FATAL_FAILURE(round(0));
  }
  ASSERT_EQ(stats().zeroCopies.value(), before + 1);
  for (int i = 0; i < 20; ++i) {
    ASSERT_NO_FATAL_FAILURE(call(i % kDevices));
    if (i % 4 == 0) words[9] += 1, words[9] -= 1;
  }
  expectAll();
  verify();
  // Who chooses its device wants it there, also beside a call that runs.
  for (const int home : {1, 0}) {
    ASSERT_NO_FATAL_FAILURE(call(0));
    ASSERT_EQ(adsmMigrate(words, count * sizeof(std::uint32_t), home), adsmSuccess)
        << adsmLastErrorString();
    for (int i = 0; i < 2000; ++i) ASSERT_NO_FATAL_FAILURE(round(home));
    EXPECT_EQ(stats().zeroCopiesEnded.value(), ended + 1);
    for (const std::uint64_t word : {std::uint64_t{0}, count / 2}) {
      EXPECT_EQ(fake_cuda::deviceOf(reinterpret_cast<CUdeviceptr>(words + word)), home) << word;
    }
    EXPECT_EQ(stats().zeroCopies.value(), before + 1);
  }
  expectAll();
  verify();
  EXPECT_EQ(adsmFree(words), adsmSuccess) << adsmLastErrorString();
}

TEST_F(DeviceCalls, AnObjectWithOneCopyIsReachedByAll) {
  oneCopyIsReachedByAll(std::uint64_t{256} << 10);
}

TEST_F(DeviceCalls, APageWithOneCopyIsReachedByAll) {
  oneCopyIsReachedByAll(std::uint64_t{3} << 20);
}

TEST_F(DeviceCalls, CallsThatUseOneObjectRunInTheirOrder) {
  std::uint32_t* const from = allocate();
  std::uint32_t* const to = allocate(false);
  for (std::uint32_t round = 0; round < 3; ++round) {
    ASSERT_EQ(increment(1, from), adsmSuccess) << adsmLastErrorString();
    ASSERT_EQ(add(2, to, from), adsmSuccess);
    ASSERT_EQ(increment(0, from), adsmSuccess);
    ASSERT_EQ(add(1, to, from), adsmSuccess);
    ASSERT_EQ(increment(2, to), adsmSuccess);
  }
  expectSynced();
  // 1, 2, 3, 4, 5, 6 and 3 increments.
  expectWords(to, 6, 24);
  expectWords(from, 1, 6);
  release(from);
  release(to);
}

TEST_F(DeviceCalls, CallsThatListNothingComeAfterAllOthersAndBeforeThem) {
  std::uint32_t* const from = allocate();
  std::uint32_t* const to = allocate(false);
  ASSERT_EQ(increment(1, from), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(increment(2, from, false), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(add(0, to, from), adsmSuccess);
  ASSERT_EQ(increment(1, to, false), adsmSuccess);
  ASSERT_EQ(add(2, to, from), adsmSuccess);
  expectWords(to, 2, 5);
  release(from);
  release(to);
}

TEST_F(DeviceCalls, WhatTheCpuWritesComesAfterTheReadersOfAllDevices) {
  std::uint32_t* const from = allocate();
  std::uint32_t* to[kDevices];
  for (auto*& one : to) one = allocate(false);
  ASSERT_EQ(increment(0, from), adsmSuccess) << adsmLastErrorString();
  expectWords(from, 1, 1);
  for (int on = 0; on < kDevices; ++on) ASSERT_EQ(add(on, to[on], from), adsmSuccess);
  // The calls may still be running, and read it.
  std::memset(from, 0, kBytes);
  for (std::size_t i = 0; i < kWords; ++i) from[i] = 7;
  ASSERT_EQ(increment(0, from), adsmSuccess);
  // Work that the last call needs runs first.
  expectWords(from, 0, 8);
  for (auto* one : to) expectWords(one, 1, 1);
  for (auto* one : to) release(one);
  release(from);
}

TEST_F(DeviceCalls, FillsAndCopiesWithinComeAfterThem) {
  std::uint32_t* const from = allocate();
  std::uint32_t* const to = allocate(false);
  ASSERT_EQ(increment(1, from), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(add(2, to, from), adsmSuccess);
  std::memset(from, 0, kBytes);
  ASSERT_EQ(increment(1, from), adsmSuccess);
  std::memcpy(from, to, kBytes);
  ASSERT_EQ(increment(2, to), adsmSuccess);
  expectWords(from, 1, 1);
  expectWords(to, 1, 2);
  release(from);
  release(to);
}

TEST_F(DeviceCalls, FreedMemoryIsClearedAfterThem) {
  for (int round = 0; round < 4; ++round) {
    std::uint32_t* const words = allocate(false);
    for (std::size_t i = 0; i < kWords; i += 1021) ASSERT_EQ(words[i], 0U) << i;
    ASSERT_EQ(increment(round % kDevices, words), adsmSuccess) << adsmLastErrorString();
    release(words);
  }
}

// In a process of its own: each device loads the image when it first runs a kernel.
TEST_F(DeviceCalls, DISABLED_ConstantsAreSetOnAll) {
  std::uint32_t* const words = allocate();
  const auto loaded = [] {
    if (constantAddresses.empty() || constantAddresses.back() != constantAddress) {
      constantAddresses.push_back(constantAddress);
    }
  };
  const auto set = [&](std::uint32_t value) {
    ASSERT_EQ(adsmSetConstant(addConstant_, "constant", &value, sizeof value), adsmSuccess)
        << adsmLastErrorString();
    loaded();
  };
  const auto call = [&](int on) {
    ASSERT_EQ(callWith(addConstant_, on, words, true), adsmSuccess) << adsmLastErrorString();
    loaded();
  };
  set(5);
  call(1);
  set(70);
  call(2);
  call(1);
  set(900);
  call(0);
  call(2);
  expectWords(words, 1, 5 + 70 + 70 + 900 + 900);
  release(words);
}

TEST(Constants, AreSetOnAllDevices) {
  const ChildEnd end = runChild("DeviceCalls.DISABLED_ConstantsAreSetOnAll", {});
  EXPECT_EQ(end.exitStatus, 0) << end.output;
}

// The first call that lists an object brings its memory there, and no later one does.
TEST_F(DeviceCalls, TheFirstOneChoosesTheHome) {
  ASSERT_EQ(increment(1, nullptr), adsmErrorInvalidPointer);
  std::uint32_t* const words = allocate();
  const auto moves = [] { return stats().migrations.value(); };
  const std::size_t before = moves();
  ASSERT_EQ(increment(1, words), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(moves(), before + 1);
  ASSERT_EQ(increment(2, words), adsmSuccess);
  ASSERT_EQ(increment(0, words), adsmSuccess);
  EXPECT_EQ(moves(), before + 1);
  expectWords(words, 1, 3);
  int home = -1;
  ASSERT_EQ(DRIVER(cuPointerGetAttribute)(&home, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                          reinterpret_cast<CUdeviceptr>(words)),
            CUDA_SUCCESS);
  EXPECT_EQ(home, 1);
  ASSERT_EQ(adsmMigrate(words, 1, 2), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(moves(), before + 2);
  ASSERT_EQ(increment(0, words), adsmSuccess);
  expectWords(words, 1, 4);
  release(words);
}

TEST_F(DeviceCalls, WhatDoesNotMoveIsUsedWhereItIs) {
  std::uint32_t* const words = allocate();
  fake_cuda::failNext("cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY);
  // (Memory of freed objects is given back, and the move tried again.)
  fake_cuda::failNext("cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(increment(1, words), adsmSuccess) << adsmLastErrorString();
  expectWords(words, 1, 1);
  verify();
  release(words);
}

TEST_F(DeviceCalls, AFailureLosesNothing) {
  std::uint32_t* const words = allocate();
  std::uint32_t done = 0;
  for (const char* call : {"cuStreamCreate", "cuEventCreate", "cuModuleLoadDataEx",
                           "cuModuleGetFunction", "cuLaunchKernel"}) {
    for (const int on : {2, 1}) {
      fake_cuda::failNext(call, CUDA_ERROR_INVALID_VALUE);
      const adsmError_t error = increment(on, words);
      if (error == adsmSuccess) {
        ++done;  // that call was not needed, or moved the object
      }
      fake_cuda::failNext(call, CUDA_SUCCESS);
      verify();
    }
  }
  ASSERT_EQ(increment(1, words), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(increment(2, words), adsmSuccess) << adsmLastErrorString();
  expectWords(words, 1, done + 2);
  release(words);
}

TEST_F(DeviceCalls, AResetOfAnotherDeviceLeavesItsResults) {
  std::uint32_t* const words = allocate();
  for (std::uint32_t round = 1; round < 4; ++round) {
    ASSERT_EQ(increment(0, words), adsmSuccess);
    ASSERT_EQ(increment(1, words), adsmSuccess) << adsmLastErrorString();
    ASSERT_EQ(DRIVER(cuDevicePrimaryCtxReset)(1), CUDA_SUCCESS);
    ASSERT_EQ(increment(2, words), adsmSuccess);
    expectWords(words, 1, 3 * round);
    verify();
  }
  release(words);
}

// Which device copies the pages of an object that moves. (At first its margin comes along.)
class Copiers : public DeviceCalls {
 protected:
  static std::array<std::size_t, kDevices> copiedMoving(std::uint32_t* words, int to) {
    std::array<std::size_t, kDevices> bytes{};
    for (int by = 0; by < kDevices; ++by) bytes[by] = fake_cuda::copied(by).within;
    EXPECT_EQ(adsmMigrate(words, kBytes, to), adsmSuccess) << adsmLastErrorString();
    for (int by = 0; by < kDevices; ++by) bytes[by] = fake_cuda::copied(by).within - bytes[by];
    return bytes;
  }
};

TEST_F(Copiers, AreThoseThatThePagesMoveTo) {
  std::uint32_t* const words = allocate();
  for (const int on : {1, 2, 0}) {
    ASSERT_EQ(increment(on, words), adsmSuccess) << adsmLastErrorString();
  }
  EXPECT_THAT(copiedMoving(words, 2), ElementsAre(0, 0, Ge(kBytes)));
  EXPECT_THAT(copiedMoving(words, 1), ElementsAre(0, Ge(kBytes), 0));
  EXPECT_THAT(copiedMoving(words, 0), ElementsAre(Ge(kBytes), 0, 0));
  expectWords(words, 1, 3);
  release(words);
}

TEST_F(Copiers, NeedTheContextThere) {
  std::uint32_t* const words = allocate();
  ASSERT_EQ(increment(0, words), adsmSuccess) << adsmLastErrorString();
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(DRIVER(cuDevicePrimaryCtxReset)(1), CUDA_SUCCESS);
    EXPECT_THAT(copiedMoving(words, 1), ElementsAre(Ge(kBytes), 0, 0));
    EXPECT_THAT(copiedMoving(words, 0), ElementsAre(Ge(kBytes), 0, 0));
    // The program's own will do.
    CUcontext context = nullptr;
    ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context, 1), CUDA_SUCCESS);
    EXPECT_THAT(copiedMoving(words, 1), ElementsAre(0, Ge(kBytes), 0));
    EXPECT_THAT(copiedMoving(words, 0), ElementsAre(Ge(kBytes), 0, 0));
    ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRelease)(1), CUDA_SUCCESS);
    expectWords(words, 1, 1);
    verify();
  }
  release(words);
}

TEST_F(Copiers, ThatCannotBeOpenedAreReplacedByTheFirstDevice) {
  std::uint32_t* const words = allocate();
  ASSERT_EQ(increment(0, words), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(DRIVER(cuDevicePrimaryCtxReset)(1), CUDA_SUCCESS);
  CUcontext context = nullptr;
  ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context, 1), CUDA_SUCCESS);
  for (const char* const call : {"cuStreamCreate", "cuEventCreate", "cuDevicePrimaryCtxRetain"}) {
    SCOPED_TRACE(call);
    fake_cuda::failAlways(call, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_THAT(copiedMoving(words, 1), ElementsAre(Ge(kBytes), 0, 0));
    fake_cuda::failNth(call, 0, CUDA_SUCCESS);
    EXPECT_THAT(copiedMoving(words, 0), ElementsAre(Ge(kBytes), 0, 0));
    expectWords(words, 1, 1);
  }
  EXPECT_THAT(copiedMoving(words, 1), ElementsAre(0, Ge(kBytes), 0));
  ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRelease)(1), CUDA_SUCCESS);
  expectWords(words, 1, 1);
  release(words);
}

TEST_F(DeviceCalls, DISABLED_ACrashIsTold) {
  std::uint32_t* const words = allocate();
  ASSERT_EQ(adsmCallOn(1, crash_, {1, 1, 1}, {1, 1, 1}, 0, nullptr, nullptr, 0), adsmSuccess)
      << adsmLastErrorString();
  EXPECT_EQ(adsmSync(), adsmErrorKernel);
  EXPECT_EQ(increment(1, words), adsmErrorAcceleratorLost);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("illegal memory access"));
  std::_Exit(HasFailure() ? 1 : 0);
}

TEST(ADevice, ThatCrashesIsTold) {
  const ChildEnd end = runChild("DeviceCalls.DISABLED_ACrashIsTold", {});
  EXPECT_EQ(end.exitStatus, 0) << end.output;
}

TEST_F(DeviceCalls, ThreadsCallOnAllAtOnce) {
  std::uint32_t* const shared = allocate();
  std::vector<std::thread> threads;
  for (int on = 0; on < kDevices; ++on) {
    threads.emplace_back([&, on] {
      std::uint32_t* const own = allocate();
      for (std::uint32_t round = 1; round <= 20; ++round) {
        ASSERT_EQ(increment(on, own), adsmSuccess) << adsmLastErrorString();
        ASSERT_EQ(increment(on, shared), adsmSuccess) << adsmLastErrorString();
        ASSERT_EQ(own[round], 2 * round);
        own[round] += round;
        ASSERT_EQ(own[round + 1], 2 * round + 1);
      }
      release(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  expectWords(shared, 1, 20 * kDevices);
  release(shared);
}

// ---- More than a device's memory holds

class FullDevices : public DeviceCalls {
 protected:
  static constexpr std::size_t kPage = std::size_t{2} << 20;

  void SetUp() override {
    DeviceCalls::SetUp();
    // Every device has a context.
    std::uint32_t* const words = allocate();
    for (int on = kDevices - 1; on >= 0; --on) {
      ASSERT_EQ(increment(on, words), adsmSuccess) << adsmLastErrorString();
    }
    release(words);
  }
  static std::size_t freeOn(int on) {
    adsmDeviceInfo_t info = {};
    EXPECT_EQ(adsmDeviceInfo(on, &info), adsmSuccess) << adsmLastErrorString();
    return info.freeBytes;
  }
  static int homeOf(const std::uint32_t* words) {
    int home = -1;
    // (The CPU's memory has none.)
    (void)DRIVER(cuPointerGetAttribute)(&home, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                        reinterpret_cast<CUdeviceptr>(words));
    return home;
  }
  // Memory of the program's own, of device 0: all but `left` bytes of what is free; so much, which
  // objects make room for.
  static CUdeviceptr reserve(std::size_t left) { return take((freeOn(0) - left) / kPage * kPage); }
  static CUdeviceptr take(std::size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(DRIVER(cuMemAlloc)(&address, bytes), CUDA_SUCCESS);
    return address;
  }
  static void giveBack(CUdeviceptr address) { EXPECT_EQ(DRIVER(cuMemFree)(address), CUDA_SUCCESS); }
};

TEST_F(FullDevices, AnObjectGoesToAnotherAndComesBack) {
  std::uint32_t* const first = allocate();
  ASSERT_EQ(increment(0, first), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(homeOf(first), 0);
  const CUdeviceptr own = reserve(0);
  const auto spills = [] { return std::array{stats().peerSpills.value(), stats().spills.value()}; };
  const auto before = spills();
  // The objects of the newest work do not make room for it.
  std::uint32_t* const next = allocate();
  EXPECT_GT(homeOf(next), 0);
  ASSERT_EQ(increment(0, next), adsmSuccess) << adsmLastErrorString();
  const CUdeviceptr more = take(kPage);
  EXPECT_GT(homeOf(first), 0);
  EXPECT_EQ(spills()[0], before[0] + 2);
  EXPECT_EQ(spills()[1], before[1]);
  for (int on = 0; on < kDevices; ++on) {
    ASSERT_EQ(increment(on, first), adsmSuccess) << adsmLastErrorString();
    ASSERT_EQ(add(on, next, first), adsmSuccess) << adsmLastErrorString();
  }
  verify();
  giveBack(more);
  giveBack(own);
  const std::uint64_t back = stats().broughtBack.value();
  release(allocate(false));
  ASSERT_EQ(increment(2, first), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(stats().broughtBack.value(), back + 2);
  EXPECT_EQ(homeOf(first), 0);
  EXPECT_EQ(homeOf(next), 0);
  expectWords(first, 1, 1 + kDevices + 1);
  expectWords(next, 1 + kDevices, 1 + (2 + 3 + 4));
  verify();
  release(first);
  release(next);
}

// Whichever call of the driver fails, the object is whole, and kernels of all devices use it.
TEST_F(FullDevices, AMoveThatFailsLosesNothing) {
  std::uint32_t* const words = allocate();
  std::uint32_t times = 0;
  for (const char* const call : {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess",
                                 "cuMemcpyDtoDAsync", "cuMemUnmap"}) {
    for (std::size_t n = 1; n <= 5; ++n) {
      SCOPED_TRACE(::testing::Message() << call << ", " << n);
      ASSERT_EQ(increment(0, words), adsmSuccess) << adsmLastErrorString();
      ++times;
      const CUdeviceptr own = reserve(0);
      fake_cuda::failNth(call, n, CUDA_ERROR_OUT_OF_MEMORY);
      CUdeviceptr more = 0;
      (void)DRIVER(cuMemAlloc)(&more, kPage);
      fake_cuda::failNth(call, 0, CUDA_SUCCESS);
      for (int on = 0; on < kDevices; ++on) {
        ASSERT_EQ(increment(on, words), adsmSuccess) << adsmLastErrorString();
        ++times;
      }
      expectWords(words, 1, times);
      verify();
      giveBack(own);
      if (more != 0) giveBack(more);
      // There is room again.
      release(allocate(false));
    }
  }
  ASSERT_EQ(increment(0, words), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(homeOf(words), 0);
  expectWords(words, 1, times + 1);
  release(words);
}

// (Which device has what is kept of freed objects differs.)
TEST_F(FullDevices, MemoryStaysFlat) {
  const auto free = [] {
    std::size_t all = 0;
    for (int on = 0; on < kDevices; ++on) all += freeOn(on);
    return all;
  };
  std::size_t before = 0;
  for (int round = 0; round < 12; ++round) {
    std::uint32_t* const words = allocate();
    ASSERT_EQ(increment(0, words), adsmSuccess) << adsmLastErrorString();
    const CUdeviceptr own = reserve(0);
    const CUdeviceptr more = take(kPage);
    std::uint32_t* const next = allocate();
    expectWords(words, 1, 1);
    expectWords(next, 1, 0);
    giveBack(own);
    giveBack(more);
    release(words);
    release(next);
    if (round == 2) before = free();
  }
  EXPECT_GE(free() + 2 * (kBytes + 2 * kPage), before);
}

// ---- Pages on several devices in turn

class StripedCalls : public FullDevices {
 protected:
  static constexpr std::size_t kPageWords = kPage / 4;
  // Several chunks, and a last page that is not whole.
  static constexpr std::size_t kCount = 9 * kPageWords + 12345;

  static std::uint32_t* striped(int count = 0, const int* devices = nullptr) {
    auto* const words = static_cast<std::uint32_t*>(adsmAllocStriped(kCount * 4, count, devices));
    EXPECT_NE(words, nullptr) << adsmLastErrorString();
    return words;
  }
  static void number(std::uint32_t* words) { std::iota(words, words + kCount, 0); }
  static void expectCount(const std::uint32_t* words, std::uint32_t more) {
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(words[i], i + more) << i;
  }
  adsmError_t incrementAll(int on, std::uint32_t* words) const {
    std::uint64_t count = kCount;
    void* args[] = {&words, &count};
    const adsmUse_t use = {words, adsmReadWrite};
    return adsmCallOn(on, increment_, {1, 1, 1}, {1, 1, 1}, 0, args, &use, 1);
  }
  // (Memory of freed objects. There are no others.)
  static void giveBackKept() { (void)(*Runtime::get())->memory().deviceMemory().makeRoom(); }
  static std::vector<int> homesOf(const std::uint32_t* words) {
    std::vector<int> homes;
    for (std::size_t i = 0; i < kCount; i += kPageWords) homes.push_back(homeOf(words + i));
    return homes;
  }
};

TEST_F(StripedCalls, PagesLieOnTheDevicesInTurn) {
  const std::uint64_t before = stats().stripedAllocations.value();
  std::uint32_t* const all = striped();
  EXPECT_THAT(homesOf(all), ElementsAre(0, 1, 2, 0, 1, 2, 0, 1, 2, 0));
  const int two[] = {2, 1};
  std::uint32_t* const some = striped(2, two);
  EXPECT_THAT(homesOf(some), ElementsAre(2, 1, 2, 1, 2, 1, 2, 1, 2, 1));
  EXPECT_EQ(stats().stripedAllocations.value(), before + 2);
  for (std::size_t i = 0; i < kCount; i += 1021) ASSERT_EQ(some[i], 0U) << i;
  // They stay there, whichever device's call comes first.
  for (int on = 2; on >= 0; --on) {
    ASSERT_EQ(incrementAll(on, all), adsmSuccess) << adsmLastErrorString();
  }
  EXPECT_THAT(homesOf(all), ElementsAre(0, 1, 2, 0, 1, 2, 0, 1, 2, 0));
  release(all);
  release(some);
}

TEST_F(StripedCalls, EachDeviceCopiesItsPages) {
  const auto copied = [] {
    std::array<fake_cuda::CopiedBytes, kDevices> all{};
    for (int on = 0; on < kDevices; ++on) {
      all[static_cast<std::size_t>(on)] = fake_cuda::copied(on);
    }
    return all;
  };
  std::uint32_t* const words = striped();
  const auto before = copied();
  number(words);
  ASSERT_EQ(incrementAll(1, words), adsmSuccess) << adsmLastErrorString();
  expectSynced();
  const auto filled = copied();
  expectCount(words, 1);
  const auto read = copied();
  for (std::size_t on = 0; on < kDevices; ++on) {
    // (The last page is not whole; what is copied of it is in units of the system's pages.)
    const std::size_t whole = 3 * kPage;
    EXPECT_GE(filled[on].in - before[on].in, whole) << on;
    EXPECT_LT(filled[on].in - before[on].in, whole + kPage) << on;
    EXPECT_GE(read[on].out - filled[on].out, whole) << on;
    EXPECT_LT(read[on].out - filled[on].out, whole + kPage) << on;
  }
  release(words);
}

// Work that nothing orders runs in the wrong order.
TEST_F(StripedCalls, CallsSeeWhatTheCpuHasWrittenAndTheOtherWayRound) {
  std::uint32_t* const words = striped();
  std::uint32_t* const other = allocate();
  number(words);
  for (std::uint32_t round = 0; round < 4; ++round) {
    const int on = static_cast<int>(round) % kDevices;
    ASSERT_EQ(incrementAll(on, words), adsmSuccess) << adsmLastErrorString();
    // Only some pages: of the first and the last device, and across two.
    for (std::size_t page = round; page < 9; page += 3) words[page * kPageWords] += 7;
    words[4 * kPageWords - 1] += 7;
    ASSERT_EQ(add((on + 1) % kDevices, other, words), adsmSuccess) << adsmLastErrorString();
    // The call may still be reading.
    for (std::size_t page = round; page < 9; page += 3) words[page * kPageWords] -= 7;
    words[4 * kPageWords - 1] -= 7;
  }
  expectSynced();
  expectCount(words, 4);
  for (std::size_t i = 1; i < kWords; ++i) {
    if (i % kPageWords != 0) {
      ASSERT_EQ(other[i], 5 * i + (1 + 2 + 3 + 4)) << i;
    }
  }
  verify();
  release(words);
  release(other);
}

TEST_F(StripedCalls, FillsAndCopiesCrossThem) {
  std::uint32_t* const words = striped();
  std::uint32_t* const other = striped(2, nullptr);
  number(words);
  ASSERT_EQ(incrementAll(2, words), adsmSuccess) << adsmLastErrorString();
  std::memcpy(other, words, kCount * 4);
  ASSERT_EQ(incrementAll(1, other), adsmSuccess) << adsmLastErrorString();
  std::memset(words, 0, kCount * 4);
  ASSERT_EQ(incrementAll(0, words), adsmSuccess) << adsmLastErrorString();
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(words[i], 1U) << i;
  expectCount(other, 2);
  release(words);
  release(other);
}

TEST_F(StripedCalls, TheyMoveToOneDeviceAsAllObjectsDo) {
  std::uint32_t* const words = striped();
  number(words);
  ASSERT_EQ(incrementAll(0, words), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(adsmMigrate(words, 1, 2), adsmSuccess) << adsmLastErrorString();
  EXPECT_THAT(homesOf(words), ElementsAre(2, 2, 2, 2, 2, 2, 2, 2, 2, 2));
  ASSERT_EQ(incrementAll(1, words), adsmSuccess) << adsmLastErrorString();
  words[5 * kPageWords] += 1;
  ASSERT_EQ(incrementAll(2, words), adsmSuccess) << adsmLastErrorString();
  words[5 * kPageWords] -= 1;
  expectCount(words, 3);
  verify();
  release(words);
}

TEST_F(StripedCalls, ADeviceThatIsResetIsCopiedToByTheFirst) {
  std::uint32_t* const words = striped();
  for (std::uint32_t round = 0; round < 3; ++round) {
    number(words);
    ASSERT_EQ(incrementAll(0, words), adsmSuccess) << adsmLastErrorString();
    ASSERT_EQ(DRIVER(cuDevicePrimaryCtxReset)(1), CUDA_SUCCESS);
    expectCount(words, 1);
    words[kPageWords] = 5;
    ASSERT_EQ(incrementAll(2, words), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(words[kPageWords], 6U);
    verify();
  }
  release(words);
}

TEST_F(StripedCalls, WrongArgumentsAreRefused) {
  const int devices[] = {0, 1, 1};
  const int unknown[] = {0, kDevices};
  const auto refused = [](std::size_t bytes, int count, const int* list) {
    EXPECT_EQ(adsmAllocStriped(bytes, count, list), nullptr);
    EXPECT_EQ(adsmLastError(), adsmErrorInvalidValue);
    return std::string(adsmLastErrorString());
  };
  EXPECT_THAT(refused(kBytes, 3, devices), HasSubstr("device 1 is listed twice"));
  EXPECT_THAT(refused(kBytes, 2, unknown), HasSubstr("3"));
  EXPECT_THAT(refused(kBytes, kDevices + 1, nullptr), HasSubstr("deviceCount is 4"));
  EXPECT_THAT(refused(kBytes, -1, nullptr), HasSubstr("deviceCount is -1"));
  EXPECT_THAT(refused(kBytes, 0, devices), HasSubstr("deviceCount is 0"));
  EXPECT_THAT(refused(0, 2, nullptr), HasSubstr("size is 0"));
}

// An object all the same, as adsmAlloc makes it.
TEST_F(StripedCalls, WhereADeviceHasNoRoomTheObjectIsPlain) {
  const std::uint64_t before = stats().stripedAllocations.value();
  giveBackKept();
  const CUdeviceptr own = reserve(2 * kPage);
  std::uint32_t* const words = striped();
  number(words);
  ASSERT_EQ(incrementAll(1, words), adsmSuccess) << adsmLastErrorString();
  expectCount(words, 1);
  EXPECT_EQ(stats().stripedAllocations.value(), before);
  giveBack(own);
  auto* const small = static_cast<std::uint32_t*>(adsmAllocStriped(kPage, 0, nullptr));
  ASSERT_NE(small, nullptr) << adsmLastErrorString();
  const int one = 2;
  std::uint32_t* const single = striped(1, &one);
  EXPECT_EQ(stats().stripedAllocations.value(), before);
  release(words);
  release(small);
  release(single);
}

TEST_F(StripedCalls, AnAllocationThatFailsLeavesNothingBehind) {
  release(striped());
  const auto free = [] {
    giveBackKept();
    std::vector<std::size_t> all;
    for (int on = 0; on < kDevices; ++on) all.push_back(freeOn(on));
    return all;
  };
  const std::vector<std::size_t> before = free();
  for (const char* const call :
       {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemsetD8Async"}) {
    for (const std::size_t n : {1, 2, 5, 9}) {
      SCOPED_TRACE(::testing::Message() << call << ", " << n);
      fake_cuda::failNth(call, n, CUDA_ERROR_OUT_OF_MEMORY);
      void* const words = adsmAllocStriped(kCount * 4, 0, nullptr);
      fake_cuda::failNth(call, 0, CUDA_SUCCESS);
      if (words != nullptr) {
        number(static_cast<std::uint32_t*>(words));
        ASSERT_EQ(incrementAll(1, static_cast<std::uint32_t*>(words)), adsmSuccess);
        expectCount(static_cast<std::uint32_t*>(words), 1);
        release(static_cast<std::uint32_t*>(words));
      }
      release(striped());
      verify();
    }
  }
  EXPECT_EQ(free(), before);
}

// The first copy, or a later one, to one device or another.
TEST_F(StripedCalls, ACopyThatFailsLosesNothing) {
  std::uint32_t* const words = striped();
  for (std::size_t n = 1; n <= 12; ++n) {
    SCOPED_TRACE(n);
    number(words);
    fake_cuda::failNth("cuMemcpyHtoDAsync", n, CUDA_ERROR_INVALID_VALUE);
    const adsmError_t error = incrementAll(static_cast<int>(n) % kDevices, words);
    fake_cuda::failNth("cuMemcpyHtoDAsync", 0, CUDA_SUCCESS);
    verify();
    expectSynced();
    expectCount(words, error == adsmSuccess ? 1 : 0);
    verify();
  }
  release(words);
}

// ---- Homes of parts

class PartHomes : public StripedCalls {
 protected:
  static constexpr std::size_t kPart = 3 * kPageWords;  // of one device

  static std::uint32_t* plain() {
    auto* const words = static_cast<std::uint32_t*>(adsmAlloc(kCount * 4));
    EXPECT_NE(words, nullptr) << adsmLastErrorString();
    return words;
  }
  static std::size_t wordsOf(std::size_t on) { return on == 2 ? kCount - 2 * kPart : kPart; }
  // Adds one to the part of a device, and lists some of what borders on it, to be read.
  adsmError_t incrementPart(std::size_t on, std::uint32_t* words, std::size_t border = 0) const {
    std::uint32_t* const part = words + on * kPart;
    std::uint64_t count = wordsOf(on);
    void* args[] = {const_cast<std::uint32_t**>(&part), &count};
    std::vector<adsmRangeUse_t> uses{{part, count * 4, adsmReadWrite}};
    if (border != 0 && on > 0) uses.push_back({part - border, border * 4, adsmRead});
    if (border != 0 && on < 2) uses.push_back({part + count, border * 4, adsmRead});
    return adsmCallRanges(static_cast<int>(on), increment_, {1, 1, 1}, {1, 1, 1}, 0, args,
                          uses.data(), uses.size());
  }
};

TEST_F(PartHomes, TheFirstCallOnAPartChoosesThem) {
  std::uint32_t* const words = plain();
  number(words);
  for (const std::size_t on : {2, 0, 1}) {
    ASSERT_EQ(incrementPart(on, words, 1000), adsmSuccess) << adsmLastErrorString();
  }
  EXPECT_THAT(homesOf(words), ElementsAre(0, 0, 0, 1, 1, 1, 2, 2, 2, 2));
  expectCount(words, 1);
  // For good: neither by a part nor by the whole object.
  const auto moves = [] { return stats().migrations.value(); };
  const std::uint64_t before = moves();
  std::uint32_t* part = words;
  std::uint64_t count = kPart;
  void* args[] = {&part, &count};
  const adsmRangeUse_t use{words, kPart * 4, adsmReadWrite};
  ASSERT_EQ(adsmCallRanges(2, increment_, {1, 1, 1}, {1, 1, 1}, 0, args, &use, 1), adsmSuccess);
  ASSERT_EQ(incrementAll(1, words), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(moves(), before);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(words[i], i + (i < kPart ? 3 : 2)) << i;
  verify();
  // But where the program says so.
  ASSERT_EQ(adsmMigrate(words, 1, 1), adsmSuccess) << adsmLastErrorString();
  EXPECT_THAT(homesOf(words), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(words[i], i + (i < kPart ? 3 : 2)) << i;
  release(words);
}

TEST_F(PartHomes, ACallOnTheWholeFirstLeavesNothingToChoose) {
  std::uint32_t* const words = plain();
  number(words);
  ASSERT_EQ(incrementAll(1, words), adsmSuccess) << adsmLastErrorString();
  for (std::size_t on = 0; on < 3; ++on) {
    ASSERT_EQ(incrementPart(on, words), adsmSuccess) << adsmLastErrorString();
  }
  EXPECT_THAT(homesOf(words), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
  expectCount(words, 2);
  release(words);
}

TEST_F(PartHomes, AMoveThatFailsLosesNothing) {
  for (const char* const call : {"cuMemCreate", "cuMemMap", "cuMemcpyDtoDAsync", "cuMemUnmap"}) {
    for (std::size_t n = 1; n <= 6; ++n) {
      SCOPED_TRACE(::testing::Message() << call << ", " << n);
      std::uint32_t* const words = plain();
      number(words);
      fake_cuda::failNth(call, n, CUDA_ERROR_OUT_OF_MEMORY);
      for (std::size_t on = 0; on < 3; ++on) {
        ASSERT_EQ(incrementPart(on, words), adsmSuccess) << adsmLastErrorString();
      }
      fake_cuda::failNth(call, 0, CUDA_SUCCESS);
      expectCount(words, 1);
      verify();
      release(words);
    }
  }
}

// Whatever a program does, in any order: the bytes are those of a program without devices.
class RandomDeviceCalls : public FullDevices {
 protected:
  static constexpr std::size_t kObjects = 4;
  struct Pair {
    std::uint32_t* shared;
    std::vector<std::uint32_t> plain;
  };

  static void begin(Pair* pair, bool striped) {
    *pair = {allocate(true, striped), std::vector<std::uint32_t>(kWords)};
    std::iota(pair->plain.begin(), pair->plain.end(), 0);
  }
  void run(std::uint32_t seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t end) { return std::size_t{random()} % end; };
    Pair pairs[kObjects];
    for (Pair& pair : pairs) begin(&pair, below(2) == 0);
    std::vector<CUdeviceptr> own;
    for (int step = 0; step < 120; ++step) {
      Pair& pair = pairs[below(kObjects)];
      Pair& other = pairs[below(kObjects)];
      const int on = static_cast<int>(below(kDevices));
      const std::size_t at = below(kWords);
      const std::size_t words = 1 + below(kWords - at);
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", step " << step);
      switch (below(14)) {
        case 0: {
          std::uint32_t* const part = pair.shared + at;
          std::uint64_t count = words;
          void* args[] = {const_cast<std::uint32_t**>(&part), &count};
          const adsmRangeUse_t use{part, words * 4, adsmReadWrite};
          ASSERT_EQ(adsmCallRanges(on, increment_, {1, 1, 1}, {1, 1, 1}, 0, args, &use, 1),
                    adsmSuccess)
              << adsmLastErrorString();
          for (std::size_t i = at; i < at + words; ++i) ++pair.plain[i];
          break;
        }
        case 1:
        case 2:
          ASSERT_EQ(increment(on, pair.shared, below(4) != 0), adsmSuccess)
              << adsmLastErrorString();
          for (std::uint32_t& word : pair.plain) ++word;
          break;
        case 3:
        case 4:
        case 5:
          if (&pair == &other) break;
          ASSERT_EQ(add(on, pair.shared, other.shared), adsmSuccess) << adsmLastErrorString();
          for (std::size_t i = 0; i < kWords; ++i) pair.plain[i] += other.plain[i];
          break;
        case 6:
          pair.shared[at] = pair.plain[at] = random();
          break;
        case 7:
          std::memset(pair.shared + at, 3, words * 4);
          std::memset(&pair.plain[at], 3, words * 4);
          break;
        case 8:
          if (&pair == &other) break;
          std::memcpy(pair.shared + at, other.shared + at, words * 4);
          std::memcpy(&pair.plain[at], &other.plain[at], words * 4);
          break;
        case 9:
          ASSERT_EQ(std::memcmp(pair.shared + at, &pair.plain[at], words * 4), 0);
          break;
        case 10:
          // (Not what lies in the CPU's memory, nor to a device that is full.)
          (void)adsmMigrate(pair.shared, 1, on);
          break;
        case 11:
          release(pair.shared);
          begin(&pair, below(2) == 0);
          break;
        default:
          // Memory of device 0 for the program itself: objects spill, and come back once they can.
          if (own.size() > 2 || (!own.empty() && below(2) == 0)) {
            giveBack(own.back());
            own.pop_back();
          } else {
            own.push_back(own.empty() ? reserve(below(2) * kPage) : take((1 + below(3)) * kPage));
          }
      }
    }
    for (const CUdeviceptr one : own) giveBack(one);
    for (Pair& pair : pairs) {
      ASSERT_EQ(std::memcmp(pair.shared, pair.plain.data(), kBytes), 0) << "seed " << seed;
      release(pair.shared);
    }
    verify();
  }
};

TEST_F(RandomDeviceCalls, DISABLED_LeaveNoByteWrong) {
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    run(seed);
    if (HasFatalFailure()) return;
  }
}

class Protocols : public ::testing::TestWithParam<const char*> {};

TEST_P(Protocols, LeaveNoByteWrong) {
  const ChildEnd end =
      runChild("RandomDeviceCalls.DISABLED_LeaveNoByteWrong", {{"GMAC_PROTOCOL", GetParam()}});
  EXPECT_EQ(end.exitStatus, 0) << end.output;
}
INSTANTIATE_TEST_SUITE_P(DeviceCalls, Protocols, ::testing::Values("batch", "lazy", "rolling"));

}  // namespace
}  // namespace gmac::testing
