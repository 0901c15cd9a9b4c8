// SPDX-License-Identifier: Apache-2.0
//
// A hold keeps its promise: every byte of the range is open to system calls, on the page where it
// lies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "gmac/coherence/memory_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using ::testing::HasSubstr;

// Both ends of a pipe.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_.data()), 0); }
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int readEnd() const { return ends_[0]; }
  int writeEnd() const { return ends_[1]; }

 private:
  std::array<int, 2> ends_{};
};

// Blocks of several chunks, whose pages are not all made at once.
class HoldsOfManyChunks : public ::testing::TestWithParam<MachineSetup> {};

std::vector<MachineSetup> blocksBeyondAChunk() {
  MachineSetup lazy;
  lazy.protocol = "lazy";
  lazy.fake.movedPages = true;
  MachineSetup rolling;
  rolling.blockBytes = 4 * kMiB;
  rolling.fake.movedPages = true;
  return {lazy, rolling};
}

TEST_P(HoldsOfManyChunks, AreOpenToTheLastByte) {
  Machine machine(GetParam());
  std::byte* const first = machine.allocate(4 * kMiB);
  std::byte* const next = machine.allocate(8 * kMiB);
  first[0] = std::byte{1};
  // One chunk of the next object, ahead of the CPU.
  ASSERT_TRUE(machine.objects().populateNext());
  ASSERT_TRUE(machine.memory().hold(next, 8 * kMiB, false).ok()) << lastErrorText();
  const Pipe pipe;
  std::array<std::byte, 100> back{};
  for (std::size_t offset = 0; offset < 8 * kMiB; offset += kMiB) {
    EXPECT_EQ(write(pipe.writeEnd(), next + offset, back.size()), 100) << offset;
    EXPECT_EQ(read(pipe.readEnd(), back.data(), back.size()), 100) << offset;
  }
  machine.verify();
  machine.memory().unhold(next, 8 * kMiB);
  machine.verify();
}

INSTANTIATE_TEST_SUITE_P(, HoldsOfManyChunks, ::testing::ValuesIn(blocksBeyondAChunk()),
                         [](const auto& info) { return nameOf(info.param); });

// ---- The walker

TEST(HoldsAndTheWalker, APageThatIsHeldAndClosedIsFound) {
  Machine machine({});
  std::byte* const object = machine.allocate(4 * kPage);
  ASSERT_TRUE(machine.memory().hold(object, 4 * kPage, false).ok());
  ASSERT_EQ(mprotect(object + 2 * kPage, kPage, PROT_NONE), 0);
  EXPECT_FALSE(machine.objects().verify().ok());
  EXPECT_THAT(lastErrorText(), HasSubstr("block 2 (ReadOnly): held, and not all of its pages"));
  ASSERT_EQ(mprotect(object + 2 * kPage, kPage, PROT_READ), 0);
  machine.verify();
  machine.memory().unhold(object, 4 * kPage);
}

TEST(HoldsAndTheWalker, ABlockThatIsClosedFurtherThanItsStateSaysIsFound) {
  MachineSetup setup;
  setup.blockBytes = 4 * kPage;
  Machine machine(setup);
  std::byte* const object = machine.allocate(8 * kPage);
  object[0] = std::byte{1};
  // The last page of a block that may be written.
  ASSERT_EQ(mprotect(object + 3 * kPage, kPage, PROT_READ), 0);
  EXPECT_FALSE(machine.objects().verify().ok());
  EXPECT_THAT(lastErrorText(), HasSubstr("block 0 (Dirty): its pages are closed further"));
  ASSERT_EQ(mprotect(object + 3 * kPage, kPage, PROT_READ | PROT_WRITE), 0);
  machine.verify();
}

// The blocks that it has opened so far are the only ones that could be joined.
TEST(Holds, MakeRoomForMappingsInTheObjectThatTheyHold) {
  MachineSetup setup;
  setup.rollingSize = 100;
  Machine machine(setup);
  constexpr std::size_t kBytes = 64 * kPage;
  std::byte* const object = machine.allocate(kBytes);
  const auto fill = machine.fake().kernel(
      "fill", 1, [fake = &machine.fake()](const accel::LaunchShape&, void** args) {
        std::memset(fake->argument<std::byte>(args, 0), 7, kBytes);
      });
  for (const auto purpose : {coherence::HoldFor::kRead, coherence::HoldFor::kWrite}) {
    machine.call(fill, {object});
    os::failNext(os::Call::kProtect, 4, ENOMEM);
    EXPECT_TRUE(machine.memory().hold(object, kBytes / 2, purpose).ok()) << lastErrorText();
    os::failNext(os::Call::kProtect, 0, 0);
    machine.verify();
    for (std::size_t i = 0; i < kBytes / 2; i += kPage) {
      EXPECT_EQ(object[i], std::byte{7});
      EXPECT_GE(accessAt(object + i), os::Access::kRead);
    }
    machine.memory().unhold(object, kBytes / 2);
  }
  EXPECT_GT(stats().coarsenings.value(), 0u);
}

}  // namespace
}  // namespace gmac::testing
