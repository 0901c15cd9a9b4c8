// SPDX-License-Identifier: Apache-2.0
//
// The lock of all objects, and waiting for what other threads do under it.
//
// One lock guards all states. It is never held while the CPU waits for a copy, a kernel or a
// populating chunk: whoever must wait marks blocks as being in transit, lets go, and tells
// everybody when it is done. So there is no order of locks to get wrong, and a fault on one block
// never waits for a copy of another. All signals are blocked while a thread holds the lock, so that
// a handler of the application cannot fault inside it.
#ifndef GMAC_COHERENCE_LOCK_H_
#define GMAC_COHERENCE_LOCK_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "gmac/base/status.h"
#include "gmac/os/signal_mask.h"

namespace gmac {

// How a step ended that several may be needed of. kRetry: the lock was let go; look the object up
// again. kOpened: done as kDone is, but the lock was let go meanwhile. The object could not go,
// since a block of it was in transit; whatever else was known must be looked up again.
enum class Step : std::uint8_t { kDone, kRetry, kOpened };

// The lock itself; Lock takes it. Fault path.
class ObjectMutex {
 public:
  ObjectMutex() = default;
  ObjectMutex(const ObjectMutex&) = delete;
  ObjectMutex& operator=(const ObjectMutex&) = delete;

  // For whoever looks and neither waits nor runs beside handlers of the application. Mostly the
  // lock is held for less than going to sleep and being woken takes.
  void lock() {
    constexpr int kTries = 100;
    for (int i = 0; i < kTries; ++i) {
      if (mutex_.try_lock()) {
        return;
      }
      __builtin_ia32_pause();
    }
    mutex_.lock();
  }
  bool try_lock() { return mutex_.try_lock(); }  // NOLINT(readability-identifier-naming)
  void unlock() { mutex_.unlock(); }

 private:
  friend class Lock;

  std::mutex mutex_;
  std::atomic<std::uint32_t> generation_{0};  // counts changes that others may wait for
  std::uint32_t callsWaiting_ = 0;            // in waitForTransit(); guarded by the mutex
};

// Holds the lock, with all signals of the thread blocked, and lets it go for waits. For the stack;
// the fault handler uses it.
class Lock {
 public:
  // `access`: the shared address that the CPU is accessing, rather than in a call that the
  // application made knowing that it may wait; NULL: no access.
  explicit Lock(ObjectMutex& mutex, const void* access = nullptr) : mutex_(mutex), access_(access) {
    acquire();
  }
  ~Lock() {
    if (held_) {
      release();
    }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  // Waiting: both let the lock go; what was known of objects before must be looked up again.
  void waitForChange();
  // For a call that needs blocks which are in transit. Until it has gone on, no others go into
  // transit: threads that touch one block after the other would keep it waiting for ever.
  void waitForTransit();
  // Wakes all that wait in either.
  void changed() {
    mutex_.generation_.fetch_add(1);
    mutex_.generation_.notify_all();
  }
  // How often changed() was called.
  std::uint32_t changes() const { return mutex_.generation_.load(); }
  // Whether a thread is in waitForTransit().
  bool callsWait() const { return mutex_.callsWaiting_ > 0; }

  const void* access() const { return access_; }

  // The thread is in a signal handler that returns next, which unblocks its signals: the end of the
  // lock need not.
  void leaveSignalsToReturn() { blocked_->leaveToReturn(); }

  // Whether an error is the kernel's limit of mappings, met by a change of mappings that the holder
  // has made last; the driver's want of memory has the same code.
  bool outOfMappings(Status status) const {
    return status.code() == adsmErrorHostMemory && mappingsRefused_;
  }
  // The holder has changed mappings, with that outcome, which is returned.
  Status mapped(Status status) {
    mappingsRefused_ = status.code() == adsmErrorHostMemory;
    return status;
  }

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

  // Whether the calling thread holds the lock, under which nothing may wait. For tests.
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

  ObjectMutex& mutex_;
  const void* const access_;
  std::optional<os::SignalsBlocked> blocked_;
  bool held_ = false;
  bool quiet_ = false;
  bool mappingsRefused_ = false;
};

// The lock is free while it lives. Whatever waits for the accelerator takes one as a proof
// (Waits::await), so that no wait is made under the lock. For the stack.
class Free {
 public:
  explicit Free(Lock& lock) : lock_(lock) { lock_.release(); }
  ~Free() { lock_.acquire(); }
  Free(const Free&) = delete;
  Free& operator=(const Free&) = delete;

  const void* access() const { return lock_.access(); }

 protected:
  enum class Signals : std::uint8_t { kStayBlocked };
  Free(Lock& lock, Signals) : lock_(lock) { lock_.releaseForWork(); }

 private:
  Lock& lock_;
};

// The same for work that ends by itself, on blocks in transit or inside the accelerator: a
// handler of the application that ran in the middle of it, on this thread, and faulted would wait
// for it for ever. So the signals stay blocked.
class FreeForWork : public Free {
 public:
  explicit FreeForWork(Lock& lock) : Free(lock, Signals::kStayBlocked) {}
};

inline void Lock::waitForChange() {
  const std::uint32_t seen = mutex_.generation_.load();
  const Free free(*this);
  mutex_.generation_.wait(seen);
}

// A transit ends by itself, so signals stay blocked: a handler of this thread that faulted would
// wait for the thread.
inline void Lock::waitForTransit() {
  ++mutex_.callsWaiting_;
  const std::uint32_t seen = mutex_.generation_.load();
  {
    const FreeForWork free(*this);
    mutex_.generation_.wait(seen);
  }
  if (--mutex_.callsWaiting_ == 0) {
    changed();
  }
}

}  // namespace gmac

#endif  // GMAC_COHERENCE_LOCK_H_
