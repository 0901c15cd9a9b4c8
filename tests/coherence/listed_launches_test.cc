// SPDX-License-Identifier: Apache-2.0
//
// Launches that list the objects that their kernels may use: they leave the others alone, and
// accesses to the others do not wait for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmac/coherence/device_memory_port.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::NativeStream;

constexpr NativeStream kFirst{1};
constexpr NativeStream kSecond{2};

// Nothing that is submitted runs before something waits for it, or asks for it.
class ListedLaunches : public ::testing::TestWithParam<std::string> {
 protected:
  ListedLaunches() {
    MachineSetup setup;
    setup.protocol = GetParam();
    setup.listingWorth = 0;
    make(setup);
  }
  void make(const MachineSetup& setup) {
    machine_.reset();
    machine_ = std::make_unique<Machine>(setup);
    used_ = object();
    other_ = object();
    everything(kFirst);
    // An access that finds it running, and takes longer than nothing: launches list from here on.
    used_[0] = other_[0] = 1;
    fake().clearLog();
  }
  std::uint8_t* object() { return machine_->allocateArray<std::uint8_t>(64 * kKiB); }
  FakeAccelerator& fake() { return machine_->fake(); }
  coherence::WorkPort& work() { return machine_->work(); }
  coherence::DeviceMemoryPort& deviceMemory() { return machine_->deviceMemory(); }

  void everything(NativeStream stream) {
    (void)machine_->launch(stream, [] {});
    machine_->verify();
  }
  // Adds one to the first byte.
  void adds(NativeStream stream, std::uint8_t* to) {
    machine_->launchListed(stream, {{to, true}}, [this, to] {
      ++*fake().at(to);
      ++ended_;
    });
    ++begun_;
    machine_->verify();
  }
  // Copies the first byte to `seen_` on the device.
  void reads(NativeStream stream, std::uint8_t* from) {
    machine_->launchListed(stream, {{from, false}}, [this, from] {
      seen_ = *fake().at(from);
      ++ended_;
    });
    ++begun_;
    machine_->verify();
  }
  // Of the kernels above.
  int running() const { return begun_ - ended_; }
  void wait() {
    const coherence::DeviceWait wait = work().beforeDeviceWait(std::nullopt);
    fake().runAll();
    EXPECT_TRUE(work().afterDeviceWait(wait).ok());
  }

  std::unique_ptr<Machine> machine_;
  std::uint8_t* used_ = nullptr;
  std::uint8_t* other_ = nullptr;
  std::uint8_t seen_ = 0;
  int begun_ = 0;
  int ended_ = 0;
};

TEST_P(ListedLaunches, LeaveOtherObjectsOpen) {
  const std::uint64_t listed = stats().listedCalls.value();
  adds(kFirst, used_);
  EXPECT_EQ(stats().listedCalls.value() - listed, 1u);
  machine_->expectNothingHappens([&] { other_[0] = 7; });
  EXPECT_EQ(running(), 1) << "the kernel has not been waited for";
  EXPECT_EQ(used_[0], 2);
  EXPECT_EQ(other_[0], 7);
}

TEST_P(ListedLaunches, AreNotWaitedForByAccessesToOtherObjects) {
  everything(kFirst);
  fake().runAll();
  adds(kFirst, used_);
  EXPECT_EQ(other_[0], 1);
  other_[0] = 9;
  EXPECT_EQ(running(), 1);
  EXPECT_EQ(used_[0], 2) << "an access to the object has waited";
  EXPECT_EQ(running(), 0);
}

TEST_P(ListedLaunches, SeeWhatTheCpuHasWritten) {
  for (int i = 0; i < 3; ++i) {
    other_[0] = static_cast<std::uint8_t>(20 + i);
    adds(i % 2 == 0 ? kFirst : kSecond, used_);
    reads(kFirst, other_);
    EXPECT_EQ(other_[0], 20 + i) << "it has only been read";
    fake().runAll();
    EXPECT_EQ(seen_, 20 + i);
  }
  EXPECT_EQ(used_[0], 4);
}

// The kernel reads the bytes that the device has: a later flush must not overtake it.
TEST_P(ListedLaunches, ThatReadAreWaitedForByStores) {
  other_[0] = 5;
  reads(kSecond, other_);
  other_[0] = 6;
  adds(kFirst, other_);
  fake().runAll();
  EXPECT_EQ(seen_, 5);
  EXPECT_EQ(other_[0], 7);
}

