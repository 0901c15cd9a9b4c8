// SPDX-License-Identifier: Apache-2.0
//
// The manager's lock; for the manager's own sources.
#ifndef GMAC_COHERENCE_MANAGER_LOCK_H_
#define GMAC_COHERENCE_MANAGER_LOCK_H_

#include <mutex>
#include <optional>
#include <utility>

#include "gmac/coherence/manager.h"
#include "gmac/os/fault.h"

namespace gmac {

// A ticket of nothing: complete.
inline constexpr accel::Ticket kDone{};

// Holds the manager's lock, with all signals of the thread blocked, and lets it go for waits. For
// the stack; the fault handler uses it.
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

  // While it lives, signals stay blocked where the lock is let go, as FreeForWork has it.
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

  // Whether the calling thread holds a manager's lock.
  static bool isHeldHere() noexcept { return heldHere; }
  // Whether it does, or works for one that does not wait for it: what it copies then is the
  // runtime's own.
  static bool worksHere() noexcept { return workHere; }

 private:
  friend class Free;
  void acquire() {
    if (!blocked_) {
      blocked_.emplace();
    }
    mutex_.lock();
    held_ = heldHere = workHere = true;
  }
  void release() {
    releaseForWork();
    workHere = false;
    if (!quiet_) {
      blocked_.reset();
    }
  }
  void releaseForWork() {
    held_ = heldHere = false;
    mutex_.unlock();
  }

  static inline constinit thread_local bool heldHere __attribute__((tls_model("initial-exec"))) =
      false;
  static inline constinit thread_local bool workHere __attribute__((tls_model("initial-exec"))) =
      false;

  std::mutex& mutex_;
  std::optional<os::SignalsBlocked> blocked_;
  bool held_ = false;
  bool quiet_ = false;
};

// The lock is free while it lives. Whatever waits for the accelerator takes one as a proof
// (Manager::await), so that no wait is made under the lock. For the stack.
class Manager::Free {
 public:
  explicit Free(Lock& lock) : lock_(lock) { lock_.release(); }
  ~Free() { lock_.acquire(); }
  Free(const Free&) = delete;
  Free& operator=(const Free&) = delete;

 protected:
  enum class Signals : std::uint8_t { kStayBlocked };
  Free(Lock& lock, Signals) : lock_(lock) { lock_.releaseForWork(); }

 private:
  Lock& lock_;
};

// The same for work that ends by itself, on what is marked as busy or inside the accelerator: a
// handler of the application that ran in the middle of it, on this thread, and faulted would wait
// for it for ever. So the signals stay blocked.
class Manager::FreeForWork : public Free {
 public:
  explicit FreeForWork(Lock& lock) : Free(lock, Signals::kStayBlocked) {}
};

// In debug builds, walks all objects when it ends. Stands before the Lock of a scope, so that
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

#endif  // GMAC_COHERENCE_MANAGER_LOCK_H_
