// SPDX-License-Identifier: Apache-2.0
//
// Packs between device memories on the application's streams and the runtime's: the same call again
// and again, and after every event that gives the same call another meaning. Over the fake driver,
// which runs the pack kernels' host implementations. Needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/api/adsm_datatype.h"
#include "gmac/datatype/engine/lent_bytes.h"
#include "gmac/observe/stats.h"
#include "tests/cuda/fake_pack_kernels.h"
#include "tests/cuda/fake_program.h"

namespace gmac {
namespace {

using ::testing::HasSubstr;

const bool kPrepared = fake_cuda::prepare();

constexpr std::size_t kBytes = std::size_t{2} << 20;
constexpr std::int64_t kRows = 100;
constexpr std::int64_t kStride = 3;  // words of 8 bytes

class PackCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::standIn(&fake_cuda::packImage());
    begin();
    ASSERT_EQ(adsmTypeVector(kRows, 1, kStride, ADSM_TYPE_8, &type_), adsmSuccess);
    ASSERT_EQ(adsmTypeCommit(type_), adsmSuccess);
    options_.size = sizeof options_;
    options_.report = &report_;
    options_.stream = stream_;
  }
  void TearDown() override {
    wait();  // A pack that a test has not waited for would run in the next one, on freed memory.
    EXPECT_EQ(DRIVER(cuMemFree)(source_), CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuMemFree)(target_), CUDA_SUCCESS);
    EXPECT_EQ(adsmTypeFree(type_), adsmSuccess);
    CUcontext popped = nullptr;
    EXPECT_EQ(DRIVER(cuCtxPopCurrent)(&popped), CUDA_SUCCESS);
    fake_cuda::standIn(nullptr);
  }
  void begin() {
    CUcontext context = nullptr;
    ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuCtxPushCurrent)(context), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuStreamCreate)(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuMemAlloc)(&source_, kBytes), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuMemAlloc)(&target_, kBytes), CUDA_SUCCESS);
  }
  static void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
  static std::uint64_t* words(CUdeviceptr address) {
    return reinterpret_cast<std::uint64_t*>(fake_cuda::backing(address));
  }
  // Word i of the source is i + seed, and the target's are all 7.
  void fill(std::uint64_t seed) const {
    for (std::uint64_t i = 0; i < kBytes / 8; ++i) {
      words(source_)[i] = i + seed;
      words(target_)[i] = 7;
    }
  }
  adsmError_t pack(CUdeviceptr target, CUdeviceptr source, std::int64_t count = 1) {
    return adsmPackWith(pointer(target), pointer(source), count, type_, &options_);
  }
  adsmError_t pack() { return pack(target_, source_); }
  static void wait() { ASSERT_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS); }
  // The target begins with rows [first, first + rows) of what fill(seed) has made; nothing more.
  void expectRows(CUdeviceptr target, std::uint64_t seed, std::uint64_t first, std::uint64_t rows) {
    wait();
    for (std::uint64_t i = 0; i < rows; ++i) {
      ASSERT_EQ(words(target)[i], (first + i) * kStride + seed) << i;
    }
    ASSERT_EQ(words(target)[rows], 7u);
  }
  // Twice, with other bytes: what is kept of the first serves the second.
  void expectPacks(std::uint64_t seed) {
    for (const std::uint64_t more : {0, 5}) {
      fill(seed + more);
      ASSERT_EQ(pack(), adsmSuccess) << adsmLastErrorString();
      EXPECT_EQ(report_.method, adsmMethodKernel);
      EXPECT_EQ(report_.bytes, kRows * 8);
      EXPECT_EQ(report_.launches, 1);
      EXPECT_EQ(report_.bytesAcross, 0);
      expectRows(target_, seed + more, 0, kRows);
    }
  }

  CUstream stream_ = nullptr;
  CUdeviceptr source_ = 0;
  CUdeviceptr target_ = 0;
  adsmType_t type_ = nullptr;
  adsmPackReport_t report_{};
  adsmPackOptions_t options_{};
};

