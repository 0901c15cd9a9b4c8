// SPDX-License-Identifier: Apache-2.0
//
// Memory of the `cuda` accelerator over the fake driver that other processes are given by files.
// Needs no GPU.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "gmac/accel/cuda/cuda_accelerator.h"
#include "gmac/accel/cuda/mapped_memory.h"
#include "gmac/accel/devices.h"
#include "gmac/accel/movable_memory.h"
#include "tests/accel/shared_memory.h"
#include "tests/cuda/fake_library.h"

namespace gmac::accel::shared_memory {
namespace {

Result<std::unique_ptr<Accelerator>> makeFresh() {
  (void)fake_cuda::library();  // before a driver is looked for
  return makeCudaAccelerator();
}

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr CUdevice_attribute kFilesAttribute =
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
const Kit kSmallKit = {"Small", &makeFresh, std::size_t{32} << 10};
const Kit kFakeKit = {"Fake", &makeFresh, 4 * kMiB};
INSTANTIATE_TEST_SUITE_P(, SharedMemory, ::testing::Values(&kSmallKit, &kFakeKit), kitName);

class CudaSharedMemory : public SharedMemory {
 protected:
  void SetUp() override {
    fake_cuda::reset();
    fake_cuda::setDevices(1);
    SharedMemory::SetUp();
  }

