// SPDX-License-Identifier: Apache-2.0
#include "interpose/helpers.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>

#include "gmac/base/cancellation.h"
#include "gmac/os/fault.h"

namespace gmac::interpose {

// The process's helper threads and the offers that they look for. One instance, never
// destroyed, because threads may outlive the exit handlers; thread-safe. Signals are blocked while
// its lock is held: a handler of the application may make a transfer, too.
class HelperThreads {
 public:
  static HelperThreads& instance() {
    static auto* const threads = new HelperThreads;
    return *threads;
  }

  void offer(Helpers& helpers) {
    if (absent_.load(std::memory_order_relaxed)) return;
    {
      const Guard guard(*this);
      if (leaving_) return;
      grow(helpers.wanted_);
      if (threads_ == 0) return;
      offers_.push_back(helpers);
    }
    changes_.fetch_add(1);
    changes_.notify_all();
  }

  void takeBack(Helpers& helpers) {
    for (;;) {
      if (absent_.load(std::memory_order_relaxed)) return;
      const std::uint32_t seen = ends_.load();
      {
        const Guard guard(*this);
        if (helpers.hook_.is_linked()) offers_.erase(offers_.iterator_to(helpers));
        if (helpers.running_ == 0) return;
      }
      ends_.wait(seen);
    }
  }

 private:
  using Offers = boost::intrusive::list<
      Helpers, boost::intrusive::member_hook<Helpers, boost::intrusive::list_member_hook<>,
                                             &Helpers::hook_>>;

  class Guard {
   public:
    explicit Guard(HelperThreads& threads) : lock_(threads.lock_) {}

   private:
    os::SignalsBlocked blocked_;  // before the lock, until after it
    std::lock_guard<std::mutex> lock_;
  };

  HelperThreads() {
    // A child has none of the threads, and maybe a lock that nobody will open.
    forkHandled_ = ::pthread_atfork(nullptr, nullptr, [] { instance().absent_ = true; }) == 0 &&
                   std::atexit([] { uncancelled([] { instance().leave(); }); }) == 0;
  }

  // The lock is held, so signals are blocked in the new threads, too.
  void grow(std::size_t wanted) {
    if (!forkHandled_) return;
    try {
      while (threads_ < wanted) {
        std::thread([this] { serve(); }).detach();
        ++threads_;
      }
    } catch (const std::system_error&) {
      // Fewer, then.
    }
  }

  void serve() {
    (void)::pthread_setname_np(::pthread_self(), "gmac helper");
    for (;;) {
      const std::uint32_t seen = changes_.load();
      Helpers* helpers = nullptr;
      {
        const Guard guard(*this);
        if (leaving_) {
          --threads_;
          return;
        }
        if (!offers_.empty()) {
          helpers = &offers_.front();
          if (++helpers->running_ == helpers->wanted_) offers_.pop_front();
        }
      }
      if (helpers == nullptr) {
        changes_.wait(seen);
        continue;
      }
      helpers->work_.run();
      {
        const Guard guard(*this);
        // Not offered to others either: there is nothing left to do.
        if (helpers->hook_.is_linked()) offers_.erase(offers_.iterator_to(*helpers));
        --helpers->running_;
      }
      ends_.fetch_add(1);
      ends_.notify_all();
    }
  }

  // At process exit. A helper that is in the middle of a transfer leaves after it; one whose
  // transfer was interrupted by the handler that ends the process never does, and is not waited
  // for.
  void leave() {
    constexpr std::chrono::microseconds kStep{200};
    constexpr int kMostSteps = 5000;
    for (int step = 0; step < kMostSteps && !absent_; ++step) {
      {
        const Guard guard(*this);
        leaving_ = true;
        if (threads_ == 0) return;
      }
      changes_.fetch_add(1);
      changes_.notify_all();
      std::this_thread::sleep_for(kStep);
    }
  }

  std::mutex lock_;
  Offers offers_;
  std::size_t threads_ = 0;
  bool leaving_ = false;
  bool forkHandled_ = false;
  std::atomic<bool> absent_{false};
  std::atomic<std::uint32_t> changes_{0};  // offers made
  std::atomic<std::uint32_t> ends_{0};     // helpers that are done with an offer
};

Helpers::Helpers(SharedWork& work, std::size_t count) : work_(work), wanted_(count) {
  if (wanted_ > 0) HelperThreads::instance().offer(*this);
}

Helpers::~Helpers() {
  if (wanted_ > 0) HelperThreads::instance().takeBack(*this);
}

}  // namespace gmac::interpose
