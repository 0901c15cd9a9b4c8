// SPDX-License-Identifier: Apache-2.0
//
// Locks in shared memory, while running kernels close it.
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/neighbours/subject.h"

namespace {

using subject::allocate;
using subject::close;
using subject::say;

constexpr int kThreads = 4;
constexpr int kRounds = 200;

unsigned char* memory = nullptr;

// Beside the byte that kernels change, in the block that they take.
template <typename Value>
Value* place() {
  return reinterpret_cast<Value*>(memory + 64);
}

// Runs the body in several threads; meanwhile kernels take the memory.
void inThreads(const std::function<void(int thread)>& body) {
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      body(thread);
      --running;
    });
  }
  while (running > 0) {
    close(memory);
    ::usleep(100);
  }
  for (std::thread& thread : threads) thread.join();
}

timespec after(clockid_t clock, long milliseconds) {
  timespec time;
  ::clock_gettime(clock, &time);
  time.tv_nsec += milliseconds * 1'000'000;
  time.tv_sec += time.tv_nsec / 1'000'000'000;
  time.tv_nsec %= 1'000'000'000;
  return time;
}

struct Mutexes {
  pthread_mutex_t mutex;
  long count;
};

void useMutexes(int type) {
  memory = allocate();
  auto* const shared = place<Mutexes>();
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, type);
  pthread_mutex_init(&shared->mutex, &attributes);
  shared->count = 0;
  inThreads([&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      const timespec late = after(CLOCK_REALTIME, 60'000);
      const timespec lateToo = after(CLOCK_MONOTONIC, 60'000);
      const int error = thread == 0 ? pthread_mutex_timedlock(&shared->mutex, &late)
                        : thread == 1
                            ? pthread_mutex_clocklock(&shared->mutex, CLOCK_MONOTONIC, &lateToo)
                            : pthread_mutex_lock(&shared->mutex);
      if (error != 0) say("lock: %d", error);
      ++shared->count;
      if (type == PTHREAD_MUTEX_RECURSIVE) {
        pthread_mutex_lock(&shared->mutex);
        pthread_mutex_unlock(&shared->mutex);
      }
      ::usleep(20);
      pthread_mutex_unlock(&shared->mutex);
    }
  });
  say("counted %ld", shared->count);
  pthread_mutex_lock(&shared->mutex);
  std::thread([&] {
    const timespec soon = after(CLOCK_REALTIME, 10);
    const timespec never = {0, -1};
    say("locked: %d, %d, %d", pthread_mutex_trylock(&shared->mutex),
        pthread_mutex_timedlock(&shared->mutex, &soon),
        pthread_mutex_timedlock(&shared->mutex, &never));
  }).join();
  if (type == PTHREAD_MUTEX_ERRORCHECK) say("again: %d", pthread_mutex_lock(&shared->mutex));
  say("unlock: %d", pthread_mutex_unlock(&shared->mutex));
  if (type == PTHREAD_MUTEX_ERRORCHECK) say("again: %d", pthread_mutex_unlock(&shared->mutex));
  say("destroy: %d", pthread_mutex_destroy(&shared->mutex));
}

SCENARIO(mutexes) {
  useMutexes(PTHREAD_MUTEX_NORMAL);
  return 0;
}

SCENARIO(mutexesThatCheck) {
  useMutexes(PTHREAD_MUTEX_ERRORCHECK);
  return 0;
}

SCENARIO(mutexesThatCount) {
  useMutexes(PTHREAD_MUTEX_RECURSIVE);
  return 0;
}

// ---- Mutexes that the kernel has to do with

// Counts in all threads, with such a mutex.
template <typename Prepare>
bool countWith(const Prepare& prepare) {
  memory = allocate();
  auto* const shared = place<Mutexes>();
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  prepare(&attributes);
  const int error = pthread_mutex_init(&shared->mutex, &attributes);
  // Who may not raise priorities has no ceilings.
  if (error != 0 || pthread_mutex_lock(&shared->mutex) != 0) {
    say("not here: %d", error);
    return false;
  }
  pthread_mutex_unlock(&shared->mutex);
  shared->count = 0;
  inThreads([&](int) {
    for (int round = 0; round < kRounds; ++round) {
      if (const int failed = pthread_mutex_lock(&shared->mutex)) say("lock: %d", failed);
      ++shared->count;
      ::usleep(20);
      if (const int failed = pthread_mutex_unlock(&shared->mutex)) say("unlock: %d", failed);
    }
  });
  say("counted %ld", shared->count);
  return true;
}

