// SPDX-License-Identifier: Apache-2.0
//
// The conformance suite: tests of what every accelerator promises (gmac/accel/accelerator.h).
//
// A backend's test file includes this header, fills in a Kit, and instantiates the suite:
//   INSTANTIATE_TEST_SUITE_P(Host, Conformance, testing::Values(&hostKit()), kitName);
// The suite uses nothing but the seam. It keeps the CPU side of an object in a memory file that is
// mapped twice: the app view at the accelerator's address, and the runtime view, which is pinned
// and named in copies.
#ifndef GMAC_TESTS_ACCEL_CONFORMANCE_H_
#define GMAC_TESTS_ACCEL_CONFORMANCE_H_

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/commands.h"
#include "gmac/accel/movable_memory.h"
#include "gmac/accel/native_streams.h"
#include "gmac/api/adsm.h"
#include "gmac/base/status.h"

namespace gmac::accel::conformance {

// An element of the list that Kit::sumList walks.
struct Node {
  Node* next;
  std::uint64_t value;
};

// The argument of Kit::storeWide: 4 KiB with the pointer that follows it.
struct Wide {
  std::array<std::uint64_t, 511> words;
};

// The backend's part of the suite. Every kernel is launched with blocks of kBlockThreads threads in
// x.
struct Kit {
  std::string name;
  // Why the backend cannot run here; "" when it can.
  std::function<std::string()> whyNot;
  // An accelerator whose memory is as small as the backend can make it, but at least 256 MiB.
  std::function<Result<std::unique_ptr<Accelerator>>()> make;
  // Allocations of this size exhaust that memory after at most a few hundred.
  std::size_t exhaustingBytes;

  // (uint32_t* data, uint64_t count, uint32_t by): data[i] += by for i < count.
  const adsmKernelDesc_t* increment;
  // (const Node* head, uint64_t* sum), one block: the first thread adds up the list's values.
  const adsmKernelDesc_t* sumList;
  // (uint32_t* data): every block reverses its kBlockThreads elements through kBlockThreads * 4
  // bytes of shared memory.
  const adsmKernelDesc_t* reverseBlocks;
  // (uint32_t* data, uint64_t count): data[i] += the constant, a uint32_t, the description's first.
  const adsmKernelDesc_t* addConstant;
  // (Wide wide, uint64_t* out), one block: out[i] = wide.words[i].
  const adsmKernelDesc_t* storeWide;
  // (uint32_t* address): writes to it, whatever it is.
  const adsmKernelDesc_t* poke;
  // A description without an implementation for this backend.
  const adsmKernelDesc_t* missing;
};

inline constexpr unsigned kBlockThreads = 128;

inline std::string kitName(const testing::TestParamInfo<const Kit*>& info) {
  return info.param->name;
}

inline std::size_t pageBytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

inline LaunchShape shapeFor(std::uint64_t threads, std::size_t sharedBytes = 0) {
  return {{static_cast<unsigned>((threads + kBlockThreads - 1) / kBlockThreads), 1, 1},
          {kBlockThreads, 1, 1},
          sharedBytes};
}

// The numbers of a test that draws at random. Repeatable: --gtest_random_seed gives another
// sequence, and the seed is printed with a failure.
class Random {
 public:
  std::uint64_t below(std::uint64_t limit) {
    return std::uniform_int_distribution<std::uint64_t>(0, limit - 1)(engine_);
  }
  std::string seedText() const { return "--gtest_random_seed=" + std::to_string(seed_); }

 private:
  const int seed_ = testing::UnitTest::GetInstance()->random_seed();
  std::mt19937_64 engine_{static_cast<std::uint64_t>(seed_)};
};

// A shared object as the runtime would make it: accelerator memory, an app view over its address, a
// pinned runtime view.
class Object {
 public:
  Object(Accelerator& accelerator, std::size_t bytes) : accelerator_(accelerator), bytes_(bytes) {
    const Result<DeviceAddress> address =
        accelerator.allocate(bytes, pageBytes(), Placement::kSameAddress);
    EXPECT_TRUE(address.ok()) << lastErrorText();
    fd_ = memfd_create("conformance", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(bytes)), 0);
    if (!address.ok() || fd_ < 0) {
      return;
    }
    device_ = *address;
    app_ =
        map(reinterpret_cast<void*>(static_cast<std::uintptr_t>(device_)), MAP_SHARED | MAP_FIXED);
    runtime_ = map(nullptr, MAP_SHARED);
    EXPECT_EQ(app_, reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(device_)));
    const Status pinned = accelerator.pin(memory());
    EXPECT_TRUE(pinned.ok()) << lastErrorText();
    good_ = pinned.ok();
  }

  ~Object() {
    if (good_) {
      // A lost accelerator refuses; the tests that lose it look at that themselves.
      const Status released = release();
      EXPECT_TRUE(released.ok() || released.code() == adsmErrorAcceleratorLost) << lastErrorText();
    }
    close(fd_);
  }
  // Early, of a good one. The first error.
  Status release() {
    good_ = false;
    const Status unpinned = accelerator_.unpin(memory());
    (void)mmap(app_, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
               0);
    munmap(runtime_, bytes_);
    const Status freed = accelerator_.free(device_, bytes_);
    return unpinned.ok() ? freed : unpinned;
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  bool good() const { return good_; }
  std::size_t bytes() const { return bytes_; }
  HostMemory memory() const { return {runtime_, bytes_, fd_, 0}; }
  DeviceAddress device(std::size_t offset = 0) const {
    return DeviceAddress{static_cast<std::uintptr_t>(device_) + offset};
  }
  std::byte* app() const { return app_; }
  std::byte* runtime() const { return runtime_; }
  template <typename T>
  T* appAs() const {
    return reinterpret_cast<T*>(app_);
  }
  template <typename T>
  T* runtimeAs() const {
    return reinterpret_cast<T*>(runtime_);
  }

 private:
  std::byte* map(void* address, int flags) const {
    return static_cast<std::byte*>(mmap(address, bytes_, PROT_READ | PROT_WRITE, flags, fd_, 0));
  }

  Accelerator& accelerator_;
  const std::size_t bytes_;
  int fd_ = -1;
  DeviceAddress device_{};
  std::byte* app_ = nullptr;
  std::byte* runtime_ = nullptr;
  bool good_ = false;
};

