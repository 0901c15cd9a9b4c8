// SPDX-License-Identifier: Apache-2.0
#include "gmac/os/helper_threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>

#include "gmac/base/cancellation.h"
#include "gmac/os/signal_mask.h"

namespace gmac::os {

// The threads and the offers that they look for. Thread-safe; never destroyed, because threads may
// outlive the exit handlers. Signals are blocked while its lock is held: a handler of the
// application may make an offer too.
class HelperThreads {
 public:
  // The process's helpers; nullptr if there can be none. Called when the library is loaded, so that
  // neither a fork nor a signal handler that makes an offer comes into the making.
  static HelperThreads* ofProcess() {
    static const bool handled = [] {
      current_ = new HelperThreads;
      return ::pthread_atfork(nullptr, nullptr, [] { lose(); }) == 0 &&
             std::atexit([] { uncancelled([] { leave(); }); }) == 0;
    }();
    if (!handled) return nullptr;
    HelperThreads* found = current_.load();
    if (found == nullptr) [[unlikely]] {
      auto* const made = new HelperThreads;
      if (current_.compare_exchange_strong(found, made)) return made;
      delete made;
    }
    return found;
  }

  void offer(Helpers& helpers) {
    {
      const Guard guard(*this);
      if (leaving_) return;
      grow(helpers.wanted_);
      if (count_ == 0) return;
      helpers.threads_ = this;
      offers_.push_back(helpers);
    }
    changes_.fetch_add(1);
    changes_.notify_all();
  }

  void takeBack(Helpers& helpers) {
    for (;;) {
      const std::uint32_t seen = ends_.load();
      // In a child of fork the threads do not exist, and the lock may be held for ever.
      if (lost_.load()) return;
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
    SignalsBlocked blocked_;  // constructed before the lock, destroyed after it
    std::lock_guard<std::mutex> lock_;
  };

  // Runs in a child of fork. A call that the child has inherited must not wait for the parent's
  // threads.
  static void lose() {
    HelperThreads* const parents = current_.exchange(nullptr);
    if (parents == nullptr) return;
    parents->lost_ = true;
    parents->ends_.fetch_add(1);
  }

  // Runs at process exit. A helper in the middle of its work leaves after it. One that was
  // interrupted by the handler that ends the process never does, so the wait is limited.
  static void leave() {
    HelperThreads* const threads = current_.load();
    constexpr std::chrono::microseconds kStep{200};
    constexpr int kMaxSteps = 5000;
    for (int step = 0; step < kMaxSteps && threads != nullptr && !threads->lost_; ++step) {
      {
        const Guard guard(*threads);
        threads->leaving_ = true;
        if (threads->count_ == 0) return;
      }
      threads->changes_.fetch_add(1);
      threads->changes_.notify_all();
      std::this_thread::sleep_for(kStep);
    }
  }

  // The lock is held, so signals are blocked in the new threads too.
  void grow(std::size_t wanted) {
    try {
      while (count_ < wanted) {
        std::thread([this] { serve(); }).detach();
        ++count_;
      }
    } catch (const std::system_error&) {
      // Work goes on with the threads that exist.
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
          --count_;
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
        // Nothing is left to do, so no other helper should join.
        if (helpers->hook_.is_linked()) offers_.erase(offers_.iterator_to(*helpers));
        --helpers->running_;
      }
      ends_.fetch_add(1);
      ends_.notify_all();
    }
  }

  static constinit inline std::atomic<HelperThreads*> current_{nullptr};

  std::mutex lock_;  // guards the next three
  Offers offers_;
  std::size_t count_ = 0;  // of threads
  bool leaving_ = false;
  std::atomic<bool> lost_{false};          // in a child of fork: the parent's
  std::atomic<std::uint32_t> changes_{0};  // offers made
  std::atomic<std::uint32_t> ends_{0};     // helpers that are done with an offer
};

namespace {

[[gnu::constructor]] void makeHelpers() { (void)HelperThreads::ofProcess(); }

}  // namespace

Helpers::Helpers(SharedWork& work, std::size_t count) : work_(work), wanted_(count) {
  if (wanted_ == 0) return;
  if (HelperThreads* const threads = HelperThreads::ofProcess(); threads != nullptr) {
    threads->offer(*this);
  }
}

Helpers::~Helpers() {
  if (threads_ != nullptr) threads_->takeBack(*this);
}

void shareOut(std::size_t threads, std::size_t parts,
              const std::function<void(std::size_t)>& body) {
  class Parts final : public SharedWork {
   public:
    Parts(std::size_t parts, const std::function<void(std::size_t)>& body)
        : parts_(parts), body_(body) {}
    void run() override {
      for (;;) {
        const std::size_t part = next_.fetch_add(1, std::memory_order_relaxed);
        if (part >= parts_) return;
        body_(part);
      }
    }

   private:
    const std::size_t parts_;
    const std::function<void(std::size_t)>& body_;
    std::atomic<std::size_t> next_{0};
  };
  Parts work(parts, body);
  const std::size_t most = std::min(threads, parts);
  const Helpers helpers(work, most > 1 ? most - 1 : 0);
  work.run();
}

}  // namespace gmac::os
