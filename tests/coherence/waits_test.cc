// SPDX-License-Identifier: Apache-2.0
//
// No thread waits under the lock of all objects: while one waits for work that does not end, the
// others go on. (The fixture's fake also reports every wait under the lock.)
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmac/coherence/access_turns.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using accel::NativeStream;
using coherence::DeviceRange;

class Waits : public ::testing::Test {
 protected:
  void start(const std::string& protocol) {
    MachineSetup setup;
    setup.protocol = protocol;
    setup.rollingSize = 1000;
    machine_ = std::make_unique<Machine>(setup);
    object_ = machine_->allocate(128 * kPage);
    other_ = machine_->allocate(64 * kPage);
    const adsmKernel_t seven = fake().kernel("seven", 1, [this](const LaunchShape&, void** args) {
      *fake().argument<std::byte>(args, 0) = std::byte{7};
    });
    // The other object is the accelerator's, and nothing is under way.
    machine_->callUsing(seven, {other_}, {{other_, adsmWrite}});
    fake().runAll();
  }
  FakeAccelerator& fake() { return machine_->fake(); }
  coherence::WorkPort& work() { return machine_->work(); }

  // `work` runs into a wait for work of a kind that does not end; then the rest goes on.
  void whileItWaits(Op::Kind kind, const std::function<void()>& work) {
    fake().stall(kind);
    std::atomic<bool> over{false};
    std::thread thread([&] {
      work();
      over = true;
    });
    while (fake().stalled() == 0 && !over) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_FALSE(over) << "nothing was waited for";
    if (!over) {
      std::byte* const fresh = machine_->allocate(3 * kPage);
      fresh[kPage] = std::byte{1};  // a fault
      if (kind == Op::Kind::kCopyIn || kind == Op::Kind::kLaunch) {
        EXPECT_EQ(other_[0], std::byte{7});  // a fault that fetches
      }
    }
    fake().resume();
    thread.join();
    machine_->verify();
  }

  void workOn(NativeStream stream, bool write) {
    const DeviceRange range{object_, kPage, write};
    EXPECT_TRUE(work().beginDeviceWork(stream, {&range, 1}).ok()) << lastErrorText();
    fake().submit(stream, [] {});
    EXPECT_TRUE(work().endDeviceWork(stream, true).ok()) << lastErrorText();
  }

  std::unique_ptr<Machine> machine_;
  std::byte* object_ = nullptr;
  std::byte* other_ = nullptr;
};

TEST_F(Waits, OfACallForTheCopyOfAnObjectThatStaysWritable) {
  start("batch");
  const adsmKernel_t reader = fake().kernel("reader", 0, [](const LaunchShape&, void**) {});
  whileItWaits(Op::Kind::kCopyIn, [&] { machine_->callUsing(reader, {}, {{object_, adsmRead}}); });
}

TEST_F(Waits, OfAStreamsWorkForTheCopyOfAnObjectThatStaysWritable) {
  start("batch");
  whileItWaits(Op::Kind::kCopyIn, [&] { workOn(NativeStream{1}, false); });
}

TEST_F(Waits, OfAStreamsWorkThatReadsAnObjectThatStaysWritable) {
  start("batch");
  ASSERT_EQ(other_[0], std::byte{7});
  whileItWaits(Op::Kind::kMark, [&] { workOn(NativeStream{1}, false); });
}

TEST_F(Waits, OfTheRuntimesWorkThatReadsAnObjectThatStaysWritable) {
  start("batch");
  const adsmKernel_t reader = fake().kernel("reader", 0, [](const LaunchShape&, void**) {});
  auto loaded = fake().load(reader->desc);
  ASSERT_TRUE(loaded.ok());
  whileItWaits(Op::Kind::kLaunch, [&] {
    const DeviceRange range{object_, kPage, false};
    EXPECT_TRUE(work().beginOwnWork({&range, 1}).ok()) << lastErrorText();
    auto ticket = fake().launch(**loaded, {{1, 1, 1}, {1, 1, 1}, 0}, nullptr);
    EXPECT_TRUE(work().endOwnWork({&range, 1}, *ticket).ok()) << lastErrorText();
  });
}

