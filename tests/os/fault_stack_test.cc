// SPDX-License-Identifier: Apache-2.0
//
// Faults that are delivered on an alternate stack: they are handled where there is room, whatever
// stacks the program has. A process has one handler for its life, so every test runs in a process
// of its own.
#include "gmac/os/fault_stack.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include "gmac/os/fault.h"
#include "gmac/os/memory.h"
#include "tests/support/painted_stack.h"

namespace gmac::os {
namespace {

using testing::PaintedStack;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 128;
// SS_AUTODISARM, which glibc does not name.
constexpr int kAutoDisarm = static_cast<int>(1U << 31);

std::byte* ours = nullptr;  // kPages pages, each opened by a fault
volatile sig_atomic_t faults = 0;
volatile sig_atomic_t raises = 0;  // a SIGUSR1 in the middle of the answer, so often
std::atomic<int> together{0};      // faults that are answered only when all are there

bool owns(const void* address) noexcept {
  return address >= ours && address < ours + kPages * kPage;
}

// Takes as much stack as a driver may: more than any alternate stack of these tests has.
[[gnu::noinline]] void useStack() noexcept {
  volatile unsigned char room[std::size_t{64} << 10];
  for (std::size_t i = 0; i < sizeof room; i += 64) room[i] = 1;
}

bool open(void* address, bool) noexcept {
  if (!owns(address)) return false;
  faults = faults + 1;
  useStack();
  if (raises > 0) {
    raises = raises - 1;
    { const SignalsBlocked ends; }  // lets them in, as a wait for a kernel does
    (void)raise(SIGUSR1);
  }
  if (together > 0) {
    together.fetch_sub(1);
    while (together > 0) std::this_thread::yield();
  }
  auto* const at = static_cast<std::byte*>(address);
  return protect(ours + (at - ours) / kPage * kPage, kPage, Access::kReadWrite).ok();
}

void touch(std::size_t page) { *reinterpret_cast<volatile int*>(ours + page * kPage) = 1; }

// The largest frame of a signal here.
std::size_t frameBytes() { return static_cast<std::size_t>(sysconf(_SC_MINSIGSTKSZ)); }

PaintedStack* alternate = nullptr;

void useAlternateStack(std::size_t bytes, int flags = 0) {
  alternate = new PaintedStack(bytes);
  stack_t whole = alternate->whole();
  whole.ss_flags = flags;
  if (sigaltstack(&whole, nullptr) != 0) _exit(98);
}

// The program's alternate stack is as it made it.
bool alternateStackIsWhole() {
  stack_t now;
  const stack_t whole = alternate->whole();
  return sigaltstack(nullptr, &now) == 0 && now.ss_sp == whole.ss_sp &&
         now.ss_size == whole.ss_size && (now.ss_flags & (SS_DISABLE | SS_ONSTACK)) == 0;
}

void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  if (sigaction(signal, &action, nullptr) != 0) _exit(97);
}

// With a handler of the program's own that is on the alternate stack, as crash reporters' are.
void start() {
  handle(
      SIGSEGV, [](int) { _exit(96); }, SA_ONSTACK);
  auto place = reserve(kPages * kPage, kPage);
  if (!place.ok() || !installFaultHandler(&open, &owns).ok()) _exit(99);
  ours = static_cast<std::byte*>(*place);
}

// Two faults in a coroutine, answered on an alternate stack of so many bytes: 0 when all is well.
int faultTwice(std::size_t alternateBytes, int flags = 0) {
  useAlternateStack(alternateBytes, flags);
  start();
  const PaintedStack coroutine(std::size_t{2} << 10);
  coroutine.run([] {
    touch(0);
    touch(1);
  });
  return faults == 2 && alternateStackIsWhole() ? 0 : 1;
}

#define EXPECT_WELL(body) EXPECT_EXIT(_exit((body)()), ::testing::ExitedWithCode(0), "")

class FaultStackDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the thread sanitizer wraps the program's signal handlers";
#endif
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "frames of the address sanitizer are larger than these stacks";
#endif
  }
};

