// SPDX-License-Identifier: Apache-2.0
//
// Several host accelerators as one: where memory lies, moves, and work on each device.
#include "gmac/accel/group/group.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmac/accel/address_windows.h"
#include "gmac/accel/devices.h"
#include "gmac/accel/host/host_accelerator.h"
#include "tests/accel/device_process.h"
#include "tests/accel/group_fixture.h"

namespace gmac::accel {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kDevices = 3;

void increment(const adsmThreadBlock_t* block, void** args) {
  auto* data = *static_cast<std::uint32_t**>(args[0]);
  const auto count = *static_cast<std::uint64_t*>(args[1]);
  for (std::uint64_t i = block->blockIdx.x; i < count; i += block->gridDim.x) {
    ++data[i];
  }
}

// Waits for the first of two words to become 1, and writes the second.
void awaitWord(const adsmThreadBlock_t*, void** args) {
  auto* words = *static_cast<std::atomic<std::uint32_t>**>(args[0]);
  while (words[0] != 1) {
  }
  words[1] = 2;
}

void crash(const adsmThreadBlock_t*, void**) { __builtin_trap(); }

constexpr std::size_t kTwoWords[] = {8, 8};

adsmKernelDesc_t describe(const char* name, adsmHostKernel_t host, std::size_t parameters) {
  adsmKernelDesc_t desc = {};
  desc.name = name;
  desc.host = host;
  desc.paramSizes = kTwoWords;
  desc.paramCount = parameters;
  return desc;
}

const adsmKernelDesc_t kIncrement = describe("increment", increment, 2);
const adsmKernelDesc_t kAwaitWord = describe("awaitWord", awaitWord, 1);
const adsmKernelDesc_t kCrash = describe("crash", crash, 0);
constexpr LaunchShape kShape{{4, 1, 1}, {1, 1, 1}, 0};
constexpr LaunchShape kOne{{1, 1, 1}, {1, 1, 1}, 0};

class GroupTest : public GroupFixture {
 protected:
  void SetUp() override {
    HostOptions options;
    options.memoryBytes = kDevices * 64 * kMiB;
    options.threads = 2 * kDevices;
    auto members = makeHostAccelerators(options, kDevices);
    ASSERT_TRUE(members.ok()) << lastErrorText();
    start(makeGroup(std::move(*members)));
  }

