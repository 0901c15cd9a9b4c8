// SPDX-License-Identifier: Apache-2.0
#include "interpose/cuda/managed_variables.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <new>

#include "gmac/base/ample_stack.h"
#include "gmac/os/fault.h"
#include "interpose/cuda/call.h"

namespace gmac::interpose {
namespace {

GMAC_CUDA_HELPER(cuCtxGetCurrent, cuCtxGetCurrent)
GMAC_CUDA_HELPER(cuCtxPushCurrent, cuCtxPushCurrent_v2)
GMAC_CUDA_HELPER(cuCtxPopCurrent, cuCtxPopCurrent_v2)
GMAC_CUDA_HELPER(cuCtxSynchronize, cuCtxSynchronize)

// A link of the list, which the fault handler reads without a lock: links are added in front, made
// free (no bytes) and used again, and never deleted.
struct Variable {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::size_t> bytes{0};
  CUcontext context = nullptr;
  CUlibrary library = nullptr;
  Variable* next = nullptr;
};
constinit std::atomic<Variable*> variables{nullptr};
constinit std::mutex changes;
constinit std::atomic<pid_t> owner{0};

const Variable* find(const void* address) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const Variable* one = variables.load(std::memory_order_acquire); one != nullptr;
       one = one->next) {
    const std::size_t bytes = one->bytes.load(std::memory_order_acquire);
    if (at - one->begin.load(std::memory_order_relaxed) < bytes) return one;
  }
  return nullptr;
}

bool isVariable(const void* address) noexcept { return find(address) != nullptr; }

// Whether the kernel could read there: it looks at the mask before it finds that nothing says what
// to do with it. Keeps errno.
bool isOpen(const void* address) noexcept {
  constexpr std::uintptr_t kMaskBytes = 8;
  const int error = errno;
  const auto mask = reinterpret_cast<std::uintptr_t>(address) & ~(kMaskBytes - 1);
  const bool open =
      syscall(SYS_rt_sigprocmask, ~0L, mask, nullptr, kMaskBytes) == 0 || errno != EFAULT;
  errno = error;
  return open;
}

void waitForContext(CUcontext context) noexcept {
  const auto push = realOf<Call_cuCtxPushCurrent_v2>();
  const auto pop = realOf<Call_cuCtxPopCurrent_v2>();
  const auto synchronize = realOf<Call_cuCtxSynchronize>();
  const Reentry inside;
  if (push == nullptr || pop == nullptr || synchronize == nullptr ||
      push(context) != CUDA_SUCCESS) {
    return;
  }
  // What fails here fails again in the program's own next call, which tells it.
  (void)synchronize();
  CUcontext popped = nullptr;
  (void)pop(&popped);
}

// The driver's own accesses are its own affair, and children of fork have no driver. Where the
// variable is still closed after the wait, the fault is the program's.
bool onVariableFault(void* address, bool /*write*/) noexcept {
  const Variable* const variable = find(address);
  if (variable == nullptr || Reentry::inside() || owner.load() != getpid()) return false;
  return withAmpleStack([&] {
    waitForContext(variable->context);
    return isOpen(address);
  });
}

}  // namespace

CUresult awaitVariable(CUlibrary library, CUdeviceptr address, std::size_t bytes) noexcept {
  const auto getCurrent = realOf<Call_cuCtxGetCurrent>();
  CUcontext context = nullptr;
  if (getCurrent == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (const CUresult result = getCurrent(&context); result != CUDA_SUCCESS) return result;
  // Looked up now: a fault handler must not.
  (void)realOf<Call_cuCtxPushCurrent_v2>();
  (void)realOf<Call_cuCtxPopCurrent_v2>();
  (void)realOf<Call_cuCtxSynchronize>();
  const std::lock_guard lock(changes);
  Variable* free = nullptr;
  for (Variable* one = variables.load(); one != nullptr; one = one->next) {
    const std::size_t used = one->bytes.load();
    if (used != 0 && one->begin.load() == address && one->library == library) return CUDA_SUCCESS;
    if (used == 0) free = one;
  }
  Variable* const made = free != nullptr ? free : new (std::nothrow) Variable;
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  made->context = context;
  made->library = library;
  made->begin.store(address);
  made->bytes.store(bytes, std::memory_order_release);
  if (free == nullptr) {
    made->next = variables.load();
    variables.store(made, std::memory_order_release);
  }
  owner.store(getpid());
  os::alsoAnswerFaults(&onVariableFault, &isVariable);
  return CUDA_SUCCESS;
}

void forgetVariables(CUlibrary library) noexcept {
  const std::lock_guard lock(changes);
  for (Variable* one = variables.load(); one != nullptr; one = one->next) {
    if (one->library == library) one->bytes.store(0);
  }
}

}  // namespace gmac::interpose
