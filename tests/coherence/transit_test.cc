// SPDX-License-Identifier: Apache-2.0
//
// Calls that need blocks which other threads are fetching.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/object.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;

// The thread sanitizer blocks every signal while a handler runs, so a thread that is started
// meanwhile begins with SIGSEGV blocked, and its first fault would end the process.
void takeFaults() {
  sigset_t faults;
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  ASSERT_EQ(pthread_sigmask(SIG_UNBLOCK, &faults, nullptr), 0);
}

// A thread of this process, which may be started while a fault is handled, and whether it sleeps.
class Sleeper {
 public:
  template <typename Body>
  explicit Sleeper(Body body)
      : thread_([this, body] {
          takeFaults();
          id_ = static_cast<int>(syscall(SYS_gettid));
          body();
          done_ = true;
        }) {}
  ~Sleeper() { thread_.join(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  bool done() const { return done_; }
  // Returns when the thread sleeps, or has ended.
  void awaitSleep() const {
    while (!done_ && stateOf(id_) != 'S') {
      std::this_thread::yield();
    }
  }

 private:
  static char stateOf(int id) {
    std::ifstream file("/proc/self/task/" + std::to_string(id) + "/stat");
    std::string line;
    std::getline(file, line);
    const std::size_t name = line.rfind(')');
    return name == std::string::npos ? 'R' : line.at(name + 2);
  }

  std::atomic<int> id_{0};
  std::atomic<bool> done_{false};
  std::thread thread_;  // last: the others are there when it begins
};

template <typename Body>
void inAnotherThread(Body body) {
  const Sleeper thread(body);
}

// Threads that touch one block after the other have one in transit at any time: the call would
// never come to its turn.
TEST(Transit, WhileACallWaitsForABlockNoOtherGoesIntoTransit) {
  MachineSetup setup;
  Machine machine(setup);
  const adsmKernel_t increment =
      machine.fake().kernel("increment", 1, [&](const LaunchShape&, void** args) {
        auto* data = machine.fake().argument<std::byte>(args, 0);
        data[0] = data[kPage] = std::byte{2};
      });
  std::byte* a = machine.allocate(2 * kPage);
  a[0] = a[kPage] = std::byte{1};
  machine.call(increment, {a});
  machine.sync();
  std::promise<void> copy;
  const std::shared_future<void> mayCopy = copy.get_future().share();
  std::atomic<int> copies{0};
  machine.fake().onCopyOut([&] {
    ++copies;
    mayCopy.wait();
  });
  {
    Sleeper first([&] { EXPECT_EQ(a[0], std::byte{2}); });
    while (copies == 0) {
      std::this_thread::yield();
    }
    Sleeper caller([&] { EXPECT_TRUE(machine.tryCall(increment, {a}).ok()); });
    caller.awaitSleep();
    Sleeper second([&] { EXPECT_EQ(a[kPage], std::byte{2}); });
    second.awaitSleep();
    EXPECT_EQ(copies, 1);
    EXPECT_FALSE(second.done());
    copy.set_value();
  }
  machine.fake().onCopyOut(nullptr);
  machine.sync();
  machine.verify();
}

// Nobody but the core writes a block, or finds one to write.
template <typename T>
concept Writable = requires(T& object, BlockIndex index) {
  object[index].state = State::kDirty;
};
static_assert(!Writable<Object>);

// ---- Flushes, whose submission holds no lock

// Rolling, and `dirty` blocks of an object that the last flush has left so.
class Flushes : public ::testing::Test {
 protected:
  static MachineSetup rolling(std::size_t size) {
    MachineSetup setup;
    setup.rollingSize = size;
    return setup;
  }
  // Runs `meanwhile` during the first copy that `action` makes to the accelerator.
  template <typename Action, typename Meanwhile>
  static void during(Machine& machine, Action action, Meanwhile meanwhile) {
    std::atomic<int> copies{0};
    machine.fake().onCopyIn([&] {
      if (copies++ == 0 && !CoherentMemory::lockIsHeldHere()) meanwhile();
    });
    action();
    machine.fake().onCopyIn(nullptr);
    EXPECT_GT(copies, 0);
  }
};

TEST_F(Flushes, WhileABlockIsEvictedOtherThreadsFault) {
  Machine machine(rolling(1));
  std::byte* a = machine.allocate(2 * kPage);
  std::byte* b = machine.allocate(kPage);
  a[0] = std::byte{1};
  bool written = false;
  during(
      machine, [&] { a[kPage] = std::byte{2}; },
      [&] {
        inAnotherThread([&] { b[0] = std::byte{3}; });
        written = true;
        EXPECT_TRUE(machine.objects().verify().ok()) << lastErrorText();
      });
  EXPECT_TRUE(written) << "the lock was held";
  EXPECT_EQ(b[0], std::byte{3});
  machine.verify();
}

TEST_F(Flushes, ABlockThatIsBeingEvictedCountsAsEvicted) {
  Machine machine(rolling(3));
  std::byte* a = machine.allocate(8 * kPage);
  for (std::size_t i = 0; i < 3; ++i) a[i * kPage] = std::byte{1};
  machine.fake().clearLog();
  during(
      machine, [&] { a[3 * kPage] = std::byte{1}; },
      [&] { inAnotherThread([&] { a[4 * kPage] = std::byte{1}; }); });
  EXPECT_EQ(machine.fake().copies().size(), 2u) << "three of five blocks stay dirty";
  machine.verify();
}

TEST_F(Flushes, ABlockThatIsBeingEvictedIsWrittenAfterwards) {
  Machine machine(rolling(1));
  std::byte* a = machine.allocate(2 * kPage);
  a[0] = std::byte{1};
  std::unique_ptr<Sleeper> writer;
  during(
      machine, [&] { a[kPage] = std::byte{2}; },
      [&] {
        writer = std::make_unique<Sleeper>([&] { a[0] = std::byte{3}; });
        writer->awaitSleep();
        EXPECT_FALSE(writer->done());
      });
  writer.reset();
  EXPECT_EQ(a[0], std::byte{3});
  machine.verify();
}

TEST_F(Flushes, ACallWaitsForAnEviction) {
  Machine machine(rolling(1));
  std::byte seen{};
  const adsmKernel_t look = machine.fake().kernel("look", 1, [&](const LaunchShape&, void** args) {
    seen = machine.fake().argument<std::byte>(args, 0)[0];
  });
  std::byte* a = machine.allocate(2 * kPage);
  a[0] = std::byte{1};
  std::unique_ptr<Sleeper> caller;
  during(
      machine, [&] { a[kPage] = std::byte{2}; },
      [&] {
        caller = std::make_unique<Sleeper>([&] { EXPECT_TRUE(machine.tryCall(look, {a}).ok()); });
        caller->awaitSleep();
        EXPECT_FALSE(caller->done());
      });
  caller.reset();
  machine.sync();
  EXPECT_EQ(seen, std::byte{1});
  machine.verify();
}

// An object that is freed waits for the kernels that read it; until then its blocks are dirty, and
// may be evicted.
TEST_F(Flushes, AnObjectThatIsBeingFreedWaitsForTheEvictionOfItsBlocks) {
  Machine machine(rolling(1));
  const adsmKernel_t look = machine.fake().kernel("look", 1, [](const LaunchShape&, void**) {});
  std::byte* a = machine.allocate(128 * kPage);
  std::byte* b = machine.allocate(128 * kPage);
  machine.fake().stall(Op::Kind::kLaunch);
  machine.callUsing(look, {a}, {{a, adsmRead}});
  a[0] = std::byte{1};
  std::unique_ptr<Sleeper> freer;
  freer = std::make_unique<Sleeper>([&] { machine.free(a); });
  while (machine.fake().stalled() == 0 && !freer->done()) std::this_thread::yield();
  during(
      machine, [&] { b[0] = std::byte{2}; },
      [&] {
        machine.fake().resume();
        while (machine.fake().stalled() != 0) std::this_thread::yield();
        freer->awaitSleep();
        EXPECT_FALSE(freer->done());
      });
  freer.reset();
  EXPECT_EQ(b[0], std::byte{2});
  machine.verify();
}

TEST_F(Flushes, WhileBlocksAreFlushedEarlyOtherThreadsFault) {
  Machine machine(MachineSetup{});
  std::byte* a = machine.allocate(2 * kPage);
  std::byte* b = machine.allocate(kPage);
  a[0] = a[kPage] = std::byte{1};
  bool written = false;
  during(
      machine, [&] { EXPECT_TRUE(machine.memory().startFlush(a, 2 * kPage).ok()); },
      [&] {
        inAnotherThread([&] { b[0] = std::byte{3}; });
        written = true;
      });
  EXPECT_TRUE(written) << "the lock was held";
  machine.verify();
}

// Blocks that could not be flushed are dirty, and the next call flushes them.
TEST_F(Flushes, AFailedFlushLeavesTheBlockDirty) {
  Machine machine(MachineSetup{});
  std::byte* a = machine.allocate(kPage);
  a[0] = std::byte{1};
  machine.fake().failNext(Op::Kind::kCopyIn, 1, adsmErrorSystem);
  EXPECT_FALSE(machine.memory().startFlush(a, kPage).ok());
  machine.verify();
  std::byte seen{};
  machine.call(machine.fake().kernel("look", 1,
                                     [&](const LaunchShape&, void** args) {
                                       seen = machine.fake().argument<std::byte>(args, 0)[0];
                                     }),
               {a});
  machine.sync();
  EXPECT_EQ(seen, std::byte{1});
}

// A call waits for what threads hold for system calls too, and those may need more blocks first.
TEST(Transit, WhileACallWaitsForAHoldOthersGoOn) {
  MachineSetup setup;
  Machine machine(setup);
  const adsmKernel_t nothing =
      machine.fake().kernel("nothing", 0, [](const LaunchShape&, void**) {});
  std::byte* a = machine.allocate(2 * kPage);
  machine.call(nothing, {});
  machine.sync();
  ASSERT_TRUE(machine.memory().hold(a, 1, false).ok());
  {
    Sleeper caller([&] { EXPECT_TRUE(machine.tryCall(nothing, {}).ok()); });
    caller.awaitSleep();
    EXPECT_FALSE(caller.done());
    EXPECT_EQ(a[kPage], std::byte{0});
    machine.memory().unhold(a, 1);
  }
  machine.sync();
  machine.verify();
}

}  // namespace
}  // namespace gmac::testing
