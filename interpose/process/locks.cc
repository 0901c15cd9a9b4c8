// SPDX-License-Identifier: Apache-2.0
//
// Mutexes, conditions, semaphores, read-write locks, barriers and pthread_once in shared memory:
// these stand in for libc's functions in a program that is linked with the library or preloads it.
//
// libc acquires and releases a lock in user mode, where it may fault on a closed block. But it
// waits for one in a system call that reads the lock (futex), and ends the process when that fails:
// another thread's kernel call may have closed the block in between. If the block were held open,
// that kernel call would wait for the lock, perhaps forever. So threads wait for a lock in shared
// memory elsewhere: in words of this library's own, found by a hash of the lock's address. They try
// again when the word has changed. A lock that is not near shared memory goes to the real function
// after a comparison.
//
// A word serves many locks, so threads are sometimes woken for nothing. Threads may also disagree
// on whether a mutex is near shared memory, when objects come and go beside it; so waiters also
// wake by themselves. A more exact answer than "near" would take the runtime's lock, which is a
// mutex.
//
// Mutexes that are robust, inherit priorities or have a ceiling are acquired in user mode as well
// and work in the same way, with one exception: no thread inherits a priority. A log line says so.
//
// When a thread ends, the kernel walks the list of the robust mutexes that the thread holds, and
// marks each. It stops at the first one that lies in a closed block, and marks none of the rest. So
// robust mutexes in shared memory are taken out of that list, and a thread that finds one locked
// asks whether its owner still lives.
//
// Builds with the thread sanitizer leave these out: the sanitizer has its own.
#if !defined(__SANITIZE_THREAD__)

#include "interpose/process/locks.h"

#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "gmac/base/cancellation.h"
#include "gmac/base/log.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/shared_ranges.h"
#include "interpose/base/real.h"