class Conformance : public testing::TestWithParam<const Kit*> {
 protected:
  void SetUp() override {
    if (const std::string why = kit().whyNot(); !why.empty()) {
      GTEST_SKIP() << why;
    }
    auto made = kit().make();
    ASSERT_TRUE(made.ok()) << lastErrorText();
    accelerator_ = std::move(*made);
  }

  const Kit& kit() const { return *GetParam(); }
  Accelerator& accelerator() { return *accelerator_; }
  NativeStreams& streams() { return *accelerator_->nativeStreams(); }
  void takeTheDevicesPlace(std::size_t bytes);
  std::size_t freeBytes() {
    const auto room = accelerator().memoryRoom();
    EXPECT_TRUE(room.ok()) << lastErrorText();
    return room.ok() ? room->free : 0;
  }
  // Ends the accelerator early.
  void destroyAccelerator() { accelerator_.reset(); }

  std::unique_ptr<LoadedKernel> load(const adsmKernelDesc_t* desc) {
    auto loaded = accelerator().load(*desc);
    EXPECT_TRUE(loaded.ok()) << lastErrorText();
    return loaded.ok() ? std::move(*loaded) : nullptr;
  }

  Ticket good(const Result<Ticket>& ticket) {
    EXPECT_TRUE(ticket.ok()) << lastErrorText();
    return ticket.ok() ? *ticket : Ticket{};
  }

  void waitFor(Ticket ticket) { ASSERT_TRUE(accelerator().wait(ticket).ok()) << lastErrorText(); }

  // Copies all of the object, and waits for it.
  void bringIn(const Object& object) {
    waitFor(good(accelerator().copyIn(object.device(), object.runtime(), object.bytes(), {})));
  }
  void bringOut(const Object& object, Ticket after = {}) {
    waitFor(good(accelerator().copyOut(object.runtime(), object.device(), object.bytes(), after)));
  }

  Ticket increment(LoadedKernel& kernel, const Object& object, std::uint64_t count,
                   std::uint32_t by) {
    void* data = object.app();
    void* args[] = {&data, &count, &by};
    return good(accelerator().launch(kernel, shapeFor(count), args));
  }

 private:
  std::unique_ptr<Accelerator> accelerator_;
};

// ---- Itself

TEST_P(Conformance, HasANameAndADeviceName) {
  EXPECT_FALSE(accelerator().name().empty());
  EXPECT_FALSE(accelerator().deviceName().empty());
}

// ---- Memory

TEST_P(Conformance, FreshMemoryReadsAsZeroAlsoWhenItWasUsedBefore) {
  const std::size_t bytes = 8 * pageBytes();
  std::set<DeviceAddress> seen;
  for (int round = 0; round < 20; ++round) {
    Object object(accelerator(), bytes);
    ASSERT_TRUE(object.good());
    seen.insert(object.device());
    std::memset(object.runtime(), 0xAB, bytes);
    bringOut(object);
    EXPECT_EQ(std::count(object.app(), object.app() + bytes, std::byte{0}),
              static_cast<std::ptrdiff_t>(bytes));
    std::memset(object.runtime(), 0xCD, bytes);
    bringIn(object);
  }
  EXPECT_LT(seen.size(), 20U) << "freed addresses are never used again";
}

TEST_P(Conformance, AllocationsAreAlignedAndDoNotOverlap) {
  Random random;
  SCOPED_TRACE(random.seedText());
  std::vector<std::pair<std::uintptr_t, std::size_t>> ranges;
  for (int i = 0; i < 40; ++i) {
    const std::size_t bytes = (1 + random.below(64)) * pageBytes();
    const std::size_t alignment = std::size_t{1} << random.below(23);
    const Placement placement = i % 4 == 0 ? Placement::kAnywhere : Placement::kSameAddress;
    const auto address = accelerator().allocate(bytes, alignment, placement);
    ASSERT_TRUE(address.ok()) << lastErrorText();
    const auto number = static_cast<std::uintptr_t>(*address);
    if (placement == Placement::kSameAddress) {
      EXPECT_EQ(number % alignment, 0U) << alignment;
    }
    for (const auto& [start, length] : ranges) {
      EXPECT_TRUE(number + bytes <= start || start + length <= number);
    }
    ranges.emplace_back(number, bytes);
  }
  for (const auto& [start, length] : ranges) {
    EXPECT_TRUE(accelerator().free(DeviceAddress{start}, length).ok()) << lastErrorText();
  }
}

TEST_P(Conformance, TheTwoSidesOfOneAddressAreIndependent) {
  Object object(accelerator(), 4 * pageBytes());
  ASSERT_TRUE(object.good());
  std::memset(object.app(), 1, object.bytes());
  bringIn(object);
  std::memset(object.app(), 2, object.bytes());
  bringOut(object);
  EXPECT_EQ(object.app()[0], std::byte{1});
  EXPECT_EQ(object.app()[object.bytes() - 1], std::byte{1});
}

TEST_P(Conformance, MemoryAnywhereCanBeCopiedToAndFrom) {
  Object object(accelerator(), 4 * pageBytes());
  ASSERT_TRUE(object.good());
  const auto anywhere = accelerator().allocate(object.bytes(), pageBytes(), Placement::kAnywhere);
  ASSERT_TRUE(anywhere.ok()) << lastErrorText();
  std::iota(object.runtimeAs<std::uint32_t>(),
            object.runtimeAs<std::uint32_t>() + object.bytes() / 4, 7);
  waitFor(good(accelerator().copyIn(*anywhere, object.runtime(), object.bytes(), {})));
  std::memset(object.runtime(), 0, object.bytes());
  waitFor(good(accelerator().copyOut(object.runtime(), *anywhere, object.bytes(), {})));
  EXPECT_EQ(object.appAs<std::uint32_t>()[0], 7U);
  EXPECT_EQ(object.appAs<std::uint32_t>()[object.bytes() / 4 - 1], 7 + object.bytes() / 4 - 1);
  EXPECT_TRUE(accelerator().free(*anywhere, object.bytes()).ok()) << lastErrorText();
}

