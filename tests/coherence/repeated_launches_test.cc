// SPDX-License-Identifier: Apache-2.0
//
// Launches that find everything released by the one before: they note nothing, and nothing is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "gmac/coherence/device_memory_port.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::NativeStream;
using coherence::DeviceRange;
using coherence::DeviceWait;
using ::testing::IsEmpty;

constexpr NativeStream kFirst{1};
constexpr NativeStream kSecond{2};

// Nothing that is submitted runs before something waits for it, or asks for it.
class RepeatedLaunches : public ::testing::TestWithParam<std::string> {
 protected:
  RepeatedLaunches() {
    MachineSetup setup;
    setup.protocol = GetParam();
    machine_ = std::make_unique<Machine>(setup);
    data_ = machine_->allocateArray<std::uint8_t>(4 * kPage);
  }
  FakeAccelerator& fake() { return machine_->fake(); }
  coherence::WorkPort& work() { return machine_->work(); }
  coherence::DeviceMemoryPort& deviceMemory() { return machine_->deviceMemory(); }

  // Adds one on the device.
  bool launch(NativeStream stream = kFirst) {
    ++value_;
    const bool repeated = machine_->launch(stream, bump());
    machine_->verify();
    return repeated;
  }
  std::function<void()> bump() {
    return [this] { ++*fake().at(data_); };
  }
  // Without the walker, which takes the lock.
  bool launchUnwatched(NativeStream stream = kFirst) {
    ++value_;
    return machine_->launch(stream, bump());
  }
  // Stores a value on the device, as a fill that names a byte. Whether it has repeated.
  bool fill(std::uint8_t* at, std::uint8_t value, NativeStream stream = kFirst) {
    const bool repeats = work().beginRepeated(stream, true);
    const DeviceRange range{at, 1, true};
    if (!repeats && !work().beginDeviceWork(stream, {&range, 1}).ok()) {
      ADD_FAILURE() << lastErrorText();
      return false;
    }
    fake().submit(stream, [this, at, value] { *fake().at(at) = value; });
    if (repeats) {
      work().endRepeated(stream, true);
    } else {
      EXPECT_TRUE(work().endDeviceWork(stream, true).ok());
    }
    return repeats;
  }
  std::size_t marks() { return fake().log({Op::Kind::kMark}).size(); }

  std::unique_ptr<Machine> machine_;
  std::uint8_t* data_ = nullptr;
  std::uint8_t value_ = 0;
};

TEST_P(RepeatedLaunches, OneMarkServesThemAll) {
  const std::uint64_t calls = stats().calls.value();
  const std::uint64_t repeated = stats().repeatedCalls.value();
  EXPECT_FALSE(launchUnwatched());
  fake().clearLog();
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(launchUnwatched()) << i;
  }
  EXPECT_THAT(fake().log(), IsEmpty());
  EXPECT_EQ(data_[0], value_);
  EXPECT_EQ(marks(), 1u);
  EXPECT_EQ(stats().calls.value() - calls, 6u);
  EXPECT_EQ(stats().repeatedCalls.value() - repeated, 5u);
  machine_->verify();
}

TEST_P(RepeatedLaunches, NoneFollowsAnAccess) {
  launchUnwatched();
  ASSERT_TRUE(launchUnwatched());
  data_[0] = value_ = 50;
  EXPECT_FALSE(launchUnwatched());
  EXPECT_TRUE(launchUnwatched());
  EXPECT_EQ(data_[0], value_);
  EXPECT_FALSE(launchUnwatched());
  EXPECT_EQ(data_[0], value_);
}

// The walker takes the lock, as everybody does who looks at objects.
TEST_P(RepeatedLaunches, WhoeverLooksMarksThem) {
  launchUnwatched();
  ASSERT_TRUE(launchUnwatched());
  fake().clearLog();
  machine_->verify();
  EXPECT_EQ(marks(), 1u);
  machine_->verify();
  EXPECT_EQ(marks(), 1u);
  EXPECT_FALSE(launchUnwatched());
  EXPECT_EQ(data_[0], value_);
}

