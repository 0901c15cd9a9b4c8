// SPDX-License-Identifier: Apache-2.0
//
// Copies to the CPU after the kernels that the program waits for: which are made, when they are
// good, and that no byte is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "gmac/accel/devices.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using accel::NativeStream;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kBlock = 64 * kKiB;
constexpr std::size_t kWindow = 4 * kPage;
constexpr std::size_t kBytes = 8 * kBlock;
constexpr NativeStream kStream{3};

// A kernel adds one to a byte, the program waits, and the CPU looks at it.
class ReadBacks : public ::testing::Test {
 protected:
  ReadBacks() {
    MachineSetup setup;
    setup.blockBytes = kBlock;
    setup.windowBytes = kWindow;
    setup.rollingSize = 100;
    start(setup);
  }
  void start(const MachineSetup& setup) {
    machine_.reset();
    machine_ = std::make_unique<Machine>(setup);
    bump_ = fake().kernel("bump", 1, [fake = &fake()](const LaunchShape&, void** args) {
      ++*fake->argument<std::uint8_t>(args, 0);
    });
    a_ = machine_->allocate(kBytes);
    at_ = a_ + 5 * kBlock + kWindow + 9;
    value_ = 0;
    machine_->call(bump_, {at_});
    ++value_;
    machine_->sync();
  }
  FakeAccelerator& fake() { return machine_->fake(); }
  CoherentMemory& objects() { return machine_->objects(); }
  coherence::MemoryPort& memory() { return machine_->memory(); }
  coherence::WorkPort& work() { return machine_->work(); }
  std::uint8_t byte() const { return *reinterpret_cast<volatile std::uint8_t*>(at_); }
  void call() {
    machine_->call(bump_, {at_});
    ++value_;
  }
  void round(bool write = false) {
    call();
    machine_->sync();
    ASSERT_EQ(byte(), value_);
    if (write) {
      *reinterpret_cast<volatile std::uint8_t*>(at_) = ++value_;
    }
    machine_->verify();
  }
  // So many that the next wait reads back and opens.
  void learn(bool write = false) {
    for (int i = 0; i < 3; ++i) {
      round(write);
    }
  }
  // The same with launches of the program's own, and a wait for an event.
  void launch(NativeStream stream = kStream) {
    (void)machine_->launch(
        stream, [at = fake().at(at_)] { *at = std::byte(std::to_integer<int>(*at) + 1); });
    ++value_;
  }
  void waitForEvent(bool asks) {
    const coherence::DeviceWait wait = work().beforeDeviceWait(accel::kForeignStream, asks);
    fake().runAll();
    EXPECT_TRUE(work().afterDeviceWait(wait).ok()) << lastErrorText();
    machine_->verify();
  }
  void expectNoFaults() {
    for (int i = 0; i < 5; ++i) {
      launch();
      waitForEvent(false);
      EXPECT_EQ(byte(), value_);
    }
    const std::uint64_t before = faults();
    for (int i = 0; i < 2; ++i) {
      launch();
      waitForEvent(false);
      EXPECT_EQ(byte(), value_);
    }
    EXPECT_EQ(faults(), before);
  }
  static std::uint64_t faults() { return stats().readFaults.value() + stats().writeFaults.value(); }
  static std::uint64_t readBacks() { return stats().readBacks.value(); }
  Op window() const { return copyOut(a_ + 5 * kBlock + kWindow, kWindow); }

  std::unique_ptr<Machine> machine_;
  adsmKernel_t bump_ = nullptr;
  std::byte* a_ = nullptr;
  std::byte* at_ = nullptr;
  std::uint8_t value_ = 0;
};

TEST_F(ReadBacks, TheFourthRoundNeedsNoFault) {
  learn();
  call();
  fake().clearLog();
  const std::uint64_t before = faults();
  machine_->sync();
  EXPECT_THAT(fake().copies(), ElementsAre(window()));
  EXPECT_EQ(accessAt(at_), os::Access::kRead);
  EXPECT_EQ(accessAt(at_ - kWindow), os::Access::kNone);
  EXPECT_EQ(byte(), value_);
  EXPECT_EQ(faults(), before);
  EXPECT_THAT(fake().copies(), ElementsAre(window()));
  machine_->verify();
}