TEST_P(Conformance, ExhaustedMemoryIsAnErrorAndFreedMemoryIsThereAgain) {
  std::vector<DeviceAddress> held;
  while (held.size() < 1000) {
    const auto address =
        accelerator().allocate(kit().exhaustingBytes, pageBytes(), Placement::kSameAddress);
    if (!address.ok()) {
      EXPECT_EQ(address.status().code(), adsmErrorAcceleratorMemory) << lastErrorText();
      EXPECT_STRNE(lastErrorText(), "");
      break;
    }
    held.push_back(*address);
  }
  ASSERT_GT(held.size(), 1U);
  ASSERT_LT(held.size(), 1000U) << "the memory never ran out";
  EXPECT_TRUE(accelerator().free(held.back(), kit().exhaustingBytes).ok()) << lastErrorText();
  held.pop_back();
  const auto again =
      accelerator().allocate(kit().exhaustingBytes, pageBytes(), Placement::kSameAddress);
  EXPECT_TRUE(again.ok()) << lastErrorText();
  if (again.ok()) {
    held.push_back(*again);
  }
  for (const DeviceAddress address : held) {
    EXPECT_TRUE(accelerator().free(address, kit().exhaustingBytes).ok()) << lastErrorText();
  }
}

TEST_P(Conformance, MemoryMovesUnderItsAddressWithWhatItHolds) {
  MovableMemory* const memory = accelerator().movableMemory();
  if (memory == nullptr) {
    GTEST_SKIP() << "its memory does not move";
  }
  const auto increment = load(kit().increment);
  ASSERT_TRUE(increment);
  constexpr std::uint64_t kCount = (std::uint64_t{4} << 20) / sizeof(std::uint32_t);
  Object object(accelerator(), kCount * sizeof(std::uint32_t));
  ASSERT_TRUE(object.good());
  const auto run = [&] {
    std::uint32_t* data = object.appAs<std::uint32_t>();
    std::uint64_t count = kCount;
    std::uint32_t by = 5;
    void* args[] = {&data, &count, &by};
    waitFor(good(accelerator().launch(*increment, shapeFor(kCount), args)));
  };
  std::iota(object.runtimeAs<std::uint32_t>(), object.runtimeAs<std::uint32_t>() + kCount, 0U);
  bringIn(object);
  std::uint32_t added = 0;
  const std::size_t before = freeBytes();
  for (const Home home : {Home::kCpu, Home::kCpu, Home::kDevice, Home::kCpu}) {
    ASSERT_TRUE(memory->move(object.device(), object.bytes(), home).ok()) << lastErrorText();
    EXPECT_EQ(freeBytes() > before, home == Home::kCpu);
    run();
    added += 5;
    // The CPU's side of the address is another copy, as ever.
    std::fill_n(object.appAs<std::uint32_t>(), kCount, 0xDEADBEEFU);
    run();
    added += 5;
    EXPECT_EQ(object.appAs<std::uint32_t>()[kCount - 1], 0xDEADBEEFU);
    bringOut(object);
    for (std::uint64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(object.runtimeAs<std::uint32_t>()[i], i + added) << i;
    }
    // Small copies may take another way.
    object.runtimeAs<std::uint32_t>()[1] = 1;
    waitFor(good(accelerator().copyIn(object.device(4), object.runtime() + 4, 4, {})));
    object.runtimeAs<std::uint32_t>()[1] = 0;
    waitFor(good(accelerator().copyOut(object.runtime() + 4, object.device(4), 4, {})));
    EXPECT_EQ(object.runtimeAs<std::uint32_t>()[1], 1U);
    object.runtimeAs<std::uint32_t>()[1] = 1 + added;
    bringIn(object);
  }
}

TEST_P(Conformance, TheCpusPagesTakeTheDevicesPlace) { takeTheDevicesPlace(std::size_t{2} << 20); }

TEST_P(Conformance, FewOfTheCpusPagesTakeTheDevicesPlace) {
  takeTheDevicesPlace(std::size_t{64} << 10);
}

inline void Conformance::takeTheDevicesPlace(std::size_t bytes) {
  MovableMemory* const memory = accelerator().movableMemory();
  if (memory == nullptr) {
    GTEST_SKIP() << accelerator().deviceName()
                 << " is several devices without a GPU, whose memory does not move: needs one GPU, "
                    "or one device of host";
  }
  const auto increment = load(kit().increment);
  ASSERT_TRUE(increment);
  const std::uint64_t count = bytes / sizeof(std::uint32_t);
  Object object(accelerator(), count * sizeof(std::uint32_t));
  ASSERT_TRUE(object.good());
  auto* const cpu = object.appAs<std::uint32_t>();
  std::uint32_t added = 0;
  const auto run = [&] {
    std::uint32_t* data = cpu;
    std::uint64_t all = count;
    std::uint32_t by = 5;
    void* args[] = {&data, &all, &by};
    waitFor(good(accelerator().launch(*increment, shapeFor(count), args)));
    added += 5;
  };
  std::iota(cpu, cpu + count, 0U);
  const std::size_t before = freeBytes();
  if (const Status moved = memory->move(object.device(), object.bytes(), Home::kMirror);
      moved.code() == adsmErrorNotSupported) {
    // The bytes are as they were.
    EXPECT_EQ(cpu[1], 1U);
    waitFor(good(accelerator().copyOut(object.runtime(), object.device(), object.bytes(), {})));
    EXPECT_EQ(object.runtimeAs<std::uint32_t>()[1], 0U);
    if (accelerator().name() != "host") {
      GTEST_SKIP() << accelerator().deviceName()
                   << " does not reach registered memory at the CPU's address: needs one GPU";
    }
    return;
  } else {
    ASSERT_TRUE(moved.ok()) << lastErrorText();
  }
  EXPECT_GT(freeBytes(), before) << "the device's pages are free";
  for (int round = 0; round < 3; ++round) {
    run();
    for (std::uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ(cpu[i], i + added) << i;
    }
    cpu[round] += 7;
    run();
    ASSERT_EQ(cpu[round], round + 7 + added);
    cpu[round] -= 7;
  }
  // Fills and copies inside the device's memory reach them, too.
  waitFor(good(accelerator().fill(object.device(4), std::byte{1}, 4)));
  EXPECT_EQ(cpu[1], 0x01010101U);
  waitFor(good(accelerator().copyWithin(object.device(4), object.device(8), 4)));
  EXPECT_EQ(cpu[1], 2 + added);
  cpu[1] = 1 + added;
  ASSERT_TRUE(memory->move(object.device(), object.bytes(), Home::kDevice).ok()) << lastErrorText();
  // Two copies again, and the device's has what was there.
  std::fill_n(cpu, count, 0xDEADBEEFU);
  run();
  EXPECT_EQ(cpu[count - 1], 0xDEADBEEFU);
  bringOut(object);
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_EQ(object.runtimeAs<std::uint32_t>()[i], i + added) << i;
  }
}

