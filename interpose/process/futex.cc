// SPDX-License-Identifier: Apache-2.0
//
// syscall(SYS_futex, ...) on shared memory, which is how the C++ library waits for an atomic; what
// comes from syscall() is in system_calls.cc. For a
// wait the kernel reads the word once, at its start; for a wake it may read or write one. Where a
// closed block stops it, the words, and a wait's limit, are touched and the call is made again. The
// kernel also writes locks that inherit priorities (FUTEX_LOCK_PI) at the end of a wait, which no
// touch can precede: such a lock is asked for again and again, so that no thread inherits a
// priority, and a condition that hands one over (FUTEX_WAIT_REQUEUE_PI) fails with EFAULT. A log
// line says so.
#include <linux/futex.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>

#include "gmac/base/log.h"
#include "gmac/coherence/memory_port.h"
#include "interpose/base/system_call.h"

namespace gmac::interpose {
namespace {

// Of the operations that header files of older systems lack.
constexpr long kLockPi2 = 13;

void sayThatItCannotBe(long command, const std::uint32_t* word) noexcept {
  static constinit std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  log(LogLevel::kError,
      "futex operation {} on the word at {}, in a shared object, failed: the kernel cannot reach a "
      "lock that inherits priorities there; keep it in private memory",
      command, static_cast<const void*>(word));
}

void sayWhatIsMissing(const std::uint32_t* word) noexcept {
  static constinit std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  log(LogLevel::kError,
      "the lock at {} inherits priorities and is in a shared object: it locks, and no thread "
      "inherits a priority; keep it in private memory",
      static_cast<const void*>(word));
}

// Opens the word's block for the kernel's write, by writing the value that is there.
void openForWriting(std::uint32_t* word) noexcept {
  asm volatile("lock orl $0, %0" : "+m"(*word) : : "cc", "memory");
}

bool isLater(const timespec& a, const timespec& b) noexcept {
  return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

// FUTEX_LOCK_PI and FUTEX_LOCK_PI2 without the kernel's wait. An attempt writes the word at once or
// never. The limit is a time of the clock, and valid: the kernel has read it before the word.
long lockByAsking(long number, std::uint32_t* word, long operation,
                  const timespec* limit) noexcept {
  constexpr long kFirstPause = 10'000;  // nanoseconds
  constexpr long kLongestPause = 1'000'000;
  const bool monotonic =
      (operation & FUTEX_CMD_MASK) == kLockPi2 && (operation & FUTEX_CLOCK_REALTIME) == 0;
  const long attempt = FUTEX_TRYLOCK_PI | (operation & FUTEX_PRIVATE_FLAG);
  sayWhatIsMissing(word);
  for (timespec pause{0, kFirstPause};;
       pause.tv_nsec = std::min(2 * pause.tv_nsec, kLongestPause)) {
    openForWriting(word);
    const long result = gmacSystemCall(number, word, attempt, 0L, 0L, 0L, 0L);
    // (Another thread may have closed the block again: EFAULT.)
    if (result != -1 || (errno != EAGAIN && errno != EFAULT)) return result;
    timespec now{};
    ::clock_gettime(monotonic ? CLOCK_MONOTONIC : CLOCK_REALTIME, &now);
    if (limit != nullptr && !isLater(*limit, now)) {
      errno = ETIMEDOUT;
      return -1;
    }
    // No cancellation point, as the call is none.
    (void)gmacSystemCall(SYS_nanosleep, &pause, 0L, 0L, 0L, 0L, 0L);
  }
}

// Opens the words of a failed operation, as the kernel needs them. False: it failed for another
// reason, or cannot be helped.
bool open(long command, std::uint32_t* word, const timespec* limit, std::uint32_t* word2) noexcept {
  const bool shared = coherence::touchesShared(word, sizeof *word);
  const bool waits = command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET;
  const bool limitShared = waits && coherence::touchesShared(limit, sizeof *limit);
  const bool usesSecond =
      command == FUTEX_WAKE_OP || command == FUTEX_REQUEUE || command == FUTEX_CMP_REQUEUE;
  const bool secondShared = usesSecond && coherence::touchesShared(word2, sizeof *word2);
  switch (command) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
    case FUTEX_WAKE:
    case FUTEX_WAKE_BITSET:
    case FUTEX_WAKE_OP:
    case FUTEX_REQUEUE:
    case FUTEX_CMP_REQUEUE:
      break;
    case FUTEX_TRYLOCK_PI:
    case FUTEX_UNLOCK_PI:
      if (shared) openForWriting(word);
      return shared;
    default:
      if (shared) sayThatItCannotBe(command, word);
      return false;
  }
  if (shared) (void)*const_cast<const volatile std::uint32_t*>(word);
  if (limitShared) {  // both ends may be in a block of their own
    (void)*const_cast<const volatile time_t*>(&limit->tv_sec);
    (void)*const_cast<const volatile long*>(&limit->tv_nsec);
  }
  if (secondShared) openForWriting(word2);
  return shared || limitShared || secondShared;
}

}  // namespace

extern "C" {

// A thread may be cancelled in it, so its frame has nothing to clean up.
__attribute__((used, visibility("hidden"))) long gmacFutex(long number, std::uint32_t* word,
                                                           long operation, long value, long limit,
                                                           long word2, long value3) noexcept {
  // Another thread may close the block again before the kernel has read the word, but not forever.
  constexpr int kAttempts = 1000;
  const int errnoBefore = errno;
  for (int attempt = 0;; ++attempt) {
    const long result = gmacSystemCall(number, word, operation, value, limit, word2, value3);
    const long command = operation & FUTEX_CMD_MASK;
    if (result == -1 && errno == EFAULT && (command == FUTEX_LOCK_PI || command == kLockPi2) &&
        coherence::touchesShared(word, sizeof *word)) {
      errno = errnoBefore;
      return lockByAsking(number, word, operation, reinterpret_cast<const timespec*>(limit));
    }
    if (result != -1 || errno != EFAULT || attempt == kAttempts ||
        !open(command, word, reinterpret_cast<const timespec*>(limit),
              reinterpret_cast<std::uint32_t*>(word2))) {
      return result;
    }
    errno = errnoBefore;
  }
}

}  // extern "C"

}  // namespace gmac::interpose