TEST_F(ReadBacks, WhatWasWrittenIsOpenForWriting) {
  learn(true);
  const std::uint64_t before = faults();
  round(true);
  EXPECT_EQ(faults(), before);
  EXPECT_EQ(accessAt(at_), os::Access::kReadWrite);
  call();
  machine_->sync();
  EXPECT_EQ(byte(), value_);  // the write has reached the kernel
}

TEST_F(ReadBacks, EveryEighthTimeAFaultConfirmsIt) {
  for (int i = 0; i < 16; ++i) {
    round();
  }
  const std::uint64_t before = faults();
  const std::uint64_t copies = readBacks();
  fake().clearLog();
  for (int i = 0; i < 16; ++i) {
    round();
  }
  EXPECT_EQ(faults() - before, 2u);
  EXPECT_EQ(readBacks() - copies, 16u);
  // A copy that was made ahead is not made again by the fault.
  EXPECT_EQ(fake().copies().size(), 16u);
}

TEST_F(ReadBacks, AProgramThatLooksNoMoreIsLeftAlone) {
  learn();
  for (int i = 0; i < 20; ++i) {
    call();
    machine_->sync();
  }
  fake().clearLog();
  call();
  machine_->sync();
  EXPECT_THAT(fake().copies(), IsEmpty());
  EXPECT_EQ(byte(), value_);
}

TEST_F(ReadBacks, ALaterCallMakesTheCopyWorthless) {
  learn();
  for (const bool waits : {false, true}) {
    call();
    work().beforeDeviceWait(std::nullopt);
    call();
    if (waits) {
      fake().runAll();
      EXPECT_TRUE(work().afterDeviceWait().ok());
      EXPECT_EQ(accessAt(at_), os::Access::kNone);
    }
    EXPECT_EQ(byte(), value_);
    machine_->verify();
  }
}

TEST_F(ReadBacks, AWriteOfTheCpuIsNotOverwrittenByACopyInFlight) {
  learn();
  call();
  work().beforeDeviceWait(std::nullopt);  // the copy is queued, and has not run
  std::vector<std::byte> bytes(kBlock, std::byte{7});
  memory().copy(a_ + 5 * kBlock, bytes.data(), kBlock, &std::memmove);
  fake().runAll();
  EXPECT_EQ(byte(), 7);
  value_ = 7;
  call();
  machine_->sync();
  EXPECT_EQ(byte(), value_);
}

TEST_F(ReadBacks, AWaitOfAnotherThreadOpensNothingThatHasNotArrived) {
  learn();
  call();
  work().beforeDeviceWait(std::nullopt);       // the copy is queued, and has not run
  EXPECT_TRUE(work().afterDeviceWait().ok());  // another thread's, for other work
  EXPECT_EQ(accessAt(at_), os::Access::kNone);
  EXPECT_EQ(byte(), value_);
  machine_->verify();
}

// That work has closed its objects already, and has no ticket yet.
TEST_F(ReadBacks, AWaitOpensNothingWhileAnotherThreadSubmits) {
  learn();
  call();
  work().beforeDeviceWait(std::nullopt);
  fake().runAll();
  std::atomic<bool> begun{false};
  std::atomic<bool> looked{false};
  std::thread submitter([&] {
    const coherence::DeviceRange everything{nullptr, 0, true};
    EXPECT_TRUE(work().beginDeviceWork(kStream, {&everything, 1}).ok()) << lastErrorText();
    begun = true;
    while (!looked) {
      std::this_thread::yield();
    }
    fake().submit(kStream, [at = fake().at(at_)] { *at = std::byte{200}; });
    EXPECT_TRUE(work().endDeviceWork(kStream, true).ok()) << lastErrorText();
  });
  while (!begun) {
    std::this_thread::yield();
  }
  EXPECT_TRUE(work().afterDeviceWait().ok());
  EXPECT_EQ(accessAt(at_), os::Access::kNone);
  looked = true;
  submitter.join();
  EXPECT_EQ(byte(), 200);
  machine_->verify();
}