  static std::ptrdiff_t descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  }
  static bool errorSays(const char* words) {
    return std::string(lastErrorText()).find(words) != std::string::npos;
  }
  static adsmError_t codeAt(Accelerator& accelerator, DeviceAddress address) {
    return accelerator.exportedMemory()->sharedAllocation(address).status().code();
  }
  static bool moves(Accelerator& accelerator, DeviceAddress address, std::size_t bytes, Home home) {
    return accelerator.movableMemory()->move(address, bytes, home).ok();
  }
};
INSTANTIATE_TEST_SUITE_P(, CudaSharedMemory, ::testing::Values(&kFakeKit), kitName);

// Pages in the CPU's memory have no files; those that come back are others.
TEST_P(CudaSharedMemory, EndsWhenItsPagesMove) {
  const auto owner = make();
  const auto other = make();
  const DeviceAddress memory = allocate(*owner);
  fill(*owner, memory, 7);
  const SharedAllocation first = allocationAt(*owner, memory);
  const auto [start, there] = imported(*other, *owner, memory);
  ASSERT_TRUE(moves(*owner, memory, bytes(), Home::kCpu)) << lastErrorText();
  EXPECT_EQ(ended, std::vector<std::uint64_t>{first.number});
  EXPECT_EQ(codeAt(*owner, memory), adsmErrorNotSupported);
  EXPECT_TRUE(errorSays("lie in the CPU's memory")) << lastErrorText();
  EXPECT_EQ(owner->exportedMemory()->filesOf(first).status().code(), adsmErrorInvalidValue);
  EXPECT_TRUE(holds(*other, there, 7)) << "it may still read its own";
  ASSERT_TRUE(moves(*owner, memory, bytes(), Home::kDevice)) << lastErrorText();
  EXPECT_EQ(ended.size(), 1u) << "nobody has asked for the files of those";
  const SharedAllocation second = allocationAt(*owner, memory);
  EXPECT_NE(second.number, first.number);
  EXPECT_EQ(owner->exportedMemory()->filesOf(first).status().code(), adsmErrorInvalidValue);
  fill(*owner, memory, 9);
  const auto again = imported(*other, *owner, memory);
  EXPECT_TRUE(holds(*other, again.memory, 9));
  EXPECT_TRUE(holds(*other, there, 7));
  EXPECT_TRUE(other->exportedMemory()->releaseImport(start).ok());
  EXPECT_TRUE(other->exportedMemory()->releaseImport(again.start).ok());
  ASSERT_TRUE(owner->free(memory, bytes()).ok());
  EXPECT_EQ(ended, (std::vector<std::uint64_t>{first.number, second.number}));
}

// It stays what it was, and so do its pages, when they do not move.
TEST_P(CudaSharedMemory, StaysWhenItsPagesCannotMove) {
  const auto owner = make();
  const DeviceAddress memory = allocate(*owner);
  const SharedAllocation first = allocationAt(*owner, memory);
  close(filesAt(*owner, memory));
  for (const char* const call : {"cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemSetAccess"}) {
    fake_cuda::failNext(call, CUDA_ERROR_INVALID_VALUE);
    const bool moved = moves(*owner, memory, bytes(), Home::kCpu);
    EXPECT_EQ(moved, call == std::string("cuMemUnmap")) << call << ", of the copy aside";
    if (moved) break;
    EXPECT_TRUE(ended.empty()) << call;
    EXPECT_EQ(allocationAt(*owner, memory).number, first.number) << call;
  }
  EXPECT_EQ(ended.size(), 1u);
}

// Some pages have moved when a move fails: the allocation is another one, and the error is the
// move's.
TEST_P(CudaSharedMemory, EndsWhenSomeOfItsPagesMove) {
  fake_cuda::setDevices(2);  // so that it is several pieces
  onSharedMemoryEnd([](std::uint64_t number) {
    ended.push_back(number);
    (void)gmac::fail(adsmErrorSystem, "an error of another kind");
  });
  const auto owner = make();
  const std::size_t bytes = 200 * kMiB;
  const auto memory = owner->allocate(bytes, 1, Placement::kSameAddress);
  ASSERT_TRUE(memory.ok()) << lastErrorText();
  const SharedAllocation all = allocationAt(*owner, *memory);
  close(filesAt(*owner, *memory));
  fake_cuda::failNth("cuMemcpyDtoDAsync_v2", 2, CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(owner->movableMemory()->moveAllTo(*memory, bytes, 1).ok());
  EXPECT_TRUE(errorSays("cuMemcpyDtoDAsync")) << lastErrorText();
  EXPECT_EQ(ended, std::vector<std::uint64_t>{all.number});
  EXPECT_NE(allocationAt(*owner, *memory).number, all.number);
}

// A process that no longer answers keeps what it has; the owner's memory is free to others.
TEST_P(CudaSharedMemory, LeavesNothingWhenAllHaveLetGo) {
  const auto owner = make();
  const auto other = make();
  const fake_cuda::Living before = fake_cuda::living();
  const std::ptrdiff_t open = descriptors();
  const DeviceAddress memory = allocate(*owner);
  const auto first = imported(*other, *owner, memory);
  const auto second = imported(*other, *owner, memory);
  ASSERT_TRUE(owner->free(memory, bytes()).ok());
  EXPECT_TRUE(other->exportedMemory()->releaseImport(first.start).ok());
  EXPECT_NE(fake_cuda::living(), before);
  EXPECT_TRUE(other->exportedMemory()->releaseImport(second.start).ok());
  EXPECT_EQ(fake_cuda::living(), before);
  EXPECT_EQ(descriptors(), open);
}

TEST_P(CudaSharedMemory, IsImportedWholeOrNotAtAll) {
  const auto owner = make();
  const auto other = make();
  const DeviceAddress memory = allocate(*owner);
  fill(*owner, memory, 7);
  const SharedAllocation all = allocationAt(*owner, memory);
  // Of two allocations, one after the other, so that there is something to undo.
  std::vector<MemoryFile> files = filesAt(*owner, memory);
  const std::vector<MemoryFile> more = filesAt(*owner, allocate(*owner));
  files.insert(files.end(), more.begin(), more.end());
  const fake_cuda::Living before = fake_cuda::living();
  const std::ptrdiff_t open = descriptors();
  for (const char* const call :
       {"cuMemAddressReserve", "cuMemImportFromShareableHandle", "cuMemMap"}) {
    const std::size_t times = call == std::string("cuMemAddressReserve") ? 1 : files.size();
    for (std::size_t n = 1; n <= times; ++n) {
      fake_cuda::failNth(call, n, CUDA_ERROR_NOT_SUPPORTED);
      const auto there = other->exportedMemory()->importFiles(files);
      EXPECT_EQ(there.status().code(),
                times == 1 ? adsmErrorAcceleratorMemory : adsmErrorNotSupported);
      EXPECT_TRUE(errorSays(call)) << lastErrorText();
      EXPECT_EQ(fake_cuda::living(), before) << call << ", " << n;
      EXPECT_EQ(descriptors(), open) << call << ", " << n;
    }
  }
  const auto there = other->exportedMemory()->importFiles(files);
  ASSERT_TRUE(there.ok()) << lastErrorText();
  EXPECT_TRUE(holds(
      *other, after(*there, static_cast<std::size_t>(memory) - static_cast<std::size_t>(all.start)),
      7));
  // It is imported until it is given back as a whole.
  for (const char* const call : {"cuMemUnmap", "cuMemAddressFree"}) {
    fake_cuda::failNext(call, CUDA_ERROR_INVALID_VALUE);
    EXPECT_FALSE(other->exportedMemory()->releaseImport(*there).ok()) << call;
    EXPECT_TRUE(errorSays(call)) << lastErrorText();
  }
  EXPECT_TRUE(other->exportedMemory()->releaseImport(*there).ok()) << lastErrorText();
  EXPECT_EQ(fake_cuda::living(), before);
  close(files);
}

// By a process that says what is not so.
TEST_P(CudaSharedMemory, IsNotImportedInOtherPartsThanItsOwner) {
  const auto owner = make();
  std::vector<MemoryFile> files = filesAt(*owner, allocate(*owner));
  const fake_cuda::Living before = fake_cuda::living();
  const auto code = [&](std::int64_t offset, std::size_t size) {
    const std::vector<MemoryFile> changed = {{files.front().file, offset, size}};
    return owner->exportedMemory()->importFiles(changed).status().code();
  };
  const std::size_t all = files.front().bytes;
  EXPECT_EQ(code(2 * kMiB, all - 2 * kMiB), adsmErrorInvalidValue);
  EXPECT_EQ(code(-1, all), adsmErrorInvalidValue);
  EXPECT_EQ(code(0, all - 1), adsmErrorInvalidValue);
  EXPECT_EQ(code(0, 0), adsmErrorInvalidValue);
  EXPECT_EQ(code(0, all + 2 * kMiB), adsmErrorNotSupported) << "the driver refuses";
  const std::vector<MemoryFile> other = {{STDERR_FILENO, 0, all}};
  EXPECT_EQ(owner->exportedMemory()->importFiles(other).status().code(), adsmErrorInvalidValue);
  EXPECT_EQ(fake_cuda::living(), before);
  close(files);
}

// As some drivers have it.
TEST_P(CudaSharedMemory, IsWritableWhereADeviceCannotReadAlone) {
  const auto owner = make();
  const auto other = make();
  const DeviceAddress memory = allocate(*owner);
  fill(*owner, memory, 7);
  const std::vector<MemoryFile> files = filesAt(*owner, memory);
  const fake_cuda::Living before = fake_cuda::living();
  fake_cuda::failNext("cuMemSetAccess", CUDA_ERROR_NOT_SUPPORTED);
  const auto there = imported(*other, *owner, memory);
  EXPECT_TRUE(holds(*other, there.memory, 7));
  EXPECT_TRUE(other->exportedMemory()->releaseImport(there.start).ok());
  EXPECT_EQ(fake_cuda::living(), before);
  close(files);
}

TEST_P(CudaSharedMemory, OfADeviceThatIsNotReachedIsNotImported) {
  fake_cuda::setDevices(2);
  const auto owner = make();
  const auto memory = owner->movableMemory()->allocateOn(bytes(), 1, Placement::kSameAddress, 1);
  ASSERT_TRUE(memory.ok()) << lastErrorText();
  fill(*owner, *memory, 7);
  const std::vector<MemoryFile> files = filesAt(*owner, *memory);
  const fake_cuda::Living before = fake_cuda::living();
  fake_cuda::setDevices(2, /*reachEachOther=*/false);
  EXPECT_EQ(owner->exportedMemory()->importFiles(files).status().code(), adsmErrorNotSupported);
  EXPECT_TRUE(errorSays("cuMemSetAccess")) << lastErrorText();
  EXPECT_EQ(fake_cuda::living(), before);
  fake_cuda::setDevices(2);
  const auto there = owner->exportedMemory()->importFiles(files);
  EXPECT_TRUE(there.ok()) << lastErrorText();
  close(files);
}

// The files that were made are closed, and the pages count as not handed out.
TEST_P(CudaSharedMemory, IsHandedOverWholeOrNotAtAll) {
  fake_cuda::setDevices(2);  // so that it is several pieces
  const auto owner = make();
  const std::size_t bytes = 200 * kMiB;
  const auto memory = owner->allocate(bytes, 1, Placement::kSameAddress);
  ASSERT_TRUE(memory.ok()) << lastErrorText();
  const SharedAllocation all = allocationAt(*owner, *memory);
  const std::ptrdiff_t open = descriptors();
  for (const std::size_t n : {1, 2}) {
    fake_cuda::failNth("cuMemExportToShareableHandle", n, CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(owner->exportedMemory()->filesOf(all).status().code(), adsmErrorNotSupported);
    EXPECT_TRUE(errorSays("cuMemExportToShareableHandle")) << lastErrorText();
    EXPECT_EQ(descriptors(), open);
  }
  ASSERT_TRUE(owner->free(*memory, bytes).ok());
  EXPECT_TRUE(ended.empty());
}

TEST_P(CudaSharedMemory, OfSeveralPiecesIsImportedInTheirOrder) {
  fake_cuda::setDevices(2);
  const auto owner = make();
  const auto other = make();
  const std::size_t size = 200 * kMiB;
  const auto memory = owner->allocate(size, 1, Placement::kSameAddress);
  ASSERT_TRUE(memory.ok()) << lastErrorText();
  for (std::size_t at = 0; at < size; at += bytes()) {
    fill(*owner, after(*memory, at), static_cast<int>(at / bytes()));
  }
  const SharedAllocation all = allocationAt(*owner, *memory);
  const std::vector<MemoryFile> files = filesAt(*owner, *memory);
  EXPECT_EQ(files.size(), 2u);
  std::size_t sum = 0;
  for (const MemoryFile& file : files) sum += file.bytes;
  EXPECT_EQ(sum, all.bytes);
  const auto [start, there] = imported(*other, *owner, *memory);
  for (std::size_t at = 0; at < size; at += bytes()) {
    EXPECT_TRUE(holds(*other, after(there, at), static_cast<int>(at / bytes()))) << at;
  }
  // A part that moves to the other device makes it another allocation.
  close(files);
  ASSERT_TRUE(owner->movableMemory()->moveTo(after(*memory, 8 * kMiB), bytes(), 1).ok());
  EXPECT_EQ(ended, std::vector<std::uint64_t>{all.number});
  const std::vector<MemoryFile> more = filesAt(*owner, *memory);
  EXPECT_EQ(more.size(), 4u);
  close(more);
  EXPECT_TRUE(other->exportedMemory()->releaseImport(start).ok());
}

TEST_P(CudaSharedMemory, OfTooManyPiecesHasNoFiles) {
  fake_cuda::setDevices(2);
  const auto owner = make();
  const std::size_t bytes = 40 * kMiB;
  const std::size_t devices[] = {0, 1};
  const auto memory = owner->devices()->allocateStriped(bytes, 1, Placement::kSameAddress, devices);
  ASSERT_TRUE(memory.ok()) << lastErrorText();
  const auto files = owner->exportedMemory()->filesOf(allocationAt(*owner, *memory));
  EXPECT_EQ(files.status().code(), adsmErrorNotSupported);
  EXPECT_TRUE(errorSays("allowed are 16")) << lastErrorText();
  // Other allocations have as many as are allowed, whatever their size.
  for (const std::size_t size : {kMiB, 100 * kMiB, 5000 * kMiB, 1'000'002 * kMiB}) {
    const std::size_t piece = cuda::MappedMemory::pieceBytes(size, 64 * kMiB);
    EXPECT_LE((size + piece - 1) / piece, kMaxMemoryFiles) << size;
    EXPECT_EQ(piece % cuda::MappedMemory::kPage, 0u);
    EXPECT_LE(piece, std::max(64 * kMiB, size / kMaxMemoryFiles + cuda::MappedMemory::kPage));
  }
}

// As objects are had on such systems.
TEST_P(CudaSharedMemory, IsMadeWithoutFilesWhereTheSystemRefusesThem) {
  for (const bool told : {true, false}) {
    if (told) fake_cuda::setAttribute(kFilesAttribute, 0);
    const auto owner = make();
    fake_cuda::setAttribute(kFilesAttribute, 1);
    if (!told) fake_cuda::failNext("cuMemCreate", CUDA_ERROR_NOT_SUPPORTED);
    for (int i = 0; i < 2; ++i) {
      const DeviceAddress memory = allocate(*owner);
      fill(*owner, memory, 7);
      EXPECT_TRUE(holds(*owner, memory, 7));
      EXPECT_EQ(codeAt(*owner, memory), adsmErrorNotSupported);
      EXPECT_TRUE(errorSays("for this process alone")) << lastErrorText();
      EXPECT_TRUE(owner->free(memory, bytes()).ok());
    }
  }
}

TEST_P(CudaSharedMemory, OfAFewBytesIsAWholePage) {
  const auto owner = make();
  constexpr std::size_t kFew = 100;
  const auto memory = owner->allocate(kFew, 1, Placement::kSameAddress);
  ASSERT_TRUE(memory.ok()) << lastErrorText();
  const auto shared = owner->exportedMemory()->sharedAllocation(*memory);
  ASSERT_TRUE(shared.ok()) << lastErrorText();
  EXPECT_GE(shared->bytes, std::size_t{2} << 20);
  EXPECT_TRUE(owner->free(*memory, kFew).ok());
}

}  // namespace
}  // namespace gmac::accel::shared_memory