TEST_P(Conformance, MemoryOfTheCpusIsZeroAndTakesNoneOfTheDevices) {
  MovableMemory* const memory = accelerator().movableMemory();
  if (memory == nullptr) {
    GTEST_SKIP() << "its memory does not move";
  }
  constexpr std::size_t kBytes = std::size_t{6} << 20;
  const std::size_t before = freeBytes();
  for (const Placement placement : {Placement::kSameAddress, Placement::kAnywhere}) {
    for (int round = 0; round < 2; ++round) {
      const auto address = memory->allocateOnCpu(kBytes, pageBytes(), placement);
      ASSERT_TRUE(address.ok()) << lastErrorText();
      EXPECT_EQ(freeBytes(), before);
      const auto pinned = accelerator().allocatePinned(kBytes);
      ASSERT_TRUE(pinned.ok()) << lastErrorText();
      auto* const bytes = static_cast<std::byte*>(*pinned);
      std::fill_n(bytes, kBytes, std::byte{1});
      waitFor(good(accelerator().copyOut(bytes, *address, kBytes, {})));
      EXPECT_TRUE(
          std::all_of(bytes, bytes + kBytes, [](std::byte b) { return b == std::byte{0}; }));
      waitFor(good(accelerator().fill(*address, std::byte{9}, kBytes)));
      waitFor(good(accelerator().copyOut(bytes, *address, kBytes, {})));
      EXPECT_TRUE(
          std::all_of(bytes, bytes + kBytes, [](std::byte b) { return b == std::byte{9}; }));
      accelerator().freePinned(bytes, kBytes);
      EXPECT_TRUE(accelerator().free(*address, kBytes).ok()) << lastErrorText();
    }
  }
  EXPECT_EQ(freeBytes(), before);
}

TEST_P(Conformance, AMoveToMemoryThatIsFullChangesNothing) {
  MovableMemory* const memory = accelerator().movableMemory();
  if (memory == nullptr) {
    GTEST_SKIP() << "its memory does not move";
  }
  const std::size_t bytes = kit().exhaustingBytes;
  const auto address = memory->allocateOnCpu(bytes, pageBytes(), Placement::kAnywhere);
  ASSERT_TRUE(address.ok()) << lastErrorText();
  waitFor(good(accelerator().fill(*address, std::byte{3}, bytes)));
  std::vector<DeviceAddress> held;
  for (;;) {
    const auto one = accelerator().allocate(bytes, pageBytes(), Placement::kAnywhere);
    if (!one.ok()) {
      break;
    }
    held.push_back(*one);
  }
  EXPECT_EQ(memory->move(*address, bytes, Home::kDevice).code(), adsmErrorAcceleratorMemory);
  const auto pinned = accelerator().allocatePinned(pageBytes());
  ASSERT_TRUE(pinned.ok()) << lastErrorText();
  waitFor(good(accelerator().copyOut(
      *pinned, DeviceAddress{static_cast<std::uintptr_t>(*address) + bytes - pageBytes()},
      pageBytes(), {})));
  EXPECT_EQ(static_cast<std::byte*>(*pinned)[pageBytes() - 1], std::byte{3});
  accelerator().freePinned(*pinned, pageBytes());
  for (const DeviceAddress one : held) {
    EXPECT_TRUE(accelerator().free(one, bytes).ok()) << lastErrorText();
  }
  EXPECT_TRUE(accelerator().free(*address, bytes).ok()) << lastErrorText();
}

TEST_P(Conformance, AnAbsurdAllocationIsRefused) {
  const auto address =
      accelerator().allocate(std::size_t{1} << 56, pageBytes(), Placement::kSameAddress);
  ASSERT_FALSE(address.ok());
  EXPECT_TRUE(address.status().code() == adsmErrorAcceleratorMemory ||
              address.status().code() == adsmErrorAddressConflict)
      << lastErrorText();
}

// ---- Copies

TEST_P(Conformance, CopiesOfAnySizeAndOffsetMoveExactlyTheirBytes) {
  Random random;
  SCOPED_TRACE(random.seedText());
  Object object(accelerator(), std::size_t{1} << 20);
  ASSERT_TRUE(object.good());
  std::vector<std::byte> cpu(object.bytes());
  std::vector<std::byte> device(object.bytes());
  for (int step = 0; step < 300; ++step) {
    const std::size_t offset = random.below(object.bytes());
    const std::size_t longest = object.bytes() - offset;
    const std::size_t bytes =
        1 + random.below(step % 3 == 0 ? std::min<std::size_t>(longest, 100) : longest);
    if (step % 2 == 0) {
      for (std::size_t i = offset; i < offset + bytes; ++i) {
        cpu[i] = object.runtime()[i] = static_cast<std::byte>(random.below(256));
      }
      waitFor(
          good(accelerator().copyIn(object.device(offset), object.runtime() + offset, bytes, {})));
      std::copy_n(cpu.begin() + offset, bytes, device.begin() + offset);
    } else {
      waitFor(
          good(accelerator().copyOut(object.runtime() + offset, object.device(offset), bytes, {})));
      std::copy_n(device.begin() + offset, bytes, cpu.begin() + offset);
    }
    ASSERT_EQ(std::memcmp(object.app(), cpu.data(), cpu.size()), 0) << "step " << step;
  }
  bringOut(object);
  EXPECT_EQ(std::memcmp(object.app(), device.data(), device.size()), 0);
}