// The writes of a call that listed nothing before the binding count after it.
TEST_F(ReadBacks, ABindingForgetsNoWriter) {
  const auto callListed = [&] {
    machine_->callUsing(bump_, {at_}, {{at_, adsmReadWrite}});
    ++value_;
  };
  for (int i = 0; i < 3; ++i) {
    callListed();
    machine_->sync();
    ASSERT_EQ(byte(), value_);
  }
  callListed();
  work().beforeDeviceWait(std::nullopt);
  call();
  fake().runAll();
  ASSERT_TRUE(objects().bind(a_, bump_, adsmReadWrite).ok());
  EXPECT_EQ(byte(), value_);
}

// A flush may be under way although all kernels have finished, and a stream does not wait for it.
TEST_F(ReadBacks, ACopyDoesNotOvertakeAFlush) {
  learn(true);
  round(true);  // opened ahead, and written
  fake().failNext(Op::Kind::kLaunch, 1, adsmErrorKernel);
  EXPECT_FALSE(machine_->tryCall(bump_, {at_}).ok());
  work().beforeDeviceWait(kStream);
  EXPECT_EQ(byte(), value_);
  machine_->verify();
}

TEST_F(ReadBacks, AnObjectThatIsFreedWaitsForItsCopy) {
  learn();
  call();
  work().beforeDeviceWait(std::nullopt);
  machine_->free(a_);  // (The fake complains of work that names freed memory.)
  EXPECT_EQ(fake().pending(), 0u);
}

// It ends without the lock of all objects, under which others go through that list.
TEST_F(ReadBacks, AnObjectThatIsFreedIsInNoListWhereItsMemoryIsKept) {
  MachineSetup setup;
  setup.blockBytes = kBlock;
  setup.windowBytes = kWindow;
  setup.keptBytes = 2 * kBytes;
  start(setup);
  learn();
  call();  // a guess
  machine_->free(a_);
  machine_->verify();
}

TEST_F(ReadBacks, AFailedCopyLeavesTheBytesToTheAccess) {
  learn();
  call();
  fake().failNext(Op::Kind::kCopyOut, 1, adsmErrorSystem);
  machine_->sync();
  EXPECT_EQ(accessAt(at_), os::Access::kNone);
  EXPECT_EQ(byte(), value_);
  machine_->verify();
}

TEST_F(ReadBacks, AProtectionThatFailsLeavesTheBytesToTheAccess) {
  learn();
  call();
  os::failNext(os::Call::kProtect, 1, ENOMEM);
  machine_->sync();
  os::failNext(os::Call::kProtect, 0, 0);
  EXPECT_EQ(byte(), value_);
  machine_->verify();
}

TEST_F(ReadBacks, WorkOnAStreamIsFollowedThere) {
  const auto addOne = [&] {
    const coherence::DeviceRange everything{nullptr, 0, true};
    ASSERT_TRUE(work().beginDeviceWork(kStream, {&everything, 1}).ok()) << lastErrorText();
    fake().submit(kStream,
                  [at = fake().at(at_)] { *at = std::byte(std::to_integer<int>(*at) + 1); });
    ASSERT_TRUE(work().endDeviceWork(kStream, true).ok()) << lastErrorText();
    ++value_;
  };
  const auto wait = [&](std::optional<NativeStream> stream) {
    work().beforeDeviceWait(stream);
    fake().runAll();
    EXPECT_TRUE(work().afterDeviceWait().ok()) << lastErrorText();
    machine_->verify();
  };
  for (int i = 0; i < 5; ++i) {  // the fifth is a check; three unchecked ones follow
    addOne();
    wait(kStream);
    EXPECT_EQ(byte(), value_);
  }
  for (const auto& stream : {std::optional(kStream), std::optional<NativeStream>()}) {
    const std::uint64_t before = faults();
    addOne();
    wait(stream);
    EXPECT_EQ(byte(), value_);
    EXPECT_EQ(faults(), before);
  }
  // A copy on a stream that the program does not wait for would be in the way.
  const std::uint64_t copies = readBacks();
  addOne();
  work().beforeDeviceWait(NativeStream{4});
  EXPECT_EQ(readBacks(), copies);
  // One that is capturing would record it. (The fake complains.)
  fake().setCapturing(true);
  work().beforeDeviceWait(kStream);
  fake().setCapturing(false);
  EXPECT_EQ(readBacks(), copies);
  wait(kStream);
  EXPECT_EQ(byte(), value_);
}