TEST_F(FaultStackDeathTest, AFaultNeedsNoRoomOnTheStackOnWhichItHappens) {
  EXPECT_WELL([] {
    useAlternateStack(std::size_t{32} << 10);
    start();
    const PaintedStack coroutine(std::size_t{2} << 10);
    coroutine.run([] { touch(0); });
    if (faults != 1) return 1;
    if (coroutine.used() > 512) return 2;
    return alternateStackIsWhole() ? 0 : 3;
  });
}

TEST_F(FaultStackDeathTest, OfTheAlternateStackItNeedsLittleMoreThanASignalsFrame) {
  EXPECT_WELL([] { return faultTwice(frameBytes() + 2048); });
}

TEST_F(FaultStackDeathTest, ADisarmingAlternateStackIsArmedAgain) {
  EXPECT_WELL([] { return faultTwice(std::size_t{32} << 10, kAutoDisarm); });
}

volatile sig_atomic_t handled = 0;
volatile sig_atomic_t handledOnAlternate = 0;

void touchInHandler(int) {
  const char here = 0;
  handledOnAlternate = handledOnAlternate + (alternate->contains(&here) ? 1 : 0);
  touch(kPages / 2 + static_cast<std::size_t>(handled));
  handled = handled + 1;
}

// As Go's runtime demands, whose handlers refuse to run anywhere else.
TEST_F(FaultStackDeathTest, AHandlerThatComesBetweenRunsOnTheRestOfTheAlternateStack) {
  EXPECT_WELL([] {
    useAlternateStack(std::size_t{32} << 10);
    start();
    handle(SIGUSR1, &touchInHandler, SA_ONSTACK);
    const PaintedStack coroutine(std::size_t{2} << 10);
    raises = 2;  // the second in the answer to the first one's fault
    coroutine.run([] { touch(0); });
    if (faults != 3 || handled != 2) return 1;
    if (handledOnAlternate != 2) return 2;
    if (coroutine.used() > 512) return 3;
    return alternateStackIsWhole() ? 0 : 4;
  });
}

TEST_F(FaultStackDeathTest, AHandlerForWhichTheRestIsTooSmallRunsElsewhere) {
  EXPECT_WELL([] {
    useAlternateStack(frameBytes() + 2048);
    start();
    handle(
        SIGUSR1,
        [](int signal) {
          useStack();
          touchInHandler(signal);
        },
        SA_ONSTACK);
    raises = 1;
    touch(0);
    return faults == 2 && handled == 1 && handledOnAlternate == 0 && alternateStackIsWhole() ? 0
                                                                                             : 1;
  });
}

TEST_F(FaultStackDeathTest, AHandlerMayTouchMemoryOnASmallAlternateStack) {
  EXPECT_WELL([] {
    useAlternateStack(2 * frameBytes() + 3072);
    start();
    handle(SIGUSR1, &touchInHandler, SA_ONSTACK);
    (void)raise(SIGUSR1);
    (void)raise(SIGUSR1);
    return faults == 2 && handledOnAlternate == 2 && alternateStackIsWhole() ? 0 : 1;
  });
}

TEST_F(FaultStackDeathTest, ManyThreadsFaultAtTheSameTime) {
  EXPECT_WELL([] {
    constexpr int kThreads = 100;
    useAlternateStack(std::size_t{32} << 10);
    start();
    for (int round = 0; round < 2; ++round) {
      if (!protect(ours, kPages * kPage, Access::kNone).ok()) return 1;
      together = kThreads;
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < kThreads; ++i) {
        threads.emplace_back([i] {
          const PaintedStack own(std::size_t{32} << 10);
          const stack_t whole = own.whole();
          (void)sigaltstack(&whole, nullptr);
          touch(i);
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
    return 0;
  });
}

TEST_F(FaultStackDeathTest, AFaultForWhichThereIsNoMemoryEndsTheProcessWithAReason) {
  const auto touchWithoutMemory = [] {
    useAlternateStack(std::size_t{32} << 10);
    start();
    const rlimit none = {1, 1};
    (void)setrlimit(RLIMIT_AS, &none);
    touch(0);
  };
  EXPECT_EXIT(touchWithoutMemory(), ::testing::KilledBySignal(SIGABRT),
              "no stack of 262144 bytes to answer an access to a shared object on: Cannot allocate "
              "memory");
}

}  // namespace
}  // namespace gmac::os