TEST_P(Conformance, CopiesReachPagesWithoutAccessRights) {
  Object object(accelerator(), 64 * pageBytes());
  ASSERT_TRUE(object.good());
  std::memset(object.app(), 5, object.bytes());
  ASSERT_EQ(mprotect(object.app(), object.bytes(), PROT_NONE), 0);
  bringIn(object);
  waitFor(good(accelerator().fill(object.device(), std::byte{6}, object.bytes() / 2)));
  bringOut(object);
  ASSERT_EQ(mprotect(object.app(), object.bytes(), PROT_READ), 0);
  EXPECT_EQ(object.app()[0], std::byte{6});
  EXPECT_EQ(object.app()[object.bytes() - 1], std::byte{5});
}

TEST_P(Conformance, AFileMayBePinnedInPiecesThatAreUnpinnedInAnyOrder) {
  const std::size_t piece = 16 * pageBytes();
  Object object(accelerator(), 4 * piece);
  ASSERT_TRUE(object.good());
  const HostMemory whole = object.memory();
  ASSERT_TRUE(accelerator().unpin(whole).ok()) << lastErrorText();
  const auto part = [&](std::size_t i) {
    return HostMemory{object.runtime() + i * piece, piece, whole.fd,
                      static_cast<std::int64_t>(i * piece)};
  };
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t i : {2, 0, 3}) {
      ASSERT_TRUE(accelerator().pin(part(i)).ok()) << lastErrorText();
    }
    ASSERT_TRUE(accelerator().unpin(part(0)).ok()) << lastErrorText();
    std::memset(object.runtime(), 40 + round, object.bytes());
    waitFor(good(
        accelerator().copyIn(object.device(2 * piece), object.runtime() + 2 * piece, piece, {})));
    std::memset(object.runtime(), 0, object.bytes());
    waitFor(good(
        accelerator().copyOut(object.runtime() + 3 * piece, object.device(2 * piece), piece, {})));
    EXPECT_EQ(object.app()[3 * piece], std::byte(40 + round));
    EXPECT_EQ(object.app()[4 * piece - 1], std::byte(40 + round));
    EXPECT_EQ(object.app()[2 * piece], std::byte{0});
    ASSERT_TRUE(accelerator().unpin(part(3)).ok()) << lastErrorText();
    ASSERT_TRUE(accelerator().unpin(part(2)).ok()) << lastErrorText();
  }
  ASSERT_TRUE(accelerator().pin(whole).ok()) << lastErrorText();
}

TEST_P(Conformance, CopiesWithinAndFillsRunInTheOrderOfTheKernelQueue) {
  Object object(accelerator(), 32 * pageBytes());
  ASSERT_TRUE(object.good());
  const std::size_t half = object.bytes() / 2;
  const auto kernel = load(kit().increment);
  ASSERT_TRUE(kernel);
  good(accelerator().fill(object.device(), std::byte{1}, half));
  increment(*kernel, object, half / 4, 1);
  good(accelerator().copyWithin(object.device(half), object.device(), half));
  const Ticket last = good(accelerator().fill(object.device(), std::byte{9}, half));
  bringOut(object, last);
  EXPECT_EQ(object.appAs<std::uint32_t>()[0], 0x09090909U);
  EXPECT_EQ(object.appAs<std::uint32_t>()[half / 4 - 1], 0x09090909U);
  EXPECT_EQ(object.appAs<std::uint32_t>()[half / 4], 0x01010102U);
  EXPECT_EQ(object.appAs<std::uint32_t>()[half / 2 - 1], 0x01010102U);
}

// ---- Tickets and order

TEST_P(Conformance, ADefaultTicketIsComplete) {
  EXPECT_TRUE(accelerator().done(Ticket{}));
  EXPECT_TRUE(accelerator().wait(Ticket{}).ok());
}

TEST_P(Conformance, DoneBecomesTrueAndStaysTrue) {
  Object object(accelerator(), std::size_t{8} << 20);
  ASSERT_TRUE(object.good());
  const Ticket in =
      good(accelerator().copyIn(object.device(), object.runtime(), object.bytes(), {}));
  const Ticket out =
      good(accelerator().copyOut(object.runtime(), object.device(), object.bytes(), in));
  EXPECT_NE(in.value, 0U);
  while (!accelerator().done(out)) {
    std::this_thread::yield();
  }
  EXPECT_TRUE(accelerator().done(in));
  waitFor(out);
  EXPECT_TRUE(accelerator().done(out));
}

TEST_P(Conformance, ACopyWaitsForTheTicketThatItIsAfter) {
  // The launches take much longer than the last bytes' copy would.
  Object object(accelerator(), std::size_t{16} << 20);
  ASSERT_TRUE(object.good());
  const std::uint64_t count = object.bytes() / 4;
  const auto kernel = load(kit().increment);
  ASSERT_TRUE(kernel);
  Ticket last;
  for (int i = 0; i < 10; ++i) {
    last = increment(*kernel, object, count, 1);
  }
  const std::size_t tail = object.bytes() - 64;
  waitFor(good(accelerator().copyOut(object.runtime() + tail, object.device(tail), 64, last)));
  EXPECT_EQ(object.appAs<std::uint32_t>()[count - 1], 10U);

  for (int i = 0; i < 10; ++i) {
    last = increment(*kernel, object, count, 1);
  }
  object.runtimeAs<std::uint32_t>()[count - 1] = 1000;
  const Ticket in =
      good(accelerator().copyIn(object.device(tail), object.runtime() + tail, 64, last));
  bringOut(object, in);
  EXPECT_EQ(object.appAs<std::uint32_t>()[count - 1], 1000U);
  EXPECT_EQ(object.appAs<std::uint32_t>()[0], 20U);
}

TEST_P(Conformance, ALaunchSeesEveryCopyInSubmittedBefore) {
  Object object(accelerator(), std::size_t{16} << 20);
  ASSERT_TRUE(object.good());
  const std::uint64_t count = object.bytes() / 4;
  const auto kernel = load(kit().increment);
  ASSERT_TRUE(kernel);
  for (std::uint32_t round = 0; round < 5; ++round) {
    std::fill_n(object.runtimeAs<std::uint32_t>(), count, 100 * round);
    good(accelerator().copyIn(object.device(), object.runtime(), object.bytes(), {}));
    bringOut(object, increment(*kernel, object, count, 1));
    ASSERT_EQ(std::count(object.appAs<std::uint32_t>(), object.appAs<std::uint32_t>() + count,
                         100 * round + 1),
              static_cast<std::ptrdiff_t>(count));
  }
}

