// SPDX-License-Identifier: Apache-2.0
//
// syscall(SYS_futex, ...) on shared memory, which is how the C++ library waits for an atomic: this
// stands in for libc's function in a program that is linked with the library or preloads it. To
// wait the kernel reads the word, once, when the wait begins; where a closed block stops it the
// word is touched, and the call made again. Every other system call is made as it is.
#include <linux/futex.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdint>

#include "gmac/coherence/port.h"

#if !defined(__x86_64__)
#error "the wrapping syscall is written for x86-64"
#endif

namespace gmac::interpose {

extern "C" {

// The system call itself, as libc makes it. A function of its own, and not of the C++ compiler's:
// a system call may return in another process, on another stack. A thread may be cancelled in it,
// so none of these frames has anything to clean up.
__attribute__((visibility("hidden"))) long gmacSystemCall(long number, ...) noexcept;

__attribute__((used, visibility("hidden"))) long gmacFutex(long number, std::uint32_t* word,
                                                           long operation, long value, long limit,
                                                           long word2, long value3) noexcept {
  // Another thread may close the block again before the kernel has looked; none does for ever.
  constexpr int kAttempts = 1000;
  const int errnoBefore = errno;
  for (int attempt = 0;; ++attempt) {
    const long result = gmacSystemCall(number, word, operation, value, limit, word2, value3);
    const long command = operation & FUTEX_CMD_MASK;
    if (result != -1 || errno != EFAULT || attempt == kAttempts ||
        (command != FUTEX_WAIT && command != FUTEX_WAIT_BITSET) ||
        !coherence::touchesShared(word, sizeof *word)) {
      return result;
    }
    errno = errnoBefore;
    (void)*const_cast<const volatile std::uint32_t*>(word);
  }
}

}  // extern "C"

asm(R"(
  .pushsection .text
  .globl syscall
  .type syscall, @function
syscall:
  .cfi_startproc
  endbr64
  cmpq $202, %rdi
  je gmacFutex
  .cfi_endproc
  .size syscall, .-syscall
  .globl gmacSystemCall
  .hidden gmacSystemCall
  .type gmacSystemCall, @function
gmacSystemCall:
  .cfi_startproc
  movq %rdi, %rax
  movq %rsi, %rdi
  movq %rdx, %rsi
  movq %rcx, %rdx
  movq %r8, %r10
  movq %r9, %r8
  movq 8(%rsp), %r9
  syscall
  cmpq $-4095, %rax
  jae 1f
  ret
1:
  negl %eax
  pushq %rax
  .cfi_adjust_cfa_offset 8
  call __errno_location@PLT
  popq %rcx
  .cfi_adjust_cfa_offset -8
  movl %ecx, (%rax)
  movq $-1, %rax
  ret
  .cfi_endproc
  .size gmacSystemCall, .-gmacSystemCall
  .popsection
)");
static_assert(SYS_futex == 202);

}  // namespace gmac::interpose