  std::unique_ptr<LoadedKernel> load(std::size_t device, const adsmKernelDesc_t& desc) {
    auto loaded = devices().load(device, desc);
    EXPECT_TRUE(loaded.ok()) << lastErrorText();
    return loaded.ok() ? std::move(*loaded) : nullptr;
  }
  // Adds 1 to each word, on a device.
  void runIncrement(std::size_t device, DeviceAddress address, std::size_t bytes) {
    const auto kernel = load(device, kIncrement);
    ASSERT_NE(kernel, nullptr);
    std::uint64_t count = bytes / 4;
    void* args[] = {&address, &count};
    await(devices().launch(device, *kernel, kShape, args, {}));
  }
};

// Less than half of a stage, several stages, and an odd rest.
TEST_F(GroupTest, BytesGoAlongWithAMove) {
  for (const std::size_t bytes : {std::size_t{4096}, 13 * kMiB + 4096}) {
    for (const Placement placement : {Placement::kSameAddress, Placement::kAnywhere}) {
      const DeviceAddress address = allocate(bytes, placement);
      fillWith(address, bytes);
      std::uint32_t added = 0;
      for (const std::size_t device : {1, 2, 2, 1, 0}) {
        ASSERT_TRUE(move(address, bytes, device).ok()) << lastErrorText();
        EXPECT_EQ(devices().homeOf(address), device);
        EXPECT_EQ(devices().homeOf(DeviceAddress{static_cast<std::uintptr_t>(address) + bytes - 1}),
                  device);
        runIncrement(device, address, bytes);
        ++added;
      }
      expectWords(address, bytes, added);
      EXPECT_TRUE(group().free(address, bytes).ok()) << lastErrorText();
    }
  }
}

// Parts of all sizes, neighbours among them; what is between them stays behind.
TEST_F(GroupTest, PartsGoAlongWithAMove) {
  constexpr std::size_t kBytes = 12 * kMiB;
  const DeviceAddress address = allocate(kBytes);
  fillWith(address, kBytes);
  const std::vector<Part> parts = {
      {4096, 8},     {8192, 5 * kMiB},     {8192 + 5 * kMiB, 2 * kMiB}, {8 * kMiB, 4096},
      {9 * kMiB, 4}, {9 * kMiB + 4096, 4}, {10 * kMiB, kMiB / 2},       {12 * kMiB - 64, 64}};
  ASSERT_TRUE(devices().move(address, kBytes, 2, parts).ok()) << lastErrorText();
  EXPECT_EQ(devices().homeOf(address), 2u);
  ASSERT_TRUE(move(address, kBytes, 0).ok()) << lastErrorText();
  await(group().copyOut(pinned_, address, kBytes, {}));
  std::size_t part = 0;
  for (std::size_t i = 0; i < kBytes / 4; ++i) {
    const std::size_t offset = i * 4;
    while (part < parts.size() && offset >= parts[part].offset + parts[part].bytes) ++part;
    const bool within = part < parts.size() && offset >= parts[part].offset;
    ASSERT_EQ(pinned_[i], within ? static_cast<std::uint32_t>(i * 7) : 0u) << "word " << i;
  }
}

TEST_F(GroupTest, WhatHoldsNothingIsPlaced) {
  const DeviceAddress address = allocate(kMiB);
  await(group().fill(address, std::byte{9}, kMiB));
  ASSERT_TRUE(devices().place(address, kMiB, 1).ok()) << lastErrorText();
  EXPECT_EQ(devices().homeOf(address), 1u);
  ASSERT_TRUE(move(address, kMiB, 0).ok()) << lastErrorText();
  await(group().copyOut(pinned_, address, kMiB, {}));
  EXPECT_EQ(std::count(pinned_, pinned_ + kMiB / 4, 0u), kMiB / 4);
}

TEST_F(GroupTest, AMoveTakesMemoryThereAndGivesItBackHere) {
  const std::size_t before[] = {freeOn(0), freeOn(1)};
  const DeviceAddress address = allocate(8 * kMiB);
  EXPECT_EQ(freeOn(0), before[0] - 8 * kMiB);
  ASSERT_TRUE(move(address, 8 * kMiB, 1).ok()) << lastErrorText();
  EXPECT_EQ(freeOn(0), before[0]);
  EXPECT_EQ(freeOn(1), before[1] - 8 * kMiB);
  EXPECT_TRUE(group().free(address, 8 * kMiB).ok()) << lastErrorText();
  EXPECT_EQ(freeOn(1), before[1]);
  EXPECT_FALSE(group().free(address, 8 * kMiB).ok());
}

TEST_F(GroupTest, AMoveToAFullDeviceChangesNothing) {
  std::vector<DeviceAddress> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(allocate(8 * kMiB));
    ASSERT_TRUE(move(others.back(), 8 * kMiB, 1).ok()) << lastErrorText();
  }
  const DeviceAddress address = allocate(8 * kMiB);
  fillWith(address, 8 * kMiB);
  EXPECT_EQ(move(address, 8 * kMiB, 1).code(), adsmErrorAcceleratorMemory);
  EXPECT_NE(std::string(lastErrorText()).find("device 1"), std::string::npos) << lastErrorText();
  EXPECT_EQ(devices().homeOf(address), 0u);
  runIncrement(0, address, 8 * kMiB);
  expectWords(address, 8 * kMiB, 1);
  EXPECT_TRUE(group().free(others[0], 8 * kMiB).ok()) << lastErrorText();
  EXPECT_TRUE(move(address, 8 * kMiB, 1).ok()) << lastErrorText();
}

// Each device has a copy, with bytes of its own.
TEST_F(GroupTest, CopiesHoldBytesOfTheirOwn) {
  constexpr std::size_t kBytes = 9 * kMiB;
  constexpr std::size_t kPart = 3 * kMiB;
  std::array<std::size_t, kDevices> room{};
  for (std::size_t device = 0; device < kDevices; ++device) room[device] = freeOn(device);
  const DeviceAddress address = allocate(kBytes);
  const auto at = [&](std::size_t offset) {
    return DeviceAddress{static_cast<std::uintptr_t>(address) + offset};
  };
  fillWith(address, kBytes);
  const PlacedPart second{{kPart, kPart}, 0};
  ASSERT_TRUE(devices().addCopy(address, kBytes, 1, {&second, 1}).ok()) << lastErrorText();
  ASSERT_TRUE(devices().addCopy(address, kBytes, 2, {}).ok()) << lastErrorText();
  for (std::size_t device = 0; device < kDevices; ++device) {
    EXPECT_EQ(freeOn(device), room[device] - kBytes) << device;
  }
  EXPECT_EQ(devices().homeOf(address), 0u);
  runIncrement(1, at(kPart), kPart);
  // From two devices; the last part is there.
  const std::array<PlacedPart, 3> parts{
      {{{0, kPart}, 0}, {{kPart, kPart}, 1}, {{2 * kPart, kPart}, 2}}};
  ASSERT_TRUE(devices().addCopy(address, kBytes, 2, parts).ok()) << lastErrorText();
  await(devices().copyOut(0, pinned_, at(kPart), 4096, {}));
  EXPECT_EQ(pinned_[1], (kPart / 4 + 1) * 7) << "device 0 has its own";
  devices().dropOtherCopies(address, 2);
  EXPECT_EQ(devices().homeOf(address), 2u);
  for (std::size_t device = 0; device < kDevices; ++device) {
    EXPECT_EQ(freeOn(device), room[device] - (device == 2 ? kBytes : 0)) << device;
  }
  ASSERT_TRUE(move(address, kBytes, 0).ok()) << lastErrorText();
  await(group().copyOut(pinned_, address, kBytes, {}));
  for (std::size_t i = 0; i < kBytes / 4; ++i) {
    const std::size_t part = i / (kPart / 4);
    ASSERT_EQ(pinned_[i], part == 2 ? 0 : i * 7 + part) << i;
  }
  // Freeing takes all copies.
  ASSERT_TRUE(devices().addCopy(address, kBytes, 1, {}).ok()) << lastErrorText();
  ASSERT_TRUE(group().free(address, kBytes).ok()) << lastErrorText();
  for (std::size_t device = 0; device < kDevices; ++device) {
    EXPECT_EQ(freeOn(device), room[device]) << device;
  }
  EXPECT_EQ(devices().addCopy(address, kBytes, 1, {}).code(), adsmErrorInvalidValue);
}