TEST_P(Conformance, ThousandsOfTicketsMayBeInFlight) {
  constexpr std::size_t kCopies = 5000;
  constexpr std::size_t kBytes = 64;
  Object object(accelerator(), (kCopies * kBytes + pageBytes() - 1) / pageBytes() * pageBytes());
  ASSERT_TRUE(object.good());
  std::iota(object.runtimeAs<std::uint32_t>(),
            object.runtimeAs<std::uint32_t>() + object.bytes() / 4, 1);
  std::set<std::uint64_t> tickets;
  Ticket last;
  for (std::size_t i = 0; i < kCopies; ++i) {
    last = good(
        accelerator().copyIn(object.device(i * kBytes), object.runtime() + i * kBytes, kBytes, {}));
    tickets.insert(last.value);
  }
  EXPECT_EQ(tickets.size(), kCopies);
  waitFor(last);
  std::memset(object.runtime(), 0, object.bytes());
  for (std::size_t i = 0; i < kCopies; ++i) {
    last = good(accelerator().copyOut(object.runtime() + i * kBytes, object.device(i * kBytes),
                                      kBytes, {}));
  }
  waitFor(last);
  for (std::size_t i = 0; i < kCopies * kBytes / 4; ++i) {
    ASSERT_EQ(object.appAs<std::uint32_t>()[i], i + 1);
  }
  for (const std::uint64_t ticket : tickets) {
    ASSERT_TRUE(accelerator().done(Ticket{ticket}));
  }
}

TEST_P(Conformance, ManyThreadsMaySubmitAndWait) {
  constexpr unsigned kThreads = 8;
  constexpr std::uint32_t kRounds = 100;
  const std::size_t slice = 4 * pageBytes();
  Object object(accelerator(), kThreads * slice);
  ASSERT_TRUE(object.good());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto* const mine = reinterpret_cast<std::uint32_t*>(object.runtime() + t * slice);
      for (std::uint32_t round = 1; round <= kRounds; ++round) {
        std::fill_n(mine, slice / 4, t * kRounds + round);
        const auto in = accelerator().copyIn(object.device(t * slice), mine, slice, {});
        if (!in.ok() || !accelerator().wait(*in).ok()) {
          ++wrong;
          return;
        }
        std::fill_n(mine, slice / 4, 0);
        const auto out = accelerator().copyOut(mine, object.device(t * slice), slice, *in);
        if (!out.ok() || !accelerator().wait(*out).ok()) {
          ++wrong;
          return;
        }
        wrong += std::count(mine, mine + slice / 4, t * kRounds + round) !=
                 static_cast<std::ptrdiff_t>(slice / 4);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
}

TEST_P(Conformance, ManyThreadsMayWaitForOneTicket) {
  Object object(accelerator(), std::size_t{16} << 20);
  ASSERT_TRUE(object.good());
  const auto kernel = load(kit().increment);
  ASSERT_TRUE(kernel);
  const Ticket ticket = increment(*kernel, object, object.bytes() / 4, 1);
  std::atomic<int> woken{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back(
        [&] { woken += accelerator().wait(ticket).ok() && accelerator().done(ticket); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(woken, 8);
}

// ---- Kernels

TEST_P(Conformance, AKernelFollowsPointersInsideSharedData) {
  Object object(accelerator(), 16 * pageBytes());
  Object result(accelerator(), pageBytes());
  ASSERT_TRUE(object.good() && result.good());
  Random random;
  SCOPED_TRACE(random.seedText());
  const std::size_t count = object.bytes() / sizeof(Node);
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = count; i > 1; --i) {
    std::swap(order[i - 1], order[random.below(i)]);
  }
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    // Through the app view: the addresses stored are those that the CPU uses.
    Node* const nodes = object.appAs<Node>();
    nodes[order[i]] = {i + 1 < count ? &nodes[order[i + 1]] : nullptr, random.below(1000)};
    sum += nodes[order[i]].value;
  }
  bringIn(object);
  const auto kernel = load(kit().sumList);
  ASSERT_TRUE(kernel);
  const Node* head = &object.appAs<Node>()[order[0]];
  void* out = result.app();
  void* args[] = {&head, &out};
  bringOut(result, good(accelerator().launch(*kernel, shapeFor(1), args)));
  EXPECT_EQ(*result.appAs<std::uint64_t>(), sum);
}

TEST_P(Conformance, BlocksHaveSharedMemoryOfTheirOwn) {
  constexpr std::uint32_t kBlocks = 1000;
  Object object(accelerator(),
                (kBlocks * kBlockThreads * 4 + pageBytes() - 1) / pageBytes() * pageBytes());
  ASSERT_TRUE(object.good());
  std::iota(object.runtimeAs<std::uint32_t>(),
            object.runtimeAs<std::uint32_t>() + kBlocks * kBlockThreads, 0);
  bringIn(object);
  const auto kernel = load(kit().reverseBlocks);
  ASSERT_TRUE(kernel);
  void* data = object.app();
  void* args[] = {&data};
  bringOut(object, good(accelerator().launch(
                       *kernel, shapeFor(kBlocks * kBlockThreads, kBlockThreads * 4), args)));
  for (std::uint32_t i = 0; i < kBlocks * kBlockThreads; ++i) {
    const std::uint32_t block = i / kBlockThreads;
    ASSERT_EQ(object.appAs<std::uint32_t>()[i],
              block * kBlockThreads + kBlockThreads - 1 - i % kBlockThreads);
  }
}

TEST_P(Conformance, AConstantIsSetForTheLaunchesThatFollow) {
  constexpr std::uint32_t kRounds = 200;
  Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  const auto kernel = load(kit().addConstant);
  ASSERT_TRUE(kernel);
  void* data = object.app();
  std::uint64_t count = 4;
  void* args[] = {&data, &count};
  Ticket last;
  for (std::uint32_t i = 1; i <= kRounds; ++i) {
    std::uint32_t value = i;
    const Status set =
        accelerator().setConstant(*kernel, kit().addConstant->constants[0], &value, sizeof value);
    ASSERT_TRUE(set.ok()) << lastErrorText();
    value = 0xFFFFFF;
    last = good(accelerator().launch(*kernel, shapeFor(count), args));
  }
  bringOut(object, last);
  EXPECT_EQ(object.appAs<std::uint32_t>()[0], kRounds * (kRounds + 1) / 2);
  EXPECT_EQ(object.appAs<std::uint32_t>()[3], kRounds * (kRounds + 1) / 2);
}

TEST_P(Conformance, ArgumentsAreCopiedBeforeLaunchReturns) {
  constexpr std::uint32_t kRounds = 2000;
  Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  const auto kernel = load(kit().increment);
  ASSERT_TRUE(kernel);
  void* data = object.app();
  std::uint64_t count = 8;
  std::uint32_t by = 0;
  void* args[] = {&data, &count, &by};
  Ticket last;
  for (std::uint32_t i = 1; i <= kRounds; ++i) {
    by = i;
    last = good(accelerator().launch(*kernel, shapeFor(count), args));
  }
  by = 0;
  bringOut(object, last);
  EXPECT_EQ(object.appAs<std::uint32_t>()[7], kRounds * (kRounds + 1) / 2);
}

TEST_P(Conformance, ArgumentsOfFourKibibytesStayApartWhileTheirLaunchesWait) {
  constexpr std::uint64_t kRounds = 600;
  constexpr std::size_t kWords = std::tuple_size_v<decltype(Wide::words)>;
  Object slow(accelerator(), std::size_t{16} << 20);
  Object object(accelerator(),
                (kRounds * sizeof(Wide) + pageBytes() - 1) / pageBytes() * pageBytes());
  ASSERT_TRUE(slow.good() && object.good());
  const auto first = load(kit().increment);
  const auto kernel = load(kit().storeWide);
  ASSERT_TRUE(first && kernel);
  for (int i = 0; i < 10; ++i) {
    increment(*first, slow, slow.bytes() / 4, 1);
  }
  Ticket last;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    Wide wide{};
    std::iota(wide.words.begin(), wide.words.end(), round);
    void* out = object.appAs<Wide>() + round;
    void* args[] = {&wide, &out};
    last = good(accelerator().launch(*kernel, shapeFor(1), args));
  }
  bringOut(object, last);
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < kWords; ++i) {
      ASSERT_EQ(object.appAs<Wide>()[round].words[i], round + i) << "launch " << round;
    }
  }
}