SCENARIO(mutexesThatInheritPriorities) {
  countWith([](pthread_mutexattr_t* attributes) {
    pthread_mutexattr_setprotocol(attributes, PTHREAD_PRIO_INHERIT);
  });
  return 0;
}

SCENARIO(mutexesWithACeiling) {
  countWith([](pthread_mutexattr_t* attributes) {
    pthread_mutexattr_setprotocol(attributes, PTHREAD_PRIO_PROTECT);
  });
  return 0;
}

SCENARIO(robustMutexes) {
  const bool here = countWith([](pthread_mutexattr_t* attributes) {
    pthread_mutexattr_setrobust(attributes, PTHREAD_MUTEX_ROBUST);
  });
  if (!here) return 0;
  // No kernel runs here: the mutex can be read when its owner ends.
  auto* const shared = place<Mutexes>();
  std::thread([&] { pthread_mutex_lock(&shared->mutex); }).join();
  say("its owner is dead: %d", pthread_mutex_lock(&shared->mutex));
  say("consistent: %d", pthread_mutex_consistent(&shared->mutex));
  say("unlock: %d", pthread_mutex_unlock(&shared->mutex));
  // However short a time ago it ended: a thread that has been joined exists a moment longer.
  int dead = 0;
  for (int round = 0; round < 20 * kRounds; ++round) {
    std::thread([&] { pthread_mutex_lock(&shared->mutex); }).join();
    if (pthread_mutex_trylock(&shared->mutex) == EOWNERDEAD) {
      ++dead;
    } else {
      pthread_mutex_lock(&shared->mutex);
    }
    pthread_mutex_consistent(&shared->mutex);
    pthread_mutex_unlock(&shared->mutex);
  }
  say("owners found dead at once: %d", dead);
  // Nor in a wait for a condition, which takes the mutex at its end.
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  pthread_mutex_lock(&shared->mutex);
  std::thread owner;
  const timespec late = after(CLOCK_REALTIME, 60'000);
  std::atomic<bool> has{false};
  owner = std::thread([&] {
    pthread_mutex_lock(&shared->mutex);
    has = true;
    pthread_cond_signal(&condition);
  });
  int error = 0;
  while (error == 0 && !has) error = pthread_cond_timedwait(&condition, &shared->mutex, &late);
  say("its owner died meanwhile: %d", error);
  owner.join();
  return 0;
}

// Locks a mutex whose owner has ended, and ends what is left of that.
void inherit(pthread_mutex_t* mutex, int locked) {
  say("its owner is dead: %d", locked);
  if (locked != EOWNERDEAD) return;
  say("consistent: %d", pthread_mutex_consistent(mutex));
  say("unlock: %d", pthread_mutex_unlock(mutex));
  say("lock: %d", pthread_mutex_lock(mutex));
  say("unlock: %d", pthread_mutex_unlock(mutex));
}

// The accelerator has the mutex when its owner ends.
void endOwners(int protocol) {
  memory = allocate();
  auto* const shared = place<Mutexes>();
  pthread_mutex_t* const mutex = &shared->mutex;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutexattr_setprotocol(&attributes, protocol);
  pthread_mutex_init(mutex, &attributes);
  pthread_mutex_t own;
  pthread_mutex_init(&own, &attributes);
  pthread_mutex_t ownToo;
  pthread_mutex_init(&ownToo, &attributes);
  const auto ends = [&] {
    std::thread([&] {
      pthread_mutex_lock(&own);
      pthread_mutex_lock(mutex);
      pthread_mutex_lock(&ownToo);
      close(memory);
    }).join();
  };
  const auto soon = [] { return after(CLOCK_REALTIME, 2'000); };

  ends();
  timespec limit = soon();
  inherit(mutex, pthread_mutex_timedlock(mutex, &limit));
  inherit(&own, pthread_mutex_timedlock(&own, &limit));
  inherit(&ownToo, pthread_mutex_timedlock(&ownToo, &limit));
  ends();
  inherit(mutex, pthread_mutex_trylock(mutex));
  inherit(&own, pthread_mutex_trylock(&own));
  inherit(&ownToo, pthread_mutex_trylock(&ownToo));

  // While others wait for it.
  std::atomic<bool> has{false};
  std::thread owner([&] {
    pthread_mutex_lock(mutex);
    has = true;
    ::usleep(20'000);
    close(memory);
  });
  while (!has) ::usleep(100);
  limit = soon();
  inherit(mutex, pthread_mutex_timedlock(mutex, &limit));
  owner.join();

  // The owner ends while the block is open, which is closed then. One thread alone gets it.
  std::thread([&] { pthread_mutex_lock(mutex); }).join();
  close(memory);
  limit = soon();
  const int locked = pthread_mutex_timedlock(mutex, &limit);
  std::thread([&] { say("another's: %d", pthread_mutex_trylock(mutex)); }).join();
  say("consistent: %d", pthread_mutex_consistent(mutex));
  say("locked: %d, unlock: %d", locked, pthread_mutex_unlock(mutex));

  // Given up by who has got it: nobody gets it any more.
  ends();
  limit = soon();
  say("lock: %d", pthread_mutex_timedlock(mutex, &limit));
  say("given up: %d", pthread_mutex_unlock(mutex));
  say("not recoverable: %d", pthread_mutex_trylock(mutex));
}

SCENARIO(robustMutexesOfClosedBlocks) {
  endOwners(PTHREAD_PRIO_NONE);
  return 0;
}

SCENARIO(robustMutexesThatInheritPriorities) {
  endOwners(PTHREAD_PRIO_INHERIT);
  return 0;
}

// ---- Once

SCENARIO(onces) {
  memory = allocate();
  struct Shared {
    pthread_once_t once[kRounds];
    once_flag flag;
    std::once_flag standard;
  };
  auto* const shared = std::construct_at(place<Shared>());
  static std::atomic<int> runs;
  static std::atomic<int> early;
  runs = 0;
  early = 0;
  inThreads([&](int) {
    for (int round = 0; round < kRounds; ++round) {
      pthread_once(&shared->once[round], [] {
        ::usleep(500);
        ++runs;
      });
      if (runs <= round) ++early;
    }
    call_once(&shared->flag, [] { ++runs; });
  });
  say("runs %d, early %d", runs.load(), early.load());
  for (int attempt = 0; attempt < 3; ++attempt) {
    try {
      std::call_once(shared->standard, [&] {
        ++runs;
        if (attempt == 0) throw attempt;
      });
    } catch (int) {
      say("thrown");
    }
  }
  say("runs %d", runs.load());
  return 0;
}

// ---- <threads.h>

SCENARIO(standardThreads) {
  memory = allocate();
  struct Shared {
    mtx_t mutex;
    cnd_t condition;
    long turn;
    long count;
  };
  auto* const shared = place<Shared>();
  say("init: %d, %d", mtx_init(&shared->mutex, mtx_timed), cnd_init(&shared->condition));
  inThreads([&](int thread) {
    for (int round = 0; round < kRounds / 4; ++round) {
      const timespec late = after(CLOCK_REALTIME, 60'000);
      const int locked =
          round % 2 == 0 ? mtx_lock(&shared->mutex) : mtx_timedlock(&shared->mutex, &late);
      if (locked != thrd_success) say("lock: %d", locked);
      while (shared->turn != round * kThreads + thread) {
        const int woken = round % 2 == 0 ? cnd_wait(&shared->condition, &shared->mutex)
                                         : cnd_timedwait(&shared->condition, &shared->mutex, &late);
        if (woken != thrd_success) say("wait: %d", woken);
      }
      ++shared->turn;
      ++shared->count;
      ::usleep(20);
      cnd_broadcast(&shared->condition);
      mtx_unlock(&shared->mutex);
    }
  });
  say("counted %ld", shared->count);
  mtx_lock(&shared->mutex);
  const timespec soon = after(CLOCK_REALTIME, 10);
  int result = thrd_success;
  while (result == thrd_success) {
    result = cnd_timedwait(&shared->condition, &shared->mutex, &soon);
  }
  say("nobody signals: %d", result == thrd_timedout);
  std::thread([&] {
    say("locked: %d, %d", mtx_trylock(&shared->mutex) == thrd_busy,
        mtx_timedlock(&shared->mutex, &soon) == thrd_timedout);
  }).join();
  say("unlock: %d, signal: %d", mtx_unlock(&shared->mutex), cnd_signal(&shared->condition));
  return 0;
}

// ---- Futexes, by the system call

SCENARIO(futexes) {
  memory = allocate();
  auto* const words = place<std::uint32_t>();
  const auto futex = [&](long operation, long value, long value2, std::uint32_t* word2,
                         long value3) {
    close(memory);
    errno = 0;
    const long result = syscall(SYS_futex, words, operation, value, value2, word2, value3);
    return std::make_pair(result, errno);
  };
  const auto tell = [](const char* name, const std::pair<long, int>& end) {
    say("%s: %ld, %d", name, end.first, end.second);
  };
  tell("wait", futex(FUTEX_WAIT, 1, 0, nullptr, 0));
  tell("wake", futex(FUTEX_WAKE, 1, 0, nullptr, 0));
  tell("requeue", futex(FUTEX_CMP_REQUEUE, 1, 1, words + 1, 0));
  tell("requeue of another value", futex(FUTEX_CMP_REQUEUE, 1, 1, words + 1, 5));
  tell("wake and add",
       futex(FUTEX_WAKE_OP, 1, 1, words + 1, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 0)));
  say("added: %u", words[1]);
  return 0;
}

// The kernel's own lock, as the C library uses it.
class KernelLock {
 public:
  explicit KernelLock(std::uint32_t* word) : word_(word) {}
  // 0, or an error.
  int lock() { return replace(0, self_) ? 0 : call(FUTEX_LOCK_PI, nullptr); }
  int unlock() { return replace(self_, 0) ? 0 : call(FUTEX_UNLOCK_PI, nullptr); }
  // The system call alone.
  int call(long operation, const timespec* limit) {
    return syscall(SYS_futex, word_, operation, 0, limit) == 0 ? 0 : errno;
  }

 private:
  bool replace(std::uint32_t expected, std::uint32_t value) {
    return std::atomic_ref(*word_).compare_exchange_strong(expected, value);
  }
  std::uint32_t* const word_;
  const std::uint32_t self_ = static_cast<std::uint32_t>(::gettid());
};

SCENARIO(futexesThatInherit) {
  memory = allocate();
  auto* word = place<std::uint32_t>();
  long* const count = reinterpret_cast<long*>(memory + 128);
  inThreads([&](int) {
    KernelLock lock(word);
    for (int round = 0; round < kRounds; ++round) {
      if (const int error = lock.lock(); error != 0) say("lock: %s", std::strerror(error));
      ++*count;
      if (const int error = lock.unlock(); error != 0) say("unlock: %s", std::strerror(error));
    }
  });
  say("counted %ld", *count);
  // In memory without a past, of which nothing comes back by itself after a call.
  memory = allocate();
  word = place<std::uint32_t>();
  KernelLock mine(word);
  close(memory);
  say("the first: %d", mine.call(FUTEX_LOCK_PI, nullptr));
  close(memory);
  say("again: %d", mine.call(FUTEX_LOCK_PI, nullptr));
  std::thread([&] {
    KernelLock other(word);
    close(memory);
    say("try: %d", other.call(FUTEX_TRYLOCK_PI, nullptr));
    close(memory);
    const timespec soon = after(CLOCK_REALTIME, 30);
    say("for a time: %d", other.call(FUTEX_LOCK_PI, &soon));
  }).join();
  close(memory);
  say("unlock: %d", mine.call(FUTEX_UNLOCK_PI, nullptr));
  close(memory);
  say("unlock again: %d", mine.call(FUTEX_UNLOCK_PI, nullptr));
  return 0;
}

// One that a condition hands over, which no call can serve: said, and no more.
SCENARIO(futexesThatHandOver) {
  memory = allocate();
  close(memory);
  errno = 0;
  const timespec past{1, 0};
  std::uint32_t other = 0;
  (void)syscall(SYS_futex, place<std::uint32_t>(), FUTEX_WAIT_REQUEUE_PI, 0, &past, &other);
  // With plain memory the time is over.
  say("%s", errno == ETIMEDOUT || errno == EFAULT ? "well" : std::strerror(errno));
  return 0;
}

// A queue of one, whose lock, condition or both are in the memory.
template <typename Queue>
long passOn(Queue& queue) {
  long sum = 0;
  inThreads([&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      pthread_mutex_lock(queue.mutex);
      while ((*queue.value != 0) == (thread % 2 == 0)) {
        const timespec late = after(CLOCK_REALTIME, 60'000);
        const timespec lateToo = after(CLOCK_MONOTONIC, 60'000);
        switch (round % 3) {
          case 0:
            pthread_cond_wait(queue.condition, queue.mutex);
            break;
          case 1:
            pthread_cond_timedwait(queue.condition, queue.mutex, &late);
            break;
          default:
            pthread_cond_clockwait(queue.condition, queue.mutex, CLOCK_MONOTONIC, &lateToo);
        }
      }
      if (thread % 2 == 1) sum += *queue.value;
      *queue.value = thread % 2 == 0 ? round : 0;
      if (*queue.value == 0 && thread % 2 == 0) *queue.value = kRounds;
      pthread_cond_broadcast(queue.condition);
      pthread_mutex_unlock(queue.mutex);
    }
  });
  return sum;
}

SCENARIO(conditions) {
  memory = allocate();
  struct Shared {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    int value;
  };
  auto* const shared = place<Shared>();
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  struct {
    pthread_mutex_t* mutex;
    pthread_cond_t* condition;
    int* value;
  } queue = {&shared->mutex, &shared->condition, &shared->value};
  say("both: %ld", passOn(queue));
  queue.mutex = &mutex;
  say("condition: %ld", passOn(queue));
  queue = {&shared->mutex, &condition, &shared->value};
  say("mutex: %ld", passOn(queue));
  pthread_mutex_lock(&shared->mutex);
  const timespec soon = after(CLOCK_REALTIME, 10);
  int error = 0;
  while (error == 0) error = pthread_cond_timedwait(&shared->condition, &shared->mutex, &soon);
  say("nobody signals: %d", error);
  pthread_mutex_unlock(&shared->mutex);
  say("destroy: %d", pthread_cond_destroy(&shared->condition));
  return 0;
}

SCENARIO(semaphores) {
  memory = allocate();
  auto* const semaphore = place<sem_t>();
  sem_init(semaphore, 0, 2);
  std::atomic<int> inside{0};
  std::atomic<int> tooMany{0};
  inThreads([&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      const timespec late = after(CLOCK_REALTIME, 60'000);
      const int error = thread % 2 == 0 ? sem_wait(semaphore) : sem_timedwait(semaphore, &late);
      if (error != 0) say("wait: %d", errno);
      if (++inside > 2) ++tooMany;
      ::usleep(20);
      --inside;
      sem_post(semaphore);
    }
  });
  say("too many: %d", tooMany.load());
  sem_wait(semaphore);
  sem_wait(semaphore);
  const timespec soon = after(CLOCK_REALTIME, 10);
  errno = 0;
  const int result = sem_timedwait(semaphore, &soon);
  say("empty: %d, %d", result, errno);
  int value = -1;
  sem_getvalue(semaphore, &value);
  say("value: %d, destroy: %d", value, sem_destroy(semaphore));
  return 0;
}

SCENARIO(readWriteLocks) {
  memory = allocate();
  struct Shared {
    pthread_rwlock_t lock;
    long count;
  };
  auto* const shared = place<Shared>();
  pthread_rwlock_init(&shared->lock, nullptr);
  inThreads([&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      if (thread % 2 == 0) {
        pthread_rwlock_wrlock(&shared->lock);
        ++shared->count;
      } else {
        pthread_rwlock_rdlock(&shared->lock);
      }
      ::usleep(20);
      pthread_rwlock_unlock(&shared->lock);
    }
  });
  say("counted %ld", shared->count);
  pthread_rwlock_wrlock(&shared->lock);
  say("again: %d, %d", pthread_rwlock_rdlock(&shared->lock), pthread_rwlock_wrlock(&shared->lock));
  std::thread([&] {
    const timespec soon = after(CLOCK_REALTIME, 10);
    say("locked: %d, %d", pthread_rwlock_timedrdlock(&shared->lock, &soon),
        pthread_rwlock_timedwrlock(&shared->lock, &soon));
  }).join();
  say("unlock: %d, destroy: %d", pthread_rwlock_unlock(&shared->lock),
      pthread_rwlock_destroy(&shared->lock));
  return 0;
}

SCENARIO(barriers) {
  memory = allocate();
  auto* const barrier = place<pthread_barrier_t>();
  pthread_barrier_init(barrier, nullptr, kThreads);
  std::atomic<long> arrived{0};
  std::atomic<int> serial{0};
  std::atomic<int> early{0};
  inThreads([&](int) {
    for (int round = 1; round <= kRounds; ++round) {
      ++arrived;
      const int result = pthread_barrier_wait(barrier);
      if (result == PTHREAD_BARRIER_SERIAL_THREAD) ++serial;
      if (arrived < long{kThreads} * round) ++early;
      pthread_barrier_wait(barrier);
    }
  });
  say("serial %d, early %d, destroy %d", serial.load(), early.load(),
      pthread_barrier_destroy(barrier));
  return 0;
}

// ---- A thread that waits while the memory is closed, and then has to wait again: the handler of a
// signal makes the kernel begin the wait anew.

struct All {
  pthread_mutex_t mutex;
  pthread_mutex_t conditions;
  pthread_cond_t condition;
  sem_t semaphore;
  pthread_rwlock_t lock;
  pthread_barrier_t barrier;
  std::atomic<int> value;
  bool signalled;
};

std::atomic<int> handled{0};
std::atomic<pid_t> waiter{0};

// Whether a thread sleeps in the kernel.
bool isAsleep(pid_t thread) {
  char path[64];
  char line[256] = "";
  std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", static_cast<int>(thread));
  const int status = ::open(path, O_RDONLY);
  const ssize_t count = ::read(status, line, sizeof line - 1);
  ::close(status);
  const char* const name = std::strrchr(line, ')');  // which ends before the state
  return count > 0 && name != nullptr && name[2] == 'S';
}

void waitAgain(const char* name, const std::function<void()>& wait,
               const std::function<void()>& release) {
  handled = 0;
  waiter = 0;
  std::thread thread([&] {
    waiter = ::gettid();
    wait();
  });
  while (waiter == 0 || !isAsleep(waiter)) ::usleep(1000);
  close(memory);
  pthread_kill(thread.native_handle(), SIGUSR1);
  while (handled == 0 || !isAsleep(waiter)) ::usleep(1000);
  release();
  thread.join();
  say("%s: well", name);
}

SCENARIO(waitersAreInterrupted) {
  memory = allocate();
  struct sigaction action = {};
  action.sa_handler = [](int) { handled = 1; };
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  auto* const all = place<All>();
  pthread_mutex_init(&all->mutex, nullptr);
  pthread_mutex_init(&all->conditions, nullptr);
  pthread_cond_init(&all->condition, nullptr);
  sem_init(&all->semaphore, 0, 0);
  pthread_rwlock_init(&all->lock, nullptr);
  pthread_barrier_init(&all->barrier, nullptr, 2);
  pthread_mutex_lock(&all->mutex);
  waitAgain(
      "pthread_mutex_lock", [&] { pthread_mutex_lock(&all->mutex); },
      [&] { pthread_mutex_unlock(&all->mutex); });
  waitAgain(
      "pthread_cond_wait",
      [&] {
        pthread_mutex_lock(&all->conditions);
        while (!all->signalled) pthread_cond_wait(&all->condition, &all->conditions);
        pthread_mutex_unlock(&all->conditions);
      },
      [&] {
        pthread_mutex_lock(&all->conditions);
        all->signalled = true;
        pthread_cond_signal(&all->condition);
        pthread_mutex_unlock(&all->conditions);
      });
  waitAgain(
      "sem_wait", [&] { sem_wait(&all->semaphore); }, [&] { sem_post(&all->semaphore); });
  pthread_rwlock_wrlock(&all->lock);
  waitAgain(
      "pthread_rwlock_rdlock",
      [&] {
        pthread_rwlock_rdlock(&all->lock);
        pthread_rwlock_unlock(&all->lock);
      },
      [&] { pthread_rwlock_unlock(&all->lock); });
  pthread_rwlock_rdlock(&all->lock);
  waitAgain(
      "pthread_rwlock_wrlock", [&] { pthread_rwlock_wrlock(&all->lock); },
      [&] { pthread_rwlock_unlock(&all->lock); });
  waitAgain(
      "pthread_barrier_wait", [&] { pthread_barrier_wait(&all->barrier); },
      [&] { pthread_barrier_wait(&all->barrier); });
  waitAgain(
      "std::atomic::wait", [&] { all->value.wait(0); },
      [&] {
        all->value = 1;
        all->value.notify_all();
      });
  return 0;
}

// The C++ library's classes on top of them.
SCENARIO(standardLocks) {
  memory = allocate();
  struct Shared {
    std::mutex mutex;
    std::condition_variable_any condition;
    std::shared_mutex sharedMutex;
    std::atomic<int> turn{0};
    long count = 0;
  };
  auto* const shared = std::construct_at(place<Shared>());
  inThreads([&](int thread) {
    for (int round = 0; round < kRounds / 4; ++round) {
      for (int turn = shared->turn; turn != round * kThreads + thread; turn = shared->turn) {
        shared->turn.wait(turn);
      }
      {
        const std::lock_guard guard(shared->mutex);
        const std::unique_lock writer(shared->sharedMutex);
        ++shared->count;
      }
      ++shared->turn;
      shared->turn.notify_all();
      const std::shared_lock reader(shared->sharedMutex);
    }
  });
  say("counted %ld", shared->count);
  std::destroy_at(shared);
  return 0;
}

}  // namespace
