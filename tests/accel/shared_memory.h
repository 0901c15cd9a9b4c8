// SPDX-License-Identifier: Apache-2.0
//
// Tests of what every accelerator promises whose memory other processes are given by files
// (gmac/accel/exported_memory.h). Here another accelerator of the same process has it;
// tests/mpi/lent_on_device.cc has two processes.
#ifndef GMAC_TESTS_ACCEL_SHARED_MEMORY_H_
#define GMAC_TESTS_ACCEL_SHARED_MEMORY_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/exported_memory.h"

namespace gmac::accel::shared_memory {

struct Kit {
  std::string name;
  Result<std::unique_ptr<Accelerator>> (*make)();
  std::size_t bytes;  // of an allocation
};

inline std::string kitName(const ::testing::TestParamInfo<const Kit*>& info) {
  return info.param->name;
}

// Where an accelerator has another one's allocation, and a part of that.
struct Imported {
  DeviceAddress start;
  DeviceAddress memory;
};

class SharedMemory : public ::testing::TestWithParam<const Kit*> {
 protected:
  void SetUp() override {
    const auto made = GetParam()->make();
    if (!made.ok() && made.status().code() == adsmErrorNoAccelerator) {
      GTEST_SKIP() << "needs an NVIDIA GPU: " << lastErrorText();
    }
    shareMemory();
    ended.clear();
    onSharedMemoryEnd([](std::uint64_t number) { ended.push_back(number); });
  }
  void TearDown() override { onSharedMemoryEnd(nullptr); }

  std::size_t bytes() const { return GetParam()->bytes; }
  std::unique_ptr<Accelerator> make() const {
    auto made = GetParam()->make();
    EXPECT_TRUE(made.ok()) << lastErrorText();
    return std::move(*made);
  }
  DeviceAddress allocate(Accelerator& accelerator,
                         Placement placement = Placement::kSameAddress) const {
    const auto memory = accelerator.allocate(bytes(), 1, placement);
    EXPECT_TRUE(memory.ok()) << lastErrorText();
    return *memory;
  }
  void fill(Accelerator& accelerator, DeviceAddress address, int value) const {
    const auto filled = accelerator.fill(address, static_cast<std::byte>(value), bytes());
    ASSERT_TRUE(filled.ok() && accelerator.wait(*filled).ok()) << lastErrorText();
  }
  // Whether that is every byte there.
  bool holds(Accelerator& accelerator, DeviceAddress address, int value) const {
    const auto pinned = accelerator.allocatePinned(bytes());
    EXPECT_TRUE(pinned.ok()) << lastErrorText();
    std::memset(*pinned, value + 1, bytes());
    const auto copied = accelerator.copyOut(*pinned, address, bytes(), {});
    EXPECT_TRUE(copied.ok() && accelerator.wait(*copied).ok()) << lastErrorText();
    const auto* const first = static_cast<const unsigned char*>(*pinned);
    const bool all =
        std::all_of(first, first + bytes(), [&](unsigned char byte) { return byte == value; });
    accelerator.freePinned(*pinned, bytes());
    return all;
  }
  static SharedAllocation allocationAt(Accelerator& accelerator, DeviceAddress address) {
    const auto found = accelerator.exportedMemory()->sharedAllocation(address);
    EXPECT_TRUE(found.ok()) << lastErrorText();
    return *found;
  }
  static std::vector<MemoryFile> filesAt(Accelerator& accelerator, DeviceAddress address) {
    const auto files = accelerator.exportedMemory()->filesOf(allocationAt(accelerator, address));
    EXPECT_TRUE(files.ok()) << lastErrorText();
    return *files;
  }
  static void close(const std::vector<MemoryFile>& files) {
    for (const MemoryFile& file : files) ::close(file.file);
  }
  static Imported imported(Accelerator& to, Accelerator& from, DeviceAddress address) {
    const SharedAllocation all = allocationAt(from, address);
    const std::vector<MemoryFile> files = filesAt(from, address);
    const auto there = to.exportedMemory()->importFiles(files);
    EXPECT_TRUE(there.ok()) << lastErrorText();
    close(files);
    return {*there,
            after(*there, static_cast<std::size_t>(address) - static_cast<std::size_t>(all.start))};
  }
  static DeviceAddress after(DeviceAddress address, std::size_t bytes) {
    return DeviceAddress{static_cast<std::uintptr_t>(address) + bytes};
  }
  static const void* pointer(DeviceAddress address) {
    return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address));
  }

  static inline std::vector<std::uint64_t> ended;
};

