// SPDX-License-Identifier: Apache-2.0
//
// Real faults from many threads on shared blocks, with calls, syncs, allocations and frees between
// them.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"
#include "tests/support/machine_fixture.h"
#include "tests/support/thread_names.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using accel::Placement;

struct ThreadsCase {
  MachineSetup setup;
  int threads;
};

// NOLINTNEXTLINE: GoogleTest's name
void PrintTo(const ThreadsCase& parameter, std::ostream* out) {
  *out << nameOf(parameter.setup) << ", " << parameter.threads << " threads";
}

std::string nameOfCase(const ::testing::TestParamInfo<ThreadsCase>& info) {
  return nameOf(info.param.setup) + "_" + std::to_string(info.param.threads);
}

std::vector<ThreadsCase> everyCase() {
  std::vector<ThreadsCase> cases;
  for (const bool moved : {false, true}) {
    for (const char* protocol : {"batch", "lazy", "rolling"}) {
      for (const int threads : {1, 2, 8, 64}) {
        if (moved && threads != 8) {
          continue;
        }
        MachineSetup setup;
        setup.protocol = protocol;
        setup.blockBytes = moved ? 64 * kKiB : kPage;
        setup.rollingSize = 3;
        setup.readAheadBytes = 4 * setup.blockBytes;
        setup.populateAhead = moved;
        setup.fake.movedPages = moved;
        setup.fake.run = FakeOptions::Run::kRandom;
        cases.push_back({setup, threads});
      }
    }
  }
  return cases;
}

class Threads : public ::testing::TestWithParam<ThreadsCase> {
 protected:
  Threads() : machine_(GetParam().setup) {}

