// SPDX-License-Identifier: Apache-2.0
//
// Device work of the runtime itself: where bytes are current, what is released for a range, and who
// waits for the work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using coherence::Current;
using coherence::DeviceRange;
using coherence::HoldFor;
using ::testing::ElementsAre;
using ::testing::Pair;

constexpr std::size_t kBlock = 64 * kKiB;

MachineSetup setupOf(const std::string& protocol) {
  MachineSetup setup;
  setup.protocol = protocol;
  setup.blockBytes = kBlock;
  setup.rollingSize = 100;
  return setup;
}

// Runs of where a range is current, in KiB.
std::vector<std::pair<std::size_t, Current>> runs(coherence::MemoryPort& memory,
                                                  const void* address, std::size_t bytes) {
  std::vector<std::pair<std::size_t, Current>> found;
  const auto* at = static_cast<const std::byte*>(address);
  for (const auto* const end = at + bytes; at < end;) {
    const auto left = static_cast<std::size_t>(end - at);
    const coherence::Place place = memory.placeOf(at, left);
    const std::size_t length = std::min(left, place.end - reinterpret_cast<std::uintptr_t>(at));
    found.emplace_back(length / kKiB, place.current);
    at += length;
  }
  return found;
}

adsmKernel_t nothingKernel(FakeAccelerator& fake) {
  return fake.kernel("nothing", 0, [](const LaunchShape&, void**) {});
}

// Submits a kernel of two arguments, which copies or fills `bytes` bytes.
accel::Ticket launch(FakeAccelerator& fake, std::byte* to, const std::byte* from, int value,
                     std::size_t bytes) {
  const adsmKernel_t kernel =
      fake.kernel("work", 2, [&fake, from, value, bytes](const LaunchShape&, void** args) {
        std::byte* const begin = fake.argument<std::byte>(args, 0);
        if (from != nullptr) {
          std::copy_n(fake.argument<std::byte>(args, 1), bytes, begin);
        } else {
          std::fill_n(begin, bytes, static_cast<std::byte>(value));
        }
      });
  // Queued work names them.
  static std::vector<std::unique_ptr<accel::LoadedKernel>> loaded;
  auto made = fake.load(kernel->desc);
  loaded.push_back(std::move(*made));
  void* args[] = {&to, &from};
  auto ticket = fake.launch(*loaded.back(), {{1, 1, 1}, {1, 1, 1}, 0}, args);
  EXPECT_TRUE(ticket.ok());
  return ticket.ok() ? *ticket : accel::Ticket{};
}

// Work that fills a range on the accelerator, with its release and its ticket.
void fillOnAccelerator(Machine& machine, std::byte* to, std::size_t bytes, int value) {
  const DeviceRange range{to, bytes, true};
  ASSERT_TRUE(machine.work().beginOwnWork({&range, 1}).ok());
  const accel::Ticket ticket = launch(machine.fake(), to, nullptr, value, bytes);
  ASSERT_TRUE(machine.work().endOwnWork({&range, 1}, ticket).ok());
  machine.verify();
}

TEST(OwnWork, SaysWhereEachRunOfBlocksIsCurrent) {
  Machine machine(setupOf("rolling"));
  const adsmKernel_t nothing = nothingKernel(machine.fake());
  std::byte* a = machine.allocate(8 * kBlock);
  EXPECT_THAT(runs(machine.memory(), a, 8 * kBlock), ElementsAre(Pair(512, Current::kBoth)));
  machine.call(nothing, {});
  EXPECT_THAT(runs(machine.memory(), a, 8 * kBlock), ElementsAre(Pair(512, Current::kAccelerator)));
  a[2 * kBlock] = std::byte{1};
  EXPECT_EQ(a[3 * kBlock], std::byte{0});
  EXPECT_THAT(runs(machine.memory(), a + kBlock, 4 * kBlock),
              ElementsAre(Pair(64, Current::kAccelerator), Pair(64, Current::kCpu),
                          Pair(64, Current::kBoth), Pair(64, Current::kAccelerator)));
  int local = 0;
  EXPECT_THAT(runs(machine.memory(), &local, sizeof local),
              ElementsAre(Pair(0, Current::kNotShared)));
}

TEST(OwnWork, WhatAThreadRemembersOfUntouchedBlocksEndsWithACall) {
  Machine machine(setupOf("rolling"));
  const coherence::Ports& before = coherence::open(machine.objects().ports());
  constexpr std::size_t kBytes = 1024 * kBlock;  // whole groups of blocks that nobody has touched
  std::byte* const a = machine.allocate(kBytes);
  const auto remembered = [&] {
    Current current{};
    (void)coherence::currentPrefix(a, kBytes, &current);
    return current;
  };
  EXPECT_EQ(remembered(), Current::kBoth);
  machine.call(nothingKernel(machine.fake()), {});
  EXPECT_EQ(remembered(), Current::kAccelerator);
  coherence::open(before);
}