TEST_P(SharedMemory, IsReadWhereItLies) {
  const auto owner = make();
  const auto other = make();
  for (const Placement placement : {Placement::kSameAddress, Placement::kAnywhere}) {
    const DeviceAddress before = allocate(*owner, placement);
    const DeviceAddress memory = allocate(*owner, placement);
    fill(*owner, before, 3);
    fill(*owner, memory, 7);
    const auto [start, there] = imported(*other, *owner, memory);
    EXPECT_TRUE(holds(*other, there, 7));
    fill(*owner, memory, 9);
    EXPECT_TRUE(holds(*other, there, 9));
    const void* const last = pointer(after(there, bytes() - 1));
    EXPECT_EQ(other->memoryOf(last), Memory::kDevice);
    ASSERT_TRUE(other->exportedMemory()->releaseImport(start).ok()) << lastErrorText();
    EXPECT_EQ(other->memoryOf(last), Memory::kPageable);
    EXPECT_FALSE(other->exportedMemory()->releaseImport(start).ok());
    EXPECT_TRUE(holds(*owner, memory, 9));
  }
}

TEST_P(SharedMemory, IsKnownByItsPagesUntilTheyAreFreed) {
  const auto owner = make();
  const DeviceAddress memory = allocate(*owner);
  const SharedAllocation first = allocationAt(*owner, memory);
  EXPECT_LE(first.start, memory);
  EXPECT_GE(after(first.start, first.bytes), after(memory, bytes()));
  EXPECT_EQ(allocationAt(*owner, after(memory, bytes() - 1)).number, first.number);
  EXPECT_NE(allocationAt(*owner, allocate(*owner)).number, first.number);
  ASSERT_TRUE(owner->free(memory, bytes()).ok());
  EXPECT_FALSE(owner->exportedMemory()->sharedAllocation(memory).ok());
  EXPECT_TRUE(ended.empty()) << "nobody has asked for its files";
  EXPECT_NE(allocationAt(*owner, allocate(*owner)).number, first.number);
  EXPECT_EQ(owner->exportedMemory()->filesOf(first).status().code(), adsmErrorInvalidValue);
}

TEST_P(SharedMemory, MayBeFreedWhileOthersHaveIt) {
  const auto owner = make();
  const auto other = make();
  const DeviceAddress memory = allocate(*owner);
  fill(*owner, memory, 7);
  const SharedAllocation allocation = allocationAt(*owner, memory);
  const auto [start, there] = imported(*other, *owner, memory);
  ASSERT_TRUE(owner->free(memory, bytes()).ok()) << lastErrorText();
  EXPECT_EQ(ended, std::vector<std::uint64_t>{allocation.number});
  (void)holds(*other, there, 0);  // what it reads means nothing, but it may
  // New memory reads as zero.
  const DeviceAddress again = allocate(*owner);
  EXPECT_TRUE(holds(*owner, again, 0));
  ASSERT_TRUE(other->exportedMemory()->releaseImport(start).ok());
  EXPECT_TRUE(holds(*owner, again, 0));
}

TEST_P(SharedMemory, OutlivesItsAccelerator) {
  auto owner = make();
  const auto other = make();
  const DeviceAddress memory = allocate(*owner);
  fill(*owner, memory, 7);
  const auto there = imported(*other, *owner, memory);
  owner.reset();
  EXPECT_TRUE(holds(*other, there.memory, 7));
  EXPECT_TRUE(other->exportedMemory()->releaseImport(there.start).ok()) << lastErrorText();
}

TEST_P(SharedMemory, IsNoFileOfAnotherKind) {
  const auto owner = make();
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  ExportedMemory& exported = *owner->exportedMemory();
  const auto code = [&](const std::vector<MemoryFile>& files) {
    return exported.importFiles(files).status().code();
  };
  const std::size_t whole = std::size_t{2} << 20;
  EXPECT_NE(code({{ends[0], 0, whole}}), adsmSuccess) << "a real driver has its own words";
  EXPECT_EQ(code({{-1, 0, whole}}), adsmErrorInvalidValue);
  EXPECT_EQ(code({{ends[0], 0, 100}}), adsmErrorInvalidValue);
  EXPECT_EQ(code({}), adsmErrorInvalidValue);
  for (const int end : ends) ::close(end);
}

}  // namespace gmac::accel::shared_memory

#endif  // GMAC_TESTS_ACCEL_SHARED_MEMORY_H_