namespace gmac::interpose {
namespace {

using Mutex = pthread_mutex_t;
using Condition = pthread_cond_t;
using ReadWriteLock = pthread_rwlock_t;
using Barrier = pthread_barrier_t;

constinit Real<int(Mutex*)> realLock("pthread_mutex_lock");
constinit Real<int(Mutex*)> realTrylock("pthread_mutex_trylock");
constinit Real<int(Mutex*)> realUnlock("pthread_mutex_unlock");
constinit Real<int(Mutex*, const timespec*)> realTimedlock("pthread_mutex_timedlock");
constinit Real<int(Mutex*, clockid_t, const timespec*)> realClocklock("pthread_mutex_clocklock");
constinit Real<int(Condition*, Mutex*)> realWait("pthread_cond_wait");
constinit Real<int(Condition*, Mutex*, const timespec*)> realTimedwait("pthread_cond_timedwait");
constinit Real<int(Condition*, Mutex*, clockid_t, const timespec*)> realClockwait(
    "pthread_cond_clockwait");
constinit Real<int(Condition*)> realSignal("pthread_cond_signal");
constinit Real<int(Condition*)> realBroadcast("pthread_cond_broadcast");
constinit Real<int(sem_t*)> realSemWait("sem_wait");
constinit Real<int(sem_t*)> realSemTrywait("sem_trywait");
constinit Real<int(sem_t*, const timespec*)> realSemTimedwait("sem_timedwait");
constinit Real<int(sem_t*, clockid_t, const timespec*)> realSemClockwait("sem_clockwait");
constinit Real<int(sem_t*)> realSemPost("sem_post");
constinit Real<int(ReadWriteLock*)> realRdlock("pthread_rwlock_rdlock");
constinit Real<int(ReadWriteLock*)> realWrlock("pthread_rwlock_wrlock");
constinit Real<int(ReadWriteLock*)> realTryrdlock("pthread_rwlock_tryrdlock");
constinit Real<int(ReadWriteLock*)> realTrywrlock("pthread_rwlock_trywrlock");
constinit Real<int(ReadWriteLock*, const timespec*)> realTimedrdlock("pthread_rwlock_timedrdlock");
constinit Real<int(ReadWriteLock*, const timespec*)> realTimedwrlock("pthread_rwlock_timedwrlock");
constinit Real<int(ReadWriteLock*, clockid_t, const timespec*)> realClockrdlock(
    "pthread_rwlock_clockrdlock");
constinit Real<int(ReadWriteLock*, clockid_t, const timespec*)> realClockwrlock(
    "pthread_rwlock_clockwrlock");
constinit Real<int(ReadWriteLock*)> realRwUnlock("pthread_rwlock_unlock");
constinit Real<int(Barrier*)> realBarrierWait("pthread_barrier_wait");
constinit Real<int(pthread_once_t*, void (*)())> realOnce("pthread_once");

[[gnu::constructor]] void resolveLocks() {
  resolveAtLoad(realLock, realTrylock, realUnlock, realTimedlock, realClocklock, realWait,
                realTimedwait, realClockwait, realSignal, realBroadcast, realSemWait,
                realSemTrywait, realSemTimedwait, realSemClockwait, realSemPost, realRdlock,
                realWrlock, realTryrdlock, realTrywrlock, realTimedrdlock, realTimedwrlock,
                realClockrdlock, realClockwrlock, realRwUnlock, realBarrierWait, realOnce);
}

// ---- Where threads wait

// The word of all locks whose addresses hash to it.
struct alignas(64) Place {
  std::atomic<std::uint32_t> changes{0};
  std::atomic<std::uint32_t> waiters{0};
};
constinit std::array<Place, 256> places;

Place& placeOf(const void* lock) noexcept {
  const auto bits = reinterpret_cast<std::uintptr_t>(lock) >> 3;
  return places[(bits ^ bits >> 8 ^ bits >> 16) % places.size()];
}

// Whether a lock may be in shared memory. True for one beside it does no harm.
template <typename Lock>
bool isOurs(const Lock* lock) noexcept {
  return shared_ranges::mayBeShared(lock, sizeof *lock);
}

// Bits of a mutex's kind that involve the kernel.
constexpr int kRobust = 16;
constexpr int kInheritsPriority = 32;
constexpr int kHasCeiling = 64;
bool isPlain(const Mutex* mutex) noexcept {
  return (mutex->__data.__kind & (kRobust | kInheritsPriority | kHasCeiling)) == 0;
}
bool isRobust(const Mutex* mutex) noexcept { return (mutex->__data.__kind & kRobust) != 0; }

// For these, all threads must agree.
bool isOurs(const sem_t* semaphore) noexcept {
  return coherence::touchesShared(semaphore, sizeof *semaphore);
}
bool isOurs(const Barrier* barrier) noexcept {
  return coherence::touchesShared(barrier, sizeof *barrier);
}
bool isOurs(const pthread_once_t* control) noexcept {
  return coherence::touchesShared(control, sizeof *control);
}
bool isOurs(const Mutex* mutex) noexcept {
  return shared_ranges::mayBeShared(mutex, sizeof *mutex) &&
         (isPlain(mutex) || coherence::touchesShared(mutex, sizeof *mutex));
}

// Counts a waiter for its scope.
class Waiting {
 public:
  explicit Waiting(Place& place) noexcept : place_(place) { place_.waiters.fetch_add(1); }
  ~Waiting() { place_.waiters.fetch_sub(1); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Place& place_;
};

// Wakes the waiters after a lock was released or a condition was signalled.
void changed(const void* lock) noexcept {
  Place& place = placeOf(lock);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (place.waiters.load(std::memory_order_relaxed) == 0) return;
  place.changes.fetch_add(1);
  const int savedErrno = errno;
  (void)syscall(SYS_futex, &place.changes, FUTEX_WAKE_PRIVATE, INT32_MAX);
  errno = savedErrno;
}

// A deadline as a function received it; NULL: none.
struct Deadline {
  clockid_t clock = CLOCK_REALTIME;
  const timespec* time = nullptr;
};

constexpr long kSecond = 1'000'000'000;

bool isValid(const Deadline& deadline) noexcept {
  return (deadline.clock == CLOCK_REALTIME || deadline.clock == CLOCK_MONOTONIC) &&
         (deadline.time == nullptr ||
          (deadline.time->tv_nsec >= 0 && deadline.time->tv_nsec < kSecond));
}

// The system call, in which the thread is cancelled at once if it `mayBeCancelled`. The frame has
// nothing to clean up. (It begins with a call that may unwind, which tells the compiler that it
// may: libc's syscall() is declared as one that never does.)
[[gnu::noinline]] int waitInKernel(std::atomic<std::uint32_t>* word, std::uint32_t seen,
                                   const timespec* limit, bool mayBeCancelled) {
  int type = PTHREAD_CANCEL_DEFERRED;
  if (mayBeCancelled) {
    pthread_testcancel();
    (void)internal::gmacSetCancelType(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
  }
  const int error = syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, limit) == 0 ? 0 : errno;
  if (mayBeCancelled) (void)internal::gmacSetCancelType(type, nullptr);
  return error;
}

enum class How { kLock, kCondition, kSemaphore };

// Sleeps until something may have changed since `seen`: 0, EINTR, or ETIMEDOUT after the deadline.
int sleep(Place& place, std::uint32_t seen, const Deadline& deadline, How how) {
  constexpr timespec kSlice = {0, 10'000'000};
  timespec limit = kSlice;
  if (deadline.time != nullptr) {
    timespec now;
    clock_gettime(deadline.clock, &now);
    timespec left = {deadline.time->tv_sec - now.tv_sec, deadline.time->tv_nsec - now.tv_nsec};
    if (left.tv_nsec < 0) left = {left.tv_sec - 1, left.tv_nsec + kSecond};
    if (left.tv_sec < 0) return ETIMEDOUT;
    if (left.tv_sec == 0 && left.tv_nsec < limit.tv_nsec) limit = left;
  }
  // A wait without a limit is restarted after a signal handler where the program wants that.
  const bool restarts = how == How::kSemaphore && deadline.time == nullptr;
  const int error =
      waitInKernel(&place.changes, seen, restarts ? nullptr : &limit, how != How::kLock);
  return error == EINTR ? EINTR : 0;
}

// Tries, and waits while the result is EBUSY.
template <typename Attempt>
int await(const void* lock, const Deadline& deadline, How how, const Attempt& attempt) {
  int result = attempt();
  if (result != EBUSY) return result;
  if (!isValid(deadline)) return EINVAL;
  const int savedErrno = errno;
  Place& place = placeOf(lock);
  const Waiting waiting(place);
  do {
    const std::uint32_t seen = place.changes.load();
    result = attempt();
    if (result != EBUSY) break;
    result = sleep(place, seen, deadline, how);
    if (result == 0 || how != How::kSemaphore) result = result == ETIMEDOUT ? ETIMEDOUT : EBUSY;
  } while (result == EBUSY);
  errno = savedErrno;
  return result;
}

// ---- Mutexes

// Logs once what a mutex that inherits priorities lacks in shared memory.
void sayWhatIsMissing(const Mutex* mutex) noexcept {
  static constinit std::atomic<bool> said{false};
  if ((mutex->__data.__kind & kInheritsPriority) == 0 || said.exchange(true)) return;
  log(LogLevel::kError,
      "the mutex at {} inherits priorities and is in a shared object: it locks, and no thread "
      "inherits a priority; keep it in private memory",
      static_cast<const void*>(mutex));
}

// Takes a robust mutex that the thread has just got out of the thread's list. libc takes it out
// again when it is unlocked: then it is a list of its own.
void takeOutOfList(Mutex* mutex) noexcept {
  auto& links = mutex->__data.__list;
  // A link is the address of the other's next link. Its lowest bit tells the kernel that the mutex
  // there inherits priorities.
  const auto entry = [](void* link) {
    const std::uintptr_t next = reinterpret_cast<std::uintptr_t>(link) & ~std::uintptr_t{1};
    return reinterpret_cast<__pthread_internal_list*>(next -
                                                      offsetof(__pthread_internal_list, __next));
  };
  entry(links.__next)->__prev = links.__prev;
  entry(links.__prev)->__next = links.__next;
  links.__next = links.__prev = reinterpret_cast<__pthread_internal_list*>(&links.__next);
}

// Whether a thread has ended. One that has been joined exists in the kernel a moment longer, and
// takes signals: only a mutex that inherits priorities tells the two apart. So a word is locked
// that says that the thread has it.
bool hasEnded(int thread) noexcept {
  const int savedErrno = errno;
  const auto isUnknown = [](long result) { return result != 0 && errno == ESRCH; };
  int word = thread;
  const bool ended =
      isUnknown(syscall(SYS_tkill, thread, 0)) ||
      isUnknown(syscall(SYS_futex, &word, FUTEX_TRYLOCK_PI_PRIVATE, 0, nullptr, nullptr, 0));
  errno = savedErrno;
  return ended;
}

// Marks a locked robust mutex as the kernel does if its owner has ended. The number of a thread
// that has ended may be another's by then: that is found when the other one has ended, too.
bool markIfOwnerHasEnded(Mutex* mutex) noexcept {
  std::atomic_ref<int> word(mutex->__data.__lock);
  int seen = word.load();
  const int owner = seen & FUTEX_TID_MASK;
  if (owner == 0 || (seen & FUTEX_OWNER_DIED) != 0) return false;
  return hasEnded(owner) && word.compare_exchange_strong(
                                seen, (seen & static_cast<int>(FUTEX_WAITERS)) | FUTEX_OWNER_DIED);
}

int tryShared(Mutex* mutex) noexcept {
  if (!isRobust(mutex)) return realTrylock(mutex);
  // One that inherits priorities is got from a dead owner in the kernel, which must reach it.
  std::optional<coherence::CpuHold> open;
  if ((mutex->__data.__kind & kInheritsPriority) != 0) open.emplace(mutex, sizeof *mutex, true);
  int result = realTrylock(mutex);
  if (result == EBUSY && markIfOwnerHasEnded(mutex)) result = realTrylock(mutex);
  const bool again = mutex->__data.__count > 1;
  if ((result == 0 && !again) || result == EOWNERDEAD) takeOutOfList(mutex);
  return result;
}

int lockShared(Mutex* mutex, const Deadline& deadline) noexcept {
  sayWhatIsMissing(mutex);
  return await(mutex, deadline, How::kLock, [mutex] {
    const int result = tryShared(mutex);
    constexpr int kTypes = 3;
    const bool dead = result == EBUSY &&
                      (mutex->__data.__kind & kTypes) == PTHREAD_MUTEX_ERRORCHECK_NP &&
                      mutex->__data.__owner == gettid();
    return dead ? EDEADLK : result;
  });
}

// ---- Conditions

// Releases the mutex for its scope, however that ends.
class Unlocked {
 public:
  explicit Unlocked(Mutex* mutex) noexcept : mutex_(mutex), error_(unlockMutex(mutex)) {
    if (error_ != 0) mutex_ = nullptr;
  }
  ~Unlocked() { (void)lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  // The error of the release.
  int error() const noexcept { return error_; }
  // Acquires it before the scope ends. Returns the result of pthread_mutex_lock(), which may report
  // a dead owner.
  int lock() noexcept {
    Mutex* const mutex = std::exchange(mutex_, nullptr);
    return mutex == nullptr ? 0 : lockMutex(mutex);
  }

 private:
  Mutex* mutex_;
  const int error_;
};

// The condition itself is not touched: those who signal it and those who wait for it use its word.
int waitShared(Condition* condition, Mutex* mutex, const Deadline& deadline) {
  if (!isValid(deadline)) return EINVAL;
  const int savedErrno = errno;
  Place& place = placeOf(condition);
  int result = 0;
  {
    const Waiting waiting(place);
    const std::uint32_t seen = place.changes.load();
    Unlocked unlocked(mutex);
    result =
        unlocked.error() != 0 ? unlocked.error() : sleep(place, seen, deadline, How::kCondition);
    if (const int locked = unlocked.lock(); locked != 0) result = locked;
  }
  errno = savedErrno;
  return result == EINTR ? 0 : result;
}

// True also where only the mutex is shared, because libc would wait for it inside.
bool isOurs(const Condition* condition, const Mutex* mutex) noexcept {
  return isOurs(condition) || isOurs(mutex);
}

clockid_t clockOf(const Condition* condition) noexcept {
  constexpr unsigned kMonotonic = 2;
  return (condition->__data.__wrefs & kMonotonic) != 0 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
}

// ---- Semaphores

int waitShared(sem_t* semaphore, const Deadline& deadline) {
  const int error = await(semaphore, deadline, How::kSemaphore, [semaphore] {
    const int savedErrno = errno;
    if (realSemTrywait(semaphore) == 0) return 0;
    const int error = errno == EAGAIN ? EBUSY : errno;
    errno = savedErrno;
    return error;
  });
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// ---- Read-write locks

int lockShared(Real<int(ReadWriteLock*)>& attempt, ReadWriteLock* lock,
               const Deadline& deadline) noexcept {
  return await(lock, deadline, How::kLock, [&attempt, lock] {
    const int result = attempt(lock);
    return result == EBUSY && lock->__data.__cur_writer == gettid() ? EDEADLK : result;
  });
}

// ---- Barriers

// glibc's layout: its destruction reads `in` and `out`.
struct [[gnu::may_alias]] BarrierData {
  std::uint64_t inAndRound;  // the arrivals in this round and, from bit 32, the round
  std::uint32_t count;
};

int waitShared(Barrier* barrier) {
  auto* const data = reinterpret_cast<BarrierData*>(barrier);
  std::atomic_ref<std::uint64_t> state(data->inAndRound);
  std::uint64_t before = state.load();
  std::uint64_t after = 0;
  do {
    const bool last = static_cast<std::uint32_t>(before) + 1 == data->count;
    after = last ? ((before >> 32) + 1) << 32 : before + 1;
  } while (!state.compare_exchange_weak(before, after));
  if (after >> 32 != before >> 32) {
    changed(barrier);
    return PTHREAD_BARRIER_SERIAL_THREAD;
  }
  return await(barrier, {}, How::kLock,
               [&] { return state.load() >> 32 == before >> 32 ? EBUSY : 0; });
}

// ---- Once

// glibc's words: 0, in progress, done. (A child of fork, which it counts as well, has no objects.)
constexpr int kInProgress = 1;
constexpr int kDone = 2;

// Marks a pthread_once() in progress. An exception or a cancellation undoes the mark; then another
// thread runs the function.
class Progress {
 public:
  explicit Progress(pthread_once_t* control) noexcept : control_(control) {}
  ~Progress() {
    std::atomic_ref<int>(*control_).store(after_);
    changed(control_);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void finish() noexcept { after_ = kDone; }

 private:
  pthread_once_t* const control_;
  int after_ = 0;
};

int onceShared(pthread_once_t* control, void (*function)()) {
  std::atomic_ref<int> state(*control);
  for (int seen = state.load(); seen != kDone; seen = state.load()) {
    if (seen == kInProgress) {
      (void)await(control, {}, How::kLock, [&] { return state.load() == kInProgress ? EBUSY : 0; });
    } else if (state.compare_exchange_strong(seen, kInProgress)) {
      Progress progress(control);
      function();
      progress.finish();
    }
  }
  return 0;
}

}  // namespace

// ---- Mutexes

int lockMutex(pthread_mutex_t* mutex) noexcept {
  if (!isOurs(mutex)) [[likely]]
    return realLock(mutex);
  return lockShared(mutex, {});
}

int unlockMutex(pthread_mutex_t* mutex) noexcept {
  const int result = realUnlock(mutex);
  // The mutex is not read any more: its next owner may have freed it.
  if (shared_ranges::mayBeShared(mutex, sizeof *mutex)) [[unlikely]]
    changed(mutex);
  return result;
}

}  // namespace gmac::interpose

// ---- libc's names ----

namespace locks = gmac::interpose;

extern "C" {

GMAC_INTERPOSED int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  return locks::lockMutex(mutex);
}

GMAC_INTERPOSED int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  if (!locks::isOurs(mutex)) [[likely]]
    return locks::realTrylock(mutex);
  return locks::tryShared(mutex);
}

GMAC_INTERPOSED int pthread_mutex_timedlock(pthread_mutex_t* mutex, const timespec* time) noexcept {
  if (!locks::isOurs(mutex)) [[likely]]
    return locks::realTimedlock(mutex, time);
  return locks::lockShared(mutex, {CLOCK_REALTIME, time});
}

GMAC_INTERPOSED int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                                            const timespec* time) noexcept {
  if (!locks::isOurs(mutex)) [[likely]]
    return locks::realClocklock(mutex, clock, time);
  return locks::lockShared(mutex, {clock, time});
}

GMAC_INTERPOSED int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  return locks::unlockMutex(mutex);
}

GMAC_INTERPOSED int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  if (!locks::isOurs(condition, mutex)) [[likely]]
    return locks::realWait(condition, mutex);
  return locks::waitShared(condition, mutex, {});
}

