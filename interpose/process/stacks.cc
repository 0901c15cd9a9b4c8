// SPDX-License-Identifier: Apache-2.0
//
// Stacks in shared memory: sigaltstack and pthread_attr_setstack. These stand in for libc's
// functions in a program that is linked with the library or preloads it. The kernel itself puts the
// frame of a signal on a stack. Where a block is closed it cannot, and ends the process, so that
// not even the fault that would open the block is answered.
//
//  - sigaltstack: the kernel is given private memory of the same size, and the program is told the
//    stack that it gave.
//  - pthread_attr_setstack: the request is refused, as for other memory that is not always readable
//    and writable, and a log line says why.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>

#include "gmac/base/cancellation.h"
#include "gmac/base/log.h"
#include "gmac/coherence/memory_port.h"
#include "interpose/base/real.h"
#include "interpose/base/served_call.h"

namespace gmac::interpose {
namespace {

constinit Real<int(const stack_t*, stack_t*)> realSigaltstack("sigaltstack");

constinit Real<int(pthread_attr_t*, void*, size_t)> realSetStack("pthread_attr_setstack");

[[gnu::constructor]] void resolveStacks() { resolveAtLoad(realSigaltstack, realSetStack); }

// A thread's stand-in for its stack in shared memory. Kept until the thread ends or gives another:
// a frame may be on it.
struct OwnStack {
  void* memory;  // NULL: none
  void* given;   // what it stands in for
  std::size_t bytes;
};
constinit thread_local OwnStack ownStack{};

// Frees the thread's stack when the thread ends.
struct Owner {
  ~Owner() {
    if (ownStack.memory == nullptr) return;
    stack_t now = {};
    // By number, past this file.
    if (::syscall(SYS_sigaltstack, nullptr, &now) == 0 && now.ss_sp == ownStack.memory) {
      const stack_t none = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
      (void)::syscall(SYS_sigaltstack, &none, nullptr);
    }
    (void)::munmap(ownStack.memory, ownStack.bytes);
    ownStack = {};
  }
  bool known = false;
};

// The program's own form of a stack that the kernel has told.
void toProgram(stack_t* told, const OwnStack& own) noexcept {
  if (own.memory != nullptr && told->ss_sp == own.memory) told->ss_sp = own.given;
}

int setOwnStack(const stack_t& wanted, stack_t* before) {
  thread_local Owner owner;
  owner.known = true;
  void* const memory = ::mmap(nullptr, wanted.ss_size, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) return -1;  // ENOMEM, which sigaltstack() may give
  stack_t kernels = wanted;
  kernels.ss_sp = memory;
  stack_t old;
  if (realSigaltstack(&kernels, &old) != 0) {
    const int error = errno;
    (void)::munmap(memory, wanted.ss_size);
    errno = error;
    return -1;
  }
  const OwnStack last = ownStack;
  ownStack = {memory, wanted.ss_sp, wanted.ss_size};
  if (before != nullptr) {
    toProgram(&old, last);
    *before = old;
  }
  // The kernel refuses a change while a handler runs on the stack, so nothing is on the last one.
  if (last.memory != nullptr) (void)::munmap(last.memory, last.bytes);
  return 0;
}

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names ----

namespace stacks = gmac::interpose;

extern "C" GMAC_INTERPOSED int sigaltstack(const stack_t* wanted, stack_t* before) noexcept {
  if (wanted != nullptr && gmac::coherence::anythingShared() &&
      stacks::readable(wanted, sizeof *wanted)) {
    const stack_t given = *wanted;
    if ((given.ss_flags & SS_DISABLE) == 0 && given.ss_size > 0 &&
        gmac::coherence::touchesShared(given.ss_sp, given.ss_size)) {
      return gmac::uncancelled([&] { return stacks::setOwnStack(given, before); });
    }
  }
  const int result =
      stacks::serve<stacks::When::kBefore, stacks::Errors::kErrno, false, stacks::Values<0>,
                    stacks::Values<1>>(stacks::realSigaltstack, wanted, before);
  if (result == 0 && before != nullptr) stacks::toProgram(before, stacks::ownStack);
  return result;
}

extern "C" GMAC_INTERPOSED int pthread_attr_setstack(pthread_attr_t* attributes, void* stack,
                                                     size_t bytes) noexcept {
  if (!gmac::coherence::anythingShared() || !gmac::coherence::touchesShared(stack, bytes))
      [[likely]]
    return stacks::realSetStack(attributes, stack, bytes);
  static constinit std::atomic<bool> said{false};
  if (!said.exchange(true)) {
    gmac::log(gmac::LogLevel::kError,
              "pthread_attr_setstack({}, {}) fails with EACCES: a shared object is there, and a "
              "thread's stack cannot be in one (this is said once)",
              stack, bytes);
  }
  return EACCES;
}