TEST_F(PackCalls, TheSameAgainMovesTheBytesOfThen) {
  expectPacks(10);
  options_.stream = nullptr;
  expectPacks(20);
  options_.method = adsmMethodKernel;
  expectPacks(30);
}

TEST_F(PackCalls, StridedCopiesAreMadeAgainToo) {
  options_.method = adsmMethodCopy2d;
  for (const std::uint64_t seed : {10, 20, 30}) {
    fill(seed);
    ASSERT_EQ(pack(), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(report_.method, adsmMethodCopy2d);
    EXPECT_EQ(report_.launches, 1);
    expectRows(target_, seed, 0, kRows);
    words(target_)[1] = seed + 1000;
    ASSERT_EQ(adsmUnpackWith(pointer(source_), pointer(target_), 1, type_, &options_), adsmSuccess);
    wait();
    EXPECT_EQ(words(source_)[kStride], seed + 1000);
    EXPECT_EQ(words(source_)[1], seed + 1);
  }
  const std::size_t asked = fake_cuda::calls("cuPointerGetAttributes");
  const std::size_t copies = fake_cuda::calls("cuMemcpy3DAsync_v2");
  ASSERT_EQ(pack(), adsmSuccess);
  EXPECT_EQ(fake_cuda::calls("cuPointerGetAttributes"), asked + 2);
  EXPECT_EQ(fake_cuda::calls("cuMemcpy3DAsync_v2"), copies + 1);
  // From the same place, which is no memory of the device any more.
  ASSERT_EQ(DRIVER(cuMemFree)(source_), CUDA_SUCCESS);
  EXPECT_EQ(pack(), adsmErrorNotSupported);
  EXPECT_EQ(fake_cuda::calls("cuMemcpy3DAsync_v2"), copies + 1);
  ASSERT_EQ(DRIVER(cuMemAlloc)(&source_, kBytes), CUDA_SUCCESS);
}

// From device memory to device memory, on a stream and on the runtime's: one kernel.
TEST_F(PackCalls, ATransferIsOneKernelOnItsStream) {
  adsmType_t pairs = nullptr;
  ASSERT_EQ(adsmTypeVector(kRows / 2, 2, 5, ADSM_TYPE_8, &pairs), adsmSuccess);
  ASSERT_EQ(adsmTypeCommit(pairs), adsmSuccess);
  std::vector<std::int64_t> places(500);
  for (std::size_t i = 0; i < places.size(); ++i) {
    places[i] = static_cast<std::int64_t>(3 * i + i * i % 7 % 2);
  }
  adsmType_t listed = nullptr;
  ASSERT_EQ(adsmTypeIndexedBlock(500, 1, places.data(), ADSM_TYPE_8, &listed), adsmSuccess);
  ASSERT_EQ(adsmTypeCommit(listed), adsmSuccess);
  wait();  // for what the tests before have left on streams
  for (void* const stream : {static_cast<void*>(stream_), static_cast<void*>(nullptr)}) {
    options_.stream = stream;
    fill(40);
    ASSERT_EQ(adsmTransferWith(pointer(target_), 1, pairs, pointer(source_), 1, type_, &options_),
              adsmSuccess)
        << adsmLastErrorString();
    EXPECT_EQ(report_.method, adsmMethodKernel);
    EXPECT_EQ(report_.launches, 1);
    EXPECT_EQ(report_.bytesAcross, 0);
    wait();
    for (std::uint64_t i = 0; i < 5 * (kRows / 2 - 1) + 2; ++i) {
      const std::uint64_t row = i / 5 * 2 + i % 5;
      ASSERT_EQ(words(target_)[i], i % 5 < 2 ? row * kStride + 40 : 7) << i;
    }
    // With tables, which are in device memory.
    fill(50);
    ASSERT_EQ(adsmTransferWith(pointer(target_), 1, listed, pointer(source_), 5, type_, &options_),
              adsmSuccess)
        << adsmLastErrorString();
    wait();
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::uint64_t extent = (kRows - 1) * kStride + 1;
      ASSERT_EQ(words(target_)[places[i]], i / kRows * extent + i % kRows * kStride + 50) << i;
    }
    ASSERT_EQ(words(target_)[2], 7U);
  }
  options_.stream = stream_;
  std::vector<std::uint64_t> plain(1000);
  EXPECT_EQ(adsmTransferWith(plain.data(), 1, pairs, pointer(source_), 1, type_, &options_),
            adsmErrorNotSupported);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("the CPU waits for no stream"));
  EXPECT_EQ(adsmTypeFree(pairs), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(listed), adsmSuccess);
}