GMAC_INTERPOSED int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                           const timespec* time) {
  if (!locks::isOurs(condition, mutex)) [[likely]]
    return locks::realTimedwait(condition, mutex, time);
  return locks::waitShared(condition, mutex, {locks::clockOf(condition), time});
}

GMAC_INTERPOSED int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                           clockid_t clock, const timespec* time) {
  if (!locks::isOurs(condition, mutex)) [[likely]]
    return locks::realClockwait(condition, mutex, clock, time);
  return locks::waitShared(condition, mutex, {clock, time});
}

GMAC_INTERPOSED int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  if (locks::isOurs(condition)) [[unlikely]]
    locks::changed(condition);
  return locks::realSignal(condition);
}

GMAC_INTERPOSED int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  if (locks::isOurs(condition)) [[unlikely]]
    locks::changed(condition);
  return locks::realBroadcast(condition);
}

GMAC_INTERPOSED int sem_wait(sem_t* semaphore) {
  if (!locks::isOurs(semaphore)) [[likely]]
    return locks::realSemWait(semaphore);
  pthread_testcancel();
  return locks::waitShared(semaphore, {});
}

GMAC_INTERPOSED int sem_timedwait(sem_t* semaphore, const timespec* time) {
  if (!locks::isOurs(semaphore)) [[likely]]
    return locks::realSemTimedwait(semaphore, time);
  pthread_testcancel();
  return locks::waitShared(semaphore, {CLOCK_REALTIME, time});
}

