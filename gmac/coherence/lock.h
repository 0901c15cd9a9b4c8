// SPDX-License-Identifier: Apache-2.0
//
// The lock of all objects, and waits for changes that other threads make under it.
//
// One lock guards all states. No thread holds it while it waits for a copy, a kernel or the
// population of a chunk: the thread marks the blocks as in transit, releases the lock, waits, and
// wakes the others. So there is no lock order to get wrong, and a fault on one block never waits
// for a copy of another. All signals of the holder are blocked where the program has handlers, so
// that none of them can fault under the lock.
#ifndef GMAC_COHERENCE_LOCK_H_
#define GMAC_COHERENCE_LOCK_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "gmac/base/status.h"
#include "gmac/base/stay_awake.h"
#include "gmac/coherence/access_turns.h"
#include "gmac/os/signal_mask.h"

namespace gmac {

// The outcome of one step of an operation. kRetry: the lock was released; look the object up and
// try again. kOpened: done, but the lock was released meanwhile. The object still exists, since a
// block of it was in transit; look up everything else again.
enum class Step : std::uint8_t { kDone, kRetry, kOpened };

// The lock itself; Lock takes it. Fault path.
class ObjectMutex {
 public:
  ObjectMutex() = default;
  ObjectMutex(const ObjectMutex&) = delete;
  ObjectMutex& operator=(const ObjectMutex&) = delete;

  // What comes first whenever a thread gets the lock, while it is due.
  class Prelude {
   public:
    bool due() const noexcept { return due_.load(std::memory_order_acquire); }
    // By the thread that has the lock; may block signals, and waits for nobody who needs the lock.
    virtual void run() noexcept = 0;

   protected:
    Prelude() = default;
    ~Prelude() = default;
    std::atomic<bool> due_{false};  // true: set under the lock; false: by run()
  };
  // Once, before there are other threads.
  void startWith(Prelude& prelude) { prelude_ = &prelude; }

  // For readers that do not wait and share their thread with no handler of the application. Stays
  // awake at first: the lock is usually held for less time than a sleep and a wake-up take.
  void lock() {
    acquire();
    runPrelude();
  }
  // The same, also in a child of fork.
  bool try_lock() { return mutex_.try_lock(); }  // NOLINT(readability-identifier-naming)
  void unlock() { mutex_.unlock(); }

 private:
  friend class Lock;
  friend class Look;

  void acquire() {
    if (!comesSoon([this] { return mutex_.try_lock(); })) {
      mutex_.lock();
    }
  }

  // Without the lock.
  void awaitChange(std::uint32_t seen) const {
    if (!comesSoon([&] { return generation_.load() != seen; })) {
      generation_.wait(seen);
    }
  }

  void runPrelude() {
    if (prelude_ != nullptr && prelude_->due()) {
      prelude_->run();
    }
  }