// Equal rows, other distances: the copy engine's, on the application's stream and the runtime's.
TEST_F(PackCalls, ATransferOfEqualRowsMayBeOneStridedCopy) {
  constexpr std::uint64_t kWide = 7;
  adsmType_t wide = nullptr;
  ASSERT_EQ(adsmTypeVector(kRows, 1, kWide, ADSM_TYPE_8, &wide), adsmSuccess);
  ASSERT_EQ(adsmTypeCommit(wide), adsmSuccess);
  options_.method = adsmMethodCopy2d;
  const auto transfer = [&](adsmType_t target, const void* source) {
    return adsmTransferWith(pointer(target_), 1, target, source, 1, type_, &options_);
  };
  for (void* const stream : {static_cast<void*>(stream_), static_cast<void*>(nullptr)}) {
    options_.stream = stream;
    const std::size_t copies = fake_cuda::calls("cuMemcpy3DAsync_v2");
    const std::size_t launches = fake_cuda::calls("cuLaunchKernel");
    fill(60);
    ASSERT_EQ(transfer(wide, pointer(source_)), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(report_.method, adsmMethodCopy2d);
    EXPECT_EQ(report_.launches, 1);
    EXPECT_EQ(fake_cuda::calls("cuMemcpy3DAsync_v2"), copies + 1);
    EXPECT_EQ(fake_cuda::calls("cuLaunchKernel"), launches);
    wait();
    for (std::uint64_t i = 0; i < kWide * (kRows - 1) + 2; ++i) {
      ASSERT_EQ(words(target_)[i], i % kWide == 0 ? i / kWide * kStride + 60 : 7) << i;
    }
    // To contiguous bytes it is a pack.
    fill(70);
    ASSERT_EQ(adsmTransferWith(pointer(target_), kRows, ADSM_TYPE_8, pointer(source_), 1, type_,
                               &options_),
              adsmSuccess)
        << adsmLastErrorString();
    expectRows(target_, 70, 0, kRows);
    EXPECT_EQ(fake_cuda::calls("cuMemcpy3DAsync_v2"), copies + 2);
  }
  // Others are refused, and nothing is copied.
  const std::size_t copies = fake_cuda::calls("cuMemcpy3DAsync_v2");
  const auto refused = [&](adsmType_t target, const void* source, const char* words) {
    EXPECT_EQ(transfer(target, source), adsmErrorNotSupported);
    EXPECT_THAT(adsmLastErrorString(), HasSubstr(words));
  };
  adsmType_t pairs = nullptr;
  ASSERT_EQ(adsmTypeVector(kRows / 2, 2, 5, ADSM_TYPE_8, &pairs), adsmSuccess);
  ASSERT_EQ(adsmTypeCommit(pairs), adsmSuccess);
  refused(pairs, pointer(source_), "equal rows fit");
  const std::vector<std::uint64_t> plain(kRows * kStride);
  refused(wide, plain.data(), "strided copies do not reach");
  options_.bytes = 80;
  refused(wide, pointer(source_), "whole strided layouts");
  EXPECT_EQ(fake_cuda::calls("cuMemcpy3DAsync_v2"), copies);
  EXPECT_EQ(adsmTypeFree(wide), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(pairs), adsmSuccess);
}

TEST_F(PackCalls, AskTheDriverForTwoAddressesAndALaunch) {
  expectPacks(10);
  const char* const kAsked[] = {"cuLaunchKernel", "cuPointerGetAttributes", "cuMemcpyHtoDAsync_v2",
                                "cuEventRecord"};
  std::vector<std::size_t> before;
  for (const char* name : kAsked) before.push_back(fake_cuda::calls(name));
  ASSERT_EQ(pack(), adsmSuccess);
  std::vector<std::size_t> made;
  for (std::size_t i = 0; i < before.size(); ++i) {
    made.push_back(fake_cuda::calls(kAsked[i]) - before[i]);
  }
  EXPECT_THAT(made, ::testing::ElementsAre(1u, 2u, 0u, 0u));
}

// Of an object's bytes that are current on the device.
TEST_F(PackCalls, FewBytesInOnePieceTakeOneCopyAndAnUnpackIsNotWaitedFor) {
  constexpr std::size_t kShort = 64;
  auto* const object = static_cast<unsigned char*>(adsmAlloc(kBytes));
  ASSERT_NE(object, nullptr) << adsmLastErrorString();
  const auto onDevice = reinterpret_cast<CUdeviceptr>(object);
  std::vector<unsigned char> bytes(kBytes, 1);
  ASSERT_EQ(DRIVER(cuMemcpyHtoD)(onDevice, bytes.data(), kBytes), CUDA_SUCCESS);
  const char* const kCopies[] = {"cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2",
                                 "cuMemcpy3DAsync_v2", "cuLaunchKernel"};
  std::vector<std::size_t> before;
  for (const char* name : kCopies) before.push_back(fake_cuda::calls(name));
  bytes.assign(kShort, 2);
  ASSERT_EQ(adsmUnpack(object + kShort, bytes.data(), kShort, ADSM_TYPE_1), adsmSuccess);
  const auto* const there = fake_cuda::backing(onDevice);
  EXPECT_EQ(there[kShort], std::byte{1}) << "the copy is under way";
  bytes.assign(kShort, 4);  // the program's again
  ASSERT_EQ(adsmUnpack(object + 2 * kShort, bytes.data(), kShort, ADSM_TYPE_1), adsmSuccess);
  bytes.assign(3 * kShort, 99);
  ASSERT_EQ(adsmPack(bytes.data(), object, 3 * kShort, ADSM_TYPE_1), adsmSuccess);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(bytes[i], i < kShort ? 1 : i < 2 * kShort ? 2 : 4) << i;
  }
  std::vector<std::size_t> made;
  for (std::size_t i = 0; i < before.size(); ++i) {
    made.push_back(fake_cuda::calls(kCopies[i]) - before[i]);
  }
  EXPECT_THAT(made, ::testing::ElementsAre(1u, 2u, 0u, 0u));
  bytes.assign(kShort, 3);
  ASSERT_EQ(adsmUnpack(object, bytes.data(), kShort, ADSM_TYPE_1), adsmSuccess);
  bytes.assign(kShort, 99);
  for (std::size_t i = 0; i < 4 * kShort; ++i) {
    ASSERT_EQ(object[i], i < kShort       ? 3
                         : i < 2 * kShort ? 2
                         : i < 3 * kShort ? 4
                                          : 1)
        << "the CPU comes after it, " << i;
  }
  EXPECT_EQ(adsmFree(object), adsmSuccess);
}

