// SPDX-License-Identifier: Apache-2.0
//
// clone(), and clone and clone3 by number (what comes from syscall() is in system_calls.cc), with
// arguments in shared memory. The kernel passes over an identifier that it cannot store, so the
// blocks are opened before the call. Written in assembly: a clone returns in another thread or
// process, perhaps on another stack.
//
// Another thread's kernel call may close the blocks again in between. What the kernel stores when a
// thread ends (CLONE_CHILD_CLEARTID) needs an open block by then.
//
// __clone() stays libc's: the device process is started by it, past what sanitizers put in the
// place of clone().
#include <linux/sched.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdint>

#include "gmac/coherence/memory_port.h"
#include "interpose/base/private_copy.h"
#include "interpose/base/real.h"

#if !defined(__x86_64__)
#error "clones are made with x86-64's instructions"
#endif

namespace gmac::interpose {
namespace {

bool mayOpen() noexcept { return coherence::anythingShared() && !coherence::memory().worksHere(); }

void openStored(long flags, void* ofParent, void* ofChild) noexcept {
  const int savedErrno = errno;
  if ((flags & (CLONE_PARENT_SETTID | CLONE_PIDFD)) != 0) (void)touch(ofParent);
  if ((flags & (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID)) != 0) (void)touch(ofChild);
  errno = savedErrno;
}

}  // namespace

extern "C" {

__attribute__((used, visibility("hidden"))) void gmacOpenForNumber(long number, void* first, long,
                                                                   void* third,
                                                                   void* fourth) noexcept {
  if (!mayOpen()) return;
  if (number == SYS_clone) {
    openStored(reinterpret_cast<long>(first), third, fourth);
    return;
  }
  const int savedErrno = errno;
  (void)touch(first);
  (void)touchPointees(first);
  errno = savedErrno;
}

// Returns libc's function.
__attribute__((used, visibility("hidden"))) void* gmacOpenForClone(long flags, void* ofParent,
                                                                   void* ofChild) noexcept {
  static void* const real = nextDefinition("clone");
  if (mayOpen()) openStored(flags, ofParent, ofChild);
  return real;
}

}  // extern "C"

asm(R"asm(
  .macro gmacSave
  .irp register, rdi, rsi, rdx, rcx, r8, r9
  pushq %\register
  .cfi_adjust_cfa_offset 8
  .endr
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  .endm

  .macro gmacRestore
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  .irp register, r9, r8, rcx, rdx, rsi, rdi
  popq %\register
  .cfi_adjust_cfa_offset -8
  .endr
  .endm

  .pushsection .text
  .globl gmacCloneByNumber
  .hidden gmacCloneByNumber
  .type gmacCloneByNumber, @function
gmacCloneByNumber:
  .cfi_startproc
  gmacSave
  call gmacOpenForNumber
  gmacRestore
  jmp gmacSystemCall
  .cfi_endproc
  .size gmacCloneByNumber, .-gmacCloneByNumber

  .globl clone
  .type clone, @function
clone:
  .cfi_startproc
  endbr64
  gmacSave
  movslq %edx, %rdi
  movq %r8, %rsi
  movq 64(%rsp), %rdx
  call gmacOpenForClone
  movq %rax, %r11
  gmacRestore
  jmp *%r11
  .cfi_endproc
  .size clone, .-clone
  .popsection
)asm");

}  // namespace gmac::interpose