TEST_F(GroupTest, ACopyThatDoesNotFitChangesNothing) {
  const DeviceAddress address = allocate(kMiB);
  fillWith(address, kMiB);
  const DeviceAddress large = allocate(64 * kMiB);
  ASSERT_EQ(devices().homeOf(large), 1u);
  const PlacedPart all{{0, kMiB}, 0};
  EXPECT_EQ(devices().addCopy(address, kMiB, 1, {&all, 1}).code(), adsmErrorAcceleratorMemory);
  EXPECT_NE(std::string(lastErrorText()).find("device 1"), std::string::npos) << lastErrorText();
  expectWords(address, kMiB, 0);
  ASSERT_TRUE(group().free(large, 64 * kMiB).ok()) << lastErrorText();
  ASSERT_TRUE(devices().addCopy(address, kMiB, 1, {&all, 1}).ok()) << lastErrorText();
  devices().dropOtherCopies(address, 1);
  ASSERT_TRUE(move(address, kMiB, 0).ok()) << lastErrorText();
  expectWords(address, kMiB, 0);
  ASSERT_TRUE(group().free(address, kMiB).ok()) << lastErrorText();
}

TEST_F(GroupTest, NewMemoryIsWhereThereIsRoom) {
  std::vector<std::size_t> homes(kDevices);
  for (int i = 0; i < 24; ++i) {
    ++homes[devices().homeOf(allocate(8 * kMiB))];
  }
  EXPECT_EQ(homes, std::vector<std::size_t>({8, 8, 8}));
  EXPECT_EQ(group().allocate(8 * kMiB, 4096, Placement::kSameAddress).status().code(),
            adsmErrorAcceleratorMemory);
}

// A kernel of one device waits for what another device's kernel, which is submitted later, lets the
// test write.
TEST_F(GroupTest, DevicesWorkAtOnce) {
  const DeviceAddress waiting = allocate(4096);
  const DeviceAddress other = allocate(4096);
  await(group().fill(waiting, std::byte{0}, 4096));
  await(group().fill(other, std::byte{0}, 4096));
  ASSERT_TRUE(move(other, 4096, 1).ok()) << lastErrorText();
  const auto waits = load(0, kAwaitWord);
  void* args[] = {const_cast<DeviceAddress*>(&waiting)};
  const auto first = devices().launch(0, *waits, kOne, args, {});
  ASSERT_TRUE(first.ok()) << lastErrorText();
  runIncrement(1, other, 4096);
  EXPECT_FALSE(group().done(*first));
  EXPECT_EQ(devices().deviceOf(*first), 0u);
  pinned_[0] = 1;
  await(group().copyIn(waiting, pinned_, 4, {}));
  EXPECT_TRUE(group().wait(*first).ok()) << lastErrorText();
  await(group().copyOut(pinned_, waiting, 8, {}));
  EXPECT_EQ(pinned_[1], 2u);
}