TEST_P(Conformance, AKernelWithoutImplementationIsNamed) {
  const auto loaded = accelerator().load(*kit().missing);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.status().code(), adsmErrorNoImplementation);
  EXPECT_NE(std::string(lastErrorText()).find(kit().missing->name), std::string::npos)
      << lastErrorText();
}

TEST_P(Conformance, AnImpossibleShapeIsRefusedAndTheNextLaunchRuns) {
  Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  const auto kernel = load(kit().increment);
  ASSERT_TRUE(kernel);
  void* data = object.app();
  std::uint64_t count = 1;
  std::uint32_t by = 1;
  void* args[] = {&data, &count, &by};
  const unsigned all = 0xFFFFFFFF;
  const LaunchShape shapes[] = {
      {{0, 1, 1}, {1, 1, 1}, 0},
      {{1, 0, 1}, {1, 1, 1}, 0},
      {{1, 1, 0}, {1, 1, 1}, 0},
      {{1, 1, 1}, {0, 1, 1}, 0},
      {{1, 1, 1}, {1, 1, 0}, 0},
      {{all, all, all}, {1, 1, 1}, 0},
      {{1, 1, 1}, {all, all, all}, 0},
      {{1, 1, 1}, {64, 64, 1}, 0},
      {{1, 1, 1}, {1, 1, 1}, std::size_t{1} << 40},
  };
  for (const LaunchShape& shape : shapes) {
    const auto ticket = accelerator().launch(*kernel, shape, args);
    ASSERT_FALSE(ticket.ok()) << &shape - shapes;
    EXPECT_TRUE(ticket.status().code() == adsmErrorInvalidValue ||
                ticket.status().code() == adsmErrorLaunch)
        << lastErrorText();
  }
  bringOut(object, increment(*kernel, object, 1, 3));
  EXPECT_EQ(*object.appAs<std::uint32_t>(), 3U);
}

// ---- Work of the runtime's own

// Pinned memory of the accelerator's, as bytes.
class Pinned {
 public:
  Pinned(Accelerator& accelerator, std::size_t bytes) : accelerator_(accelerator), bytes_(bytes) {
    const Result<void*> memory = accelerator.allocatePinned(bytes);
    EXPECT_TRUE(memory.ok()) << lastErrorText();
    bytes_ = memory.ok() ? bytes : 0;
    begin_ = memory.ok() ? static_cast<std::byte*>(*memory) : nullptr;
  }
  ~Pinned() {
    if (begin_ != nullptr) accelerator_.freePinned(begin_, bytes_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  std::byte* begin() const { return begin_; }
  std::byte* end() const { return begin_ + bytes_; }

 private:
  Accelerator& accelerator_;
  std::size_t bytes_;
  std::byte* begin_ = nullptr;
};

TEST_P(Conformance, CommandsOfASubmissionRunOneAfterAnother) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  const auto memory = accelerator().allocate(2 * kBytes, pageBytes(), Placement::kAnywhere);
  ASSERT_TRUE(memory.ok()) << lastErrorText();
  const auto first = static_cast<std::uint64_t>(*memory);
  const std::uint64_t second = first + kBytes;
  Pinned from(accelerator(), kBytes);
  Pinned to(accelerator(), kBytes);
  ASSERT_TRUE(from.begin() != nullptr && to.begin() != nullptr);
  const BuiltInKernel kernel{kit().poke->cudaName != nullptr ? kit().poke->cudaName : "poke",
                             sizeof(std::uint64_t), kit().poke->host};
  const auto kernels = accelerator().loadBuiltIn({{&kernel, 1}, kit().poke->cudaImage});
  for (int round = 0; round < 5; ++round) {
    std::fill(from.begin(), from.end(), static_cast<std::byte>(0x80 + round));
    std::fill(to.begin(), to.end(), std::byte{0});
    // Copied in, around, out, in again and out again; then a kernel writes where the last one read.
    WorkOf work([&](Commands& commands) -> Status {
      GMAC_TRY(commands.copyIn(first, from.begin(), kBytes));
      GMAC_TRY(commands.copyWithin(second, first, kBytes));
      GMAC_TRY(commands.copyOut(to.begin(), second, kBytes));
      GMAC_TRY(commands.copyIn(first, to.begin(), kBytes));
      GMAC_TRY(commands.copyOut(to.begin(), first, kBytes));
      return commands.launch(*kernels, {0, 1, 1, &first});
    });
    waitFor(good(accelerator().submit(work)));
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin())) << round;
    // A copy out is after the launches so far, and a kernel after the copies in.
    WorkOf out([&](Commands& commands) { return commands.copyOut(to.begin(), first, kBytes); });
    waitFor(good(accelerator().submit(out)));
    EXPECT_FALSE(std::equal(from.begin(), from.begin() + sizeof(std::uint32_t), to.begin()));
    EXPECT_TRUE(std::equal(from.begin() + sizeof(std::uint32_t), from.end(),
                           to.begin() + sizeof(std::uint32_t)));
  }
  EXPECT_TRUE(accelerator().free(*memory, 2 * kBytes).ok()) << lastErrorText();
}

