// SPDX-License-Identifier: Apache-2.0
//
// A managed-memory program on several devices and in several contexts: the whole runtime with the
// interposer linked in, over the fake driver. Its kernels reach what their device has been given
// access to, and it runs work only when it must, so that what nothing orders runs in the wrong
// order. Needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/coherence/port.h"
#include "gmac/observe/stats.h"
#include "tests/cuda/fake_contexts.h"
#include "tests/cuda/fake_program.h"
#include "tests/support/child.h"

namespace gmac::interpose {
namespace {

using ::testing::HasSubstr;

using fake_cuda::begin;
using fake_cuda::Context;
using fake_cuda::CurrentContext;
using fake_cuda::driver;

constexpr int kDevices = 3;
const bool kPrepared = [] {
  setenv("GMAC_MANAGED", "1", 0);
  fake_cuda::prepare();
  fake_cuda::setDevices(kDevices);
  return true;
}();

constexpr std::size_t kCount = 100'000;
constexpr std::size_t kBytes = kCount * sizeof(std::uint32_t);

class SeveralDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int device = 0; device < kDevices; ++device) {
      ASSERT_NO_FATAL_FAILURE(begin(&devices_[static_cast<std::size_t>(device)], device));
    }
    ASSERT_EQ(DRIVER(cuCtxPushCurrent)(devices_[0].context), CUDA_SUCCESS);
    data_ = allocate();
  }
  void TearDown() override {
    if (data_ != nullptr) {
      EXPECT_EQ(DRIVER(cuMemFree)(number(data_)), CUDA_SUCCESS);
    }
    CUcontext popped = nullptr;
    EXPECT_EQ(DRIVER(cuCtxPopCurrent)(&popped), CUDA_SUCCESS);
  }
  static CUdeviceptr number(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }
  // Each element is its index.
  static std::uint32_t* allocate() {
    CUdeviceptr address = 0;
    EXPECT_EQ(DRIVER(cuMemAllocManaged)(&address, kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS)
        << adsmLastErrorString();
    auto* const data = reinterpret_cast<std::uint32_t*>(address);
    std::iota(data, data + kCount, 0);
    return data;
  }
  static CUresult launch(const Context& on, CUstream stream, std::uint32_t* data) {
    const CurrentContext current(on);
    std::uint64_t count = kCount;
    void* args[] = {&data, &count};
    return DRIVER(cuLaunchKernel)(on.increment, kCount / 100, 1, 1, 100, 1, 1, 0, stream, args,
                                  nullptr);
  }
  void launch(std::size_t device) {
    const Context& on = devices_[device];
    ASSERT_EQ(launch(on, on.stream, data_), CUDA_SUCCESS) << adsmLastErrorString();
  }
  static void expectMore(const std::uint32_t* data, std::uint32_t more) {
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(data[i], i + more) << i;
  }
  void expectMore(std::uint32_t more) const { expectMore(data_, more); }

  std::array<Context, kDevices> devices_;
  std::uint32_t* data_ = nullptr;
};

TEST_F(SeveralDevices, KernelsOfEachReachManagedMemory) {
  launch(1);
  expectMore(1);
  launch(0);
  expectMore(2);
  data_[7] += 100;
  launch(2);
  EXPECT_EQ(data_[7], 7U + 103);
  data_[7] -= 100;
  expectMore(3);
}

TEST_F(SeveralDevices, MemoryAllocatedLaterIsReachedAsWell) {
  launch(1);
  std::uint32_t* const later = allocate();
  ASSERT_EQ(launch(devices_[1], devices_[1].stream, later), CUDA_SUCCESS);
  expectMore(later, 1);
  EXPECT_EQ(DRIVER(cuMemFree)(number(later)), CUDA_SUCCESS);
}

