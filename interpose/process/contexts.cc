// SPDX-License-Identifier: Apache-2.0
//
// getcontext, setcontext and swapcontext on contexts in shared memory: these stand in for libc's
// functions in a program that is linked with the library or preloads it. The functions save and
// load registers with ordinary instructions, but the signal mask in a context is read and written
// by the kernel, which cannot reach a closed block. So the mask is touched first. Written in
// assembly: the registers of the caller are what these functions are about.
#include <ucontext.h>

#include <cstddef>

#include "interpose/base/real.h"

#if !defined(__x86_64__)
#error "contexts are touched with x86-64's instructions"
#endif

namespace gmac::interpose {

extern "C" {

// libc's functions. A call before the constructor has run looks them up first, and then goes on.
__attribute__((visibility("hidden"))) void gmacGetFirst();
__attribute__((visibility("hidden"))) void gmacSetFirst();
__attribute__((visibility("hidden"))) void gmacSwapFirst();
__attribute__((used, visibility("hidden"))) void (*gmacRealGetcontext)() = gmacGetFirst;
__attribute__((used, visibility("hidden"))) void (*gmacRealSetcontext)() = gmacSetFirst;
__attribute__((used, visibility("hidden"))) void (*gmacRealSwapcontext)() = gmacSwapFirst;

__attribute__((used, visibility("hidden"))) void gmacFindContexts() noexcept {
  const auto find = [](void (*&function)(), const char* name) {
    function = reinterpret_cast<void (*)()>(nextDefinition(name));
  };
  find(gmacRealGetcontext, "getcontext");
  find(gmacRealSetcontext, "setcontext");
  find(gmacRealSwapcontext, "swapcontext");
}

}  // extern "C"

namespace {

[[gnu::constructor]] void findContexts() { gmacFindContexts(); }

}  // namespace

asm(R"asm(
  .macro gmacFirst name, real
  .globl \name
  .hidden \name
  .type \name, @function
\name:
  .cfi_startproc
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call gmacFindContexts
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  jmp *\real(%rip)
  .cfi_endproc
  .size \name, .-\name
  .endm

  .macro gmacContext name, real, touch, touchOther
  .globl \name
  .type \name, @function
\name:
  .cfi_startproc
  endbr64
  \touch
  \touchOther
  jmp *\real(%rip)
  .cfi_endproc
  .size \name, .-\name
  .endm

  .pushsection .text
  gmacFirst gmacGetFirst, gmacRealGetcontext
  gmacFirst gmacSetFirst, gmacRealSetcontext
  gmacFirst gmacSwapFirst, gmacRealSwapcontext
  gmacContext getcontext, gmacRealGetcontext, "lock orq $0, 296(%rdi)"
  gmacContext setcontext, gmacRealSetcontext, "movq 296(%rdi), %rax"
  gmacContext swapcontext, gmacRealSwapcontext, "lock orq $0, 296(%rdi)", "movq 296(%rsi), %rax"
  .popsection
)asm");
static_assert(offsetof(ucontext_t, uc_sigmask) == 296);

}  // namespace gmac::interpose