// The flush is ordered before another stream's work, which then fails.
TEST_F(ReadBacks, TheStreamOfACopyDoesNotFollowWhatAnotherOneDoes) {
  expectNoFaults();
  launch();
  auto* const fresh = machine_->allocateArray<std::uint8_t>(kBlock);
  fresh[0] = 7;
  const coherence::DeviceRange everything{nullptr, 0, true};
  ASSERT_TRUE(work().beginDeviceWork(NativeStream{4}, {&everything, 1}).ok());
  ASSERT_TRUE(work().endDeviceWork(NativeStream{4}, false).ok());
  const std::uint64_t copies = readBacks();
  (void)work().beforeDeviceWait(kStream);
  ASSERT_EQ(readBacks(), copies + 1);
  std::uint8_t seen = 0;
  (void)machine_->launch(kStream, [&, at = fake().at(fresh)] { seen = *at; });
  EXPECT_EQ(byte(), value_);
  EXPECT_EQ(seen, 7);
}

// Two devices that reach each other's memory, as the accelerator says: the fake itself, and one
// whose queue is a stream of the fake's.
class Beside final : public accel::Devices {
 public:
  FakeAccelerator* fake = nullptr;
  std::uint64_t newest = 0;  // ticket of the second one's newest call

  std::size_t count() const noexcept override { return 2; }
  bool reachEachOther() const noexcept override { return true; }
  std::size_t deviceOf(accel::Ticket ticket) const noexcept override {
    return ticket.value != 0 && ticket.value == newest ? 1 : 0;
  }
  std::size_t homeOf(accel::DeviceAddress) noexcept override { return 0; }
  Result<accel::DeviceDescription> describe(std::size_t) override { return none(); }
  Status usable(std::size_t) override { return {}; }
  Status move(accel::DeviceAddress, std::size_t, std::size_t,
              std::span<const accel::Part>) override {
    return none();
  }
  Status place(accel::DeviceAddress, std::size_t, std::size_t) override { return none(); }
  Result<std::unique_ptr<accel::LoadedKernel>> load(std::size_t,
                                                    const adsmKernelDesc_t& desc) override {
    return fake->load(desc);
  }
  Result<accel::Ticket> launch(std::size_t, accel::LoadedKernel&, const LaunchShape&, void**,
                               std::span<const accel::Ticket>) override {
    fake->submit(NativeStream{7}, [] {});
    const Result<accel::Ticket> ticket = fake->mark(NativeStream{7}, {});
    newest = ticket.ok() ? ticket->value : 0;
    return ticket;
  }
  Status setConstant(std::size_t, accel::LoadedKernel&, const adsmConstant_t&, const void*,
                     std::size_t) override {
    return none();
  }

 private:
  static Status none() { return fail(adsmErrorNotSupported, "calls alone"); }
};

// No stream follows such a call: the launch itself waits for it.
TEST_F(ReadBacks, AfterAWaitNoLaunchRepeatsWhileAnotherDeviceWorks) {
  Beside devices;
  MachineSetup setup;
  setup.blockBytes = kBlock;
  setup.windowBytes = kWindow;
  setup.fake.devices = &devices;
  machine_.reset();
  machine_ = std::make_unique<Machine>(setup);
  devices.fake = &fake();
  bump_ = fake().kernel("bump", 1, [](const LaunchShape&, void**) {});
  a_ = machine_->allocate(kBytes);
  at_ = a_ + 5 * kBlock + kWindow + 9;
  value_ = 0;
  expectNoFaults();
  // It closes what is open.
  const void* argument = a_;
  void* args[] = {&argument};
  ASSERT_TRUE(objects().call(bump_, {{1, 1, 1}, {1, 1, 1}, 0}, args, std::nullopt, 1).ok())
      << lastErrorText();
  ASSERT_EQ(fake().pending(), 1u);
  const coherence::DeviceWait wait = work().beforeDeviceWait(kStream);
  ASSERT_TRUE(work().afterDeviceWait(wait).ok());
  ASSERT_EQ(fake().pending(), 1u);
  launch();
  EXPECT_EQ(fake().pending(), 1u) << "the launch alone";
  EXPECT_EQ(byte(), value_);
}

// ---- Waits for events: the runtime does not know where they were recorded

TEST_F(ReadBacks, AWaitForAnEventIsOneForTheOnlyStreamThatWorks) { expectNoFaults(); }

