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
  // Throws std::system_error. Never destroyed.
  Thread() {
    std::thread([this] { loop(); }).detach();
  }

  // Whether the thread still runs afterwards: the function may have ended it.
  bool run(Function function, void* argument) {
    function_ = function;
    argument_ = argument;
    given_.set(++count_);
    done_.await(count_, true);
    return !ended_;
  }

  Thread* next = nullptr;  // in the list of those that are idle

 private:
  // A function is over when this is destroyed, also where it ends the thread (pthread_exit).
  struct Running {
    ~Running() {
      thread.ended_ = !returned;
      thread.done_.set(number);
    }
    Thread& thread;
    std::uint32_t number;
    bool returned = false;
  };

  [[noreturn]] void loop() {
    sigset_t faults;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    sigaddset(&faults, SIGBUS);
    bool closely = false;
    for (std::uint32_t next = 1;; ++next) {
      const Clock::time_point idleSince = Clock::now();
      given_.await(next, closely);
      closely = Clock::now() - idleSince < kMostSpin;
      // The mask is inherited from the driver's thread, or left by the function before, which may
      // block signals that accesses need.
      pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
      Running running{*this, next};
      function_(argument_);
      running.returned = true;
    }
  }

  Function function_ = nullptr;
  void* argument_ = nullptr;
  std::uint32_t count_ = 0;  // of functions given
  bool ended_ = false;       // by the newest of them
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
  if (thread->run(function, argument)) {
    putBack(thread);
  }
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
