// SPDX-License-Identifier: Apache-2.0
//
// Three devices that do not reach each other's memory, through the API: each test below runs in a
// process of its own, under every protocol. A test file includes this header and defines
// devicesKit().
#ifndef GMAC_TESTS_API_DEVICES_PROGRAMS_H_
#define GMAC_TESTS_API_DEVICES_PROGRAMS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <latch>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/api/adsm_datatype.h"
#include "gmac/base/round_up.h"
#include "gmac/observe/stats.h"
#include "gmac/protocols/protocol.h"
#include "gmac/session/runtime.h"
#include "tests/api/host_kernel.h"
#include "tests/support/child.h"

namespace gmac::testing {

inline constexpr std::size_t kWords = std::size_t{1} << 20;
inline constexpr std::size_t kBytes = kWords * sizeof(std::uint32_t);

// The test file's description of its accelerator, which has three devices.
struct DevicesKit {
  const char* accelerator;          // GMAC_ACCEL
  const char* firstKind;            // of device 0; the others are `host`
  std::size_t firstUnit = 1;        // device 0's memory comes in so many bytes
  const char* hostMemory;           // GMAC_HOST_MEMORY: 64 MiB for each of `host`
  const void* cudaImage = nullptr;  // has addTo, crash and the constant addend, for other kinds
  void (*begin)() = [] {};          // first of all, in each process
};
const DevicesKit& devicesKit();

inline std::uint32_t addend = 1;

inline void addTo(const adsmThreadBlock_t* block, void** args) {
  auto* data = *static_cast<std::uint32_t**>(args[0]);
  const auto count = *static_cast<std::uint64_t*>(args[1]);
  for (std::uint64_t i = block->blockIdx.x; i < count; i += block->gridDim.x) {
    data[i] += addend;
  }
}

inline void crash(const adsmThreadBlock_t*, void**) { __builtin_trap(); }

class Devices : public ::testing::Test {
 protected:
  void SetUp() override {
    devicesKit().begin();
    static const adsmConstant_t kConstant[] = {{"addend", sizeof addend, &addend, nullptr}};
    add_ = hostKernel("addTo", addTo, 2, kConstant, devicesKit().cudaImage);
    crash_ = hostKernel("crash", crash, 0, {}, devicesKit().cudaImage);
  }
  void TearDown() override {
    for (const adsmKernel_t kernel : {add_, crash_}) {
      EXPECT_EQ(adsmKernelDestroy(kernel), adsmSuccess) << adsmLastErrorString();
    }
  }

  static std::uint32_t* allocate(std::size_t bytes = kBytes) {
    auto* words = static_cast<std::uint32_t*>(adsmAlloc(bytes));
    EXPECT_NE(words, nullptr) << adsmLastErrorString();
    return words;
  }
  // Adds 1 to each word; a call that lists it, or one that lists nothing.
  adsmError_t call(int device, std::uint32_t* data, bool listed = true,
                   std::uint64_t count = kWords) {
    void* args[] = {&data, &count};
    const adsmUse_t use = {data, adsmReadWrite};
    return adsmCallOn(device, add_, {4, 1, 1}, {1, 1, 1}, 0, args, listed ? &use : nullptr,
                      listed ? 1 : 0);
  }
  static void verify() {
    EXPECT_TRUE(Runtime::get().ok() && (*Runtime::get())->memory().verify().ok())
        << adsmLastErrorString();
  }
  // Of a large object.
  static std::size_t blockBytes() {
    const CoherentMemory& memory = (*Runtime::get())->memory();
    return memory.protocol().wholeObjects() ? kBytes : memory.options().blockBytes;
  }
  static std::size_t freeOn(int device) {
    adsmDeviceInfo_t info;
    EXPECT_EQ(adsmDeviceInfo(device, &info), adsmSuccess) << adsmLastErrorString();
    return info.freeBytes;
  }

  // More than a third of a device of `host`: three of them do not fit there.
  static constexpr std::size_t kLarge = std::size_t{24} << 20;
  // Its words, of which calls change some, count from a number.
  static std::uint32_t* fill(std::uint32_t from) {
    std::uint32_t* words = allocate(kLarge);
    std::iota(words, words + kLarge / sizeof *words, from);
    return words;
  }
  // After so many calls.
  static void expect(const std::uint32_t* words, std::uint32_t from, std::uint32_t calls) {
    for (std::uint32_t i = 0; i < kLarge / sizeof *words; ++i) {
      ASSERT_EQ(words[i], from + i + (i < kWords ? calls : 0)) << i;
    }
  }

