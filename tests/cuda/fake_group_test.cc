// SPDX-License-Identifier: Apache-2.0
//
// A GPU and device processes without one as one accelerator, over the fake driver: the conformance
// suite, where memory lies and moves, and what fails. Needs no GPU.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmac/accel/cuda/cuda_accelerator.h"
#include "gmac/accel/devices.h"
#include "gmac/accel/group/group.h"
#include "gmac/accel/host/host_accelerator.h"
#include "tests/accel/conformance.h"
#include "tests/accel/group_fixture.h"
#include "tests/cuda/fake_conformance_kernels.h"
#include "tests/cuda/fake_library.h"

namespace gmac::accel::conformance {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kOfEach = 64 * kMiB;  // of the devices without a GPU

using Members = std::vector<std::unique_ptr<Accelerator>>;

// The GPU is the first.
Result<Members> makeMembers() {
  fake_cuda::reset();
  auto gpu = makeSharingCudaAccelerator(2 * kOfEach);
  if (!gpu.ok()) return gpu.status();
  HostOptions options;
  options.memoryBytes = 2 * kOfEach;
  options.threads = 2;
  options.windows = gpu->windows;
  auto others = makeHostAccelerators(options, 2);
  if (!others.ok()) return others.status();
  Members members;
  members.push_back(std::move(gpu->accelerator));
  for (auto& other : *others) members.push_back(std::move(other));
  return members;
}

Result<std::unique_ptr<Accelerator>> makeMixed() {
  auto members = makeMembers();
  return members.ok() ? makeGroup(std::move(*members)) : members.status();
}

const Kit kMixedKit = {"Mixed",
                       [] { return std::string(); },
                       makeMixed,
                       std::size_t{16} << 20,
                       &fake::kIncrement,
                       &fake::kSumList,
                       &fake::kReverseBlocks,
                       &fake::kAddConstant,
                       &fake::kStoreWide,
                       &fake::kPoke,
                       &fake::kMissing};

INSTANTIATE_TEST_SUITE_P(FakeCuda, Conformance, testing::Values(&kMixedKit), kitName);

// ---- Moves

void incrementOnHost(const adsmThreadBlock_t* block, void** args) {
  auto* data = *static_cast<std::uint32_t**>(args[0]);
  const auto count = *static_cast<std::uint64_t*>(args[1]);
  const auto by = *static_cast<std::uint32_t*>(args[2]);
  for (std::uint64_t i = block->blockIdx.x; i < count; i += block->gridDim.x) data[i] += by;
}

void crash(const adsmThreadBlock_t*, void**) { __builtin_trap(); }

// For both kinds of devices; for one.
const adsmKernelDesc_t kIncrement = [] {
  adsmKernelDesc_t desc = fake::kIncrement;
  desc.host = incrementOnHost;
  desc.constantCount = 0;
  return desc;
}();
const adsmKernelDesc_t kCrash = [] {
  adsmKernelDesc_t desc = {};
  desc.name = "crash";
  desc.host = crash;
  return desc;
}();

constexpr LaunchShape kOne{{1, 1, 1}, {1, 1, 1}, 0};

class MixedGroup : public GroupFixture {
 protected:
  void SetUp() override { start(makeMixed()); }

