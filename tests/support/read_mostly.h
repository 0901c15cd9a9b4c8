// SPDX-License-Identifier: Apache-2.0
//
// A table that kernels seldom write, on a fake accelerator: the kernels that use it, and what is
// done to it.
#ifndef GMAC_TESTS_SUPPORT_READ_MOSTLY_H_
#define GMAC_TESTS_SUPPORT_READ_MOSTLY_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/support/digest_kernel.h"
#include "tests/support/manager_fixture.h"

namespace gmac::testing::read_mostly {

inline constexpr std::size_t kBlock = 64 * kKiB;
inline constexpr std::size_t kBlocks = 24;
inline constexpr std::size_t kBytes = kBlocks * kBlock;

inline std::byte pattern(std::size_t i) { return static_cast<std::byte>(i * 7 + (i >> 9) + 1); }

// Writes nothing.
inline adsmKernel_t readingKernel(FakeAccelerator& fake) {
  return fake.kernel("read", 1, [](const accel::LaunchShape&, void**) {});
}

// Adds one to the byte that it is given.
inline adsmKernel_t bumpingKernel(FakeAccelerator& fake) {
  return fake.kernel("bump", 1, [&fake](const accel::LaunchShape&, void** args) {
    ++*fake.argument<std::uint8_t>(args, 0);
  });
}

inline void advise(ManagerUnderTest& machine, const void* object, bool readMostly = true) {
  machine.manager().setReadMostly(object, readMostly);
  machine.verify();
}

// A table that the CPU has filled and a kernel that only reads has been called with.
inline std::byte* makeTable(ManagerUnderTest& machine, std::size_t bytes = kBytes) {
  std::byte* const table = machine.allocate(bytes);
  advise(machine, table);
  for (std::size_t i = 0; i < bytes; ++i) {
    table[i] = pattern(i);
  }
  machine.call(readingKernel(machine.fake()), {table});
  machine.fake().clearLog();
  return table;
}

// How many bytes differ from the pattern, and that they are as `bumped` says.
inline void expectPattern(const std::byte* table, std::size_t bytes,
                          const std::vector<std::size_t>& bumped = {}) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    auto expected = static_cast<std::uint8_t>(pattern(i));
    for (const std::size_t at : bumped) {
      expected = static_cast<std::uint8_t>(expected + (at == i ? 1 : 0));
    }
    wrong += table[i] != static_cast<std::byte>(expected) ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0u);
}

// Copies of an object's data to the CPU; the answers of comparisons lie elsewhere.
inline std::vector<Op> fetches(ManagerUnderTest& machine, const std::byte* object,
                               std::size_t bytes = kBytes) {
  std::vector<Op> copies = machine.fake().log({Op::Kind::kCopyOut});
  const auto begin = reinterpret_cast<std::uintptr_t>(object);
  std::erase_if(copies,
                [&](const Op& op) { return op.device < begin || op.device >= begin + bytes; });
  return copies;
}
inline std::size_t digests(ManagerUnderTest& machine) {
  std::vector<Op> launches = machine.fake().log({Op::Kind::kLaunch});
  std::erase_if(launches, [](const Op& op) { return op.kernel != kDigestKernel; });
  return launches.size();
}

inline MachineSetup rolling() {
  MachineSetup setup;
  setup.blockBytes = kBlock;
  setup.rollingSize = 100;
  return setup;
}

// Kernels on streams of the application's own. For the stack.
class Streams {
 public:
  explicit Streams(ManagerUnderTest& machine) : machine_(machine) {}
  // One that may use everything and adds one to a byte, or to none.
  void launch(accel::NativeStream stream, std::byte* bumped, bool closes = false) {
    const coherence::DeviceRange everything{nullptr, 0, true, closes};
    ASSERT_TRUE(machine_.manager().beginDeviceWork(stream, {&everything, 1}).ok())
        << lastErrorText();
    if (bumped != nullptr) {
      machine_.fake().submit(stream, [fake = &machine_.fake(), bumped] {
        auto* const at = reinterpret_cast<std::uint8_t*>(fake->at(bumped));
        ++*at;
      });
    }
    ASSERT_TRUE(machine_.manager().endDeviceWork(stream, true).ok()) << lastErrorText();
    machine_.verify();
  }

  // What the application's waits do; what runs goes on running.
  void acquire() {
    ASSERT_TRUE(machine_.manager().afterDeviceWait().ok()) << lastErrorText();
    machine_.verify();
  }

 private:
  ManagerUnderTest& machine_;
};

}  // namespace gmac::testing::read_mostly

#endif  // GMAC_TESTS_SUPPORT_READ_MOSTLY_H_