TEST_F(PackCalls, WhatDiffersInOneThingIsAnotherOperation) {
  CUdeviceptr other = 0;
  ASSERT_EQ(DRIVER(cuMemAlloc)(&other, kBytes), CUDA_SUCCESS);
  adsmType_t longer = nullptr;
  ASSERT_EQ(adsmTypeVector(kRows + 1, 1, kStride, ADSM_TYPE_8, &longer), adsmSuccess);
  ASSERT_EQ(adsmTypeCommit(longer), adsmSuccess);
  for (std::uint64_t seed = 100; seed < 103; ++seed) {
    expectPacks(seed);
    fill(seed);
    ASSERT_EQ(pack(target_, source_ + 24 * 10), adsmSuccess);
    expectRows(target_, seed, 10, kRows);
    fill(seed);
    words(other)[kRows] = 7;
    ASSERT_EQ(pack(other, source_), adsmSuccess);
    expectRows(other, seed, 0, kRows);
    EXPECT_EQ(words(target_)[0], 7u);
    fill(seed);
    options_.offset = 16;
    ASSERT_EQ(pack(), adsmSuccess);
    expectRows(target_, seed, 2, kRows - 2);
    EXPECT_EQ(report_.bytes, (kRows - 2) * 8);
    fill(seed);
    options_.bytes = 40;
    ASSERT_EQ(pack(), adsmSuccess);
    expectRows(target_, seed, 2, 5);
    EXPECT_EQ(report_.bytes, 40);
    options_.offset = options_.bytes = 0;
    fill(seed);
    ASSERT_EQ(adsmPackWith(pointer(target_), pointer(source_), 1, longer, &options_), adsmSuccess);
    expectRows(target_, seed, 0, kRows + 1);
    fill(seed);
    ASSERT_EQ(pack(target_, source_, 2), adsmSuccess);
    wait();
    EXPECT_EQ(words(target_)[kRows], (kRows - 1) * kStride + 1 + seed);  // the second one's first
    EXPECT_EQ(words(target_)[2 * kRows], 7u);
    ASSERT_EQ(pack(target_, source_, 0), adsmSuccess);
    EXPECT_EQ(report_.bytes, 0);
    // The other direction, between the same two addresses.
    fill(seed);
    ASSERT_EQ(adsmUnpackWith(pointer(target_), pointer(source_), 1, type_, &options_), adsmSuccess);
    wait();
    EXPECT_EQ(words(target_)[kStride], seed + 1);
    EXPECT_EQ(words(target_)[1], 7u);
  }
  EXPECT_EQ(adsmTypeFree(longer), adsmSuccess);
  EXPECT_EQ(DRIVER(cuMemFree)(other), CUDA_SUCCESS);
}

