// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/cpu_threads.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

namespace gmac::datatype {
namespace {

// The helpers of a process. Thread-safe; never destroyed, because its threads wait in it.
class Helpers {
 public:
  void shareOut(std::size_t threads, std::size_t parts,
                const std::function<void(std::size_t)>& body) {
    const std::unique_lock turn(turn_, std::try_to_lock);
    if (!turn.owns_lock()) {
      for (std::size_t i = 0; i < parts; ++i) {
        body(i);
      }
      return;
    }
    {
      const std::lock_guard guard(lock_);
      start(threads - 1);
      body_ = &body;
      parts_ = parts;
      nextPart_.store(0, std::memory_order_relaxed);
      wanted_ = threads - 1;
    }
    work_.notify_all();
    takeParts();
    std::unique_lock guard(lock_);
    // Who has not begun by now need not.
    wanted_ = 0;
    idle_.wait(guard, [this] { return working_ == 0; });
    body_ = nullptr;
  }

 private:
  // Has `count` helpers, or as many as can be had.
  void start(std::size_t count) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      for (; started_ < count; ++started_) {
        std::thread([this] { help(); }).detach();
      }
    } catch (const std::system_error&) {
      // The caller has what there is.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void help() {
    std::unique_lock guard(lock_);
    for (;;) {
      work_.wait(guard, [this] { return wanted_ > 0; });
      --wanted_;
      ++working_;
      guard.unlock();
      takeParts();
      guard.lock();
      if (--working_ == 0) {
        idle_.notify_one();
      }
    }
  }

  void takeParts() {
    for (;;) {
      const std::size_t part = nextPart_.fetch_add(1, std::memory_order_relaxed);
      if (part >= parts_) {
        return;
      }
      (*body_)(part);
    }
  }

  std::mutex turn_;  // held by the caller whose work this is
  std::mutex lock_;  // for what follows
  std::condition_variable work_;
  std::condition_variable idle_;
  std::size_t started_ = 0;
  std::size_t wanted_ = 0;   // helpers that may still join
  std::size_t working_ = 0;  // that have joined
  // Written while no helper works.
  const std::function<void(std::size_t)>* body_ = nullptr;
  std::size_t parts_ = 0;
  std::atomic<std::size_t> nextPart_{0};
};

std::atomic<Helpers*> current{nullptr};

Helpers& helpers() {
  static const bool registered = [] {
    current.store(new Helpers);
    // The parent's helpers are not there in a child, and its locks may be held for ever.
    pthread_atfork(nullptr, nullptr, [] { current.store(nullptr); });
    return true;
  }();
  static_cast<void>(registered);
  Helpers* found = current.load();
  if (found == nullptr) {
    auto* fresh = new Helpers;
    if (current.compare_exchange_strong(found, fresh)) {
      return *fresh;
    }
    delete fresh;
  }
  return *found;
}

}  // namespace

void shareOut(std::size_t threads, std::size_t parts,
              const std::function<void(std::size_t)>& body) {
  if (threads <= 1 || parts <= 1) {
    for (std::size_t i = 0; i < parts; ++i) {
      body(i);
    }
    return;
  }
  helpers().shareOut(threads < parts ? threads : parts, parts, body);
}

}  // namespace gmac::datatype
