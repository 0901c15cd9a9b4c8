// SPDX-License-Identifier: Apache-2.0
//
// Memory of one host accelerator that another one has imported, by its file. (Here of one process;
// tests/mpi/lent_on_device.cc has two.)
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/exported_memory.h"
#include "gmac/accel/host/host_accelerator.h"

namespace gmac::accel {
namespace {

constexpr std::size_t kBytes = std::size_t{64} << 10;

class SharedMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    shareMemory();
    ended.clear();
    onSharedMemoryEnd([](std::uint64_t number) { ended.push_back(number); });
  }
  void TearDown() override { onSharedMemoryEnd(nullptr); }

  static std::unique_ptr<Accelerator> make() {
    HostOptions options;
    options.memoryBytes = std::size_t{16} << 20;
    options.threads = 1;
    auto made = makeHostAccelerator(options);
    EXPECT_TRUE(made.ok()) << lastErrorText();
    return std::move(*made);
  }
  static DeviceAddress allocate(Accelerator& accelerator,
                                Placement placement = Placement::kSameAddress) {
    const auto memory = accelerator.allocate(kBytes, 1, placement);
    EXPECT_TRUE(memory.ok()) << lastErrorText();
    return *memory;
  }
  static void fill(Accelerator& accelerator, DeviceAddress address, int value) {
    const auto filled = accelerator.fill(address, static_cast<std::byte>(value), kBytes);
    ASSERT_TRUE(filled.ok() && accelerator.wait(*filled).ok()) << lastErrorText();
  }
  // Whether that is every byte there.
  static bool holds(Accelerator& accelerator, DeviceAddress address, int value) {
    const auto pinned = accelerator.allocatePinned(kBytes);
    EXPECT_TRUE(pinned.ok()) << lastErrorText();
    std::memset(*pinned, value + 1, kBytes);
    const auto copied = accelerator.copyOut(*pinned, address, kBytes, {});
    EXPECT_TRUE(copied.ok() && accelerator.wait(*copied).ok()) << lastErrorText();
    const auto* const bytes = static_cast<const unsigned char*>(*pinned);
    const bool all =
        std::all_of(bytes, bytes + kBytes, [&](unsigned char byte) { return byte == value; });
    accelerator.freePinned(*pinned, kBytes);
    return all;
  }
  static SharedAllocation allocationAt(Accelerator& accelerator, DeviceAddress address) {
    const auto found = accelerator.exportedMemory()->sharedAllocation(address);
    EXPECT_TRUE(found.ok()) << lastErrorText();
    return *found;
  }
  static DeviceAddress imported(Accelerator& to, Accelerator& from, DeviceAddress address) {
    const auto files = from.exportedMemory()->filesOf(allocationAt(from, address));
    EXPECT_TRUE(files.ok()) << lastErrorText();
    const auto there = to.exportedMemory()->importFiles(*files);
    EXPECT_TRUE(there.ok()) << lastErrorText();
    for (const MemoryFile& file : *files) ::close(file.file);
    return *there;
  }

  static inline std::vector<std::uint64_t> ended;
};

TEST_F(SharedMemory, IsReadWhereItLies) {
  const auto owner = make();
  const auto other = make();
  for (const Placement placement : {Placement::kSameAddress, Placement::kAnywhere}) {
    const DeviceAddress before = allocate(*owner, placement);
    const DeviceAddress memory = allocate(*owner, placement);
    fill(*owner, before, 3);
    fill(*owner, memory, 7);
    const DeviceAddress there = imported(*other, *owner, memory);
    EXPECT_TRUE(holds(*other, there, 7));
    fill(*owner, memory, 9);
    EXPECT_TRUE(holds(*other, there, 9));
    const auto* const last =
        reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(there)) + kBytes - 1;
    EXPECT_EQ(other->memoryOf(last), Memory::kDevice);
    EXPECT_EQ(other->memoryOf(last + 1), Memory::kPageable);
    ASSERT_TRUE(other->exportedMemory()->releaseImport(there).ok()) << lastErrorText();
    EXPECT_EQ(other->memoryOf(last), Memory::kPageable);
    EXPECT_FALSE(other->exportedMemory()->releaseImport(there).ok());
    EXPECT_TRUE(holds(*owner, memory, 9));
  }
}