TEST_F(PackCalls, OptionsThatAreWrongAreRefusedAsEver) {
  expectPacks(10);
  const auto refused = [&](adsmError_t code, const char* words) {
    EXPECT_EQ(pack(), code) << words;
    EXPECT_THAT(std::string(adsmLastErrorString()), HasSubstr(words));
  };
  options_.size = 8;
  refused(adsmErrorInvalidValue, "options.size is 8");
  options_.size = sizeof options_;
  options_.blocks = -1;
  refused(adsmErrorInvalidValue, "options.blocks is -1");
  options_.blocks = 0;
  options_.method = adsmMethodStaged;
  refused(adsmErrorNotSupported, "is the device's memory");
  options_.method = adsmMethodCpu;
  refused(adsmErrorNotSupported, "the CPU does not reach");
}

TEST_F(PackCalls, MemoryThatIsFreedIsNotUsedAgain) {
  options_.method = adsmMethodKernel;
  expectPacks(10);
  const std::size_t launches = fake_cuda::calls("cuLaunchKernel");
  ASSERT_EQ(DRIVER(cuMemFree)(target_), CUDA_SUCCESS);
  EXPECT_EQ(pack(), adsmErrorNotSupported);
  EXPECT_THAT(std::string(adsmLastErrorString()), HasSubstr("not pinned"));
  ASSERT_EQ(DRIVER(cuMemFree)(source_), CUDA_SUCCESS);
  EXPECT_EQ(pack(), adsmErrorNotSupported);
  EXPECT_THAT(std::string(adsmLastErrorString()), HasSubstr("is the CPU's memory"));
  EXPECT_EQ(fake_cuda::calls("cuLaunchKernel"), launches);
  ASSERT_EQ(DRIVER(cuMemAlloc)(&source_, kBytes), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemAlloc)(&target_, kBytes), CUDA_SUCCESS);
  expectPacks(20);
}

TEST_F(PackCalls, ATypeThatIsFreedIsNotUsedAgain) {
  expectPacks(10);
  adsmType_t other = nullptr;
  ASSERT_EQ(adsmTypeContiguous(3, ADSM_TYPE_8, &other), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(other), adsmSuccess);
  expectPacks(20);
  adsmType_t again = nullptr;
  ASSERT_EQ(adsmTypeDuplicate(type_, &again), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(type_), adsmSuccess);
  EXPECT_EQ(pack(), adsmErrorInvalidValue);
  EXPECT_THAT(std::string(adsmLastErrorString()), HasSubstr("is freed"));
  type_ = again;
  expectPacks(30);
}