  std::mutex mutex_;
  Prelude* prelude_ = nullptr;
  std::atomic<std::uint32_t> generation_{0};  // counts changes that others may wait for
  // Guarded by the mutex:
  std::uint32_t callsWaiting_ = 0;  // in waitForTransit()
  AccessTurns turns_;
};

// Holds the lock with the program's handlers kept out of the thread, and releases it for waits.
// Lives on the stack. The fault handler uses it.
class Lock {
 public:
  // `access`: the shared address whose access has faulted; NULL in a call, which the application
  // makes knowing that it may wait.
  explicit Lock(ObjectMutex& mutex, const void* access = nullptr) : mutex_(mutex), access_(access) {
    acquire();
  }
  // kWhereHandled: of a program without handlers nothing is blocked (os/handlers.h). For what small
  // kernels spend their time in; no thread is made under it.
  Lock(ObjectMutex& mutex, os::SignalsBlocked::When block)
      : mutex_(mutex), access_(nullptr), block_(block) {
    acquire();
  }
  ~Lock() {
    turnEnds();
    if (held_) {
      release();
    }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  // Both waits release the lock: look objects up again afterwards.
  void waitForChange();
  // For a call that needs blocks in transit. Until it continues, no other block goes into transit:
  // threads that touch one block after another would starve it.
  void waitForTransit();
  // Wakes all threads in both waits.
  void changed() {
    mutex_.generation_.fetch_add(1);
    mutex_.generation_.notify_all();
  }
  // How often changed() was called.
  std::uint32_t changes() const { return mutex_.generation_.load(); }
  // The holder is about to let the lock go and wait for device work, of which the newest has that
  // number, or for its submission. Where that is newer than what it has waited for before, others'
  // launches may have to let it go first, until its turn ends, or the lock does.
  void waitsForWork(AccessTurns::Nanoseconds now, std::uint64_t newest) {
    if (waits_ && newest == newestWork_) {
      return;
    }
    const bool newer = std::exchange(waits_, true);
    newestWork_ = newest;
    newerSince_ = newer && newerSince_ == 0 ? now : newerSince_;
    const AccessTurns::Nanoseconds waited = newer ? now - newerSince_ : 0;
    if (claims_) {
      mutex_.turns_.noteWait(now, newer, waited);
    } else if (mutex_.turns_.waits(now, newer, waited)) {
      claims_ = true;
      ++claimsHere;
    }
  }
  // What the holder has waited for is done.
  void turnEnds() {
    waits_ = false;
    newerSince_ = 0;
    if (claims_) {
      claims_ = false;
      --claimsHere;
      mutex_.turns_.ended();
    }
  }
  // Until when a launch of the holder's has to let others go first, at most; 0: it has not to.
  AccessTurns::Nanoseconds letsOthersGoUntil(AccessTurns::Nanoseconds now) const {
    return claimsHere == 0 ? mutex_.turns_.holdsUntil(now) : 0;
  }
  // Until when such a launch waits for its queue; in the past: it does not.
  AccessTurns::Nanoseconds queueUntil(AccessTurns::Nanoseconds now) const {
    return mutex_.turns_.queueUntil(now, claimsHere == 0);
  }
  const AccessTurns& turns() const { return mutex_.turns_; }
  // Whether a thread is in waitForTransit().
  bool callsWait() const { return mutex_.callsWaiting_ > 0; }

  const void* access() const { return access_; }

  // The thread is in a signal handler and returns from it next. That unblocks its signals, so the
  // lock's end does not.
  void leaveSignalsToReturn() { blocked_->leaveToReturn(); }

  // The program's handlers stay out after the lock's end, for as long as the result lives.
  os::SignalsBlocked keepBlocked() { return std::move(*blocked_); }

  // Whether `status` tells of the kernel's limit of mappings: the holder's last change of mappings
  // failed. (A driver that is out of memory gives the same code.)
  bool outOfMappings(Status status) const {
    return status.code() == adsmErrorHostMemory && mappingsRefused_;
  }
  // Notes the outcome of a change of mappings by the holder, and returns it.
  Status mapped(Status status) {
    mappingsRefused_ = status.code() == adsmErrorHostMemory;
    return status;
  }

  // While it lives, signals stay blocked when the lock is released, as in FreeForWork.
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

  // Whether the calling thread holds the lock. For tests: nothing may wait under it.
  static bool isHeldHere() noexcept { return heldHere; }
  // Whether it holds the lock or does FreeForWork work. Memory that it copies then belongs to the
  // runtime.
  static bool worksHere() noexcept { return workHere; }

 private:
  friend class Free;
  void acquire() {
    if (!blocked_) {
      blocked_.emplace(block_);
    }
    mutex_.acquire();
    held_ = heldHere = workHere = true;
    mutex_.runPrelude();
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

  static inline constinit thread_local std::uint32_t claimsHere
      __attribute__((tls_model("initial-exec"))) = 0;

  ObjectMutex& mutex_;
  const void* const access_;
  const os::SignalsBlocked::When block_ = os::SignalsBlocked::When::kAlways;
  std::optional<os::SignalsBlocked> blocked_;
  bool held_ = false;
  bool quiet_ = false;
  bool mappingsRefused_ = false;
  bool claims_ = false;
  bool waits_ = false;  // for device work, up to newestWork_
  std::uint64_t newestWork_ = 0;
  AccessTurns::Nanoseconds newerSince_ = 0;  // for newer work than at first; 0: it does not
};

// Holds the lock for a look at what is there: what launches have done since is of no account, so
// they go on repeating (RepeatedLaunches), as no prelude runs. Lives on the stack.
class Look {
 public:
  explicit Look(ObjectMutex& mutex) : mutex_(mutex) { mutex_.acquire(); }
  ~Look() { mutex_.unlock(); }
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;

 private:
  const os::SignalsBlocked blocked_{os::SignalsBlocked::When::kWhereHandled};
  ObjectMutex& mutex_;
};

// Releases the lock for its lifetime. Waits for the accelerator take one as a proof (Waits::await),
// so that no wait under the lock compiles. Lives on the stack.
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

// The same for work that ends by itself, on blocks in transit or inside the accelerator. Signals
// stay blocked: a handler that interrupted the work on this thread and faulted would wait for it
// for ever.
class FreeForWork : public Free {
 public:
  explicit FreeForWork(Lock& lock) : Free(lock, Signals::kStayBlocked) {}
};

inline void Lock::waitForChange() {
  const std::uint32_t seen = mutex_.generation_.load();
  const Free free(*this);
  mutex_.awaitChange(seen);
}

// A transit ends by itself, so signals stay blocked: a handler that faulted on this thread would
// wait for its own thread.
inline void Lock::waitForTransit() {
  ++mutex_.callsWaiting_;
  const std::uint32_t seen = mutex_.generation_.load();
  {
    const FreeForWork free(*this);
    mutex_.awaitChange(seen);
  }
  if (--mutex_.callsWaiting_ == 0) {
    changed();
  }
}

}  // namespace gmac

#endif  // GMAC_COHERENCE_LOCK_H_