TEST_P(ListedLaunches, ThatReadLetTheCpuReadMeanwhile) {
  other_[0] = 5;
  reads(kFirst, other_);
  EXPECT_EQ(other_[0], 5);
  EXPECT_EQ(running(), 1);
}

TEST_P(ListedLaunches, AreWaitedForByAFree) {
  for (const bool writes : {false, true}) {
    std::uint8_t* const freed = object();
    freed[0] = 1;
    writes ? adds(kFirst, freed) : reads(kSecond, freed);
    machine_->free(freed);  // the fake complains of work that names it
    EXPECT_EQ(running(), 0);
  }
}

TEST_P(ListedLaunches, EachObjectHasItsOwnNewestLaunch) {
  adds(kFirst, used_);
  adds(kFirst, other_);
  EXPECT_EQ(used_[0], 2);
  EXPECT_EQ(running(), 1) << "the second launch is not the object's";
  EXPECT_EQ(other_[0], 2);
}

TEST_P(ListedLaunches, OfManyStreamsLoseNothing) {
  constexpr std::uintptr_t kStreams = 8;
  other_[0] = 3;
  std::vector<std::uint8_t> seen(kStreams);
  for (std::uintptr_t i = 0; i < kStreams; ++i) {
    machine_->launchListed(NativeStream{i}, {{other_, false}},
                           [&, i] { seen[i] = *fake().at(other_); });
    machine_->launchListed(NativeStream{i}, {{other_, true}},
                           [&, i] { fake().at(other_)[1 + i] = 1; });
  }
  machine_->verify();
  other_[0] = 4;
  EXPECT_EQ(seen, std::vector<std::uint8_t>(kStreams, 3));
  for (std::uintptr_t i = 0; i < kStreams; ++i) {
    EXPECT_EQ(other_[1 + i], 1) << i;
  }
}

TEST_P(ListedLaunches, OfManyObjectsUseAll) {
  std::vector<Machine::Use> uses;
  std::vector<std::uint8_t*> objects;
  for (int i = 0; i < 20; ++i) {
    objects.push_back(object());
    objects.back()[0] = 1;
    uses.push_back({objects.back(), true});
  }
  machine_->launchListed(kFirst, uses, [&] {
    for (std::uint8_t* const one : objects) ++*fake().at(one);
  });
  EXPECT_EQ(objects.back()[0], 2);
  EXPECT_EQ(objects.front()[0], 2);
}

TEST_P(ListedLaunches, AndOthersKnowOfEachOther) {
  adds(kFirst, used_);
  // One that may use everything, on another stream, which the program has made follow the first.
  fake().runAll();
  (void)machine_->launch(kSecond, [this] { *fake().at(used_) += 10; });
  EXPECT_EQ(used_[0], 12);
  (void)machine_->launch(kSecond, [this] { *fake().at(used_) += 10; });
  adds(kSecond, other_);
  EXPECT_EQ(used_[0], 22);
  EXPECT_EQ(other_[0], 2);
}

// Of small objects others take the place at once.
TEST_P(ListedLaunches, OfSmallObjectsAreWaitedForByAFree) {
  for (const bool writes : {false, true}) {
    std::uint8_t* const small = machine_->allocateArray<std::uint8_t>(100);
    small[0] = 1;
    writes ? adds(kFirst, small) : reads(kSecond, small);
    machine_->free(small);
    EXPECT_EQ(running(), 0);
  }
}

// Its users are all but this stream: a neighbour of what the kernel uses, or used against the
// promise.
TEST_P(ListedLaunches, PassOverWhatIsAttachedElsewhere) {
  ASSERT_TRUE(deviceMemory().setUsers(other_, coherence::Users::kCpu, NativeStream{}).ok());
  other_[0] = 5;
  machine_->launchListed(kFirst, {{used_, true}, {other_, true}}, [this] { ++*fake().at(used_); });
  machine_->expectNothingHappens([&] { other_[0] = 6; });
  EXPECT_EQ(used_[0], 2);
}