TEST_F(PackCalls, WhatWasKeptEndsWithTheContext) {
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < 1000; ++i) {
    places.push_back(i * 5 + i * i % 3);
  }
  adsmType_t list = nullptr;
  ASSERT_EQ(adsmTypeIndexedBlock(1000, 1, places.data(), ADSM_TYPE_8, &list), adsmSuccess);
  ASSERT_EQ(adsmTypeCommit(list), adsmSuccess);
  const auto expectPacksList = [&](std::uint64_t seed) {
    for (const std::uint64_t more : {0, 5}) {
      fill(seed + more);
      ASSERT_EQ(adsmPackWith(pointer(target_), pointer(source_), 1, list, &options_), adsmSuccess);
      wait();
      for (std::size_t i = 0; i < places.size(); ++i) {
        ASSERT_EQ(words(target_)[i], static_cast<std::uint64_t>(places[i]) + seed + more) << i;
      }
    }
  };
  expectPacks(10);
  expectPacksList(10);
  fake_cuda::giveAgain(source_);
  fake_cuda::giveAgain(target_);
  ASSERT_EQ(DRIVER(cuDevicePrimaryCtxReset)(0), CUDA_SUCCESS);
  CUcontext popped = nullptr;
  ASSERT_EQ(DRIVER(cuCtxPopCurrent)(&popped), CUDA_SUCCESS);
  const CUdeviceptr source = source_;
  const CUdeviceptr target = target_;
  begin();
  options_.stream = stream_;
  expectPacks(20);
  expectPacksList(20);
  EXPECT_EQ(adsmTypeFree(list), adsmSuccess);
  // Else nothing of the above has been asked twice.
  EXPECT_EQ(std::pair(source_, target_), std::pair(source, target));
}

// What packs need themselves has room there, as an object leaves.
TEST_F(PackCalls, ATableHasRoomOnADeviceThatIsFull) {
  constexpr std::size_t kPage = std::size_t{2} << 20;
  // Nothing is kept of earlier packs.
  ASSERT_EQ(DRIVER(cuDevicePrimaryCtxReset)(0), CUDA_SUCCESS);
  CUcontext popped = nullptr;
  ASSERT_EQ(DRIVER(cuCtxPopCurrent)(&popped), CUDA_SUCCESS);
  begin();
  options_.stream = stream_;
  auto* const object = static_cast<std::uint32_t*>(adsmAlloc(5 * kPage));
  ASSERT_NE(object, nullptr) << adsmLastErrorString();
  object[5] = 9;
  std::vector<std::int64_t> places;
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(kBytes / 8); at += 1 + at * at % 3) {
    places.push_back(at);
  }
  const auto length = static_cast<std::int64_t>(places.size());
  adsmType_t list = nullptr;
  ASSERT_EQ(adsmTypeIndexedBlock(length, 1, places.data(), ADSM_TYPE_8, &list), adsmSuccess);
  ASSERT_EQ(adsmTypeCommit(list), adsmSuccess);
  std::size_t left = 0;
  std::size_t total = 0;
  ASSERT_EQ(DRIVER(cuMemGetInfo)(&left, &total), CUDA_SUCCESS);
  CUdeviceptr rest = 0;
  ASSERT_EQ(DRIVER(cuMemAlloc)(&rest, left / kPage * kPage), CUDA_SUCCESS);
  const auto spilled = [] { return stats().spills.value() + stats().peerSpills.value(); };
  const std::uint64_t before = spilled();
  fill(3);
  ASSERT_EQ(adsmPackWith(pointer(target_), pointer(source_), 1, list, &options_), adsmSuccess)
      << adsmLastErrorString();
  wait();
  for (std::size_t i = 0; i < places.size(); ++i) {
    ASSERT_EQ(words(target_)[i], static_cast<std::uint64_t>(places[i]) + 3) << i;
  }
  EXPECT_EQ(spilled(), before + 1);
  EXPECT_EQ(object[5], 9u);
  EXPECT_EQ(DRIVER(cuMemFree)(rest), CUDA_SUCCESS);
  EXPECT_EQ(adsmFree(object), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(list), adsmSuccess);
}