  // Adds 1 to each word, on a device.
  void increment(std::size_t device, DeviceAddress address, std::size_t bytes) {
    const auto kernel = devices().load(device, kIncrement);
    ASSERT_TRUE(kernel.ok()) << lastErrorText();
    std::uint64_t count = bytes / 4;
    std::uint32_t by = 1;
    void* args[] = {&address, &count, &by};
    await(devices().launch(device, **kernel, kOne, args, {}));
  }
  void loseGpu() {
    const auto poke = devices().load(0, fake::kPoke);
    ASSERT_TRUE(poke.ok()) << lastErrorText();
    void* nowhere = reinterpret_cast<void*>(16);
    void* args[] = {&nowhere};
    const auto ticket = devices().launch(0, **poke, kOne, args, {});
    ASSERT_TRUE(ticket.ok()) << lastErrorText();
    EXPECT_EQ(group().wait(*ticket).code(), adsmErrorKernel);
    EXPECT_TRUE(errorSays("device 0")) << lastErrorText();
  }
  static bool errorSays(const std::string& words) {
    return std::string(lastErrorText()).find(words) != std::string::npos;
  }
};

TEST_F(MixedGroup, BytesGoAlongBetweenTheGpuAndTheOthers) {
  for (const std::size_t bytes : {std::size_t{4096}, 2 * kMiB, 13 * kMiB + 4096}) {
    for (const Placement placement : {Placement::kSameAddress, Placement::kAnywhere}) {
      const DeviceAddress address = allocate(bytes, placement);
      fillWith(address, bytes);
      std::uint32_t added = 0;
      for (const std::size_t device : {1, 0, 2, 1, 0, 2, 2, 0}) {
        ASSERT_TRUE(move(address, bytes, device).ok()) << lastErrorText();
        EXPECT_EQ(devices().homeOf(address), device);
        increment(device, address, bytes);
        ++added;
      }
      expectWords(address, bytes, added);
      EXPECT_TRUE(group().free(address, bytes).ok()) << lastErrorText();
    }
  }
}

// Memory that a device makes under an address of another's.
TEST_F(MixedGroup, WhatHoldsNothingReadsAsZeroWhereItIsPlaced) {
  const DeviceAddress address = allocate(kMiB);
  fillWith(address, kMiB);
  ASSERT_TRUE(devices().place(address, kMiB, 1).ok()) << lastErrorText();
  ASSERT_TRUE(devices().place(address, kMiB, 0).ok()) << lastErrorText();
  await(group().copyOut(pinned_, address, kMiB, {}));
  EXPECT_EQ(std::count(pinned_, pinned_ + kMiB / 4, 0u), kMiB / 4);
  EXPECT_TRUE(group().free(address, kMiB).ok()) << lastErrorText();
}

TEST_F(MixedGroup, AMoveTakesMemoryThereAndGivesItBackHere) {
  const std::array<std::size_t, 2> before{freeOn(0), freeOn(1)};
  const DeviceAddress address = allocate(8 * kMiB);
  EXPECT_EQ(freeOn(0), before[0] - 8 * kMiB);
  ASSERT_TRUE(move(address, 8 * kMiB, 1).ok()) << lastErrorText();
  EXPECT_EQ(freeOn(0), before[0]);
  EXPECT_EQ(freeOn(1), before[1] - 8 * kMiB);
  ASSERT_TRUE(move(address, 8 * kMiB, 0).ok()) << lastErrorText();
  EXPECT_EQ(freeOn(0), before[0] - 8 * kMiB);
  EXPECT_TRUE(group().free(address, 8 * kMiB).ok()) << lastErrorText();
  EXPECT_EQ(freeOn(0), before[0]);
  EXPECT_EQ(freeOn(1), before[1]);
  EXPECT_FALSE(group().free(address, 8 * kMiB).ok());
}

// Each has its copy, with bytes of its own.
TEST_F(MixedGroup, CopiesHoldBytesOfTheirOwn) {
  constexpr std::size_t kBytes = 6 * kMiB;
  constexpr std::size_t kPart = 3 * kMiB;
  const std::size_t room = freeOn(0);
  const DeviceAddress address = allocate(kBytes);
  fillWith(address, kBytes);
  const DeviceAddress second{static_cast<std::uintptr_t>(address) + kPart};
  const PlacedPart there{{kPart, kPart}, 0};
  ASSERT_TRUE(devices().addCopy(address, kBytes, 1, {&there, 1}).ok()) << lastErrorText();
  increment(1, second, kPart);
  const PlacedPart back{{kPart, kPart}, 1};
  ASSERT_TRUE(devices().addCopy(address, kBytes, 0, {&back, 1}).ok()) << lastErrorText();
  devices().dropOtherCopies(address, 0);
  EXPECT_EQ(devices().homeOf(address), 0u);
  await(group().copyOut(pinned_, address, kBytes, {}));
  for (std::size_t i = 0; i < kBytes / 4; ++i) {
    ASSERT_EQ(pinned_[i], i * 7 + (i < kPart / 4 ? 0 : 1)) << i;
  }
  // The GPU's may go, too.
  ASSERT_TRUE(devices().addCopy(address, kBytes, 2, {}).ok()) << lastErrorText();
  devices().dropOtherCopies(address, 2);
  EXPECT_EQ(freeOn(0), room);
  EXPECT_TRUE(group().free(address, kBytes).ok()) << lastErrorText();
}

// The n-th call of the driver fails: the bytes stay where they are, and nothing is leaked.
TEST_F(MixedGroup, AMoveThatFailsAnywhereChangesNothing) {
  constexpr std::size_t kBytes = 8 * kMiB;
  const DeviceAddress address = allocate(kBytes);
  fillWith(address, kBytes);
  increment(0, address, kBytes);  // its module takes memory, too
  std::uint32_t added = 1;
  const auto expectStays = [&](const char* call, std::size_t home) {
    const std::array<std::size_t, 2> room{freeOn(0), freeOn(1)};
    for (const std::size_t nth : {1, 2}) {
      if (nth == 2 && std::string(call) == "cuMemMap") continue;  // there is one
      fake_cuda::failNth(call, nth, CUDA_ERROR_OUT_OF_MEMORY);
      const Status moved = move(address, kBytes, 1 - home);
      fake_cuda::failNth(call, 0, CUDA_SUCCESS);
      if (moved.ok()) {
        EXPECT_EQ(nth, 2u) << call;
        ASSERT_TRUE(move(address, kBytes, home).ok()) << lastErrorText();
        continue;
      }
      const std::string name(call);
      EXPECT_TRUE(errorSays("device 0: ") && errorSays(name.substr(0, name.find("_v2"))))
          << lastErrorText();
      EXPECT_EQ(devices().homeOf(address), home) << call;
      EXPECT_EQ(freeOn(0), room[0]) << call;
      EXPECT_EQ(freeOn(1), room[1]) << call;
      increment(home, address, kBytes);
      ++added;
    }
  };
  expectStays("cuMemcpyDtoHAsync_v2", 0);
  ASSERT_TRUE(move(address, kBytes, 1).ok()) << lastErrorText();
  for (const char* call :
       {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemsetD8Async", "cuMemcpyHtoDAsync_v2"}) {
    expectStays(call, 1);
  }
  EXPECT_GE(added, 7u);
  ASSERT_TRUE(move(address, kBytes, 0).ok()) << lastErrorText();
  expectWords(address, kBytes, added);
  EXPECT_TRUE(group().free(address, kBytes).ok()) << lastErrorText();
}

// Memory of the program's own, which packs on the GPU use.
TEST_F(MixedGroup, MemoryWithoutAFileIsPinnedForTheGpu) {
  void* const memory =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::size_t pinned = fake_cuda::living().pinned;
  ASSERT_TRUE(group().pin({memory, 4096, -1, 0}).ok()) << lastErrorText();
  EXPECT_EQ(fake_cuda::living().pinned, pinned + 1);
  EXPECT_TRUE(group().unpin({memory, 4096, -1, 0}).ok()) << lastErrorText();
  EXPECT_EQ(fake_cuda::living().pinned, pinned);
  munmap(memory, 4096);
}

TEST_F(MixedGroup, NewMemoryIsWhereThereIsRoom) {
  fake_cuda::failNext("cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY);
  const DeviceAddress there = allocate(kMiB);
  EXPECT_EQ(devices().homeOf(there), 1u);
  const DeviceAddress here = allocate(kMiB);
  EXPECT_EQ(devices().homeOf(here), 0u);
  // Any other failure is an error, and its addresses are free again.
  fake_cuda::failNext("cuMemMap", CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(group().allocate(kMiB, 4096, Placement::kSameAddress).ok());
  EXPECT_TRUE(errorSays("cuMemMap")) << lastErrorText();
  fake_cuda::failNext("cuMemsetD8Async", CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(group().allocate(kMiB, 4096, Placement::kSameAddress).ok());
  const DeviceAddress next = allocate(kMiB);
  EXPECT_EQ(static_cast<std::uintptr_t>(next), static_cast<std::uintptr_t>(here) + 2 * kMiB);
  for (const DeviceAddress address : {there, here, next}) {
    EXPECT_TRUE(group().free(address, kMiB).ok()) << lastErrorText();
  }
}

TEST_F(MixedGroup, TheGpusEndLeavesTheOthers) {
  const DeviceAddress lost = allocate(kMiB);
  const DeviceAddress there = allocate(kMiB);
  fillWith(there, kMiB);
  ASSERT_TRUE(move(there, kMiB, 1).ok()) << lastErrorText();
  loseGpu();
  EXPECT_TRUE(group().usable().ok()) << lastErrorText();
  EXPECT_EQ(devices().usable(0).code(), adsmErrorAcceleratorLost);
  EXPECT_EQ(move(lost, kMiB, 1).code(), adsmErrorAcceleratorLost);
  EXPECT_TRUE(errorSays("device 0")) << lastErrorText();
  EXPECT_EQ(move(there, kMiB, 0).code(), adsmErrorAcceleratorLost);
  EXPECT_TRUE(errorSays("device 0")) << lastErrorText();
  ASSERT_TRUE(move(there, kMiB, 2).ok()) << lastErrorText();
  increment(2, there, kMiB);
  EXPECT_EQ(devices().homeOf(allocate(kMiB)), 1u);
  EXPECT_EQ(group().free(lost, kMiB).code(), adsmErrorAcceleratorLost);
  EXPECT_TRUE(group().free(there, kMiB).ok()) << lastErrorText();
  pinned_ = nullptr;
}

TEST_F(MixedGroup, AnotherDevicesEndLeavesTheGpu) {
  const DeviceAddress here = allocate(kMiB);
  const DeviceAddress lost = allocate(kMiB);
  fillWith(here, kMiB);
  ASSERT_TRUE(move(lost, kMiB, 2).ok()) << lastErrorText();
  const auto crashing = devices().load(2, kCrash);
  ASSERT_TRUE(crashing.ok()) << lastErrorText();
  const auto ticket = devices().launch(2, **crashing, kOne, nullptr, {});
  ASSERT_TRUE(ticket.ok()) << lastErrorText();
  EXPECT_EQ(group().wait(*ticket).code(), adsmErrorKernel);
  EXPECT_TRUE(errorSays("device 2")) << lastErrorText();
  EXPECT_EQ(move(lost, kMiB, 0).code(), adsmErrorAcceleratorLost);
  EXPECT_TRUE(errorSays("device 2")) << lastErrorText();
  EXPECT_EQ(move(here, kMiB, 2).code(), adsmErrorAcceleratorLost);
  increment(0, here, kMiB);
  expectWords(here, kMiB, 1);
  ASSERT_TRUE(move(here, kMiB, 1).ok()) << lastErrorText();
  increment(1, here, kMiB);
  ASSERT_TRUE(move(here, kMiB, 0).ok()) << lastErrorText();
  expectWords(here, kMiB, 2);
  EXPECT_TRUE(group().free(here, kMiB).ok()) << lastErrorText();
}

TEST_F(MixedGroup, AKernelWithoutCodeForADeviceIsNamedWithTheDevice) {
  EXPECT_EQ(devices().load(1, fake::kPoke).status().code(), adsmErrorNoImplementation);
  EXPECT_TRUE(errorSays("device 1: ") && errorSays("poke") && errorSays("'host'") &&
              errorSays("adsmKernelDesc_t::host"))
      << lastErrorText();
  EXPECT_EQ(devices().load(0, kCrash).status().code(), adsmErrorNoImplementation);
  EXPECT_TRUE(errorSays("device 0: ") && errorSays("crash") && errorSays("cudaImage"))
      << lastErrorText();
}

// The application's streams are the GPU's.
TEST_F(MixedGroup, AFencedStreamRunsAfterTheCopiesIn) {
  CUstream stream = nullptr;
  const auto create =
      reinterpret_cast<decltype(&::cuStreamCreate)>(dlsym(fake_cuda::library(), "cuStreamCreate"));
  const auto copy = reinterpret_cast<decltype(&::cuMemcpyDtoHAsync)>(
      dlsym(fake_cuda::library(), "cuMemcpyDtoHAsync_v2"));
  ASSERT_EQ(create(&stream, 0), CUDA_SUCCESS);
  const DeviceAddress address = allocate(4096);
  NativeStreams& streams = *group().nativeStreams();
  const NativeStream native{reinterpret_cast<std::uintptr_t>(stream)};
  pinned_[0] = 42;
  ASSERT_TRUE(group().copyIn(address, pinned_, 4, {}).ok()) << lastErrorText();
  ASSERT_TRUE(streams.fence(native, {}).ok()) << lastErrorText();
  std::uint32_t seen = 0;
  ASSERT_EQ(copy(&seen, static_cast<CUdeviceptr>(address), 4, stream), CUDA_SUCCESS);
  const auto mark = streams.mark(native, {});
  ASSERT_TRUE(mark.ok()) << lastErrorText();
  EXPECT_EQ(devices().deviceOf(*mark), 0u);
  EXPECT_FALSE(group().done(*mark));
  ASSERT_TRUE(group().wait(*mark).ok()) << lastErrorText();
  EXPECT_TRUE(group().done(*mark));
  EXPECT_EQ(seen, 42u);
  // The copy waits for work of another device that precedes it.
  const DeviceAddress there = allocate(4096);
  ASSERT_TRUE(devices().place(there, 4096, 1).ok()) << lastErrorText();
  const auto filled = group().fill(there, std::byte{1}, 4096);
  ASSERT_TRUE(filled.ok()) << lastErrorText();
  ASSERT_TRUE(streams.follow(native, *filled).ok()) << lastErrorText();
  EXPECT_TRUE(group().done(*filled));
  EXPECT_TRUE(group().free(there, 4096).ok()) << lastErrorText();
  EXPECT_TRUE(group().free(address, 4096).ok()) << lastErrorText();
}

// The application resets its GPU, and uses it again; the others do not notice.
TEST_F(MixedGroup, MemoryMovesAfterTheContextHasEnded) {
  const DeviceAddress there = allocate(kMiB);
  ASSERT_TRUE(devices().place(there, kMiB, 1).ok()) << lastErrorText();
  await(group().fill(there, std::byte{3}, kMiB));
  group().freePinned(std::exchange(pinned_, nullptr), kPinned);
  group().nativeStreams()->contextEnds();
  group().nativeStreams()->leaveContext();
  const auto reset = reinterpret_cast<decltype(&::cuDevicePrimaryCtxReset)>(
      dlsym(fake_cuda::library(), "cuDevicePrimaryCtxReset_v2"));
  ASSERT_EQ(reset(0), CUDA_SUCCESS);
  ASSERT_TRUE(move(there, kMiB, 0).ok()) << lastErrorText();
  auto pinned = group().allocatePinned(kPinned);
  ASSERT_TRUE(pinned.ok()) << lastErrorText();
  pinned_ = static_cast<std::uint32_t*>(*pinned);
  await(group().copyOut(pinned_, there, kMiB, {}));
  EXPECT_EQ(std::count(pinned_, pinned_ + kMiB / 4, 0x03030303u), kMiB / 4);
  EXPECT_TRUE(group().free(there, kMiB).ok()) << lastErrorText();
}

TEST(Mixed, TheGpuIsTheFirst) {
  auto members = makeMembers();
  ASSERT_TRUE(members.ok()) << lastErrorText();
  std::swap(members->front(), members->back());
  EXPECT_EQ(makeGroup(std::move(*members)).status().code(), adsmErrorInvalidValue);
}

// An accelerator of its own shares no addresses.
TEST(Mixed, AGpuThatSharesNoAddressesIsRefused) {
  fake_cuda::reset();
  auto gpu = makeCudaAccelerator();
  ASSERT_TRUE(gpu.ok()) << lastErrorText();
  Members members;
  members.push_back(std::move(*gpu));
  EXPECT_EQ(makeGroup(std::move(members)).status().code(), adsmErrorInvalidValue);
}

TEST(Mixed, AGpuThatCannotMapMemoryIsRefusedByName) {
  fake_cuda::reset();
  fake_cuda::setAttribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
  const auto gpu = makeSharingCudaAccelerator(kOfEach);
  fake_cuda::setAttribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1);
  EXPECT_EQ(gpu.status().code(), adsmErrorNotSupported);
  EXPECT_NE(std::string(lastErrorText()).find("Fake GPU"), std::string::npos) << lastErrorText();
}

// The driver grants less than was asked for.
TEST(Mixed, AddressSpaceIsWhatTheDriverGrants) {
  fake_cuda::reset();
  fake_cuda::failNext("cuMemAddressReserve", CUDA_ERROR_OUT_OF_MEMORY);
  const auto gpu = makeSharingCudaAccelerator(kOfEach);
  ASSERT_TRUE(gpu.ok()) << lastErrorText();
  EXPECT_EQ(gpu->windows->of(Placement::kSameAddress).bytes(),
            (AddressWindows::kDefaultBytes + 2 * AddressWindows::kEdgeBytes) / 2);
}

}  // namespace
}  // namespace gmac::accel::conformance
