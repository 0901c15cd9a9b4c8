// SPDX-License-Identifier: Apache-2.0
//
// The kernel's limit of mappings: the program keeps a part of it, however many mappings the objects
// want.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"
#include "tests/support/own_mappings.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using accel::Placement;
using ::testing::HasSubstr;

// Of a limit of 10,000 mappings 4,000 stay free.
constexpr std::size_t kLimit = 10'000;
constexpr std::size_t kMost = 6'000;
// The C library and the fake take a few now and then.
constexpr std::size_t kSlack = 20;

class Mappings : public ::testing::Test {
 protected:
  static MachineSetup setup() {
    MachineSetup setup;
    setup.rollingSize = 1'000'000;
    setup.mappingLimit = kLimit;
    return setup;
  }
  FakeAccelerator& fake() { return machine_.fake(); }

  // Writes every other block of an object, so that each takes two mappings.
  void writeEveryOtherBlock(std::byte* object, std::size_t bytes) {
    std::size_t most = 0;
    for (std::size_t offset = 0; offset < bytes; offset += 2 * kPage) {
      object[offset + 1] = static_cast<std::byte>(offset / kPage % 251 + 1);
      if (offset / kPage % 256 == 0) {
        most = std::max(most, mappingCount());
      }
    }
    EXPECT_LE(most, kMost + kSlack);
    machine_.verify();
  }
  // As a kernel sees it, and then, with another value between, as the CPU does.
  void expectEveryOtherBlock(std::byte* object, std::size_t bytes) {
    const auto wrongIn = [bytes](const std::byte* at, std::byte between) {
      std::size_t wrong = 0;
      for (std::size_t offset = 0; offset < bytes; offset += 2 * kPage) {
        wrong += at[offset + 1] != static_cast<std::byte>(offset / kPage % 251 + 1);
        wrong += at[offset + kPage] != between;
      }
      return wrong;
    };
    std::size_t wrong = 0;
    const adsmKernel_t check = fake().kernel("check", 1, [&](const LaunchShape&, void** args) {
      auto* const at = fake().argument<std::byte>(args, 0);
      wrong = wrongIn(at, std::byte{0});
      for (std::size_t offset = kPage; offset < bytes; offset += 2 * kPage) {
        at[offset] = std::byte{9};
      }
    });
    machine_.call(check, {object});
    machine_.sync();
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(wrongIn(object, std::byte{9}), 0u);
  }

  // Blocks that the limit has no mappings for are joined, and no byte is lost.
  void expectBlocksAreJoined(std::byte* object, std::size_t bytes) {
    const std::uint64_t before = stats().coarsenings.value();
    writeEveryOtherBlock(object, bytes);
    EXPECT_GT(stats().coarsenings.value(), before);
    expectEveryOtherBlock(object, bytes);
  }

  Machine machine_{setup()};
};

TEST_F(Mappings, OfBlocksStayBelowThePartOfTheProgram) {
  constexpr std::size_t kBytes = 64 * kMiB;
  expectBlocksAreJoined(machine_.allocate(kBytes), kBytes);
}

TEST_F(Mappings, OfBlocksMakeRoomForThoseOfTheProgram) {
  constexpr std::size_t kBytes = 16 * kMiB;
  std::byte* const object = machine_.allocate(kBytes);
  const OwnMappings own(4000);
  expectBlocksAreJoined(object, kBytes);
}

TEST_F(Mappings, AreLeftByBlocksThatAreHeldAndCopied) {
  constexpr std::size_t kBytes = 64 * kMiB;
  std::byte* const object = machine_.allocate(kBytes);
  for (std::size_t offset = 0; offset < kBytes; offset += 4 * kPage) {
    ASSERT_TRUE(machine_.memory().hold(object + offset, 1, true).ok()) << lastErrorText();
    machine_.memory().unhold(object + offset, 1);
    const std::byte value{1};
    machine_.memory().copy(object + offset + 2 * kPage, &value, 1, &std::memmove);
    if (offset / kPage % 256 == 0) {
      ASSERT_LE(mappingCount(), kMost + kSlack);
    }
  }
}

TEST_F(Mappings, AreRefusedToObjectsInASentence) {
  const OwnMappings own(5000);
  std::vector<void*> objects;
  Result<void*> made(nullptr);
  Footprint before;
  for (;;) {
    before = measureFootprint();
    made = machine_.objects().allocate(64 * kKiB, Placement::kSameAddress);
    if (!made.ok()) {
      break;
    }
    objects.push_back(*made);
    ASSERT_LE(objects.size(), 3000u);
  }
  EXPECT_EQ(made.status().code(), adsmErrorHostMemory);
  EXPECT_THAT(lastErrorText(),
              HasSubstr("4000 of the 10000 that vm.max_map_count allows stay free"));
  EXPECT_EQ(measureFootprint(), before) << "a refused object leaves something";
  // As many as before, once there is room.
  machine_.free(objects.back());
  made = machine_.objects().allocate(64 * kKiB, Placement::kSameAddress);
  EXPECT_TRUE(made.ok()) << lastErrorText();
}

}  // namespace
}  // namespace gmac::testing