TEST_F(PackCalls, AnEventIsOfTheOperationThatItIsGivenTo) {
  for (const bool ofTheApplication : {true, false}) {
    options_.stream = ofTheApplication ? stream_ : nullptr;
    expectPacks(10);
    for (const std::uint64_t seed : {40, 50}) {
      fill(seed);
      adsmPackEvent_t event = nullptr;
      options_.event = &event;
      ASSERT_EQ(pack(), adsmSuccess);
      options_.event = nullptr;
      ASSERT_NE(event, nullptr);
      EXPECT_EQ(words(target_)[0], 7u);
      ASSERT_EQ(adsmPackWait(event), adsmSuccess);
      EXPECT_EQ(words(target_)[0], seed);
    }
  }
}

TEST_F(PackCalls, AFailedLaunchIsTold) {
  expectPacks(10);
  for (int turn = 0; turn < 2; ++turn) {
    fake_cuda::failNext("cuLaunchKernel", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    EXPECT_EQ(pack(), adsmErrorLaunch);
    EXPECT_THAT(std::string(adsmLastErrorString()), HasSubstr("cuLaunchKernel(gmacPackRows1_8"));
    expectPacks(20);
  }
}

TEST_F(PackCalls, ThreadsKeepTheirOwn) {
  expectPacks(10);
  fill(60);
  std::thread other([&] {
    // The driver's context is a thread's own.
    for (int turn = 0; turn < 3; ++turn) {
      EXPECT_EQ(pack(target_ + 8 * (kRows + 1), source_), adsmSuccess) << adsmLastErrorString();
    }
  });
  other.join();
  ASSERT_EQ(pack(), adsmSuccess);
  expectRows(target_, 60, 0, kRows);
  expectRows(target_ + 8 * (kRows + 1), 60, 0, kRows);
}

// The cache is empty then.
TEST_F(PackCalls, AThreadThatEndsPacksToo) {
  fill(70);
  struct AtItsEnd {
    std::function<void()> function;
    ~AtItsEnd() { function(); }
  };
  const CUdeviceptr behind = target_ + 8 * (kRows + 1);
  std::thread other([&] {
    CUcontext current = nullptr;
    DRIVER(cuCtxGetCurrent)(&current);  // what this driver keeps for the thread goes last
    thread_local AtItsEnd end;          // destroyed after all that the first pack makes
    end.function = [&] {
      EXPECT_EQ(pack(behind, source_), adsmSuccess) << adsmLastErrorString();
      EXPECT_EQ(pack(behind, source_), adsmSuccess) << adsmLastErrorString();
    };
    EXPECT_EQ(pack(), adsmSuccess) << adsmLastErrorString();
  });
  other.join();
  expectRows(target_, 70, 0, kRows);
  expectRows(behind, 70, 0, kRows);
}

// Work without a stream has an event each; they are used again when their work is over.
TEST_F(PackCalls, TheDeviceIsSeldomAskedWhetherOldWorkIsOver) {
  options_.stream = nullptr;
  expectPacks(10);
  constexpr std::size_t kMany = 5000;
  const std::size_t before = fake_cuda::calls("cuEventQuery");
  for (std::size_t i = 0; i < kMany; ++i) {
    ASSERT_EQ(pack(), adsmSuccess);
    wait();
  }
  EXPECT_LT(fake_cuda::calls("cuEventQuery") - before, kMany / 100);
  expectPacks(20);
}

TEST_F(PackCalls, WorkThatIsNotOverIsWaitedForBeforeItsEventIsUsedAgain) {
  options_.stream = nullptr;
  fill(10);
  // A copy for each row, of which this driver does one at every question: too many for the
  // questions that are asked about older work.
  options_.method = adsmMethodCopy;
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(pack(), adsmSuccess);
  }
  const CUdeviceptr last = target_ + 4096;
  adsmPackEvent_t event = nullptr;
  options_.event = &event;
  ASSERT_EQ(pack(last, source_), adsmSuccess);
  options_.event = nullptr;
  options_.method = adsmMethodAny;
  for (int i = 0; i < 1030; ++i) {
    ASSERT_EQ(pack(), adsmSuccess);
  }
  EXPECT_EQ(adsmPackDone(event), 1);
  EXPECT_EQ(words(last)[kRows - 1], (kRows - 1) * kStride + 10);
  EXPECT_EQ(adsmPackWait(event), adsmSuccess);
}