// The copy begins then, and not at the access.
TEST_F(ReadBacks, SoIsAQuestionThatIsAnsweredWithYes) {
  expectNoFaults();
  const std::uint64_t copies = readBacks();
  launch();
  waitForEvent(true);
  EXPECT_EQ(readBacks(), copies + 1);
  EXPECT_EQ(byte(), value_);
}

TEST_F(ReadBacks, AQuestionItselfCopiesNothing) {
  expectNoFaults();
  const std::uint64_t copies = readBacks();
  launch();
  (void)work().beforeDeviceWait(accel::kForeignStream, true);
  (void)work().beforeDeviceWait(kStream, true);
  EXPECT_EQ(readBacks(), copies);
  EXPECT_EQ(byte(), value_);
}

TEST_F(ReadBacks, WhereSeveralStreamsWorkNobodyKnowsWhoseAnEventIs) {
  expectNoFaults();
  const std::uint64_t copies = readBacks();
  launch();
  (void)machine_->launch(NativeStream{4}, [] {});
  (void)work().beforeDeviceWait(accel::kForeignStream);
  EXPECT_EQ(readBacks(), copies);
  EXPECT_EQ(byte(), value_);
}

TEST_F(ReadBacks, NorWhereACallOfTheLibrarysWorksToo) {
  expectNoFaults();
  const std::uint64_t copies = readBacks();
  launch();
  fake().runAll();
  call();
  (void)work().beforeDeviceWait(accel::kForeignStream);
  EXPECT_EQ(readBacks(), copies);
  EXPECT_EQ(byte(), value_);
}

TEST_F(ReadBacks, AFunctionOfTheCpuInAStreamHasNoCopyBehindIt) {
  learn();
  call();
  work().hostFunctionQueued();
  const std::uint64_t copies = readBacks();
  work().beforeDeviceWait(std::nullopt);
  EXPECT_EQ(readBacks(), copies);
  work().hostFunctionEnded();
  work().beforeDeviceWait(std::nullopt);
  EXPECT_EQ(readBacks(), copies + 1);
  EXPECT_EQ(byte(), value_);
}

TEST_F(ReadBacks, AKernelThatFailedOpensNothing) {
  learn();
  fake().crashKernel(1);
  call();
  EXPECT_FALSE(objects().sync().ok());
  EXPECT_EQ(accessAt(at_), os::Access::kNone);
}

TEST_F(ReadBacks, ALaunchThatFailsLosesNothing) {
  learn(true);
  round(true);  // opened ahead, and written
  fake().failNext(Op::Kind::kLaunch, 1, adsmErrorKernel);
  EXPECT_FALSE(machine_->tryCall(bump_, {at_}).ok());
  EXPECT_EQ(byte(), value_);
  machine_->verify();
}

TEST_F(ReadBacks, WholeBlocksComeBackToo) {
  MachineSetup setup;
  setup.blockBytes = kBlock;
  setup.rollingSize = 100;
  start(setup);
  learn(true);
  const std::uint64_t before = faults();
  round(true);
  EXPECT_EQ(faults(), before);
}

// Four blocks of an object, in one submission.
TEST_F(ReadBacks, SeveralPlacesOfAnObjectComeBackTogether) {
  MachineSetup setup;
  setup.blockBytes = kBlock;
  setup.rollingSize = 100;
  start(setup);
  const std::vector<std::byte*> at{a_, a_ + 3 * kBlock, at_, a_ + kBytes - 1};
  std::uint8_t value = 0;
  const auto launchAndWait = [&] {
    ++value;
    (void)machine_->launch(kStream, [&] {
      for (std::byte* byte : at) {
        *fake().at(byte) = std::byte(value);
      }
    });
    const coherence::DeviceWait wait = work().beforeDeviceWait(kStream);
    fake().runAll();
    EXPECT_TRUE(work().afterDeviceWait(wait).ok()) << lastErrorText();
    machine_->verify();
  };
  const auto look = [&] {
    for (std::byte* byte : at) {
      EXPECT_EQ(std::to_integer<std::uint8_t>(*byte), value);
    }
  };
  for (int i = 0; i < 5; ++i) {
    launchAndWait();
    look();
  }
  const std::uint64_t before = faults();
  std::uint64_t copies = readBacks();
  launchAndWait();
  look();
  EXPECT_EQ(faults(), before);
  EXPECT_EQ(readBacks(), copies + at.size());

  // One that cannot be copied is left to its access, and so are those after it.
  fake().failNext(Op::Kind::kCopyOut, 3, adsmErrorSystem);
  copies = readBacks();
  launchAndWait();
  look();
  EXPECT_EQ(readBacks(), copies + 2);
  EXPECT_EQ(faults(), before + 2);

  // What the CPU comes for before the wait is not copied for it.
  launchAndWait();
  look();
  ++value;
  (void)machine_->launch(kStream, [&] { *fake().at(at[3]) = std::byte(value); });
  fake().runAll();
  *at[1] = std::byte(value);
  copies = readBacks();
  const coherence::DeviceWait wait = work().beforeDeviceWait(kStream);
  fake().runAll();
  EXPECT_TRUE(work().afterDeviceWait(wait).ok()) << lastErrorText();
  EXPECT_EQ(readBacks(), copies + at.size() - 1);
  EXPECT_EQ(std::to_integer<std::uint8_t>(*at[1]), value);
  EXPECT_EQ(std::to_integer<std::uint8_t>(*at[3]), value);
  machine_->verify();
}