GMAC_INTERPOSED int sem_clockwait(sem_t* semaphore, clockid_t clock, const timespec* time) {
  if (!locks::isOurs(semaphore)) [[likely]]
    return locks::realSemClockwait(semaphore, clock, time);
  pthread_testcancel();
  return locks::waitShared(semaphore, {clock, time});
}

GMAC_INTERPOSED int sem_post(sem_t* semaphore) noexcept {
  const int result = locks::realSemPost(semaphore);
  if (locks::isOurs(semaphore)) [[unlikely]]
    locks::changed(semaphore);
  return result;
}

GMAC_INTERPOSED int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  if (!locks::isOurs(lock)) [[likely]]
    return locks::realRdlock(lock);
  return locks::lockShared(locks::realTryrdlock, lock, {});
}

GMAC_INTERPOSED int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  if (!locks::isOurs(lock)) [[likely]]
    return locks::realWrlock(lock);
  return locks::lockShared(locks::realTrywrlock, lock, {});
}

GMAC_INTERPOSED int pthread_rwlock_timedrdlock(pthread_rwlock_t* lock,
                                               const timespec* time) noexcept {
  if (!locks::isOurs(lock)) [[likely]]
    return locks::realTimedrdlock(lock, time);
  return locks::lockShared(locks::realTryrdlock, lock, {CLOCK_REALTIME, time});
}