// ---- Packs of what is lent to a message.

class LentPacks : public PackCalls {
 protected:
  void SetUp() override {
    PackCalls::SetUp();
    ASSERT_EQ(DRIVER(cuMemAlloc)(&other_, kBytes), CUDA_SUCCESS);
    options_.stream = nullptr;
  }
  void TearDown() override {
    EXPECT_EQ(DRIVER(cuMemFree)(other_), CUDA_SUCCESS);
    PackCalls::TearDown();
  }
  CUdeviceptr other_ = 0;
};

// The driver does no work before its turn in its stream.
TEST_F(LentPacks, RunBesideTheKernelQueue) {
  for (const std::int64_t first : {0, 10}) {
    fill(3);
    adsmPackEvent_t before = nullptr;
    options_.event = &before;
    ASSERT_EQ(pack(), adsmSuccess) << adsmLastErrorString();
    adsmPackEvent_t lent = nullptr;
    ASSERT_EQ(gmacPackLent(pointer(other_), pointer(source_), type_, 8 * first, 8 * (kRows - first),
                           &lent),
              adsmSuccess)
        << adsmLastErrorString();
    ASSERT_EQ(adsmPackWait(lent), adsmSuccess) << adsmLastErrorString();
    for (std::int64_t i = 0; i < kRows - first; ++i) {
      ASSERT_EQ(words(other_)[i], static_cast<std::uint64_t>((first + i) * kStride + 3)) << i;
    }
    // (What the first use makes may wait for it.)
    EXPECT_TRUE(first == 0 || words(target_)[0] == 7) << "the kernel queue's work has run";
    ASSERT_EQ(adsmPackWait(before), adsmSuccess) << adsmLastErrorString();
    expectRows(target_, 3, 0, kRows);
  }
}

// The CPU's writes since are not the message's, and stay where they are.
TEST_F(LentPacks, OfAnObjectReleaseNothing) {
  auto* const object = static_cast<std::uint64_t*>(adsmAlloc(kBytes));
  ASSERT_NE(object, nullptr) << adsmLastErrorString();
  std::uint64_t* const onDevice = words(reinterpret_cast<CUdeviceptr>(object));
  ASSERT_NE(onDevice, nullptr);
  for (std::uint64_t i = 0; i < kBytes / 8; ++i) {
    onDevice[i] = i;
    object[i] = 99;
  }
  adsmPackEvent_t lent = nullptr;
  ASSERT_EQ(gmacPackLent(pointer(other_), object, type_, 0, 8 * kRows, &lent), adsmSuccess)
      << adsmLastErrorString();
  ASSERT_EQ(adsmPackWait(lent), adsmSuccess) << adsmLastErrorString();
  for (std::int64_t i = 0; i < kRows; ++i) {
    ASSERT_EQ(words(other_)[i], static_cast<std::uint64_t>(i * kStride)) << i;
  }
  EXPECT_EQ(object[0], 99u);
  ASSERT_EQ(adsmFree(object), adsmSuccess) << adsmLastErrorString();
}

TEST_F(LentPacks, RefuseWhatIsNoPart) {
  adsmPackEvent_t lent = nullptr;
  for (const auto& [offset, bytes] :
       {std::pair<std::int64_t, std::int64_t>{-1, 8}, {0, 0}, {8, 8 * kRows}}) {
    EXPECT_EQ(gmacPackLent(pointer(other_), pointer(source_), type_, offset, bytes, &lent),
              adsmErrorInvalidValue);
    EXPECT_THAT(adsmLastErrorString(), HasSubstr("of 800 at"));
  }
}

}  // namespace
}  // namespace gmac
