// SPDX-License-Identifier: Apache-2.0
//
// Whether a signal could run a handler at all. What is known of that lasts as long as the process,
// so each test has one of its own.
#include "gmac/os/handlers.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "gmac/os/signal_mask.h"

namespace gmac::os {
namespace {

using When = SignalsBlocked::When;

void nothing(int) {}

// A program for which the library stands in and whose runtime has started.
void start() {
  actionsAreSeen();
  lookForHandlers();
}

bool blocks(int signal) { return (threadMask() & kernelBit(signal)) != 0; }

// Whether `body` is true, in a child.
template <typename Body>
void expectInChild(Body body) {
  EXPECT_EXIT(::_exit(body() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST(HandlersDeathTest, NothingIsKnownWhereTheLibraryDoesNotStandIn) {
  expectInChild([] {
    lookForHandlers();
    return !enterWithoutHandlers();
  });
}

TEST(HandlersDeathTest, NothingIsBlockedWhereThereAreNone) {
  expectInChild([] {
    start();
    {
      const SignalsBlocked blocked(When::kWhereHandled);
      if (!SignalsBlocked::here() || blocks(SIGUSR1)) return false;
    }
    return !SignalsBlocked::here();
  });
}

TEST(HandlersDeathTest, OneThatWasThereBeforeIsFound) {
  expectInChild([] {
    std::signal(SIGUSR2, &nothing);
    start();
    {
      const SignalsBlocked blocked(When::kWhereHandled);
      if (!blocks(SIGUSR1)) return false;
    }
    return !blocks(SIGUSR1);
  });
}

TEST(HandlersDeathTest, TheFirstOneIsBlockedFromThenOn) {
  expectInChild([] {
    start();
    handlerComes(SIGUSR1);
    const SignalsBlocked blocked(When::kWhereHandled);
    return blocks(SIGUSR1);
  });
}

TEST(HandlersDeathTest, ThoseOfFaultsDoNotCount) {
  expectInChild([] {
    std::signal(SIGBUS, &nothing);
    start();
    handlerComes(SIGSEGV);
    handlerComes(0);
    handlerComes(NSIG);
    return enterWithoutHandlers();
  });
}

TEST(HandlersDeathTest, TheFirstOneComesWhenNoThreadCountsOnNone) {
  expectInChild([] {
    start();
    std::atomic<bool> inside{false};
    std::atomic<bool> leaves{false};
    std::thread worker([&] {
      const SignalsBlocked blocked(When::kWhereHandled);
      inside = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      leaves = true;
    });
    while (!inside) std::this_thread::yield();
    handlerComes(SIGUSR1);
    const bool waited = leaves;
    worker.join();
    return waited;
  });
}

TEST(HandlersDeathTest, AThreadThatCountsOnNoneDoesNotWaitForItself) {
  expectInChild([] {
    start();
    const SignalsBlocked blocked(When::kWhereHandled);
    const auto begin = std::chrono::steady_clock::now();
    handlerComes(SIGUSR1);
    return std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(500);
  });
}

TEST(HandlersDeathTest, AChildOfForkDoesNotWaitForItsParentsThreads) {
  expectInChild([] {
    start();
    if (!enterWithoutHandlers()) return false;
    if (const pid_t child = ::fork(); child != 0) {
      int status = 0;
      return ::waitpid(child, &status, 0) == child && status == 0;
    }
    const auto begin = std::chrono::steady_clock::now();
    handlerComes(SIGUSR1);
    ::_exit(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(500) ? 0 : 1);
  });
}

TEST(HandlersDeathTest, WhoNeedsTheMaskGetsItInside) {
  expectInChild([] {
    start();
    const SignalsBlocked outer(When::kWhereHandled);
    {
      const SignalsBlocked inner;
      const SignalsBlocked innermost(When::kWhereHandled);
      if (!blocks(SIGUSR1)) return false;
    }
    return !blocks(SIGUSR1) && SignalsBlocked::here();
  });
}

}  // namespace
}  // namespace gmac::os
