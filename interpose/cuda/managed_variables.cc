// SPDX-License-Identifier: Apache-2.0
#include "interpose/cuda/managed_variables.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <new>

#include "gmac/accel/backoff.h"
#include "gmac/base/ample_stack.h"
#include "gmac/coherence/device_memory_port.h"
#include "gmac/coherence/wait_limit.h"
#include "gmac/os/fault.h"
#include "interpose/cuda/call.h"

namespace gmac::interpose {
namespace {

GMAC_CUDA_HELPER(cuCtxGetCurrent, cuCtxGetCurrent)
GMAC_CUDA_HELPER(cuCtxPushCurrent, cuCtxPushCurrent_v2)
GMAC_CUDA_HELPER(cuCtxPopCurrent, cuCtxPopCurrent_v2)
GMAC_CUDA_HELPER(cuCtxSynchronize, cuCtxSynchronize)
GMAC_CUDA_HELPER(cuEventCreate, cuEventCreate)
GMAC_CUDA_HELPER(cuEventQuery, cuEventQuery)
GMAC_CUDA_HELPER(cuEventDestroy, cuEventDestroy_v2)

// Of drivers since CUDA 12.5.
struct Call_cuCtxRecordEvent {
  using Function = CUresult(CUcontext, CUevent);
  static constexpr const char* kSymbol = "cuCtxRecordEvent";
  static inline constinit std::atomic<void*> real{nullptr};
};

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
constinit std::atomic<unsigned> limit{0};  // seconds; 0: none

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

// Waits until what the current context holds has ended, as long as an access may wait; an older
// driver is not asked. What fails here fails again in the wait that follows.
void waitWithinLimit(CUcontext context, const void* access) noexcept {
  const auto create = realOf<Call_cuEventCreate>();
  const auto record = realOf<Call_cuCtxRecordEvent>();
  const auto query = realOf<Call_cuEventQuery>();
  const auto destroy = realOf<Call_cuEventDestroy_v2>();
  CUevent event = nullptr;
  if (limit.load() == 0 || create == nullptr || record == nullptr || query == nullptr ||
      destroy == nullptr || create(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    return;
  }
  if (record(context, event) == CUDA_SUCCESS) {
    for (accel::Backoff backoff; query(event) == CUDA_ERROR_NOT_READY; backoff.step()) {
      if (backoff.waited() > std::chrono::seconds(limit.load())) {
        coherence::endAfterWaitLimit(access, limit.load());
      }
    }
  }
  (void)destroy(event);
}

void waitForContext(CUcontext context, const void* access) noexcept {
  const auto push = realOf<Call_cuCtxPushCurrent_v2>();
  const auto pop = realOf<Call_cuCtxPopCurrent_v2>();
  const auto synchronize = realOf<Call_cuCtxSynchronize>();
  const Reentry inside;
  if (push == nullptr || pop == nullptr || synchronize == nullptr ||
      push(context) != CUDA_SUCCESS) {
    return;
  }
  waitWithinLimit(context, access);
  // A failure here comes again in the program's own next call, which reports it.
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
    waitForContext(variable->context, address);
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
  (void)realOf<Call_cuEventCreate>();
  (void)realOf<Call_cuCtxRecordEvent>();
  (void)realOf<Call_cuEventQuery>();
  (void)realOf<Call_cuEventDestroy_v2>();
  limit.store(coherence::deviceMemory().waitLimit());
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