TEST_P(RepeatedLaunches, StreamsTakeTurns) {
  std::uint8_t* const other = machine_->allocateArray<std::uint8_t>(kPage);
  const auto both = [&](bool repeat) {
    EXPECT_EQ(launchUnwatched(kFirst), repeat);
    EXPECT_EQ(machine_->launch(kSecond, [=, this] { ++*fake().at(other); }), repeat);
  };
  both(false);
  both(true);
  both(true);
  fake().clearLog();
  EXPECT_EQ(data_[0], value_);
  EXPECT_EQ(other[0], 3);
  EXPECT_EQ(marks(), 2u);
}

// The work of each has ended, and the CPU has seen that, before the other one's begins.
TEST_P(RepeatedLaunches, StreamsKeepTheirPlacesWhileTheyAreIdle) {
  for (int i = 0; i < 3; ++i) {
    for (const NativeStream stream : {kFirst, kSecond}) {
      launchUnwatched(stream);
      ASSERT_EQ(data_[0], value_);
    }
  }
  EXPECT_FALSE(launchUnwatched(kFirst));
  fake().runAll();
  EXPECT_TRUE(launchUnwatched(kSecond));
  EXPECT_EQ(data_[0], value_);
}

// One stream has been told to come after the flush, and the other has not.
TEST_P(RepeatedLaunches, AStreamThatFollowsNoFlushIsOrderedFirst) {
  const auto copy = [&](std::size_t to) { *fake().at(data_ + to) = *fake().at(data_); };
  (void)machine_->launch(kFirst, [] {});
  (void)machine_->launch(kSecond, [] {});
  data_[0] = 9;
  EXPECT_FALSE(machine_->launch(kFirst, [&] { copy(1); }));
  EXPECT_FALSE(machine_->launch(kSecond, [&] { copy(2); }));
  EXPECT_TRUE(machine_->launch(kFirst, [&] { copy(3); }));
  EXPECT_TRUE(machine_->launch(kSecond, [&] { copy(4); }));
  EXPECT_EQ(data_[1], 9);
  EXPECT_EQ(data_[2], 9);
  EXPECT_EQ(data_[3], 9);
  EXPECT_EQ(data_[4], 9);
}

TEST_P(RepeatedLaunches, ManyStreamsAreCorrectToo) {
  for (int round = 0; round < 3; ++round) {
    for (std::uintptr_t stream = 0; stream < 8; ++stream) {
      fake().runAll();  // streams are in no order among themselves
      launch(NativeStream{stream});
    }
  }
  EXPECT_EQ(data_[0], value_);
}

// ---- Waits of the program

TEST_P(RepeatedLaunches, TheProgramsWaitSavesTheMark) {
  launchUnwatched();
  ASSERT_TRUE(launchUnwatched());
  ASSERT_TRUE(launchUnwatched());
  fake().clearLog();
  for (const std::optional<NativeStream> awaited : {std::optional<NativeStream>(), {kFirst}}) {
    const DeviceWait wait = work().beforeDeviceWait(awaited);
    fake().runAll();
    ASSERT_TRUE(work().afterDeviceWait(wait).ok());
    EXPECT_EQ(data_[0], value_);
    EXPECT_EQ(marks(), 0u);
    launchUnwatched();
    ASSERT_TRUE(launchUnwatched());
    fake().clearLog();
  }
}

TEST_P(RepeatedLaunches, AWaitForSomethingElseSavesNone) {
  for (const NativeStream awaited : {kSecond, accel::kForeignStream}) {
    launchUnwatched();
    ASSERT_TRUE(launchUnwatched());
    fake().clearLog();
    const DeviceWait wait = work().beforeDeviceWait(awaited);
    // Marked before: the mark of a stream that does nothing would have to be waited for.
    EXPECT_EQ(marks(), 1u);
    ASSERT_TRUE(work().afterDeviceWait(wait).ok());
    EXPECT_EQ(data_[0], value_);
  }
}