  FakeAccelerator& fake() { return machine_.fake(); }
  void inParallel(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < GetParam().threads; ++i) {
      threads.emplace_back(body, i);
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  Machine machine_;
};

// Every thread has a word in every block, so that all threads fault on all blocks, and none on
// another's bytes.
TEST_P(Threads, WritersOfTheSameBlocksLoseNothing) {
  constexpr std::size_t kBlocks = 24;
  const std::size_t block = GetParam().setup.blockBytes;
  std::byte* object = machine_.allocate(kBlocks * block);
  const auto word = [&](std::size_t b, int thread) -> std::uint32_t& {
    return reinterpret_cast<std::uint32_t*>(object + b * block)[thread * 8];
  };
  const adsmKernel_t addOne = fake().kernel("addOne", 1, [&](const LaunchShape&, void** args) {
    auto* bytes = fake().argument<std::byte>(args, 0);
    for (std::size_t b = 0; b < kBlocks; ++b) {
      for (int thread = 0; thread < 64; ++thread) {
        ++reinterpret_cast<std::uint32_t*>(bytes + b * block)[thread * 8];
      }
    }
  });
  std::uint32_t expected = 0;
  std::atomic<int> wrong{0};
  for (int round = 0; round < 5; ++round) {
    inParallel([&](int thread) {
      std::mt19937 random(static_cast<unsigned>(round * 100 + thread));
      for (std::size_t i = 0; i < kBlocks; ++i) {
        const std::size_t b = (i * 7 + static_cast<std::size_t>(thread)) % kBlocks;
        wrong += word(b, thread) != expected;
        word(b, thread) += 10;
      }
    });
    machine_.verify();
    machine_.call(addOne, {object});
    if (round % 2 == 0) {
      machine_.sync();
    }
    expected += 11;
  }
  inParallel([&](int thread) {
    for (std::size_t b = 0; b < kBlocks; ++b) {
      wrong += word(b, thread) != expected;
    }
  });
  EXPECT_EQ(wrong, 0);
  machine_.verify();
}

// Each thread works on an object of its own, lists it in its calls, and allocates and frees; all
// share the objects.
TEST_P(Threads, CallsSyncsAllocationsAndFreesMix) {
  const adsmKernel_t addOne = fake().kernel("addOne", 2, [&](const LaunchShape&, void** args) {
    auto* values = fake().argument<std::uint32_t>(args, 0);
    const auto count = *static_cast<std::size_t*>(args[1]);
    for (std::size_t i = 0; i < count; ++i) {
      ++values[i];
    }
  });
  const int rounds = GetParam().threads > 8 ? 3 : 12;
  std::atomic<int> wrong{0};
  std::atomic<int> errors{0};
  inParallel([&](int thread) {
    std::mt19937 random(static_cast<unsigned>(thread));
    for (int round = 0; round < rounds; ++round) {
      const bool small = random() % 3 == 0;
      const std::size_t count = small ? 50 : 3 * GetParam().setup.blockBytes / 4 + random() % 1000;
      auto made = machine_.objects().allocate(count * 4, Placement::kSameAddress);
      if (!made.ok()) {
        ++errors;
        continue;
      }
      auto* values = static_cast<std::uint32_t*>(*made);
      values[0] = 5;
      values[count - 1] = 6;
      const auto call = [&] {
        errors += !machine_
                       .tryCallUsing(addOne, {values, reinterpret_cast<const void*>(count)},
                                     {{values, adsmReadWrite}})
                       .ok();
      };
      call();
      if (random() % 2 == 0) {
        errors += !machine_.objects().sync().ok();
      }
      wrong += values[0] != 6;
      values[0] = 20;
      call();
      wrong += values[count - 1] != 8;
      wrong += values[0] != 21;
      errors += !machine_.objects().free(values).ok();
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(errors, 0);
  machine_.verify();
}

// Holds, as system calls make them, against calls of another thread: a held block is never closed.
TEST_P(Threads, HoldsAndCallsWaitForEachOther) {
  const std::size_t block = GetParam().setup.blockBytes;
  std::byte* object = machine_.allocate(8 * block);
  const adsmKernel_t nothing = fake().kernel("nothing", 0, [](const LaunchShape&, void**) {});
  std::atomic<bool> stop{false};
  std::atomic<int> errors{0};
  std::thread caller([&] {
    while (!stop) {
      errors += !machine_.tryCall(nothing, {}).ok();
      errors += !machine_.objects().sync().ok();
    }
  });
  inParallel([&](int thread) {
    for (int round = 0; round < 10; ++round) {
      const std::size_t begin = static_cast<std::size_t>(thread % 4) * block + 100;
      errors += !machine_.memory().hold(object + begin, 3 * block, true).ok();
      for (std::size_t b = 0; b < 3; ++b) {
        errors += accessAt(object + begin + b * block) != os::Access::kReadWrite;
      }
      machine_.memory().unhold(object + begin, 3 * block);
    }
  });
  stop = true;
  caller.join();
  EXPECT_EQ(errors, 0);
  machine_.verify();
}

INSTANTIATE_TEST_SUITE_P(, Threads, ::testing::ValuesIn(everyCase()), nameOfCase);

// A call that is made while another thread fetches from an object that was closed altogether: the
// fetch must not open what the kernel is about to write.
TEST(CallsAndFetches, ACallWaitsForAFetchOfAClosedObject) {
  for (const char* protocol : {"batch", "lazy", "rolling"}) {
    MachineSetup setup;
    setup.protocol = protocol;
    Machine machine(setup);
    int* data = machine.allocateArray<int>(64 * kPage / 4);
    const adsmKernel_t addOne = machine.fake().kernel(
        "addOne", 1,
        [&](const LaunchShape&, void** args) { ++*machine.fake().argument<int>(args, 0); });
    machine.call(addOne, {data});
    std::thread caller;
    std::atomic<bool> started{false};
    machine.fake().onCopyOut([&] {
      if (!started.exchange(true)) {
        caller = std::thread([&] { EXPECT_TRUE(machine.tryCall(addOne, {data}).ok()); });
        // Room for the call to be made too early; where it waits as it must, this only passes time.
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
    // The call may be made, and waited for, before the access that faulted is tried again.
    const int seen = data[0];
    EXPECT_TRUE(seen == 1 || seen == 2) << protocol << ": " << seen;
    caller.join();
    EXPECT_EQ(data[0], 2) << protocol;
    machine.sync();
    EXPECT_EQ(data[0], 2) << protocol;
  }
}

// ---- Device work of the application's own

// Between beginDeviceWork and endDeviceWork there is one thread, whatever the others wait for
// meanwhile.
TEST(DeviceWork, OneThreadAtATime) {
  MachineSetup setup;
  setup.rollingSize = 2;
  Machine machine(setup);
  std::byte* object = machine.allocate(64 * kPage);
  std::atomic<int> inside{0};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uintptr_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const accel::NativeStream stream{i};
      const coherence::DeviceRange range{nullptr, 0, true};
      for (int round = 0; round < 50; ++round) {
        object[(i * 16 + static_cast<std::size_t>(round) % 16) * kPage] = std::byte{1};
        if (!machine.work().beginDeviceWork(stream, {&range, 1}).ok()) {
          ++wrong;
          continue;
        }
        wrong += ++inside != 1;
        std::this_thread::yield();
        --inside;
        wrong += !machine.work().endDeviceWork(stream, true).ok();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
  machine.verify();
}

TEST(DeviceWork, AnAccessWaitsForTheStreamsWork) {
  Machine machine(MachineSetup{});
  int* data = machine.allocateArray<int>(64 * kPage / 4);
  data[0] = 41;
  const accel::NativeStream stream{1};
  const coherence::DeviceRange range{data, 64 * kPage, true};
  ASSERT_TRUE(machine.work().beginDeviceWork(stream, {&range, 1}).ok()) << lastErrorText();
  machine.fake().submit(stream, [&] { ++*machine.fake().at(data); });
  ASSERT_TRUE(machine.work().endDeviceWork(stream, true).ok());
  EXPECT_EQ(data[0], 42);
  machine.verify();
}

// Bytes that another thread fetched before the work is known would count as current after it.
TEST(DeviceWork, AnAcquireOfAnotherThreadWaitsForTheSubmission) {
  for (const bool sync : {false, true}) {
    MachineSetup setup;
    setup.protocol = "batch";
    Machine machine(setup);
    int* data = machine.allocateArray<int>(64 * kPage / 4);
    data[0] = 41;
    const accel::NativeStream stream{1};
    const coherence::DeviceRange range{nullptr, 0, true};
    ASSERT_TRUE(machine.work().beginDeviceWork(stream, {&range, 1}).ok()) << lastErrorText();
    std::atomic<bool> ok{false};
    std::thread other(
        [&] { ok = (sync ? machine.objects().sync() : machine.work().afterDeviceWait()).ok(); });
    // Time for it to fetch too early.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    machine.fake().submit(stream, [&] { ++*machine.fake().at(data); });
    ASSERT_TRUE(machine.work().endDeviceWork(stream, true).ok());
    other.join();
    EXPECT_TRUE(ok);
    EXPECT_EQ(data[0], 42) << (sync ? "sync" : "afterDeviceWait");
    machine.verify();
  }
}

// The CPU may write at once what device work only reads; the work must not see it, nor an eviction
// of it.
TEST(DeviceWork, AWriteAfterwardsDoesNotReachWorkThatReads) {
  MachineSetup setup;
  setup.rollingSize = 1;
  Machine machine(setup);
  int* data = machine.allocateArray<int>(64 * kPage / 4);
  data[0] = 1;
  const accel::NativeStream stream{1};
  const coherence::DeviceRange range{data, 64 * kPage, false};
  ASSERT_TRUE(machine.work().beginDeviceWork(stream, {&range, 1}).ok());
  int seen = 0;
  machine.fake().submit(stream, [&] { seen = *machine.fake().at(data); });
  ASSERT_TRUE(machine.work().endDeviceWork(stream, true).ok());
  data[0] = 2;
  data[kPage / 4] = 3;  // evicts the first block
  data[0] = 4;          // waits for that copy
  machine.fake().runAll();
  EXPECT_EQ(seen, 1);
}

// As debuggers and traces show them.
TEST(Population, ThreadsThatWaitForOneBlockPopulateAChunkEach) {
  MachineSetup setup;
  setup.protocol = "lazy";
  setup.fake.movedPages = true;
  Machine machine(setup);
  std::byte* const data = machine.allocate(8 * kMiB);
  std::atomic<int> pinning{0};
  std::atomic<bool> two{false};
  std::atomic<bool> waited{false};
  machine.fake().onPin([&] {
    two = ++pinning > 1 || two;
    for (int i = 0; i < 5000 && !two && !waited; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    waited = true;
    --pinning;
  });
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < 4; ++i) {
      threads.emplace_back([=] { data[i * 2 * kMiB + i] = std::byte{1}; });
    }
  }
  machine.fake().onPin(nullptr);
  EXPECT_TRUE(two);
  machine.verify();
}

TEST(ThreadsOfTheRuntime, HaveNames) {
  MachineSetup setup;
  setup.blockBytes = 64 * kKiB;
  setup.populateAhead = true;
  setup.fetchInBackground = true;
  setup.fake.movedPages = true;
  Machine machine(setup);
  EXPECT_TRUE(aThreadIsCalled("gmac populate"));
  std::byte* const object = machine.allocate(kMiB);
  object[0] = std::byte{1};
  machine.call(machine.fake().kernel("nothing", 1, [](const LaunchShape&, void**) {}), {object});
  ASSERT_TRUE(machine.memory().startFetch(object, kMiB).ok()) << lastErrorText();
  EXPECT_TRUE(aThreadIsCalled("gmac fetch"));
}

}  // namespace
}  // namespace gmac::testing