TEST_P(Conformance, ASubmissionFollowsTheCopiesInBeforeIt) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  const auto memory = accelerator().allocate(2 * kBytes, pageBytes(), Placement::kAnywhere);
  ASSERT_TRUE(memory.ok()) << lastErrorText();
  const auto first = static_cast<std::uint64_t>(*memory);
  Pinned from(accelerator(), kBytes);
  Pinned to(accelerator(), kBytes);
  ASSERT_TRUE(from.begin() != nullptr && to.begin() != nullptr);
  for (int round = 0; round < 10; ++round) {
    std::fill(from.begin(), from.end(), static_cast<std::byte>(1 + round));
    std::fill(to.begin(), to.end(), std::byte{0});
    const bool out = round % 2 == 0;
    good(accelerator().copyIn(*memory, from.begin(), kBytes, {}));
    WorkOf work([&](Commands& commands) -> Status {
      if (out) return commands.copyOut(to.begin(), first, kBytes);
      GMAC_TRY(commands.copyWithin(first + kBytes, first, kBytes));
      return commands.copyOut(to.begin(), first + kBytes, kBytes);
    });
    waitFor(good(accelerator().submit(work)));
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin())) << round;
  }
  EXPECT_TRUE(accelerator().free(*memory, 2 * kBytes).ok()) << lastErrorText();
}

TEST_P(Conformance, ASubmissionFollowsTheLaunchesBeforeIt) {
  constexpr std::uint32_t kLaunches = 10;
  Object object(accelerator(), std::size_t{16} << 20);
  ASSERT_TRUE(object.good());
  const auto kernel = load(kit().increment);
  ASSERT_TRUE(kernel);
  const std::size_t count = object.bytes() / sizeof(std::uint32_t);
  std::fill_n(object.runtime(), object.bytes(), std::byte{0});
  for (std::uint32_t i = 0; i < kLaunches; ++i) {
    increment(*kernel, object, count, 1);
  }
  const std::uint64_t last =
      static_cast<std::uint64_t>(object.device(object.bytes() - sizeof(std::uint32_t)));
  std::byte* const to = object.runtime() + object.bytes() - sizeof(std::uint32_t);
  WorkOf work(
      [&](Commands& commands) { return commands.copyOut(to, last, sizeof(std::uint32_t)); });
  const Ticket copied = good(accelerator().submit(work));
  // And a launch follows the submission.
  increment(*kernel, object, count, 1);
  waitFor(copied);
  std::uint32_t value = 0;
  std::memcpy(&value, to, sizeof value);
  EXPECT_EQ(value, kLaunches);
}

TEST_P(Conformance, AnErrorOfWorkIsTheSubmissions) {
  WorkOf work([](Commands&) { return fail(adsmErrorInvalidValue, "as was asked for"); });
  EXPECT_EQ(accelerator().submit(work).status().code(), adsmErrorInvalidValue);
  WorkOf nothing([](Commands&) { return Status(); });
  waitFor(good(accelerator().submit(nothing)));
}

TEST_P(Conformance, MemoryIsOfTheKindThatItIs) {
  int local = 0;
  EXPECT_EQ(accelerator().memoryOf(&local), Memory::kPageable);
  Pinned pinned(accelerator(), pageBytes());
  EXPECT_EQ(accelerator().memoryOf(pinned.begin()),
            accelerator().kernelsReachPinned() ? Memory::kPinned : Memory::kPageable);
}

TEST_P(Conformance, ACrashedKernelIsReportedAndNothingHangs) {
  Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  const auto kernel = load(kit().poke);
  ASSERT_TRUE(kernel);
  std::uint32_t* nowhere = reinterpret_cast<std::uint32_t*>(16);
  void* args[] = {&nowhere};
  const Ticket crashed = good(accelerator().launch(*kernel, shapeFor(1), args));
  EXPECT_EQ(accelerator().wait(crashed).code(), adsmErrorKernel) << lastErrorText();
  EXPECT_TRUE(accelerator().done(crashed));
  // Whether the device survives is the backend's business; every later call returns, with success
  // or an error.
  const auto copy = accelerator().copyOut(object.runtime(), object.device(), 4, crashed);
  if (copy.ok()) {
    EXPECT_NE(accelerator().wait(*copy).code(), adsmErrorKernel)
        << "the same error twice: " << lastErrorText();
  } else {
    EXPECT_STRNE(lastErrorText(), "");
  }
}

TEST_P(Conformance, DestructionWithWorkInFlightReturns) {
  const std::size_t bytes = std::size_t{16} << 20;
  const auto memory = accelerator().allocate(bytes, pageBytes(), Placement::kAnywhere);
  ASSERT_TRUE(memory.ok()) << lastErrorText();
  for (int i = 0; i < 100; ++i) {
    good(accelerator().fill(*memory, std::byte{1}, bytes));
  }
  destroyAccelerator();
}

}  // namespace gmac::accel::conformance

#endif  // GMAC_TESTS_ACCEL_CONFORMANCE_H_