TEST(OwnWork, ReleasesTheBlocksOfItsRangesAlone) {
  Machine machine(setupOf("rolling"));
  std::byte* a = machine.allocate(8 * kBlock);
  for (int block = 0; block < 8; ++block) {
    a[block * kBlock] = std::byte{1};
  }
  machine.fake().clearLog();
  fillOnAccelerator(machine, a + 2 * kBlock + 100, kBlock, 9);
  EXPECT_THAT(runs(machine.memory(), a, 8 * kBlock),
              ElementsAre(Pair(128, Current::kCpu), Pair(128, Current::kAccelerator),
                          Pair(256, Current::kCpu)));
  std::size_t flushed = 0;
  for (const Op& op : machine.fake().copies()) {
    flushed += op.bytes;
  }
  EXPECT_EQ(flushed, 2 * kBlock);
  EXPECT_EQ(a[2 * kBlock], std::byte{1}) << "in front of the range, in its block";
  EXPECT_EQ(a[2 * kBlock + 100], std::byte{9});
  EXPECT_EQ(a[3 * kBlock + 99], std::byte{9});
  EXPECT_EQ(a[3 * kBlock + 100], std::byte{0});
  EXPECT_EQ(a[7 * kBlock], std::byte{1});
}

TEST(OwnWork, WhatItOnlyReadsStaysReadable) {
  for (const char* protocol : {"lazy", "rolling"}) {
    Machine machine(setupOf(protocol));
    std::byte* a = machine.allocate(2 * kBlock);
    a[0] = std::byte{5};
    const DeviceRange range{a, kBlock, false};
    ASSERT_TRUE(machine.work().beginOwnWork({&range, 1}).ok());
    std::byte* b = nullptr;
    ASSERT_TRUE(machine.work().endOwnWork({&range, 1}, {}).ok());
    b = machine.allocate(kBlock);
    const DeviceRange both[] = {{a, kBlock, false}, {b, kBlock, true}};
    ASSERT_TRUE(machine.work().beginOwnWork(both).ok());
    const accel::Ticket ticket = launch(machine.fake(), b, a, 0, kBlock);
    ASSERT_TRUE(machine.work().endOwnWork(both, ticket).ok());
    machine.expectNothingHappens([&] { EXPECT_EQ(a[0], std::byte{5}); });
    a[0] = std::byte{6};  // the work still reads the old bytes
    EXPECT_EQ(b[0], std::byte{5});
    machine.verify();
  }
}

TEST(OwnWork, ASyncAndACallComeBehindIt) {
  for (const char* protocol : {"batch", "lazy", "rolling"}) {
    Machine machine(setupOf(protocol));
    const adsmKernel_t increment =
        machine.fake().kernel("increment", 1, [&](const LaunchShape&, void** args) {
          std::byte* first = machine.fake().argument<std::byte>(args, 0);
          *first = static_cast<std::byte>(static_cast<int>(*first) + 1);
        });
    std::byte* a = machine.allocate(4 * kBlock);
    fillOnAccelerator(machine, a, 4 * kBlock, 3);
    machine.call(increment, {a});
    machine.sync();
    EXPECT_EQ(a[0], std::byte{4}) << protocol;
    fillOnAccelerator(machine, a, kBlock, 7);
    machine.sync();
    EXPECT_EQ(a[0], std::byte{7}) << protocol;
    EXPECT_EQ(a[kBlock], std::byte{3}) << protocol;
    machine.verify();
  }
}

TEST(OwnWork, AnAccessBetweenReleaseAndTicketWaits) {
  Machine machine(setupOf("rolling"));
  std::byte* a = machine.allocate(kBlock);
  const DeviceRange range{a, kBlock, true};
  ASSERT_TRUE(machine.work().beginOwnWork({&range, 1}).ok());
  std::atomic<int> seen{-1};
  std::thread reader([&] { seen = static_cast<int>(*static_cast<volatile std::byte*>(a)); });
  const accel::Ticket ticket = launch(machine.fake(), a, nullptr, 8, kBlock);
  ASSERT_TRUE(machine.work().endOwnWork({&range, 1}, ticket).ok());
  reader.join();
  EXPECT_EQ(seen, 8);
}