GMAC_INTERPOSED int pthread_rwlock_timedwrlock(pthread_rwlock_t* lock,
                                               const timespec* time) noexcept {
  if (!locks::isOurs(lock)) [[likely]]
    return locks::realTimedwrlock(lock, time);
  return locks::lockShared(locks::realTrywrlock, lock, {CLOCK_REALTIME, time});
}

GMAC_INTERPOSED int pthread_rwlock_clockrdlock(pthread_rwlock_t* lock, clockid_t clock,
                                               const timespec* time) noexcept {
  if (!locks::isOurs(lock)) [[likely]]
    return locks::realClockrdlock(lock, clock, time);
  return locks::lockShared(locks::realTryrdlock, lock, {clock, time});
}

GMAC_INTERPOSED int pthread_rwlock_clockwrlock(pthread_rwlock_t* lock, clockid_t clock,
                                               const timespec* time) noexcept {
  if (!locks::isOurs(lock)) [[likely]]
    return locks::realClockwrlock(lock, clock, time);
  return locks::lockShared(locks::realTrywrlock, lock, {clock, time});
}

GMAC_INTERPOSED int pthread_rwlock_unlock(pthread_rwlock_t* lock) noexcept {
  const int result = locks::realRwUnlock(lock);
  if (locks::isOurs(lock)) [[unlikely]]
    locks::changed(lock);
  return result;
}

GMAC_INTERPOSED int pthread_barrier_wait(pthread_barrier_t* barrier) noexcept {
  if (!locks::isOurs(barrier)) [[likely]]
    return locks::realBarrierWait(barrier);
  return locks::waitShared(barrier);
}

GMAC_INTERPOSED int pthread_once(pthread_once_t* control, void (*function)()) {
  if (!locks::isOurs(control)) [[likely]]
    return locks::realOnce(control, function);
  return locks::onceShared(control, function);
}

}  // extern "C"

#endif