TEST_F(SharedMemory, IsKnownByItsPagesUntilTheyAreFreed) {
  const auto owner = make();
  const DeviceAddress memory = allocate(*owner);
  const SharedAllocation first = allocationAt(*owner, memory);
  EXPECT_EQ(first.start, memory);
  EXPECT_EQ(first.bytes, kBytes);
  const auto inside = DeviceAddress{static_cast<std::uintptr_t>(memory) + kBytes - 1};
  EXPECT_EQ(allocationAt(*owner, inside).number, first.number);
  ASSERT_TRUE(owner->free(memory, kBytes).ok());
  EXPECT_FALSE(owner->exportedMemory()->sharedAllocation(memory).ok());
  EXPECT_TRUE(ended.empty()) << "nobody has asked for its files";
  ASSERT_EQ(allocate(*owner), memory);
  EXPECT_NE(allocationAt(*owner, memory).number, first.number);
  EXPECT_EQ(owner->exportedMemory()->filesOf(first).status().code(), adsmErrorInvalidValue);
}

TEST_F(SharedMemory, MayBeFreedWhileOthersHaveIt) {
  const auto owner = make();
  const auto other = make();
  const DeviceAddress memory = allocate(*owner);
  fill(*owner, memory, 7);
  const SharedAllocation allocation = allocationAt(*owner, memory);
  const DeviceAddress there = imported(*other, *owner, memory);
  ASSERT_TRUE(owner->free(memory, kBytes).ok()) << lastErrorText();
  EXPECT_EQ(ended, std::vector<std::uint64_t>{allocation.number});
  (void)holds(*other, there, 0);  // what it reads means nothing, but it may
  // New memory reads as zero.
  ASSERT_EQ(allocate(*owner), memory);
  EXPECT_TRUE(holds(*owner, memory, 0));
  ASSERT_TRUE(other->exportedMemory()->releaseImport(there).ok());
  EXPECT_TRUE(holds(*owner, memory, 0));
}

TEST_F(SharedMemory, OutlivesItsAccelerator) {
  auto owner = make();
  const auto other = make();
  const DeviceAddress memory = allocate(*owner);
  fill(*owner, memory, 7);
  const DeviceAddress there = imported(*other, *owner, memory);
  owner.reset();
  EXPECT_TRUE(holds(*other, there, 7));
}

// A mapping of a file that is too short, or gets so, would end the device process.
TEST_F(SharedMemory, IsNoOtherFile) {
  const auto owner = make();
  const int open = ::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(open, kBytes), 0);
  ExportedMemory& exported = *owner->exportedMemory();
  const auto code = [&](const std::vector<MemoryFile>& files) {
    return exported.importFiles(files).status().code();
  };
  EXPECT_EQ(code({{open, 0, kBytes}}), adsmErrorInvalidValue);
  ASSERT_EQ(::fcntl(open, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(code({{open, 0, kBytes}}), adsmSuccess);
  EXPECT_EQ(code({{open, 0, 2 * kBytes}}), adsmErrorInvalidValue);
  EXPECT_EQ(code({{open, 4096, kBytes}}), adsmErrorInvalidValue);
  EXPECT_EQ(code({{open, 0, 100}}), adsmErrorInvalidValue);
  EXPECT_EQ(code({{open, 0, 4096}, {open, 4096, 4096}}), adsmErrorInvalidValue);
  EXPECT_EQ(code({{-1, 0, kBytes}}), adsmErrorInvalidValue);
  ::close(open);
}

// Memory is had all the same.
TEST_F(SharedMemory, HasNoFileWhereTheLimitOfFileSizesIsInItsWay) {
  const auto owner = make();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const DeviceAddress memory = allocate(*owner);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  fill(*owner, memory, 7);
  EXPECT_TRUE(holds(*owner, memory, 7));
  EXPECT_EQ(owner->exportedMemory()->sharedAllocation(memory).status().code(),
            adsmErrorNotSupported);
  ASSERT_TRUE(owner->free(memory, kBytes).ok());
}

}  // namespace
}  // namespace gmac::accel