TEST_F(GroupTest, OneDevicesEndLeavesTheOthers) {
  const DeviceAddress here = allocate(kMiB);
  const DeviceAddress there = allocate(kMiB);
  fillWith(here, kMiB);
  ASSERT_TRUE(move(there, kMiB, 1).ok()) << lastErrorText();
  const auto crashing = load(1, kCrash);
  ASSERT_NE(crashing, nullptr);
  const auto ticket = devices().launch(1, *crashing, kOne, nullptr, {});
  ASSERT_TRUE(ticket.ok()) << lastErrorText();
  EXPECT_EQ(group().wait(*ticket).code(), adsmErrorKernel);
  EXPECT_NE(std::string(lastErrorText()).find("device 1"), std::string::npos) << lastErrorText();
  EXPECT_TRUE(group().usable().ok()) << lastErrorText();
  EXPECT_EQ(devices().describe(1).status().code(), adsmErrorAcceleratorLost);
  runIncrement(0, here, kMiB);
  expectWords(here, kMiB, 1);
  EXPECT_EQ(move(there, kMiB, 0).code(), adsmErrorAcceleratorLost);
  EXPECT_NE(std::string(lastErrorText()).find("device 1"), std::string::npos) << lastErrorText();
  EXPECT_EQ(move(here, kMiB, 1).code(), adsmErrorAcceleratorLost);
  expectWords(here, kMiB, 1);
  EXPECT_EQ(devices().homeOf(allocate(kMiB)), 0u);
}

TEST_F(GroupTest, CopiesWithinGoNoFurtherThanADevice) {
  const DeviceAddress a = allocate(4096);
  const DeviceAddress b = allocate(4096);
  fillWith(a, 4096);
  await(group().copyWithin(b, a, 4096));
  expectWords(b, 4096, 0);
  ASSERT_TRUE(move(b, 4096, 2).ok()) << lastErrorText();
  EXPECT_EQ(group().copyWithin(b, a, 4096).status().code(), adsmErrorNotSupported);
}

// Addresses that children of fork do not inherit, as those that a driver reserves.
class NotInherited final : public ReservedAddresses {
 public:
  static Result<std::unique_ptr<ReservedAddresses>> reserve(std::size_t bytes) {
    void* const address =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED || madvise(address, bytes, MADV_DONTFORK) != 0) {
      return fail(adsmErrorHostMemory, "no {} bytes", bytes);
    }
    return std::unique_ptr<ReservedAddresses>(
        new NotInherited(reinterpret_cast<std::uintptr_t>(address), bytes));
  }
  ~NotInherited() override { munmap(reinterpret_cast<void*>(begin()), bytes()); }

 private:
  using ReservedAddresses::ReservedAddresses;
};

TEST(Group, ADeviceProcessKeepsTheAddressesOfObjectsFree) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "after a fork the thread sanitizer maps memory of its own where there is room";
#endif
  auto windows = AddressWindows::make(
      {.bytes = 64 * kMiB, .memoryBytes = 64 * kMiB, .reserve = NotInherited::reserve});
  ASSERT_TRUE(windows.ok()) << lastErrorText();
  HostOptions options;
  options.memoryBytes = 64 * kMiB;
  options.threads = 1;
  options.windows = *windows;
  const auto accelerator = makeHostAccelerator(options);
  ASSERT_TRUE(accelerator.ok()) << lastErrorText();
  const pid_t device = conformance::deviceProcessOf(getpid());
  ASSERT_NE(device, 0);
  std::size_t closed = 0;  // bytes
  std::ifstream maps("/proc/" + std::to_string(device) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char access[5] = {};
    ASSERT_EQ(std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, access), 3) << line;
    for (const Placement placement : {Placement::kSameAddress, Placement::kAnywhere}) {
      const ReservedAddresses& window = (*windows)->of(placement);
      const std::uintptr_t first = std::max(begin, window.begin());
      const std::uintptr_t last = std::min(end, window.begin() + window.bytes());
      closed += first < last && std::string(access) == "---p" ? last - first : 0;
    }
  }
  EXPECT_EQ(closed, (*windows)->of(Placement::kSameAddress).bytes() +
                        (*windows)->of(Placement::kAnywhere).bytes());
}

// Whole units, also where less is asked for.
TEST(Group, AddressesComeInUnits) {
  auto windows =
      AddressWindows::make({.bytes = 64 * kMiB, .memoryBytes = 64 * kMiB, .unit = 2 * kMiB});
  ASSERT_TRUE(windows.ok()) << lastErrorText();
  for (const Placement placement : {Placement::kSameAddress, Placement::kAnywhere}) {
    const std::size_t free = (*windows)->largest(placement);
    const auto first = (*windows)->take(4096, 4096, placement);
    const auto second = (*windows)->take(2 * kMiB + 4096, 1, placement);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(*first % (2 * kMiB), 0u);
    EXPECT_EQ(*second, *first + 2 * kMiB);
    EXPECT_EQ((*windows)->largest(placement), free - 6 * kMiB);
    (*windows)->giveBack(*first, 4096, placement);
    (*windows)->giveBack(*second, 2 * kMiB + 4096, placement);
    EXPECT_EQ((*windows)->largest(placement), free);
  }
}

TEST(Group, RefusesWhatSharesNoAddresses) {
  EXPECT_EQ(makeGroup({}).status().code(), adsmErrorInvalidValue);
}

}  // namespace
}  // namespace gmac::accel
