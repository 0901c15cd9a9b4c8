// SPDX-License-Identifier: Apache-2.0
//
// syscall(SYS_futex, ...) on shared memory, which is how the C++ library waits for an atomic; what
// comes from syscall() is in system_calls.cc. For a
// wait the kernel reads the word once, at its start; for a wake it may read or write one. Where a
// closed block stops it, the words, and a wait's limit, are touched and the call is made again. The
// kernel also writes locks that inherit priorities (FUTEX_LOCK_PI) at the end of a wait, which no
// touch can precede: those calls fail with EFAULT, and a log line says why.
#include <linux/futex.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>

#include "gmac/base/log.h"
#include "gmac/coherence/port.h"
#include "interpose/base/system_call.h"

namespace gmac::interpose {
namespace {

void sayThatItCannotBe(long command, const std::uint32_t* word) noexcept {
  static constinit std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  log(LogLevel::kError,
      "futex operation {} on the word at {}, in a shared object, failed: the kernel cannot reach a "
      "lock that inherits priorities there; keep it in private memory",
      command, static_cast<const void*>(word));
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
    default:
      if (shared) sayThatItCannotBe(command, word);
      return false;
  }
  if (shared) (void)*const_cast<const volatile std::uint32_t*>(word);
  if (limitShared) {  // both ends may be in a block of their own
    (void)*const_cast<const volatile time_t*>(&limit->tv_sec);
    (void)*const_cast<const volatile long*>(&limit->tv_nsec);
  }
  // Writes the value that is there.
  if (secondShared) asm volatile("lock orl $0, %0" : "+m"(*word2) : : "cc", "memory");
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
    if (result != -1 || errno != EFAULT || attempt == kAttempts ||
        !open(operation & FUTEX_CMD_MASK, word, reinterpret_cast<const timespec*>(limit),
              reinterpret_cast<std::uint32_t*>(word2))) {
      return result;
    }
    errno = errnoBefore;
  }
}

}  // extern "C"

}  // namespace gmac::interpose
