// SPDX-License-Identifier: Apache-2.0
//
// dlsym, so that a CUDA runtime that looks for the driver's functions finds our hooks: the static
// runtime asks dlsym for cuGetProcAddress, and that for everything else.
#include <dlfcn.h>

#include <cstring>

#include "gmac/accel/cuda/real_dlsym.h"
#include "interpose/cuda/hooks.h"

#if !defined(__x86_64__)
#error "the wrapping dlsym is written for x86-64"
#endif

namespace gmac::interpose {

extern "C" {

__attribute__((used, visibility("hidden"))) accel::cuda::Dlsym gmacRealDlsym = nullptr;

// The hook to answer with, or NULL when the C library's dlsym is to answer. Sanitizers ask before
// they are ready for code that they check.
__attribute__((used, visibility("hidden"), no_sanitize("address", "thread", "undefined"))) void*
gmacDlsymAnswer(void* handle, const char* name) noexcept {
  __atomic_store_n(&gmacRealDlsym, accel::cuda::realDlsym(), __ATOMIC_RELEASE);
  // RTLD_NEXT counts from the caller, which only a call that comes from there can tell.
  if (name == nullptr || std::strncmp(name, "cu", 2) != 0 || handle == RTLD_NEXT) return nullptr;
  const HookEntry* const entry = hookOfSymbol(name);
  if (entry == nullptr) return nullptr;
  void* const real = accel::cuda::realDlsym()(handle, name);
  return real == nullptr ? nullptr : substitute(*entry, real);
}

}  // extern "C"

// Everything that is not ours goes on as a jump: the C library looks at the return address to learn
// who asks.
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
