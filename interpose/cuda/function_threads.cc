// SPDX-License-Identifier: Apache-2.0
#include "interpose/cuda/function_threads.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>

namespace gmac::interpose {
namespace {

using Clock = std::chrono::steady_clock;

// Who sleeps wakes some microseconds late, which is as long as many functions run.
constexpr auto kMostSpin = std::chrono::microseconds(50);

// A word that one thread waits for while another changes it.
class Signal {
 public:
  // Wakes the thread in await().
  void set(std::uint32_t value) {
    word_.store(value);
    word_.notify_one();
  }
  // Until it has that value. `spins`: the thread does not sleep before kMostSpin.
  void await(std::uint32_t value, bool spins) {
    static const bool alone = std::thread::hardware_concurrency() == 1;
    spins = spins && !alone;
    const Clock::time_point end = Clock::now() + kMostSpin;
    while (spins && word_.load() != value) {
      __builtin_ia32_pause();
      spins = Clock::now() < end;
    }
    for (std::uint32_t seen = word_.load(); seen != value; seen = word_.load()) {
      word_.wait(seen);
    }
  }

 private:
  std::atomic<std::uint32_t> word_{0};
};

}  // namespace

class FunctionThreads::Thread {
 public:
  // Throws std::system_error. Never destroyed: the thread does not end.
  Thread() {
    std::thread([this] { loop(); }).detach();
  }

  void run(Function function, void* argument) {
    function_ = function;
    argument_ = argument;
    given_.set(++count_);
    done_.await(count_, true);
  }

  Thread* next = nullptr;  // in the list of those that are idle

 private:
  [[noreturn]] void loop() {
    // The mask is inherited from the driver's thread, which may block signals that accesses need.
    sigset_t faults;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    sigaddset(&faults, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
    bool closely = false;
    for (std::uint32_t next = 1;; ++next) {
      const Clock::time_point idleSince = Clock::now();
      given_.await(next, closely);
      closely = Clock::now() - idleSince < kMostSpin;
      function_(argument_);
      done_.set(next);
    }
  }

  Function function_ = nullptr;
  void* argument_ = nullptr;
  std::uint32_t count_ = 0;  // of functions given
  Signal given_;
  Signal done_;
};

FunctionThreads& FunctionThreads::get() {
  static FunctionThreads* const one = new FunctionThreads;
  return *one;
}

void FunctionThreads::runApart(Function function, void* argument) {
  Thread* const thread = take();
  if (thread == nullptr) {
    function(argument);
    return;
  }
  thread->run(function, argument);
  putBack(thread);
}

// NULL where none can be made.
FunctionThreads::Thread* FunctionThreads::take() {
  {
    const std::lock_guard lock(mutex_);
    if (Thread* const thread = idle_; thread != nullptr) {
      idle_ = thread->next;
      return thread;
    }
  }
  try {
    return new Thread;
  } catch (const std::exception&) {
    return nullptr;
  }
}

void FunctionThreads::putBack(Thread* thread) {
  const std::lock_guard lock(mutex_);
  thread->next = idle_;
  idle_ = thread;
}

}  // namespace gmac::interpose