// Threads that launch and wait, each on a stream of its own, and come for nothing.
TEST_P(RepeatedLaunches, WaitsForAPartSaveTheMarkWhereNobodyComes) {
  std::uint8_t* const other = machine_->allocateArray<std::uint8_t>(kPage);
  std::uint8_t sum = 0;
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      launchUnwatched(kFirst);
      (void)machine_->launch(kSecond, [=, this] { ++*fake().at(other); });
      ++sum;
      const DeviceWait wait = work().beforeDeviceWait(kFirst);
      fake().runAll();
      ASSERT_TRUE(work().afterDeviceWait(wait).ok());
    }
  };
  fake().clearLog();
  ASSERT_NO_FATAL_FAILURE(rounds(200));
  const std::size_t before = marks();
  const std::uint64_t repeated = stats().repeatedCalls.value();
  ASSERT_NO_FATAL_FAILURE(rounds(200));
  EXPECT_EQ(marks(), before);
  EXPECT_EQ(stats().repeatedCalls.value(), repeated + 400) << "each stream keeps its place";
  const auto access = [&] {
    EXPECT_EQ(data_[0], value_);
    EXPECT_EQ(other[0], sum);
  };
  // Now and then: an access marks what there is, and waits do not.
  for (int i = 0; i < 20; ++i) {
    ASSERT_NO_FATAL_FAILURE(rounds(4));
    const std::size_t marked = marks();
    access();
    EXPECT_LE(marks(), marked + 2);
    ASSERT_NO_FATAL_FAILURE(rounds(4));
    EXPECT_LE(marks(), marked + 12) << "what the launches after the access begin with";
  }
  // After each wait.
  for (int i = 0; i < 20; ++i) {
    access();
    const std::size_t marked = marks();
    ASSERT_NO_FATAL_FAILURE(rounds(2));
    EXPECT_TRUE(i < 16 || marks() > marked + 2) << i;
  }
  machine_->verify();
}

TEST_P(RepeatedLaunches, WhatComesWhileTheProgramWaitsIsNotWaitedFor) {
  launchUnwatched();
  ASSERT_TRUE(launchUnwatched());
  const DeviceWait wait = work().beforeDeviceWait(std::nullopt);
  fake().runAll();
  ASSERT_TRUE(launchUnwatched());  // by another thread
  ASSERT_TRUE(work().afterDeviceWait(wait).ok());
  EXPECT_EQ(data_[0], value_);
}

