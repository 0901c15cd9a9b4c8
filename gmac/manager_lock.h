// SPDX-License-Identifier: Apache-2.0
//
// The manager's lock; for the manager's own sources.
#ifndef GMAC_MANAGER_LOCK_H_
#define GMAC_MANAGER_LOCK_H_

#include <mutex>
#include <optional>
#include <utility>

#include "gmac/manager.h"
#include "gmac/os/fault.h"

namespace gmac {

// A ticket of nothing: complete.
inline constexpr accel::Ticket kDone{};

// Role: holds the manager's lock, with all signals of the thread blocked, and lets it go for waits.
// For the stack; the fault handler uses it.
class Manager::Lock {
 public:
  explicit Lock(Manager& manager) : mutex_(manager.lock_) { acquire(); }
  ~Lock() {
    if (held_) {
      release();
    }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  void acquire() {
    if (!blocked_) {
      blocked_.emplace();
    }
    mutex_.lock();
    held_ = true;
    heldHere = true;
  }
  void release() {
    heldHere = false;
    held_ = false;
    mutex_.unlock();
    if (!quiet_) {
      blocked_.reset();
    }
  }
  // For work that ends by itself, on what is marked as busy or inside the accelerator: a handler of
  // the application that ran in the middle of it, on this thread, and faulted would wait for it for
  // ever. So the signals stay blocked.
  void releaseForWork() {
    held_ = false;
    mutex_.unlock();
  }
  // The same for every release while it lives.
  class Quiet {
   public:
    explicit Quiet(Lock& lock) : lock_(lock), before_(std::exchange(lock.quiet_, true)) {}
    ~Quiet() { lock_.quiet_ = before_; }
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;

   private:
    Lock& lock_;
    const bool before_;
  };

  // Whether the calling thread holds a manager's lock: what it copies then is the runtime's own.
  static bool isHeldHere() noexcept { return heldHere; }

 private:
  static inline constinit thread_local bool heldHere __attribute__((tls_model("initial-exec"))) =
      false;

  std::mutex& mutex_;
  std::optional<os::SignalsBlocked> blocked_;
  bool held_ = false;
  bool quiet_ = false;
};

// Role: in debug builds, walks all objects when it ends. Stands before the Lock of a scope, so that
// the lock is free by then; in other builds it is nothing.
class Manager::Walk {
 public:
  explicit Walk([[maybe_unused]] Manager& manager)
#if GMAC_WALK
      : manager_(manager) {
  }
  ~Walk() { manager_.walk(); }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

 private:
  Manager& manager_;
#else
  {
  }
#endif
};

}  // namespace gmac

#endif  // GMAC_MANAGER_LOCK_H_
