// SPDX-License-Identifier: Apache-2.0
#include "interpose/base/system_call.h"

#if !defined(__x86_64__)
#error "the system call is written for x86-64"
#endif

asm(R"(
  .pushsection .text
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