// Else threads that launch one after another would keep each other from doing without the lock.
TEST_P(RepeatedLaunches, WhoeverLaunchesMeanwhileWaitsForASubmissionWithTheLock) {
  (void)machine_->launch(kSecond, [] {});
  data_[0] = value_ = 4;
  EXPECT_FALSE(work().mayRepeat());
  const DeviceRange everything{nullptr, 0, true};
  ASSERT_TRUE(work().beginDeviceWork(kFirst, {&everything, 1}).ok());
  EXPECT_TRUE(work().mayRepeat());
  std::atomic<bool> repeated{false};
  std::thread launcher([&] {
    while (!work().beginRepeated(kFirst)) {
    }
    fake().submit(kFirst, bump());
    work().endRepeated(kFirst, true);
    repeated = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(repeated);
  fake().submit(kFirst, bump());
  ASSERT_TRUE(work().endDeviceWork(kFirst, true).ok());
  launcher.join();
  EXPECT_EQ(data_[0], 6);
  EXPECT_FALSE(work().mayRepeat()) << "nobody submits any more, and the byte is open";
}

// Another thread begins to wait before the launch has reached the stream.
TEST_P(RepeatedLaunches, ALaunchThatIsUnderWayIsNotWaitedFor) {
  launchUnwatched();
  ASSERT_TRUE(work().beginRepeated(kFirst));
  DeviceWait wait;
  std::thread waiter([&] { wait = work().beforeDeviceWait(std::nullopt); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fake().submit(kFirst, bump());
  ++value_;
  work().endRepeated(kFirst, true);
  waiter.join();
  ASSERT_TRUE(work().afterDeviceWait(wait).ok());
  EXPECT_EQ(data_[0], value_);
}

// It takes the lock, for which the thread that it has interrupted must not be counted.
TEST_P(RepeatedLaunches, AHandlerOfTheProgramsMayComeAsAWaitBegins) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer holds signals back, and lets them in where they are not to";
#endif
  static const volatile std::uint8_t* looksAt = nullptr;
  static std::atomic<int> seen{-1};
  struct sigaction before = {};
  struct sigaction action = {};
  action.sa_handler = [](int) { seen = *looksAt; };
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  looksAt = data_;
  const pthread_t waiter = pthread_self();
  for (int i = 0; i < 50; ++i) {
    launchUnwatched();
    ASSERT_TRUE(launchUnwatched());
    seen = -1;
    std::thread sender([&] { pthread_kill(waiter, SIGUSR1); });
    while (seen < 0) {
      (void)work().beforeDeviceWait(std::nullopt);
    }
    sender.join();
    ASSERT_EQ(seen, value_);
  }
  ASSERT_EQ(sigaction(SIGUSR1, &before, nullptr), 0);
}

// ---- Other threads, and the same one

TEST_P(RepeatedLaunches, AnAccessWaitsForTheLaunchThatIsUnderWay) {
  launchUnwatched();
  ASSERT_TRUE(work().beginRepeated(kFirst));
  std::uint8_t seen = 0;
  std::thread reader([&] { seen = data_[0]; });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fake().submit(kFirst, bump());
  work().endRepeated(kFirst, true);
  reader.join();
  EXPECT_EQ(seen, ++value_);
}

// As a driver's launch may fault that reads what it was given.
TEST_P(RepeatedLaunches, AnAccessOfTheLaunchItselfDoesNotHang) {
  launchUnwatched();
  ASSERT_TRUE(work().beginRepeated(kFirst));
  EXPECT_EQ(data_[0], value_);
  fake().submit(kFirst, bump());
  work().endRepeated(kFirst, true);
  fake().runAll();
  EXPECT_FALSE(launchUnwatched());
  ++value_;
  EXPECT_EQ(data_[0], value_);
}

// It has been let in although nothing of it is submitted yet.
TEST_P(RepeatedLaunches, WhatOthersAccessMeanwhileWaitsForThatLaunch) {
  std::uint8_t* const other = machine_->allocateArray<std::uint8_t>(kPage);
  const auto bumpOther = [=, this] { ++*fake().at(other); };
  (void)machine_->launch(kFirst, bumpOther);
  ASSERT_TRUE(work().beginRepeated(kFirst));
  EXPECT_EQ(data_[0], value_);
  std::uint8_t seen = 0;
  std::thread reader([&] { seen = *static_cast<volatile std::uint8_t*>(other); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  // Another launch must not take its place in the ledger either.
  fake().runAll();
  std::thread launcher([&] { (void)machine_->launch(kSecond, [] {}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fake().submit(kFirst, bumpOther);
  work().endRepeated(kFirst, true);
  reader.join();
  launcher.join();
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(other[0], 2);
  machine_->verify();
}

TEST_P(RepeatedLaunches, ALaunchThatFailsLeavesNoTrace) {
  const std::uint64_t calls = stats().calls.value();
  launchUnwatched();
  ASSERT_TRUE(work().beginRepeated(kFirst));
  work().endRepeated(kFirst, false);
  EXPECT_EQ(stats().calls.value() - calls, 1u);
  EXPECT_EQ(data_[0], value_);
  machine_->verify();
}

// ---- What keeps launches from repeating

TEST_P(RepeatedLaunches, AHostFunctionComesFirst) {
  launchUnwatched();
  ASSERT_TRUE(launchUnwatched());
  work().hostFunctionQueued();
  EXPECT_FALSE(work().beginRepeated(kFirst));
  work().hostFunctionEnded();
  EXPECT_TRUE(launchUnwatched());
  EXPECT_EQ(data_[0], value_);
}

TEST_P(RepeatedLaunches, ACallOfTheLibrarysComesFirst) {
  const adsmKernel_t seven =
      fake().kernel("seven", 1, [this](const accel::LaunchShape&, void** args) {
        *fake().argument<std::uint8_t>(args, 0) = 7;
      });
  launchUnwatched();
  ASSERT_TRUE(launchUnwatched());
  machine_->call(seven, {data_});
  value_ = 7;
  EXPECT_FALSE(launchUnwatched());
  EXPECT_EQ(data_[0], value_);
}

// A copy closes what it names, and says nothing of all objects.
TEST_P(RepeatedLaunches, CopiesOfTheProgramsDoNotWhereSomethingIsOpen) {
  const auto copy = [&](std::uint8_t* to) {
    const DeviceRange range{to, 1, true};
    ASSERT_TRUE(work().beginDeviceWork(kFirst, {&range, 1}).ok());
    fake().submit(kFirst, [this, to] { *fake().at(to) = 30; });
    ASSERT_TRUE(work().endDeviceWork(kFirst, true).ok());
  };
  launchUnwatched();
  ASSERT_NO_FATAL_FAILURE(copy(data_));
  value_ = 30;
  EXPECT_TRUE(launchUnwatched());
  EXPECT_TRUE(launchUnwatched());
  EXPECT_EQ(data_[0], value_);

  std::uint8_t* const other = machine_->allocateArray<std::uint8_t>(kPage);
  launchUnwatched();
  data_[0] = value_ = 40;
  ASSERT_NO_FATAL_FAILURE(copy(other));
  EXPECT_FALSE(launchUnwatched());
  EXPECT_TRUE(launchUnwatched());
  EXPECT_EQ(data_[0], value_);
  EXPECT_EQ(other[0], 30);
}

TEST_P(RepeatedLaunches, WhatNamesBytesRepeatsWhereNothingIsOpen) {
  std::uint8_t* const other = machine_->allocateArray<std::uint8_t>(64 * kKiB);
  EXPECT_FALSE(launchUnwatched());
  fake().clearLog();
  EXPECT_TRUE(fill(other, 7));
  EXPECT_TRUE(fill(data_, value_ = 20));
  EXPECT_TRUE(launchUnwatched());
  EXPECT_THAT(fake().log(), IsEmpty());
  EXPECT_EQ(other[0], 7);
  EXPECT_EQ(data_[0], value_);
  machine_->verify();
}

TEST_P(RepeatedLaunches, WhatNamesBytesFollowsLaunchesOfItsStreamAlone) {
  launchUnwatched();
  EXPECT_TRUE(fill(data_, value_ = 30));
  EXPECT_FALSE(fill(data_, value_ = 40, kSecond));
  EXPECT_TRUE(fill(data_, value_ = 50, kSecond));
  fake().runAll();
  EXPECT_EQ(data_[0], value_);
}

// Kernels of the stream do not use what is open, and the fill does.
TEST_P(RepeatedLaunches, WhatNamesBytesReleasesWhatIsOpen) {
  std::uint8_t* const other = machine_->allocateArray<std::uint8_t>(64 * kKiB);
  ASSERT_TRUE(deviceMemory().setUsers(other, coherence::Users::kOneStream, kSecond).ok());
  other[0] = other[1] = 3;
  launchUnwatched();
  EXPECT_TRUE(launchUnwatched());
  EXPECT_FALSE(fill(other, 9));
  EXPECT_EQ(other[0], 9);
  EXPECT_EQ(other[1], 3);
  EXPECT_EQ(data_[0], value_);
}

// Of the object only that stream's work is known to the launches' end.
TEST_P(RepeatedLaunches, WhatNamesAnotherStreamsBytesIsAwaited) {
  std::uint8_t* const other = machine_->allocateArray<std::uint8_t>(64 * kKiB);
  ASSERT_TRUE(deviceMemory().setUsers(other, coherence::Users::kOneStream, kSecond).ok());
  launchUnwatched();
  EXPECT_FALSE(fill(other, 9));
  EXPECT_EQ(other[0], 9);
}

// The copy names what it uses, and the launch after it has promised not to use the other object.
TEST_P(RepeatedLaunches, AfterACopyALaunchUsesNoOtherStreamsObjects) {
  std::uint8_t* const other = machine_->allocateArray<std::uint8_t>(64 * kKiB);  // one for itself
  ASSERT_TRUE(deviceMemory().setUsers(other, coherence::Users::kOneStream, kSecond).ok());
  (void)machine_->launch(kSecond, [=, this] { *fake().at(other) = 9; });
  fake().runAll();
  launchUnwatched();
  const DeviceRange range{data_, 1, true};
  ASSERT_TRUE(work().beginDeviceWork(kFirst, {&range, 1}).ok());
  fake().submit(kFirst, [this] { *fake().at(data_) = 30; });
  ASSERT_TRUE(work().endDeviceWork(kFirst, true).ok());
  fake().runAll();
  value_ = 30;
  EXPECT_FALSE(launchUnwatched());
  EXPECT_EQ(other[0], 9);
  EXPECT_EQ(fake().pending(), 1u) << "its access does not wait for that launch";
  EXPECT_EQ(data_[0], value_);
}

// The copy has named the object, which is the other stream's, and the launch does not use it.
TEST_P(RepeatedLaunches, AfterACopyOfAnotherStreamsObjectItsEndIsStillAwaited) {
  std::uint8_t* const other = machine_->allocateArray<std::uint8_t>(64 * kKiB);
  ASSERT_TRUE(deviceMemory().setUsers(other, coherence::Users::kOneStream, kSecond).ok());
  launchUnwatched();
  const DeviceRange range{other, 1, true};
  ASSERT_TRUE(work().beginDeviceWork(kFirst, {&range, 1}).ok());
  fake().submit(kFirst, [this, other] { *fake().at(other) = 30; });
  ASSERT_TRUE(work().endDeviceWork(kFirst, true).ok());
  launchUnwatched();
  EXPECT_EQ(other[0], 30);
  EXPECT_EQ(data_[0], value_);
}

// What kernels of that stream do not use stays open.
TEST_P(RepeatedLaunches, AnObjectOfAnotherStreamsDoesNotHinder) {
  std::uint8_t* const other = machine_->allocateArray<std::uint8_t>(64 * kKiB);
  ASSERT_TRUE(deviceMemory().setUsers(other, coherence::Users::kOneStream, kSecond).ok());
  other[0] = 3;
  launchUnwatched(kFirst);
  EXPECT_TRUE(launchUnwatched(kFirst));
  EXPECT_FALSE(launchUnwatched(kSecond));
  EXPECT_EQ(data_[0], value_);
}

TEST_P(RepeatedLaunches, ADestroyedStreamIsMarkedBefore) {
  launchUnwatched();
  ASSERT_TRUE(launchUnwatched());
  fake().clearLog();
  work().markRepeated();
  EXPECT_EQ(marks(), 1u);
  work().streamDestroyed(kFirst);
  EXPECT_EQ(data_[0], value_);
  EXPECT_EQ(marks(), 1u);
}

// Else that thread would name a stream that is no more to the driver.
TEST_P(RepeatedLaunches, WhoDestroysAStreamWaitsForAThreadThatMarksIt) {
  launchUnwatched();
  ASSERT_TRUE(launchUnwatched());
  std::atomic<bool> none{false};
  std::thread other;
  fake().onMark([&] {
    other = std::thread([&] {
      work().noneRepeats();
      none = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(none);
  });
  work().markRepeated();
  ASSERT_TRUE(other.joinable());
  other.join();
  fake().onMark({});
  EXPECT_EQ(data_[0], value_);
}

// Nothing else could tell when the work has ended.
TEST_P(RepeatedLaunches, AStreamThatCannotBeMarkedIsWaitedFor) {
  launchUnwatched();
  ASSERT_TRUE(launchUnwatched());
  fake().failNext(Op::Kind::kMark, 1, adsmErrorSystem);
  EXPECT_EQ(data_[0], value_);
  EXPECT_FALSE(fake().armed());
}

INSTANTIATE_TEST_SUITE_P(All, RepeatedLaunches, ::testing::Values("rolling", "lazy"),
                         [](const auto& info) { return info.param; });

// Batch-update leaves objects open or fetches all of them: no launch finds them released for long.
TEST(RepeatedLaunchesOfBatch, SeeWhatTheCpuHasWritten) {
  MachineSetup setup;
  setup.protocol = "batch";
  Machine machine(setup);
  auto* const data = machine.allocateArray<std::uint8_t>(kPage);
  const auto bump = [&] { ++*machine.fake().at(data); };
  for (int i = 0; i < 4; ++i) {
    const std::uint8_t value = data[0] = static_cast<std::uint8_t>(10 * i);
    (void)machine.launch(kFirst, bump);
    (void)machine.launch(kFirst, bump);
    const DeviceWait wait = machine.work().beforeDeviceWait(std::nullopt);
    machine.fake().runAll();
    ASSERT_TRUE(machine.work().afterDeviceWait(wait).ok());
    EXPECT_EQ(data[0], value + 2);
    machine.verify();
  }
}

}  // namespace
}  // namespace gmac::testing