TEST_F(Waits, ForOneOfMoreStreamsThanAreKept) {
  start("rolling");
  for (std::uintptr_t stream = 1; stream <= 64; ++stream) {
    workOn(NativeStream{stream}, true);
  }
  whileItWaits(Op::Kind::kMark, [&] { workOn(NativeStream{65}, true); });
}

TEST_F(Waits, OfCoarseningForWhatItFetches) {
  start("rolling");
  const adsmKernel_t nothing = fake().kernel("nothing", 0, [](const LaunchShape&, void**) {});
  machine_->callUsing(nothing, {}, {{object_, adsmWrite}});
  object_[20 * kPage] = std::byte{1};
  EXPECT_EQ(object_[40 * kPage], std::byte{0});
  whileItWaits(Op::Kind::kCopyOut, [&] {
    os::failNext(os::Call::kProtect, 1, ENOMEM);
    object_[40 * kPage] = std::byte{2};
  });
  EXPECT_EQ(object_[20 * kPage], std::byte{1});
  EXPECT_EQ(object_[40 * kPage], std::byte{2});
}

// Other threads that launch again whenever an access has waited for their work: after a while, it
// goes first.
class NewerLaunches : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int kMost = 20;

  // The clock goes on by that each time that it is read.
  void start(std::uint64_t clockStep) {
    clockStep_ = clockStep;
    MachineSetup setup;
    setup.protocol = GetParam();
    setup.clock = [this] { return now_ += clockStep_; };
    machine_ = std::make_unique<Machine>(setup);
    object_ = machine_->allocate(16 * kPage);
    launch();
  }
  ~NewerLaunches() override {
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  static constexpr NativeStream kStream{1};
  void launch() {
    const DeviceRange everything{nullptr, 0, true};
    EXPECT_TRUE(machine_->work().beginDeviceWork(kStream, {&everything, 1}).ok());
    machine_->fake().submit(kStream, [this] { ++ran_; });
    EXPECT_TRUE(machine_->work().endDeviceWork(kStream, true).ok());
    ++launches_;
  }
  // An access waits for newer work for long.
  void crowd() {
    machine_->fake().onWaited([this] {
      now_ += AccessTurns::kLong;
      if (launches_ < 3) {
        launchElsewhere();
      }
    });
    ASSERT_TRUE(machine_->memory().hold(object_, 1, coherence::HoldFor::kWrite).ok());
    machine_->memory().unhold(object_, 1);
    machine_->fake().onWaited({});
    ASSERT_EQ(launches_, 3);
    ASSERT_EQ(ran_, 3);
  }
  // Gives another thread time to launch.
  void launchElsewhere(int milliseconds = 200) {
    const int before = launches_;
    if (threads_.size() == kMost) {
      return;
    }
    threads_.emplace_back([this] { launch(); });
    for (int i = 0; i < milliseconds && launches_ == before; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::unique_ptr<Machine> machine_;
  std::byte* object_ = nullptr;
  std::atomic<std::uint64_t> now_{1};
  std::atomic<std::uint64_t> clockStep_{0};
  std::atomic<int> launches_{0};
  std::atomic<int> ran_{0};
  std::vector<std::thread> threads_;
};

TEST_P(NewerLaunches, LetAnAccessGoFirst) {
  start(0);
  machine_->fake().onWaited([this] {
    now_ += AccessTurns::kLong / 4;
    launchElsewhere();
  });
  ASSERT_TRUE(machine_->memory().hold(object_, 1, coherence::HoldFor::kWrite).ok());
  EXPECT_LE(launches_, 7);
  machine_->fake().onWaited({});
  machine_->memory().unhold(object_, 1);
  machine_->verify();
}

TEST_P(NewerLaunches, AreNotHeldUpWhereAccessesWaitShortly) {
  start(0);
  machine_->fake().onWaited([this] {
    now_ += AccessTurns::kLong / kMost;
    launchElsewhere(20'000);
  });
  ASSERT_TRUE(machine_->memory().hold(object_, 1, coherence::HoldFor::kWrite).ok());
  EXPECT_EQ(launches_, 1 + kMost);
  machine_->fake().onWaited({});
  machine_->memory().unhold(object_, 1);
  machine_->verify();
}

// What the access waits for may be waiting for the launch.
TEST_P(NewerLaunches, WaitForAnAccessForALimitedTime) {
  constexpr int kWithoutAClaim = 3;
  start(0);
  std::atomic<bool> over{false};
  machine_->fake().onWaited([this] {
    now_ += AccessTurns::kLong;
    if (launches_ < kWithoutAClaim) {
      launchElsewhere();
      if (launches_ == kWithoutAClaim) {
        machine_->fake().stall(Op::Kind::kMark);
      }
    }
  });
  std::thread access([this, &over] {
    EXPECT_TRUE(machine_->memory().hold(object_, 1, coherence::HoldFor::kWrite).ok());
    machine_->memory().unhold(object_, 1);
    over = true;
  });
  while (machine_->fake().stalled() == 0 && !over) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(over);
  clockStep_ = AccessTurns::kLeast / 4;
  const std::uint64_t before = now_;
  launch();  // would be held up for ever
  EXPECT_GE(now_ - before, AccessTurns::kLeast);
  machine_->fake().resume();
  access.join();
  machine_->verify();
}

TEST_P(NewerLaunches, AreNotHeldUpInTheThreadOfTheAccess) {
  start(0);
  machine_->fake().onWaited([this] {
    now_ += AccessTurns::kLong;
    if (launches_ < kMost) {
      launch();
    }
  });
  ASSERT_TRUE(machine_->memory().hold(object_, 1, coherence::HoldFor::kWrite).ok());
  EXPECT_EQ(launches_, kMost);
  machine_->fake().onWaited({});
  machine_->memory().unhold(object_, 1);
  machine_->verify();
}

TEST_P(NewerLaunches, WaitForTheirQueueAfterLongWaitsOfAccesses) {
  start(0);
  EXPECT_TRUE(machine_->work().mayRepeat());
  ASSERT_NO_FATAL_FAILURE(crowd());
  machine_->fake().runWhenAsked(40);
  launch();
  ASSERT_EQ(ran_, 3);
  launch();
  EXPECT_EQ(ran_, 4);
  // One that repeats would not wait: a stream gets one of these.
  EXPECT_TRUE(machine_->work().beginRepeated(kStream));
  machine_->work().endRepeated(kStream, true);
  EXPECT_FALSE(machine_->work().beginRepeated(kStream));
  machine_->fake().runWhenAsked(0);
  machine_->verify();
}

// A function in it may wait for what the program does next.
TEST_P(NewerLaunches, DoNotWaitForEverForAQueueThatDoesNotEnd) {
  start(0);
  ASSERT_NO_FATAL_FAILURE(crowd());
  launch();
  clockStep_ = AccessTurns::kCrowded / 10;
  const std::uint64_t before = now_;
  launch();
  EXPECT_GE(now_ - before, AccessTurns::kCrowded / 2);
  EXPECT_EQ(ran_, 3);
  machine_->fake().runAll();
  machine_->verify();
}

INSTANTIATE_TEST_SUITE_P(, NewerLaunches, ::testing::Values("batch", "lazy", "rolling"));

// Where the kernel refuses a mapping while the only object with blocks to join is in use, that is
// waited for.
TEST(WaitsForBlocksToJoin, EndWhenTheirUserIsDone) {
  MachineSetup setup;
  setup.blockBytes = 64 * kKiB;
  Machine machine(setup);
  std::byte* const object = machine.allocate(8 * setup.blockBytes);
  std::byte* const oneBlock = machine.allocate(setup.blockBytes);
  const adsmKernel_t nothing =
      machine.fake().kernel("nothing", 0, [](const LaunchShape&, void**) {});
  machine.callUsing(nothing, {}, {{object, adsmWrite}});
  machine.sync();
  machine.fake().stall(Op::Kind::kCopyOut);
  std::thread user([&] { EXPECT_EQ(object[0], std::byte{0}); });
  while (machine.fake().stalled() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  std::thread writer([&] { oneBlock[0] = std::byte{1}; });
  while (os::injectionArmed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Room to give up too early.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  machine.fake().resume();
  user.join();
  writer.join();
  EXPECT_EQ(oneBlock[0], std::byte{1});
  machine.verify();
}

}  // namespace
}  // namespace gmac::testing