  // One device is lost; what the other two have is not.
  void loseOne(int lost, int first, int second) {
    const std::string device = "device " + std::to_string(lost);
    std::uint32_t* here = allocate();
    std::uint32_t* there = allocate();
    std::iota(here, here + kWords, 0u);
    ASSERT_EQ(call(first, here), adsmSuccess) << adsmLastErrorString();
    ASSERT_EQ(call(lost, there), adsmSuccess) << adsmLastErrorString();
    ASSERT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
    const adsmUse_t use = {there, adsmReadWrite};
    ASSERT_EQ(adsmCallOn(lost, crash_, {1, 1, 1}, {1, 1, 1}, 0, nullptr, &use, 1), adsmSuccess);
    EXPECT_EQ(adsmSync(), adsmErrorKernel);
    EXPECT_NE(std::string(adsmLastErrorString()).find(device), std::string::npos)
        << adsmLastErrorString();
    // That is told once; what the device had stays lost.
    EXPECT_EQ(call(lost, there), adsmErrorAcceleratorLost);
    EXPECT_EQ(call(lost, here), adsmErrorAcceleratorLost);
    EXPECT_EQ(call(second, there), adsmErrorAcceleratorLost);
    ASSERT_EQ(call(first, here), adsmSuccess) << adsmLastErrorString();
    ASSERT_EQ(call(second, here), adsmSuccess) << adsmLastErrorString();
    for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(here[i], i + 3);
    std::uint32_t* fresh = allocate();
    std::fill_n(fresh, kWords, 4u);
    ASSERT_EQ(call(second, fresh), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(fresh[kWords - 1], 5u);
    EXPECT_EQ(adsmFree(here), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(adsmFree(fresh), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(adsmFree(there), adsmErrorAcceleratorLost);
    EXPECT_NE(std::string(adsmLastErrorString()).find(device), std::string::npos)
        << adsmLastErrorString();
    EXPECT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
  }

  adsmKernel_t add_ = nullptr;
  adsmKernel_t crash_ = nullptr;
};

TEST_F(Devices, DISABLED_AreListed) {
  int count = 0;
  ASSERT_EQ(adsmDeviceCount(&count), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(count, 3);
  for (int device = 0; device < count; ++device) {
    adsmDeviceInfo_t info;
    std::memset(&info, 0xff, sizeof info);
    ASSERT_EQ(adsmDeviceInfo(device, &info), adsmSuccess) << adsmLastErrorString();
    EXPECT_LE(info.freeBytes, info.memoryBytes);
    EXPECT_EQ(info.peers, 0U);
    const std::string kind = device == 0 ? devicesKit().firstKind : "host";
    EXPECT_EQ(info.kind, kind);
    if (kind == "host") {
      EXPECT_NE(std::string(info.name).find("threads"), std::string::npos) << info.name;
      EXPECT_EQ(info.memoryBytes, std::size_t{64} << 20);
      EXPECT_STREQ(info.bus, "");
    }
  }
}

TEST_F(Devices, DISABLED_WrongNumbersAreNamed) {
  std::uint32_t* data = allocate();
  adsmDeviceInfo_t info;
  for (const int device : {-1, 3, 1 << 20}) {
    const std::string wanted = "device " + std::to_string(device) + "; allowed are 0 to 2";
    const auto expectNamed = [&](adsmError_t error) {
      EXPECT_EQ(error, adsmErrorInvalidValue);
      EXPECT_NE(std::string(adsmLastErrorString()).find(wanted), std::string::npos)
          << adsmLastErrorString();
    };
    expectNamed(adsmDeviceInfo(device, &info));
    expectNamed(call(device, data));
    expectNamed(adsmMigrate(data, kBytes, device));
  }
  EXPECT_EQ(adsmDeviceCount(nullptr), adsmErrorInvalidValue);
  EXPECT_EQ(adsmDeviceInfo(0, nullptr), adsmErrorInvalidValue);
  EXPECT_EQ(adsmMigrate(data, 0, 1), adsmErrorInvalidValue);
  EXPECT_EQ(adsmMigrate(data, kBytes + 4097, 1), adsmErrorInvalidValue);
  EXPECT_EQ(adsmMigrate(data + kWords / 2, kBytes, 1), adsmErrorInvalidValue);
  EXPECT_EQ(adsmMigrate(&info, 1, 1), adsmErrorInvalidPointer);
  EXPECT_EQ(adsmCallOn(1, add_, {1, 1, 1}, {1, 1, 1}, 0, nullptr, nullptr, 1),
            adsmErrorInvalidValue);
  EXPECT_EQ(stats().migrations.value(), 0u);
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

// Devices that do not reach each other's memory cannot have parts of one address.
TEST_F(Devices, DISABLED_AStripedObjectIsPlain) {
  auto* data = static_cast<std::uint32_t*>(adsmAllocStriped(kBytes, 0, nullptr));
  ASSERT_NE(data, nullptr) << adsmLastErrorString();
  std::fill_n(data, kWords, 1u);
  for (const int device : {2, 0, 1}) {
    ASSERT_EQ(call(device, data), adsmSuccess) << adsmLastErrorString();
  }
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(data[i], 4u) << i;
  EXPECT_EQ(stats().stripedAllocations.value(), 0u);
  EXPECT_EQ(adsmFree(data), adsmSuccess);
  const int twice[] = {1, 1};
  EXPECT_EQ(adsmAllocStriped(kBytes, 2, twice), nullptr);
  EXPECT_EQ(adsmLastError(), adsmErrorInvalidValue);
  EXPECT_EQ(adsmAllocStriped(kBytes, 4, nullptr), nullptr);
  EXPECT_EQ(adsmLastError(), adsmErrorInvalidValue);
}

TEST_F(Devices, DISABLED_AnObjectGoesWhereItIsUsed) {
  std::uint32_t* data = allocate();
  std::iota(data, data + kWords, 0u);
  ASSERT_EQ(call(0, data), adsmSuccess) << adsmLastErrorString();
  std::uint32_t added = 1;
  for (const bool listed : {true, false}) {
    for (const int device : {1, 2, 2, 0, 1}) {
      ASSERT_EQ(call(device, data, listed), adsmSuccess) << adsmLastErrorString();
      ++added;
      verify();
      if (device == 2) {
        volatile std::uint32_t& word = data[17];
        word = word - 1;  // before the next call
        word = word + 1;
      }
    }
  }
  ASSERT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(data[i], i + added);
  EXPECT_EQ(stats().migrations.value(), 7u);  // the second round begins where the first one ended
  // Twice without the block that the CPU had written.
  EXPECT_EQ(stats().migratedBytes.value(), 7 * kBytes - 2 * blockBytes());
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

// The writes of a call that lists nothing go along, also when the object is bound afterwards.
TEST_F(Devices, DISABLED_BindingForgetsNoCall) {
  std::uint32_t* data = allocate();
  ASSERT_EQ(call(2, data, false), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(adsmBind(data, add_, adsmReadWrite), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(adsmMigrate(data, kBytes, 0), adsmSuccess) << adsmLastErrorString();
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(data[i], 1u) << i;
  ASSERT_EQ(call(1, data), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(data[kWords - 1], 2u);
  verify();
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

// Nothing is copied for it: the CPU's bytes go there at once.
TEST_F(Devices, DISABLED_ItsFirstUseChoosesItsHome) {
  constexpr std::uint64_t kOne = 1;  // block, under each protocol
  std::uint32_t* data = allocate(std::size_t{64} << 10);
  data[0] = 5;
  const std::size_t here = freeOn(0);
  ASSERT_EQ(call(2, data, true, kOne), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(freeOn(0), here + roundUp(std::size_t{64} << 10, devicesKit().firstUnit));
  EXPECT_EQ(stats().migrations.value(), 1u);
  EXPECT_EQ(stats().migratedBytes.value(), 0u);
  EXPECT_EQ(data[0], 6u);
  EXPECT_EQ(data[1], 0u);
  verify();
  ASSERT_EQ(call(1, data, true, kOne), adsmSuccess) << adsmLastErrorString();
  // Under batch-update what the CPU has read it may write without a fault.
  const bool batch = (*Runtime::get())->memory().protocol().name() == "batch";
  EXPECT_EQ(stats().migratedBytes.value(), batch ? 0 : std::size_t{64} << 10);
  EXPECT_EQ(data[0], 7u);
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

// Not by way of the device where the object was.
TEST_F(Devices, DISABLED_WhatTheCpuHasWrittenGoesThereAtOnce) {
  std::uint32_t* data = allocate();
  std::fill_n(data, kWords, 1u);
  ASSERT_EQ(call(1, data), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
  const std::size_t written = std::max(kBytes / 4, blockBytes());
  std::fill_n(data + kWords / 2, kWords / 4, 5u);
  const std::uint64_t migrated = stats().migratedBytes.value();
  const std::uint64_t toAccelerator = stats().bytesToAccelerator.value();
  const std::uint64_t toHost = stats().bytesToHost.value();
  ASSERT_EQ(call(2, data), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(stats().migratedBytes.value() - migrated, kBytes - written);
  EXPECT_EQ(stats().bytesToAccelerator.value() - toAccelerator, written);
  EXPECT_EQ(stats().bytesToHost.value(), toHost);
  for (std::size_t i = 0; i < kWords; ++i) {
    ASSERT_EQ(data[i], i / (kWords / 4) == 2 ? 6u : 3u) << i;
  }
  verify();
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

TEST_F(Devices, DISABLED_WhatTheCpuHasReadStaysOpen) {
  std::uint32_t* data = allocate();
  std::fill_n(data, kWords, 1u);
  ASSERT_EQ(call(1, data), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(std::count(data, data + kWords, 2u), kWords);
  const std::uint64_t fetches = stats().fetches.value();
  const std::uint64_t faults = stats().readFaults.value();
  std::uint64_t none = 0;
  void* args[] = {&data, &none};
  const adsmUse_t use = {data, adsmRead};
  ASSERT_EQ(adsmCallOn(2, add_, {1, 1, 1}, {1, 1, 1}, 0, args, &use, 1), adsmSuccess)
      << adsmLastErrorString();
  ASSERT_EQ(adsmMigrate(data, kBytes, 0), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(std::count(data, data + kWords, 2u), kWords);
  EXPECT_EQ(stats().fetches.value(), fetches);
  EXPECT_EQ(stats().readFaults.value(), faults);
  ASSERT_EQ(call(0, data), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(std::count(data, data + kWords, 3u), kWords);
  verify();
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

// One thread writes and reads while another one moves the object.
TEST_F(Devices, DISABLED_TheCpuGoesOnDuringMoves) {
  constexpr std::size_t kStep = 4099;  // words: another block each time, or nearly
  std::uint32_t* data = allocate();
  std::vector<std::uint32_t> expected(kWords);
  std::iota(data, data + kWords, 0u);
  std::iota(expected.begin(), expected.end(), 0u);
  ASSERT_EQ(call(0, data), adsmSuccess) << adsmLastErrorString();
  for (std::uint32_t& word : expected) ++word;
  std::atomic<bool> moved{false};
  std::thread mover([&] {
    for (int i = 1; i <= 60; ++i) {
      EXPECT_EQ(adsmMigrate(data, kBytes, i % 3), adsmSuccess) << adsmLastErrorString();
    }
    moved = true;
  });
  std::size_t at = 0;
  for (std::uint32_t round = 0; !moved; ++round) {
    at = (at + kStep) % kWords;
    if (round % 3 == 0) {
      ASSERT_EQ(data[at], expected[at]) << at;
    } else {
      data[at] = expected[at] = round;
    }
  }
  mover.join();
  verify();
  ASSERT_EQ(call(1, data), adsmSuccess) << adsmLastErrorString();
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(data[i], expected[i] + 1) << i;
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

TEST_F(Devices, DISABLED_AMigrationMovesMemory) {
  std::uint32_t* data = allocate();
  std::iota(data, data + kWords, 5u);
  const std::size_t here = freeOn(0);
  const std::size_t there = freeOn(2);
  ASSERT_EQ(adsmMigrate(data + 100, 1, 2), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(freeOn(0), here + kBytes);
  EXPECT_EQ(freeOn(2), there - kBytes);
  // Again, before anything uses it.
  ASSERT_EQ(adsmMigrate(data, kBytes, 1), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(adsmMigrate(data, kBytes, 2), adsmSuccess) << adsmLastErrorString();
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(data[i], i + 5);
  data[3] = 0;
  ASSERT_EQ(call(2, data), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(stats().migrations.value(), 3u);
  EXPECT_EQ(data[3], 1u);
  EXPECT_EQ(data[4], 10u);
  verify();
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

// Objects that share their pages move together; safe ones, whose device address stays.
TEST_F(Devices, DISABLED_SmallAndSafeObjectsMove) {
  constexpr std::uint64_t kFew = 100;
  std::uint32_t* small = allocate(kFew * 4);
  auto* safe = static_cast<std::uint32_t*>(adsmSafeAlloc(kBytes));
  ASSERT_NE(safe, nullptr) << adsmLastErrorString();
  std::fill_n(small, kFew, 1u);
  std::fill_n(safe, kWords, 2u);
  for (int device = 0; device < 3; ++device) {
    ASSERT_EQ(call(device, small, true, kFew), adsmSuccess) << adsmLastErrorString();
    void* args[] = {nullptr, nullptr};
    void* address = adsmSafe(safe);
    std::uint64_t count = kWords;
    args[0] = &address;
    args[1] = &count;
    const adsmUse_t use = {safe, adsmReadWrite};
    ASSERT_EQ(adsmCallOn(device, add_, {4, 1, 1}, {1, 1, 1}, 0, args, &use, 1), adsmSuccess)
        << adsmLastErrorString();
    verify();
  }
  for (std::size_t i = 0; i < kFew; ++i) ASSERT_EQ(small[i], 4u);
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(safe[i], 5u);
  EXPECT_EQ(adsmFree(small), adsmSuccess);
  EXPECT_EQ(adsmFree(safe), adsmSuccess);
}

TEST_F(Devices, DISABLED_ConstantsAreSetOnAll) {
  std::uint32_t* data = allocate();
  std::fill_n(data, kWords, 0u);
  ASSERT_EQ(call(0, data), adsmSuccess) << adsmLastErrorString();
  const std::uint32_t ten = 10;
  ASSERT_EQ(adsmSetConstant(add_, "addend", &ten, sizeof ten), adsmSuccess)
      << adsmLastErrorString();
  for (int device = 0; device < 3; ++device) {
    ASSERT_EQ(call(device, data), adsmSuccess) << adsmLastErrorString();
  }
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(data[i], 31u);
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

// Each thread has an object of its own on a device of its own, and all of them one in common.
TEST_F(Devices, DISABLED_ThreadsUseAllAtOnce) {
  constexpr int kRounds = 40;
  std::uint32_t* common = allocate();
  std::fill_n(common, kWords, 0u);
  std::vector<std::thread> threads;
  for (int device = 0; device < 3; ++device) {
    threads.emplace_back([&, device] {
      std::uint32_t* own = allocate();
      std::fill_n(own, kWords, 0u);
      for (int round = 0; round < kRounds; ++round) {
        ASSERT_EQ(call(device, own), adsmSuccess) << adsmLastErrorString();
        if (round % 4 == 0) {
          ASSERT_EQ(call(device, common), adsmSuccess) << adsmLastErrorString();
        }
        if (round % 8 == 0) {
          own[static_cast<std::size_t>(round) * 999] += 1;
        }
      }
      for (std::size_t i = 0; i < kWords; ++i) {
        const bool touched = i % 7992 == 0 && i / 999 < kRounds;
        ASSERT_EQ(own[i], static_cast<std::uint32_t>(kRounds + (touched ? 1 : 0))) << i;
      }
      EXPECT_EQ(adsmFree(own), adsmSuccess) << adsmLastErrorString();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(common[i], 3u * kRounds / 4);
  verify();
  EXPECT_EQ(adsmFree(common), adsmSuccess);
}

TEST_F(Devices, DISABLED_WhatDoesNotFitStaysWhereItIs) {
  std::vector<std::uint32_t*> there;
  for (int i = 0; i < 2; ++i) {
    there.push_back(allocate(kLarge));
    ASSERT_EQ(adsmMigrate(there.back(), kLarge, 1), adsmSuccess) << adsmLastErrorString();
  }
  std::uint32_t* data = allocate(kLarge);
  std::iota(data, data + kLarge / 4, 1u);
  EXPECT_EQ(adsmMigrate(data, kLarge, 1), adsmErrorAcceleratorMemory);
  EXPECT_NE(std::string(adsmLastErrorString()).find("device 1"), std::string::npos)
      << adsmLastErrorString();
  EXPECT_EQ(call(1, data), adsmErrorAcceleratorMemory);
  verify();
  ASSERT_EQ(call(0, data), adsmSuccess) << adsmLastErrorString();
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(data[i], i + 2);
  ASSERT_EQ(adsmFree(there[0]), adsmSuccess);
  ASSERT_EQ(call(1, data), adsmSuccess) << adsmLastErrorString();
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(data[i], i + 3);
  EXPECT_EQ(adsmFree(there[1]), adsmSuccess);
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

// What was used least lately leaves for the device with the most room, and what the program has
// placed leaves last.
TEST_F(Devices, DISABLED_ACallHasRoomForWhatItUses) {
  std::uint32_t* first = fill(1);
  std::uint32_t* second = fill(2);
  ASSERT_EQ(call(1, first), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(call(1, second), adsmSuccess) << adsmLastErrorString();
  std::uint32_t* third = fill(3);
  second[7] += 10;
  const std::size_t there = freeOn(1);
  EXPECT_LT(there, kLarge);
  const int roomiest = freeOn(0) > freeOn(2) ? 0 : 2;
  const std::size_t room = freeOn(roomiest);
  ASSERT_EQ(call(1, third), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(freeOn(roomiest), roomiest == 0 ? room : room - kLarge);  // (the third has left 0)
  EXPECT_EQ(stats().peerSpills.value(), 1u);
  EXPECT_EQ(stats().peerSpilledBytes.value(), kLarge);
  EXPECT_EQ(freeOn(1), there);
  second[7] -= 10;
  // The second was used less lately than the third by calls, which count; the first comes back.
  ASSERT_EQ(call(1, first), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(call(1, third), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(stats().peerSpills.value(), 2u);
  verify();
  // Both stay that one call uses, whatever the program has said of the other.
  ASSERT_EQ(adsmMigrate(first, kLarge, 1), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(call(1, second), adsmSuccess) << adsmLastErrorString();  // the third leaves
  ASSERT_EQ(call(1, second), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(stats().peerSpills.value(), 3u);
  const adsmUse_t both[] = {{second, adsmReadWrite}, {third, adsmRead}};
  std::uint64_t count = kWords;
  void* args[] = {&second, &count};
  ASSERT_EQ(adsmCallOn(1, add_, {4, 1, 1}, {1, 1, 1}, 0, args, both, 2), adsmSuccess)
      << adsmLastErrorString();
  EXPECT_EQ(stats().peerSpills.value(), 4u);
  expect(first, 1, 2);
  expect(second, 2, 4);
  expect(third, 3, 2);
  verify();
  for (std::uint32_t* data : {first, second, third}) EXPECT_EQ(adsmFree(data), adsmSuccess);
}

TEST_F(Devices, DISABLED_WhatACallUsesDoesNotFitAtAll) {
  std::uint32_t* objects[] = {fill(1), fill(2), fill(3)};
  std::uint32_t* other = allocate();
  ASSERT_EQ(call(1, other), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(call(1, objects[0]), adsmSuccess) << adsmLastErrorString();
  const adsmUse_t uses[] = {
      {objects[0], adsmReadWrite}, {objects[1], adsmRead}, {objects[2], adsmRead}};
  std::uint64_t count = kWords;
  void* args[] = {&objects[0], &count};
  EXPECT_EQ(adsmCallOn(1, add_, {4, 1, 1}, {1, 1, 1}, 0, args, uses, 3),
            adsmErrorAcceleratorMemory);
  EXPECT_NE(std::string(adsmLastErrorString()).find("device 1"), std::string::npos)
      << adsmLastErrorString();
  EXPECT_EQ(stats().peerSpills.value(), 0u) << "the other need not leave";
  expect(objects[0], 1, 1);
  expect(objects[1], 2, 0);
  verify();
  EXPECT_EQ(adsmFree(other), adsmSuccess);
  for (std::uint32_t* data : objects) EXPECT_EQ(adsmFree(data), adsmSuccess);
}

// The table of a list, on the device where packs run.
TEST_F(Devices, DISABLED_APackHasRoomForItsOwnMemory) {
  std::uint32_t* data = fill(1);
  ASSERT_EQ(call(0, data), adsmSuccess) << adsmLastErrorString();
  std::uint32_t* rest = allocate(freeOn(0));
  ASSERT_EQ(call(0, rest), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(freeOn(0), 0u);
  std::vector<std::int64_t> places;
  for (std::int64_t at = 0; places.size() < 1000; at += 1 + at * at % 3) places.push_back(at);
  adsmType_t list = nullptr;
  ASSERT_EQ(adsmTypeIndexedBlock(1000, 1, places.data(), ADSM_TYPE_4, &list), adsmSuccess);
  ASSERT_EQ(adsmTypeCommit(list), adsmSuccess);
  std::vector<std::uint32_t> packed(1000);
  ASSERT_EQ(adsmPack(packed.data(), data, 1, list), adsmSuccess) << adsmLastErrorString();
  for (std::size_t i = 0; i < 1000; ++i) ASSERT_EQ(packed[i], places[i] + 2) << i;
  EXPECT_GT(stats().peerSpills.value(), 0u);
  expect(data, 1, 1);
  verify();
  EXPECT_EQ(adsmTypeFree(list), adsmSuccess);
  EXPECT_EQ(adsmFree(data), adsmSuccess);
  EXPECT_EQ(adsmFree(rest), adsmSuccess);
}

TEST_F(Devices, DISABLED_ObjectsLeaveForDevicesThatAreLeft) {
  ASSERT_EQ(adsmCallOn(2, crash_, {1, 1, 1}, {1, 1, 1}, 0, nullptr, nullptr, 0), adsmSuccess)
      << adsmLastErrorString();
  EXPECT_EQ(adsmSync(), adsmErrorKernel);
  std::uint32_t* objects[] = {fill(1), fill(2), fill(3)};
  for (std::uint32_t* data : objects) {
    ASSERT_EQ(call(1, data), adsmSuccess) << adsmLastErrorString();
  }
  EXPECT_GT(stats().peerSpills.value(), 0u);
  for (std::uint32_t i = 0; i < 3; ++i) expect(objects[i], i + 1, 1);
  verify();
  for (std::uint32_t* data : objects) EXPECT_EQ(adsmFree(data), adsmSuccess);
}

// Each thread's objects push out the other's, while the CPU reads and writes them.
TEST_F(Devices, DISABLED_ThreadsTakeRoomFromEachOther) {
  constexpr std::uint32_t kRounds = 8;
  std::latch filled(3);  // nobody is through before all of them have begun
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([this, thread, &filled] {
      std::uint32_t* data = fill(thread);
      EXPECT_EQ(call(1, data), adsmSuccess) << adsmLastErrorString();
      filled.arrive_and_wait();
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        ASSERT_EQ(call(1, data), adsmSuccess) << adsmLastErrorString();
        ASSERT_EQ(data[round * 1000], thread + round * 1000 + round + 2);
        data[round * 1000 + 1] -= 1;
      }
      for (std::uint32_t i = 0; i < kWords; ++i) {
        const std::uint32_t less = i % 1000 == 1 && i / 1000 < kRounds ? 1 : 0;
        ASSERT_EQ(data[i], thread + i + kRounds + 1 - less) << i;
      }
      EXPECT_EQ(adsmFree(data), adsmSuccess) << adsmLastErrorString();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(stats().peerSpills.value(), 0u);
  verify();
}

// Objects on the other devices live on.
TEST_F(Devices, DISABLED_OneMayBeLost) { loseOne(1, 0, 2); }
TEST_F(Devices, DISABLED_TheFirstMayBeLost) { loseOne(0, 1, 2); }

// The runtime's own kernels run on device 0.
TEST_F(Devices, DISABLED_PacksFetchWhatTheyUse) {
  std::uint32_t* from = allocate();
  std::uint32_t* to = allocate();
  std::fill_n(from, kWords, 1u);
  std::fill_n(to, kWords, 0u);
  ASSERT_EQ(call(1, from), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(call(2, to), adsmSuccess) << adsmLastErrorString();
  adsmType_t type = nullptr;
  ASSERT_EQ(adsmTypeVector(kWords / 4, 2, 4, ADSM_TYPE_4, &type), adsmSuccess)
      << adsmLastErrorString();
  ASSERT_EQ(adsmTypeCommit(type), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(adsmPack(to, from, 1, type), adsmSuccess) << adsmLastErrorString();
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(to[i], i < kWords / 2 ? 2u : 1u) << i;
  EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
  EXPECT_EQ(adsmFree(from), adsmSuccess);
  EXPECT_EQ(adsmFree(to), adsmSuccess);
}

// A process reads its GMAC_* variables once, and starts its devices once.
inline void run(const std::string& test, const std::string& rollingSize,
                const std::string& spill = "") {
  for (const auto& [protocol, blockSize] :
       std::map<std::string, std::string>{{"batch", "2M"}, {"lazy", "2M"}, {"rolling", "64K"}}) {
    const ChildEnd end =
        runChild("Devices.DISABLED_" + test, {{"GMAC_ACCEL", devicesKit().accelerator},
                                              {"GMAC_PROTOCOL", protocol},
                                              {"GMAC_BLOCK_SIZE", blockSize},
                                              {"GMAC_ROLLING_SIZE", rollingSize},
                                              {"GMAC_SPILL", spill},
                                              {"GMAC_HOST_MEMORY", devicesKit().hostMemory},
                                              {"GMAC_HOST_THREADS", "3"}});
    if (end.exitStatus == kCannotRun) {
      GTEST_SKIP() << end.output;
    }
    EXPECT_EQ(end.exitStatus, 0) << protocol << ", signal " << end.signal << "\n" << end.output;
    EXPECT_NE(end.output.find("[  PASSED  ] 1 test"), std::string::npos) << end.output;
  }
}

class InAProcess : public ::testing::TestWithParam<const char*> {};

TEST_P(InAProcess, Works) { run(GetParam(), ""); }

TEST(InAProcessWithALog, WhatSuchDevicesDoNotHaveIsSaidOnce) {
  const ChildEnd end =
      runChild("Devices.DISABLED_AreListed", {{"GMAC_ACCEL", devicesKit().accelerator},
                                              {"GMAC_HOST_MEMORY", devicesKit().hostMemory},
                                              {"GMAC_LOG", "info"}});
  if (end.exitStatus == kCannotRun) {
    GTEST_SKIP() << end.output;
  }
  const std::string wanted = "3 devices that do not reach each other's memory";
  const std::size_t first = end.output.find(wanted);
  ASSERT_NE(first, std::string::npos) << end.output;
  EXPECT_EQ(end.output.find(wanted, first + 1), std::string::npos) << end.output;
}

TEST(InAProcessOfHost, APackHasRoomForItsOwnMemory) {
  if (std::string(devicesKit().firstKind) != "host") {
    GTEST_SKIP() << "device 0 is a GPU, whose memory is too large to fill: api/devices_test fills "
                    "one of `host`, and cuda/fake_calls_pack_test a GPU that is not there";
  }
  run("APackHasRoomForItsOwnMemory", "");
}

TEST(InAProcessWithoutSpills, WhatDoesNotFitStaysWhereItIs) {
  run("WhatDoesNotFitStaysWhereItIs", "", "0");
}

// Nothing is evicted: what the CPU has written it alone has.
TEST(InAProcessWithoutEvictions, WhatTheCpuHasWrittenGoesThereAtOnce) {
  run("WhatTheCpuHasWrittenGoesThereAtOnce", "1000");
}

INSTANTIATE_TEST_SUITE_P(
    Devices, InAProcess,
    ::testing::Values("AreListed", "WrongNumbersAreNamed", "AStripedObjectIsPlain",
                      "AnObjectGoesWhereItIsUsed", "BindingForgetsNoCall",
                      "ItsFirstUseChoosesItsHome", "WhatTheCpuHasReadStaysOpen",
                      "TheCpuGoesOnDuringMoves", "AMigrationMovesMemory", "SmallAndSafeObjectsMove",
                      "ConstantsAreSetOnAll", "ThreadsUseAllAtOnce", "ACallHasRoomForWhatItUses",
                      "WhatACallUsesDoesNotFitAtAll", "ObjectsLeaveForDevicesThatAreLeft",
                      "ThreadsTakeRoomFromEachOther", "OneMayBeLost", "TheFirstMayBeLost",
                      "PacksFetchWhatTheyUse"),
    [](const auto& info) { return std::string(info.param); });

}  // namespace gmac::testing

#endif  // GMAC_TESTS_API_DEVICES_PROGRAMS_H_