// Where it cannot be marked, it is waited for.
TEST_P(ListedLaunches, ThatCannotBeMarkedHaveEnded) {
  fake().failNext(Op::Kind::kMark, 1, adsmErrorKernel);
  const coherence::DeviceRange ranges[] = {{nullptr, 0, true, false, true}, {used_, 1, true, true}};
  ASSERT_TRUE(work().beginDeviceWork(kFirst, ranges).ok());
  fake().submit(kFirst, [this] { ++*fake().at(used_); });
  EXPECT_FALSE(work().endDeviceWork(kFirst, true).ok());
  EXPECT_EQ(used_[0], 2);
}

TEST_P(ListedLaunches, CeaseWhereNothingIsGained) {
  for (std::uint64_t i = 0; coherence::launchesList() && i < 10'000; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(5));  // slower than before
    adds(kFirst, used_);
    wait();
  }
  ASSERT_FALSE(coherence::launchesList());
  const std::uint64_t listed = stats().listedCalls.value();
  adds(kFirst, used_);
  EXPECT_EQ(stats().listedCalls.value(), listed);
  EXPECT_EQ(other_[0], 1);
  EXPECT_EQ(running(), 0) << "it may use every object again";
}

// Launches that cannot list cost what they ask.
TEST_P(ListedLaunches, CeaseWhereTheyCannotList) {
  std::vector<Machine::Use> uses;
  for (int i = 0; i < 20; ++i) uses.push_back({object(), true});
  for (std::uint64_t i = 0; coherence::launchesList() && i < 10'000; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(5));
    machine_->launchListed(kFirst, uses, [] {});
    wait();
  }
  EXPECT_FALSE(coherence::launchesList());
}

// A read-back is no work of the program's that might use other objects.
TEST_P(ListedLaunches, AreCopiedBackWithoutAWaitForOthers) {
  for (int i = 0; i < 8; ++i) {
    adds(kFirst, used_);
    wait();
    EXPECT_EQ(used_[0], 2 + i);
  }
  adds(kFirst, used_);
  const std::uint64_t copies = stats().readBacks.value();
  (void)work().beforeDeviceWait(kFirst);
  EXPECT_EQ(stats().readBacks.value(), copies + 1);
  (void)machine_->launchListed(kFirst, {{used_, false}}, [] {});
  other_[0] = 3;
  EXPECT_EQ(other_[0], 3);
  EXPECT_EQ(running(), 1);
  EXPECT_EQ(used_[0], 10);
}

// The CPU reads a byte after each kernel that reads it: after some copies that come before it,
// lists say that none is needed.
TEST_P(ListedLaunches, EndCopiesOfWhatKernelsOnlyRead) {
  MachineSetup setup;
  setup.protocol = GetParam();
  setup.listingWorth = 20 * 15'000;
  setup.clock = [] { return std::uint64_t{1}; };  // however long a fault takes here
  make(setup);
  const auto rounds = [this](int count) {
    for (int i = 0; i < count; ++i) {
      reads(kFirst, used_);
      wait();
      ASSERT_EQ(used_[0], 1);
    }
  };
  ASSERT_NO_FATAL_FAILURE(rounds(255));
  const std::uint64_t before = stats().readBacks.value();
  ASSERT_NO_FATAL_FAILURE(rounds(10));
  ASSERT_GE(stats().readBacks.value() - before, 9u);
  ASSERT_NO_FATAL_FAILURE(rounds(30));
  const std::uint64_t after = stats().readBacks.value();
  fake().clearLog();
  ASSERT_NO_FATAL_FAILURE(rounds(200));
  EXPECT_EQ(stats().readBacks.value(), after);
  EXPECT_THAT(fake().copies(), ::testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(, ListedLaunches, ::testing::Values("lazy", "rolling"),
                         [](const auto& info) { return info.param; });

// Where reads leave blocks writable no launch lists.
TEST(ListedLaunchesOfBatchUpdate, AreNone) {
  MachineSetup setup;
  setup.protocol = "batch";
  setup.listingWorth = 0;
  Machine machine(setup);
  std::uint8_t* const data = machine.allocateArray<std::uint8_t>(kPage);
  for (int i = 0; i < 3; ++i) {
    (void)machine.launch(kFirst, [] {});
    machine.fake().runAll();
    data[0] = 1;
  }
  EXPECT_FALSE(coherence::launchesList());
}

}  // namespace
}  // namespace gmac::testing