// An object of few bytes shares a region with others.
TEST_F(SeveralDevices, SmallObjectsAreReachedAsWell) {
  CUdeviceptr address = 0;
  ASSERT_EQ(DRIVER(cuMemAllocManaged)(&address, 64, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  auto* small = reinterpret_cast<std::uint32_t*>(address);
  small[3] = 30;
  std::uint64_t count = 16;
  void* args[] = {&small, &count};
  {
    const CurrentContext current(devices_[1]);
    ASSERT_EQ(DRIVER(cuLaunchKernel)(devices_[1].increment, 1, 1, 1, 16, 1, 1, 0,
                                     devices_[1].stream, args, nullptr),
              CUDA_SUCCESS);
  }
  EXPECT_EQ(small[3], 31U);
  EXPECT_EQ(DRIVER(cuMemFree)(address), CUDA_SUCCESS);
}

// A launch that waited for a kernel of the stalled stream would wait for ever.
TEST_F(SeveralDevices, NoLaunchWaitsForAKernel) {
  launch(1);
  expectMore(1);
  fake_cuda::stall(devices_[1].stream);
  for (std::size_t round = 0; round < 9; ++round) launch(round % kDevices);
  fake_cuda::stall(nullptr);
  expectMore(10);
}

TEST_F(SeveralDevices, TheDefaultStreamsOfTwoContextsAreTwo) {
  for (CUstream const stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    std::iota(data_, data_ + kCount, 0);
    ASSERT_EQ(launch(devices_[0], stream, data_), CUDA_SUCCESS);
    ASSERT_EQ(launch(devices_[1], stream, data_), CUDA_SUCCESS);
    ASSERT_EQ(launch(devices_[0], stream, data_), CUDA_SUCCESS);
    expectMore(3);
  }
}

TEST_F(SeveralDevices, AStreamBelongsToItsContextWhateverTheThreadsContext) {
  std::vector<std::uint32_t> seen(kCount);
  data_[5] = 50;
  // The thread's context is the first device's.
  ASSERT_EQ(DRIVER(cuMemcpyDtoHAsync)(seen.data(), number(data_), kBytes, devices_[1].stream),
            CUDA_SUCCESS)
      << adsmLastErrorString();
  data_[5] = 51;
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(devices_[1].stream), CUDA_SUCCESS);
  EXPECT_EQ(seen[5], 50U) << "a write waits for the copy that reads before it";
  const CurrentContext current(devices_[1]);
  ASSERT_EQ(DRIVER(cuMemcpyHtoDAsync)(number(data_), seen.data(), kBytes, devices_[0].stream),
            CUDA_SUCCESS)
      << adsmLastErrorString();
  EXPECT_EQ(data_[5], 50U);
}

// The bytes that the CPU reads after each wait are copied before it, on the stream of the kernel,
// wherever the memory lies. (Of less memory there would be one copy.)
TEST_F(SeveralDevices, ASmallResultComesBackFromTheStreamOfAnyContext) {
  constexpr std::size_t kTable = std::size_t{4} << 20;
  constexpr unsigned kFew = 100;
  CUdeviceptr table = 0;
  ASSERT_EQ(DRIVER(cuMemAllocManaged)(&table, kTable, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  auto* result = reinterpret_cast<std::uint32_t*>(table);
  std::uint32_t value = result[70] = 70;
  const auto lookAfter = [&](const Context& on, const std::function<CUresult()>& wait) {
    const auto look = [&] {
      std::uint64_t count = kFew;
      void* args[] = {&result, &count};
      ASSERT_EQ(
          DRIVER(cuLaunchKernel)(on.increment, 1, 1, 1, kFew, 1, 1, 0, on.stream, args, nullptr),
          CUDA_SUCCESS);
      ASSERT_EQ(wait(), CUDA_SUCCESS);
      ASSERT_EQ(result[70], ++value);
    };
    const std::uint64_t copies = stats().readBacks.value();
    for (int i = 0; i < 20; ++i) look();
    EXPECT_GE(stats().readBacks.value() - copies, 10U);
  };
  for (int home : {0, 1}) {
    ASSERT_EQ((driver<CUresult(CUdeviceptr, std::size_t, CUmem_advise, CUmemLocation)>(
                  "cuMemAdvise")(table, kTable, CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
                                 {CU_MEM_LOCATION_TYPE_DEVICE, home})),
              CUDA_SUCCESS);
    for (const Context& on : devices_) {
      SCOPED_TRACE(home);
      const CurrentContext current(on);
      lookAfter(on, [&] { return DRIVER(cuStreamSynchronize)(on.stream); });
      lookAfter(on, [] { return DRIVER(cuCtxSynchronize)(); });
    }
  }
  EXPECT_EQ(DRIVER(cuMemFree)(table), CUDA_SUCCESS);
}

TEST_F(SeveralDevices, AnyOfThemAllocates) {
  const CurrentContext current(devices_[2]);
  std::uint32_t* const own = allocate();
  ASSERT_EQ(launch(devices_[2], devices_[2].stream, own), CUDA_SUCCESS);
  ASSERT_EQ(launch(devices_[0], devices_[0].stream, own), CUDA_SUCCESS);
  expectMore(own, 2);
  EXPECT_EQ(DRIVER(cuMemFree)(number(own)), CUDA_SUCCESS);
}

TEST_F(SeveralDevices, OneThreadADeviceWorksOnItsOwnObject) {
  std::array<std::uint32_t*, kDevices> own{};
  for (auto& one : own) one = allocate();
  std::vector<std::thread> threads;
  for (std::size_t device = 0; device < kDevices; ++device) {
    threads.emplace_back([this, device, data = own[device]] {
      const CurrentContext current(devices_[device]);
      for (int round = 0; round < 20; ++round) {
        ASSERT_EQ(launch(devices_[device], CU_STREAM_PER_THREAD, data), CUDA_SUCCESS);
        data[0] += 1000;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::uint32_t* const one : own) {
    EXPECT_EQ(one[0], 20'020U);
    one[0] = 20;
    expectMore(one, 20);
    EXPECT_EQ(DRIVER(cuMemFree)(number(one)), CUDA_SUCCESS);
  }
}

TEST_F(SeveralDevices, AResetOfAnotherDeviceLeavesObjectsAlone) {
  launch(1);
  data_[3] += 10;
  launch(1);
  ASSERT_EQ(driver<CUresult(CUdevice)>("cuDevicePrimaryCtxReset", 7000)(1), CUDA_SUCCESS);
  EXPECT_EQ(data_[3], 3U + 12);
  data_[3] -= 10;
  expectMore(2);
  launch(0);
  expectMore(3);
  ASSERT_NO_FATAL_FAILURE(begin(&devices_[1], 1));
  launch(1);
  expectMore(4);
}

TEST_F(SeveralDevices, TheLastReleaseOfAPrimaryContextIsAnEndToo) {
  launch(1);
  ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRelease)(1), CUDA_SUCCESS);
  expectMore(1);
  launch(1);
  expectMore(2);
}

// More contexts at a time than have a ring of events: the runtime waits for those.
TEST_F(SeveralDevices, ContextsComeAndGo) {
  for (const int atATime : {1, 40}) {
    std::vector<Context> some(static_cast<std::size_t>(atATime));
    std::iota(data_, data_ + kCount, 0);
    std::uint32_t launches = 0;
    for (int round = 0; round < 80 / atATime; ++round) {
      for (std::size_t i = 0; i < some.size(); ++i) {
        ASSERT_EQ(DRIVER(cuCtxCreate)(&some[i].context, nullptr, 0, static_cast<int>(i) % kDevices),
                  CUDA_SUCCESS);
        begin(&some[i]);
        ASSERT_EQ(launch(some[i], some[i].stream, data_), CUDA_SUCCESS) << adsmLastErrorString();
        ++launches;
      }
      for (Context& one : some) {
        ASSERT_EQ(DRIVER(cuCtxDestroy)(one.context), CUDA_SUCCESS);
      }
    }
    expectMore(launches);
  }
}

TEST_F(SeveralDevices, AFailedStartInAContextLosesNothing) {
  Context one;
  ASSERT_EQ(DRIVER(cuCtxCreate)(&one.context, nullptr, 0, 1), CUDA_SUCCESS);
  begin(&one);
  // (The object moves there first, for which the device is opened, if it can be.)
  fake_cuda::failAlways("cuEventCreate", CUDA_ERROR_UNKNOWN);
  EXPECT_NE(launch(one, one.stream, data_), CUDA_SUCCESS);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("cuEventCreate"));
  fake_cuda::failNth("cuEventCreate", 0, CUDA_SUCCESS);
  expectMore(0);
  ASSERT_EQ(launch(one, one.stream, data_), CUDA_SUCCESS) << adsmLastErrorString();
  expectMore(1);
  ASSERT_EQ(DRIVER(cuCtxDestroy)(one.context), CUDA_SUCCESS);
}

// The first work of a device, which earlier tests have done in their process.
TEST_F(SeveralDevices, DISABLED_AreNotGivenAccess) {
  fake_cuda::failNext("cuMemSetAccess", CUDA_ERROR_UNKNOWN);
  std::vector<std::uint32_t> seen(kCount);
  EXPECT_NE(DRIVER(cuMemcpyDtoHAsync)(seen.data(), number(data_), kBytes, devices_[1].stream),
            CUDA_SUCCESS);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("cuMemSetAccess"));
  expectMore(0);
  launch(0);
  launch(1);
  expectMore(2);
}

TEST(DevicesThat, AreNotGivenAccessAreGivenItTheNextTime) {
  const testing::ChildEnd end = testing::runChild("SeveralDevices.DISABLED_AreNotGivenAccess", {});
  EXPECT_EQ(end.exitStatus, 0) << end.output;
}

// ---- Where memory lies

class Placed : public SeveralDevices {
 protected:
  static constexpr std::size_t kWords = std::size_t{2} << 20;  // four pages of the device's
  static constexpr std::size_t kHalf = kWords / 2;

  void SetUp() override {
    SeveralDevices::SetUp();
    for (std::size_t device = 0; device < kDevices; ++device) launch(device);
    quiet();
    CUdeviceptr address = 0;
    ASSERT_EQ(DRIVER(cuMemAllocManaged)(&address, kWords * 4, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    words_ = reinterpret_cast<std::uint32_t*>(address);
    std::iota(words_, words_ + kWords, 0);
  }
  void TearDown() override {
    EXPECT_EQ(DRIVER(cuMemFree)(number(words_)), CUDA_SUCCESS);
    SeveralDevices::TearDown();
  }
  // The application has waited for everything.
  void quiet() const {
    for (const Context& one : devices_) {
      const CurrentContext current(one);
      ASSERT_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS);
    }
  }
  static int deviceOf(const std::uint32_t* word) {
    int device = -1;
    EXPECT_EQ(
        DRIVER(cuPointerGetAttribute)(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, number(word)),
        CUDA_SUCCESS);
    return device;
  }
  static std::size_t freeOn(const Context& one) {
    const CurrentContext current(one);
    std::size_t available = 0;
    std::size_t total = 0;
    EXPECT_EQ(DRIVER(cuMemGetInfo)(&available, &total), CUDA_SUCCESS);
    return available;
  }
  CUresult prefetch(const std::uint32_t* first, std::size_t words, int device) const {
    return driver<CUresult(CUdeviceptr, std::size_t, CUmemLocation, unsigned, CUstream)>(
        "cuMemPrefetchAsync")(number(first), words * 4, {CU_MEM_LOCATION_TYPE_DEVICE, device}, 0,
                              devices_[0].stream);
  }
  // Every device adds one to all words.
  void launchOnAll() {
    for (const Context& on : devices_) {
      const CurrentContext current(on);
      std::uint64_t count = kWords;
      void* args[] = {&words_, &count};
      ASSERT_EQ(DRIVER(cuLaunchKernel)(on.increment, 1, 1, 1, 1, 1, 1, 0, on.stream, args, nullptr),
                CUDA_SUCCESS);
    }
  }
  void expectWords(std::uint32_t more) const {
    for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(words_[i], i + more) << i;
  }

  std::uint32_t* words_ = nullptr;
};

TEST_F(Placed, MemoryLiesOnTheDeviceOfTheThreadThatAllocates) {
  EXPECT_EQ(deviceOf(words_), 0);
  const CurrentContext current(devices_[2]);
  std::uint32_t* const own = allocate();
  EXPECT_EQ(deviceOf(own), 2);
  ASSERT_EQ(DRIVER(cuMemFree)(number(own)), CUDA_SUCCESS);
  const CurrentContext other(devices_[1]);
  std::uint32_t* const next = allocate();
  EXPECT_EQ(deviceOf(next), 1) << "what is kept of the freed one lies elsewhere";
  EXPECT_EQ(DRIVER(cuMemFree)(number(next)), CUDA_SUCCESS);
}

TEST_F(Placed, APrefetchMovesItsPagesAndNoOthers) {
  ASSERT_EQ(prefetch(words_ + kHalf, kHalf, 1), CUDA_SUCCESS);
  EXPECT_EQ(deviceOf(words_), 0);
  EXPECT_EQ(deviceOf(words_ + kHalf - 1), 0);
  EXPECT_EQ(deviceOf(words_ + kHalf), 1);
  EXPECT_EQ(deviceOf(words_ + kWords - 1), 1);
  expectWords(0);
  launchOnAll();
  expectWords(3);
  quiet();
  // A page goes to the device that has its first byte.
  ASSERT_EQ(prefetch(words_ + 5, kWords - 5, 2), CUDA_SUCCESS);
  EXPECT_EQ(deviceOf(words_), 0);
  EXPECT_EQ(deviceOf(words_ + kHalf), 2);
  launchOnAll();
  expectWords(6);
  quiet();
  const std::size_t made = fake_cuda::calls("cuMemCreate");
  ASSERT_EQ(prefetch(words_ + kHalf, kHalf, 2), CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda::calls("cuMemCreate"), made) << "they lie there already";
}

TEST_F(Placed, AdviceMovesPagesToo) {
  ASSERT_EQ((driver<CUresult(CUdeviceptr, std::size_t, CUmem_advise, CUmemLocation)>("cuMemAdvise")(
                number(words_), kWords * 4, CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
                {CU_MEM_LOCATION_TYPE_DEVICE, 1})),
            CUDA_SUCCESS);
  EXPECT_EQ(deviceOf(words_), 1);
  launchOnAll();
  expectWords(3);
}

// A word that the CPU and the kernels of one device change in turn has one copy before long, which
// all devices use; memory that the program sends to a device leaves it for good.
TEST_F(Placed, AWordThatADeviceAndTheCpuPassToAndFroHasOneCopy) {
#if GMAC_WALK
  GTEST_SKIP() << "the policy goes by the times of rounds, most of which the walker takes";
#endif
  constexpr std::size_t kSome = std::size_t{64} << 10;
  const auto advise =
      driver<CUresult(CUdeviceptr, std::size_t, CUmem_advise, CUmemLocation)>("cuMemAdvise");
  for (std::size_t home = 0; home < devices_.size(); ++home) {
    SCOPED_TRACE(home);
    const Context& on = devices_[home];
    CUdeviceptr address = 0;
    {
      const CurrentContext current(on);
      ASSERT_EQ(DRIVER(cuMemAllocManaged)(&address, kSome, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    }
    auto* words = reinterpret_cast<std::uint32_t*>(address);
    words[9] = 0;
    std::uint32_t value = 0;
    const auto round = [&](const Context& user) {
      const CurrentContext current(user);
      words[9] += 1;
      std::uint64_t count = 10;
      void* args[] = {&words, &count};
      ASSERT_EQ(
          DRIVER(cuLaunchKernel)(user.increment, 1, 1, 1, 10, 1, 1, 0, user.stream, args, nullptr),
          CUDA_SUCCESS);
      ASSERT_EQ(DRIVER(cuStreamSynchronize)(user.stream), CUDA_SUCCESS);
      value += 2;
      ASSERT_EQ(words[9], value);
    };
    // The policy goes by the times of rounds, so that what else the machine does may end a try.
    const auto hasOneCopy = [] {
      return stats().zeroCopies.value() == stats().zeroCopiesEnded.value() + 1;
    };
    ASSERT_FALSE(hasOneCopy());
    bool stayed = false;
    for (int tries = 0; tries < 20 && !stayed; ++tries) {
      for (int i = 0; i < 1000 && !hasOneCopy(); ++i) round(on);
      for (const Context& user : devices_) round(user);
      stayed = hasOneCopy();
    }
    ASSERT_TRUE(stayed);
    const std::uint64_t begun = stats().zeroCopies.value();
    const std::uint64_t ended = stats().zeroCopiesEnded.value();
    const std::uint64_t migrations = stats().migrations.value();
    ASSERT_EQ(advise(address, kSome, CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
                     {CU_MEM_LOCATION_TYPE_DEVICE, static_cast<int>(home)}),
              CUDA_SUCCESS);
    // (Before the word would be checked by itself.)
    for (int i = 0; i < 20; ++i) round(on);
    EXPECT_EQ(stats().zeroCopiesEnded.value(), ended + 1);
    EXPECT_EQ(stats().zeroCopies.value(), begun);
    EXPECT_EQ(deviceOf(words), static_cast<int>(home));
    EXPECT_EQ(stats().migrations.value(), migrations) << "it came back there";
    EXPECT_EQ(DRIVER(cuMemFree)(address), CUDA_SUCCESS);
  }
}

// So has a page of a large allocation in which they do that.
class PlacedPages : public Placed {
 protected:
  static constexpr std::size_t kPage = kWords / 4;

  void SetUp() override {
    Placed::SetUp();
#if GMAC_WALK
    GTEST_SKIP() << "the policy goes by the times of rounds, most of which the walker takes";
#endif
  }
  // Each word is its index.
  void allocateOn(std::size_t device) {
    const CurrentContext current(devices_[device]);
    CUdeviceptr address = 0;
    ASSERT_EQ(DRIVER(cuMemAllocManaged)(&address, kWords * 4, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    pool_ = reinterpret_cast<std::uint32_t*>(address);
    std::iota(pool_, pool_ + kWords, 0);
    more_ = 0;
  }
  void release() { ASSERT_EQ(DRIVER(cuMemFree)(number(pool_)), CUDA_SUCCESS); }
  // A device and the CPU add one to the first word of a page.
  void round(std::size_t device, std::size_t page) {
    const Context& on = devices_[device];
    const CurrentContext current(on);
    std::uint32_t* word = pool_ + page;
    std::uint64_t count = 1;
    void* args[] = {&word, &count};
    ASSERT_EQ(DRIVER(cuLaunchKernel)(on.increment, 1, 1, 1, 1, 1, 1, 0, on.stream, args, nullptr),
              CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(on.stream), CUDA_SUCCESS);
    ASSERT_EQ(*word, page + more_ + 1);
    *word += 1;
    more_ += 2;
  }
  void rounds(int count, std::size_t device, std::size_t page) {
    for (int i = 0; i < count; ++i) ASSERT_NO_FATAL_FAILURE(round(device, page));
  }
  // Until it has one copy. (The policy goes by the times of rounds.)
  void heat(std::size_t device, std::size_t page) {
    const std::uint64_t before = begun();
    for (int i = 0; i < 100'000 && begun() == before; ++i) {
      ASSERT_NO_FATAL_FAILURE(round(device, page));
    }
    ASSERT_EQ(begun(), before + 1);
  }
  static std::uint64_t begun() { return stats().zeroCopies.value(); }
  static std::uint64_t ended() { return stats().zeroCopiesEnded.value(); }

  std::uint32_t* pool_ = nullptr;
  std::uint32_t more_ = 0;
};

TEST_F(PlacedPages, HaveOneCopyUntilTheProgramSendsThemToAnotherDevice) {
  for (std::size_t home = 0; home < devices_.size(); ++home) {
    SCOPED_TRACE(home);
    ASSERT_NO_FATAL_FAILURE(allocateOn(home));
    ASSERT_NO_FATAL_FAILURE(heat(home, 0));
    EXPECT_EQ(deviceOf(pool_ + kPage), static_cast<int>(home));
    for (std::size_t device = 0; device < devices_.size(); ++device) {
      ASSERT_NO_FATAL_FAILURE(round(device, 0));
    }
    // A prefetch to where the rest lies chooses nothing.
    const std::uint64_t before = ended();
    quiet();
    ASSERT_EQ(prefetch(pool_, kWords, static_cast<int>(home)), CUDA_SUCCESS);
    ASSERT_NO_FATAL_FAILURE(rounds(8, home, 0));
    EXPECT_EQ(ended(), before);
    // One to another device takes the page along, once no work is in flight.
    const auto other = static_cast<int>((home + 1) % devices_.size());
    ASSERT_EQ(prefetch(pool_, kWords, other), CUDA_SUCCESS);
    quiet();
    ASSERT_NO_FATAL_FAILURE(rounds(8, home, 0));
    EXPECT_EQ(ended(), before + 1);
    for (std::size_t page = 0; page < kWords; page += kPage) {
      EXPECT_EQ(deviceOf(pool_ + page), other) << page;
    }
    const std::uint64_t after = begun();
    ASSERT_NO_FATAL_FAILURE(rounds(2000, home, 0));
    EXPECT_EQ(begun(), after) << "the program has chosen";
    for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(pool_[i], i + (i == 0 ? more_ : 0)) << i;
    ASSERT_NO_FATAL_FAILURE(release());
  }
}

TEST_F(PlacedPages, GoToADeviceAlone) {
  ASSERT_NO_FATAL_FAILURE(allocateOn(2));
  ASSERT_NO_FATAL_FAILURE(heat(2, 0));
  const std::uint64_t before = ended();
  ASSERT_EQ(prefetch(pool_, kPage, 1), CUDA_SUCCESS);
  quiet();
  ASSERT_NO_FATAL_FAILURE(rounds(8, 2, 0));
  EXPECT_EQ(ended(), before + 1);
  EXPECT_EQ(deviceOf(pool_), 1);
  EXPECT_EQ(deviceOf(pool_ + kPage), 2);
  ASSERT_NO_FATAL_FAILURE(release());
}

// Pages that the CPU comes for no more, while others have gone elsewhere.
TEST_F(PlacedPages, ComeBackToWhereTheirObjectIsAtHome) {
  for (const std::size_t page : {std::size_t{0}, kPage}) {
    SCOPED_TRACE(page);
    ASSERT_NO_FATAL_FAILURE(allocateOn(2));
    ASSERT_NO_FATAL_FAILURE(heat(2, page));
    const std::uint64_t before = ended();
    ASSERT_EQ(prefetch(pool_ + kHalf, kHalf, 1), CUDA_SUCCESS);
    EXPECT_EQ(deviceOf(pool_ + kHalf), 1);
    const CurrentContext current(devices_[2]);
    std::uint32_t* word = pool_ + kHalf;
    for (int i = 0; i < 100'000 && ended() == before; ++i) {
      std::uint64_t count = 1;
      void* args[] = {&word, &count};
      ASSERT_EQ(DRIVER(cuLaunchKernel)(devices_[2].increment, 1, 1, 1, 1, 1, 1, 0,
                                       devices_[2].stream, args, nullptr),
                CUDA_SUCCESS);
      ASSERT_EQ(DRIVER(cuStreamSynchronize)(devices_[2].stream), CUDA_SUCCESS);
    }
    EXPECT_EQ(ended(), before + 1);
    EXPECT_EQ(deviceOf(pool_ + page), 2);
    EXPECT_EQ(pool_[page], page + more_);
    ASSERT_NO_FATAL_FAILURE(release());
  }
}

// One that is freed with its allocation leaves nothing behind, and the next one is on the device.
TEST_F(PlacedPages, AreOfTheirDeviceWhenTheyAreFreed) {
  for (std::size_t home = 0; home < devices_.size(); ++home) {
    SCOPED_TRACE(home);
    std::size_t left = 0;
    for (int i = 0; i < 4; ++i) {
      ASSERT_NO_FATAL_FAILURE(allocateOn(home));
      for (std::size_t page = 0; page < kWords; page += kPage) {
        EXPECT_EQ(deviceOf(pool_ + page), static_cast<int>(home)) << page;
      }
      ASSERT_NO_FATAL_FAILURE(heat(home, 2 * kPage));
      ASSERT_NO_FATAL_FAILURE(release());
      if (i > 0) {
        EXPECT_EQ(freeOn(devices_[home]), left);
      }
      left = freeOn(devices_[home]);
    }
  }
}

// A kernel in flight may use the memory, and may wait for what the program does next.
TEST_F(Placed, NothingMovesUnderAKernel) {
  fake_cuda::stall(devices_[2].stream);
  launch(2);
  ASSERT_EQ(prefetch(words_, kWords, 1), CUDA_SUCCESS);
  EXPECT_EQ(deviceOf(words_), 0);
  fake_cuda::stall(nullptr);
  quiet();
  EXPECT_EQ(deviceOf(words_), 1) << "the wish was kept";
  launchOnAll();
  expectWords(3);
}

TEST_F(Placed, TheFirstKernelThatNamesAnObjectHasItsPages) {
  const auto launchOn = [&](std::size_t device) {
    const Context& on = devices_[device];
    const CurrentContext current(on);
    std::uint64_t count = kWords;
    void* args[] = {&words_, &count};
    ASSERT_EQ(DRIVER(cuLaunchKernel)(on.increment, 1, 1, 1, 1, 1, 1, 0, on.stream, args, nullptr),
              CUDA_SUCCESS);
    quiet();
  };
  launchOn(1);
  EXPECT_EQ(deviceOf(words_), 1);
  launchOn(2);
  EXPECT_EQ(deviceOf(words_), 1);
  expectWords(2);
}

TEST_F(Placed, AnObjectFollowsTheDeviceWhoseKernelsAloneNameItForLong) {
  const auto launchOn = [&](std::size_t device) {
    ASSERT_EQ(launch(devices_[device], devices_[device].stream, words_), CUDA_SUCCESS);
    quiet();
  };
  launchOn(0);
  launchOn(1);
  EXPECT_EQ(deviceOf(words_), 0);
  std::uint32_t launches = 2;
  for (const int device : {1, 2, 0}) {
    for (int i = 0; i < 1'000'000 && deviceOf(words_) != device; ++i, ++launches)
      launchOn(static_cast<std::size_t>(device));
    ASSERT_EQ(deviceOf(words_), device);
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(words_[i], i + launches) << i;
    for (std::size_t i = kCount; i < kWords; i += 1000) ASSERT_EQ(words_[i], i);
  }
}

TEST_F(Placed, AnObjectThatSeveralNameOrThatIsPlacedStays) {
  const auto launchOn = [&](std::size_t device) {
    ASSERT_EQ(launch(devices_[device], devices_[device].stream, words_), CUDA_SUCCESS);
    quiet();
  };
  // More than enough, as the test before shows; a move takes a millisecond.
  constexpr int kMany = 400;
  launchOn(0);
  for (int i = 0; i < kMany; ++i) launchOn(1 + static_cast<std::size_t>(i) % 2);
  for (int i = 0; i < kMany; ++i) launchOn(i % 10 == 9 ? 0 : 1);
  EXPECT_EQ(deviceOf(words_), 0);
  ASSERT_EQ(prefetch(words_, kWords, 2), CUDA_SUCCESS);
  quiet();
  for (int i = 0; i < kMany; ++i) launchOn(1);
  EXPECT_EQ(deviceOf(words_), 2);
}

TEST_F(Placed, AMoveThatFailsLosesNothing) {
  for (const char* const call : {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess",
                                 "cuMemcpyDtoDAsync", "cuMemUnmap"}) {
    SCOPED_TRACE(call);
    std::iota(words_, words_ + kWords, 0);
    fake_cuda::failNext(
        (std::string(call) + (std::string(call) == "cuMemcpyDtoDAsync" ? "_v2" : "")).c_str(),
        CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(prefetch(words_ + kHalf, kHalf, 1), CUDA_SUCCESS) << "a hint";
    launchOnAll();
    expectWords(3);
    quiet();
    ASSERT_EQ(prefetch(words_ + kHalf, kHalf, 1), CUDA_SUCCESS);
    EXPECT_EQ(deviceOf(words_ + kHalf), 1);
    ASSERT_EQ(prefetch(words_, kWords, 0), CUDA_SUCCESS);
    EXPECT_EQ(deviceOf(words_ + kHalf), 0);
  }
}

// The bytes that lie beside the object while it moves are a part of it.
TEST_F(Placed, ALargeObjectMovesInPieces) {
  constexpr std::size_t kLargeWords = std::size_t{40} << 20;  // 160 MiB
  constexpr std::size_t kStride = std::size_t{1} << 18;
  CUdeviceptr address = 0;
  ASSERT_EQ(DRIVER(cuMemAllocManaged)(&address, kLargeWords * 4, CU_MEM_ATTACH_GLOBAL),
            CUDA_SUCCESS);
  auto* const large = reinterpret_cast<std::uint32_t*>(address);
  for (std::size_t i = 0; i < kLargeWords; i += kStride) large[i] = static_cast<std::uint32_t>(i);
  const std::size_t made = fake_cuda::calls("cuMemCreate");
  ASSERT_EQ(prefetch(large, kLargeWords, 1), CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda::calls("cuMemCreate"), made + 2 + 2) << "margins at both ends stay behind";
  for (std::size_t i = 0; i < kLargeWords; i += kStride) {
    ASSERT_EQ(deviceOf(large + i), 1) << i;
    ASSERT_EQ(large[i], i);
  }
  EXPECT_EQ(DRIVER(cuMemFree)(address), CUDA_SUCCESS);
}

// Two pieces are on their way at a time: whatever fails, no byte and no memory is lost.
TEST_F(Placed, ALargeObjectWhoseMoveFailsAnywhereLosesNothing) {
  constexpr std::size_t kLargeWords = std::size_t{36} << 20;  // 144 MiB: two pieces
  constexpr std::size_t kStride = std::size_t{1} << 18;
  CUdeviceptr address = 0;
  ASSERT_EQ(DRIVER(cuMemAllocManaged)(&address, kLargeWords * 4, CU_MEM_ATTACH_GLOBAL),
            CUDA_SUCCESS);
  auto* const large = reinterpret_cast<std::uint32_t*>(address);
  for (std::size_t i = 0; i < kLargeWords; i += kStride) large[i] = static_cast<std::uint32_t>(i);
  int to = 1;
  const auto move = [&] { return prefetch(large, kLargeWords, std::exchange(to, 1 - to)); };
  const auto freeMemory = [&] { return freeOn(devices_[0]) + freeOn(devices_[1]); };
  const std::size_t before = freeMemory();
  for (const char* const call : {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess",
                                 "cuMemcpyDtoDAsync_v2", "cuEventRecord", "cuMemUnmap"}) {
    for (std::size_t n = 1; n <= 6; ++n) {
      SCOPED_TRACE(std::string(call) + " " + std::to_string(n));
      fake_cuda::failNth(call, n, CUDA_ERROR_OUT_OF_MEMORY);
      EXPECT_EQ(move(), CUDA_SUCCESS) << "a hint";
      fake_cuda::failNth(call, 0, CUDA_SUCCESS);
      for (std::size_t i = 0; i < kLargeWords; i += kStride) ASSERT_EQ(large[i], i);
      // (What cannot be unmapped stays.)
      if (std::string_view(call) != "cuMemUnmap") {
        EXPECT_EQ(freeMemory(), before);
      }
    }
  }
  ASSERT_EQ(move(), CUDA_SUCCESS);
  for (std::size_t i = 0; i < kLargeWords; i += kStride) {
    ASSERT_EQ(deviceOf(large + i), 1 - to);
    ASSERT_EQ(large[i], i);
  }
  EXPECT_EQ(DRIVER(cuMemFree)(address), CUDA_SUCCESS);
}

TEST_F(Placed, ChurnLeavesNoByteWrongAndNoMemoryBehind) {
  const auto freeMemory = [&] {
    std::vector<std::size_t> all;
    for (const Context& one : devices_) all.push_back(freeOn(one));
    return all;
  };
  std::uint32_t random = 12345;
  const auto below = [&random](std::size_t bound) {
    random = random * 1664525 + 1013904223;
    return (random >> 8) % bound;
  };
  std::vector<std::size_t> before;
  for (int round = 0; round < 120; ++round) {
    std::iota(words_, words_ + kWords, 0);
    std::uint32_t launches = 0;
    for (int step = 0; step < 4; ++step) {
      const std::size_t first = below(kWords);
      ASSERT_EQ(
          prefetch(words_ + first, 1 + below(kWords - first), static_cast<int>(below(kDevices))),
          CUDA_SUCCESS);
      if (below(2) == 0) {
        launchOnAll();
        launches += kDevices;
      }
      if (below(2) == 0) quiet();
    }
    for (std::size_t i = below(1000); i < kWords; i += 997) ASSERT_EQ(words_[i], i + launches) << i;
    quiet();
    ASSERT_EQ(DRIVER(cuMemFree)(number(words_)), CUDA_SUCCESS);
    CUdeviceptr address = 0;
    const CurrentContext current(devices_[below(kDevices)]);
    ASSERT_EQ(DRIVER(cuMemAllocManaged)(&address, kWords * 4, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    words_ = reinterpret_cast<std::uint32_t*>(address);
    if (round == 20) before = freeMemory();
  }
  const std::vector<std::size_t> after = freeMemory();
  // Which device the living object lies on differs.
  constexpr std::size_t kSlack = std::size_t{64} << 20;
  for (std::size_t device = 0; device < kDevices; ++device)
    EXPECT_GE(after[device] + kSlack, before[device]) << device;
}

}  // namespace
}  // namespace gmac::interpose
