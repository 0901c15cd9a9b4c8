// SPDX-License-Identifier: Apache-2.0
//
// Replaces dlsym, so that a CUDA runtime that looks for the driver's functions finds our hooks: the
// static runtime asks dlsym for cuGetProcAddress, and that for everything else.
#include <dlfcn.h>

#include "gmac/accel/cuda/real_dlsym.h"
#include "interpose/cuda/hooks.h"

#if !defined(__x86_64__)
#error "the wrapping dlsym is written for x86-64"
#endif

namespace gmac::interpose {

extern "C" {

__attribute__((used, visibility("hidden"))) accel::cuda::Dlsym gmacRealDlsym = nullptr;

// The hook to return, or NULL when the C library's dlsym is to answer. Sanitizers call this before
// they can run code that they instrument.
__attribute__((used, visibility("hidden"), no_sanitize("address", "thread", "undefined"))) void*
gmacDlsymAnswer(void* handle, const char* name) noexcept {
  __atomic_store_n(&gmacRealDlsym, accel::cuda::realDlsym(), __ATOMIC_RELEASE);
  // RTLD_NEXT is relative to the caller, which only a jump from its own call can preserve.
  if (name == nullptr || name[0] != 'c' || name[1] != 'u' || handle == RTLD_NEXT) return nullptr;
  const HookEntry* const entry = hookOfSymbol(name);
  if (entry == nullptr) return nullptr;
  void* const real = accel::cuda::realDlsym()(handle, name);
  return real == nullptr ? nullptr : substitute(*entry, real);
}

}  // extern "C"

// All other look-ups go on as a jump: the C library takes the return address for the caller.
asm(R"(
  .pushsection .text
  .globl dlsym
  .type dlsym, @function
dlsym:
  .cfi_startproc
  endbr64
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call gmacDlsymAnswer
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  testq %rax, %rax
  jz 1f
  ret
1:
  jmp *gmacRealDlsym(%rip)
  .cfi_endproc
  .size dlsym, .-dlsym
  .popsection
)");

}  // namespace gmac::interpose
