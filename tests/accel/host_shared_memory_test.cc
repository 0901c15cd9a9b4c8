// SPDX-License-Identifier: Apache-2.0
//
// Memory of one host accelerator that another one has imported, by its file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/exported_memory.h"
#include "gmac/accel/host/host_accelerator.h"
#include "tests/accel/shared_memory.h"

namespace gmac::accel::shared_memory {
namespace {

constexpr std::size_t kBytes = std::size_t{64} << 10;

const Kit kHostKit = {"Host",
                      [] {
                        HostOptions options;
                        options.memoryBytes = std::size_t{16} << 20;
                        options.threads = 1;
                        return makeHostAccelerator(options);
                      },
                      kBytes};
INSTANTIATE_TEST_SUITE_P(, SharedMemory, ::testing::Values(&kHostKit), kitName);

class HostSharedMemory : public SharedMemory {};
INSTANTIATE_TEST_SUITE_P(, HostSharedMemory, ::testing::Values(&kHostKit), kitName);

TEST_P(HostSharedMemory, IsImportedWithNothingAroundIt) {
  const auto owner = make();
  const auto other = make();
  const DeviceAddress memory = allocate(*owner);
  EXPECT_EQ(allocationAt(*owner, memory).start, memory);
  EXPECT_EQ(allocationAt(*owner, memory).bytes, kBytes);
  const auto [start, there] = imported(*other, *owner, memory);
  EXPECT_EQ(other->memoryOf(pointer(after(start, kBytes - 1))), Memory::kDevice);
  EXPECT_EQ(other->memoryOf(pointer(after(start, kBytes))), Memory::kPageable);
}

// A mapping of a file that is too short, or gets so, would end the device process.
TEST_P(HostSharedMemory, IsNoOtherFile) {
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
TEST_P(HostSharedMemory, HasNoFileWhereTheLimitOfFileSizesIsInItsWay) {
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
}  // namespace gmac::accel::shared_memory