// The copy of one is no work that another may have been written by.
TEST_F(ReadBacks, ManyObjectsOfAStreamAtATime) {
  std::vector<std::byte*> objects;
  for (int i = 0; i < 20; ++i) {
    objects.push_back(machine_->allocate(kBytes));
  }
  std::uint8_t value = 0;
  const auto round = [&] {
    (void)machine_->launch(kStream, [&] {
      for (std::byte* object : objects) {
        ++*fake().at(reinterpret_cast<std::uint8_t*>(object));
      }
    });
    ++value;
    const coherence::DeviceWait wait = work().beforeDeviceWait(kStream);
    fake().runAll();
    EXPECT_TRUE(work().afterDeviceWait(wait).ok()) << lastErrorText();
    for (std::byte* object : objects) {
      EXPECT_EQ(std::to_integer<std::uint8_t>(*object), value);
    }
    machine_->verify();
  };
  for (int i = 0; i < 5; ++i) {  // the fifth is a check
    round();
  }
  const std::uint64_t before = faults();
  const std::uint64_t copies = readBacks();
  round();
  EXPECT_EQ(faults(), before);
  EXPECT_EQ(readBacks(), copies + objects.size());
  work().beforeDeviceWait(kStream);
  EXPECT_EQ(readBacks(), copies + objects.size()) << "no work has come since";
}

// (The note is for good: the last test of this file that uses a stream.)
TEST_F(ReadBacks, AStreamThatMayWaitForTheCpuHasNoCopyBehindIt) {
  learn();
  const auto launch = [&] {
    const coherence::DeviceRange everything{nullptr, 0, true};
    ASSERT_TRUE(work().beginDeviceWork(kStream, {&everything, 1}).ok()) << lastErrorText();
    ASSERT_TRUE(work().endDeviceWork(kStream, true).ok()) << lastErrorText();
  };
  const std::uint64_t copies = readBacks();
  launch();
  coherence::noteOpenWait();
  work().beforeDeviceWait(kStream);
  EXPECT_EQ(readBacks(), copies);
  work().beforeDeviceWait(std::nullopt);
  EXPECT_EQ(readBacks(), copies);
  EXPECT_EQ(byte(), value_);
  // The runtime's own queue waits for nothing of the kind.
  round();
  EXPECT_EQ(readBacks(), copies + 1);
}

TEST_F(ReadBacks, ManyObjectsAtATime) {
  std::vector<std::byte*> objects;
  for (int i = 0; i < 20; ++i) {
    objects.push_back(machine_->allocate(kBytes));
  }
  std::uint8_t value = 0;
  const auto round = [&] {
    for (std::byte* object : objects) {
      machine_->call(bump_, {object});
    }
    ++value;
    machine_->sync();
    for (std::byte* object : objects) {
      EXPECT_EQ(std::to_integer<std::uint8_t>(*object), value);
    }
  };
  for (int i = 0; i < 3; ++i) {
    round();
  }
  const std::uint64_t before = faults();
  round();
  EXPECT_EQ(faults(), before);
  for (std::byte* object : objects) {
    machine_->free(object);
  }
  machine_->sync();
}

}  // namespace
}  // namespace gmac::testing
