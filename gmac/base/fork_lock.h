// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_BASE_FORK_LOCK_H_
#define GMAC_BASE_FORK_LOCK_H_

#include <pthread.h>

#include <memory>
#include <mutex>

namespace gmac {

// A mutex that is free in a child of fork, whatever the parent's threads were doing. The thread
// that forks holds it across the fork, so that the data under it are consistent in the child, and
// the child initialises it again; where the data are no matter in a child, that is enough.
//
// A lock that compares owners, such as std::shared_mutex, cannot be held across fork: the thread
// that would unlock it in the child has another id than the one that locked it.
class ForkLock {
 public:
  constexpr ForkLock() = default;
  ForkLock(const ForkLock&) = delete;
  ForkLock& operator=(const ForkLock&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

  // For handlers of pthread_atfork().
  void beforeFork() { lock(); }
  void afterForkInParent() { unlock(); }
  void afterForkInChild() {
#if defined(__SANITIZE_THREAD__)
    unlock();  // the sanitizer would not know that it is another mutex now
#else
    renewInChild();
#endif
  }

  // For a lock that the thread that forks does not hold across the fork: another one may have it.
  void renewInChild() { std::construct_at(&mutex_); }

 private:
  std::mutex mutex_;
};

// Holds a lock of static storage across every fork from now on. For constructors of the library:
// other libraries' fork handlers, which may call the library, then run while the lock is free.
template <ForkLock& Lock>
void holdAcrossForks() {
  (void)pthread_atfork([] { Lock.beforeFork(); }, [] { Lock.afterForkInParent(); },
                       [] { Lock.afterForkInChild(); });
}

}  // namespace gmac

#endif  // GMAC_BASE_FORK_LOCK_H_