TEST(OwnWork, AnOverwriteBetweenReleaseAndTicketWaits) {
  Machine machine(setupOf("rolling"));
  std::byte* a = machine.allocate(kBlock);
  for (int round = 0; round < 20; ++round) {
    const DeviceRange range{a, kBlock, true};
    ASSERT_TRUE(machine.work().beginOwnWork({&range, 1}).ok());
    std::atomic<bool> begins{false};
    std::atomic<bool> launched{false};
    std::thread writer([&] {
      begins = true;
      EXPECT_TRUE(machine.memory().hold(a, kBlock, HoldFor::kOverwrite).ok()) << lastErrorText();
      EXPECT_TRUE(launched);
      machine.memory().unhold(a, kBlock);
    });
    while (!begins) {
      std::this_thread::yield();
    }
    for (int i = 0; i < 100; ++i) {
      std::this_thread::yield();
    }
    const accel::Ticket ticket = launch(machine.fake(), a, nullptr, 8, kBlock);
    launched = true;
    ASSERT_TRUE(machine.work().endOwnWork({&range, 1}, ticket).ok());
    writer.join();
    machine.call(nothingKernel(machine.fake()), {});
  }
}

// ---- Handlers of the program

std::byte* handled = nullptr;  // what the handler writes

void touch(int) { handled[1] = std::byte{7}; }

class HandlersOfSubmitters : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the thread sanitizer holds signals back, and blocks all of them in handlers";
#endif
  }
  // A signal comes while `submit` submits a kernel that writes byte 0, between the two.
  template <typename Submit>
  void expectBoth(Machine& machine, std::byte* object, Submit submit) {
    object[0] = object[1] = std::byte{0};
    handled = object;
    auto* const before = std::signal(SIGUSR1, &touch);
    submit();
    (void)std::signal(SIGUSR1, before);
    EXPECT_EQ(object[0], std::byte{9});
    EXPECT_EQ(object[1], std::byte{7});
    machine.verify();
  }
};

TEST_P(HandlersOfSubmitters, WaitForTheEndOfDeviceWork) {
  Machine machine(setupOf(GetParam()));
  std::byte* const object = machine.allocate(kBlock);
  FakeAccelerator& fake = machine.fake();
  expectBoth(machine, object, [&] {
    const DeviceRange everything{nullptr, 0, true};
    constexpr accel::NativeStream kStream{3};
    ASSERT_TRUE(machine.work().beginDeviceWork(kStream, {&everything, 1}).ok());
    ASSERT_EQ(std::raise(SIGUSR1), 0);
    fake.submit(kStream, [&] { *fake.at(object) = std::byte{9}; });
    ASSERT_TRUE(machine.work().endDeviceWork(kStream, true).ok());
  });
}

TEST_P(HandlersOfSubmitters, WaitForTheEndOfWorkOfTheRuntimesOwn) {
  Machine machine(setupOf(GetParam()));
  std::byte* const object = machine.allocate(kBlock);
  expectBoth(machine, object, [&] {
    const DeviceRange range{object, kBlock, true};
    ASSERT_TRUE(machine.work().beginOwnWork({&range, 1}).ok());
    ASSERT_EQ(std::raise(SIGUSR1), 0);
    const accel::Ticket ticket = launch(machine.fake(), object, nullptr, 9, 1);
    ASSERT_TRUE(machine.work().endOwnWork({&range, 1}, ticket).ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Protocols, HandlersOfSubmitters,
                         ::testing::Values("lazy", "rolling", "batch"));

TEST(OwnWork, ASubmissionThatFailedLosesNothing) {
  Machine machine(setupOf("rolling"));
  std::byte* a = machine.allocate(kBlock);
  a[5] = std::byte{5};
  const DeviceRange range{a, kBlock, true};
  ASSERT_TRUE(machine.work().beginOwnWork({&range, 1}).ok());
  ASSERT_TRUE(machine.work().endOwnWork({&range, 1}, {}).ok());
  EXPECT_EQ(a[5], std::byte{5});
  machine.verify();
}

TEST(OwnWork, AFlushThatFailsIsToldAndLosesNothing) {
  Machine machine(setupOf("rolling"));
  std::byte* a = machine.allocate(2 * kBlock);
  a[5] = std::byte{5};
  machine.fake().failNext(Op::Kind::kCopyIn, 1, adsmErrorSystem);
  const DeviceRange range{a, 2 * kBlock, false};
  EXPECT_FALSE(machine.work().beginOwnWork({&range, 1}).ok());
  EXPECT_EQ(a[5], std::byte{5});
  a[6] = std::byte{6};
  fillOnAccelerator(machine, a, 4, 1);
  EXPECT_EQ(a[5], std::byte{5});
  EXPECT_EQ(a[6], std::byte{6});
  EXPECT_EQ(a[0], std::byte{1});
}

}  // namespace
}  // namespace gmac::testing
