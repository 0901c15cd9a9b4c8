// SPDX-License-Identifier: Apache-2.0
#include "gmac/os/fault_stack.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "gmac/base/log.h"
#include "gmac/os/memory.h"

namespace gmac::os {
namespace {

// Those that nobody uses. A place is taken and filled by one exchange each, so that a handler which
// comes between, or a fork, finds every stack in one hand. What does not fit is unmapped.
constinit std::array<std::atomic<std::byte*>, 64> idle{};

std::byte* takeIdle() noexcept {
  for (std::atomic<std::byte*>& place : idle) {
    if (place.load(std::memory_order_relaxed) == nullptr) continue;
    if (std::byte* const begin = place.exchange(nullptr, std::memory_order_acquire)) return begin;
  }
  return nullptr;
}

bool leaveIdle(std::byte* begin) noexcept {
  for (std::atomic<std::byte*>& place : idle) {
    std::byte* none = nullptr;
    if (place.load(std::memory_order_relaxed) == nullptr &&
        place.compare_exchange_strong(none, begin, std::memory_order_release)) {
      return true;
    }
  }
  return false;
}

// (libc's own mprotect: memory.h says why.)
std::byte* makeStack(FaultStack::Need need) noexcept {
  const std::size_t guard = pageBytes();
  void* const mapped = mmap(nullptr, guard + kFaultStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  const bool made = mapped != MAP_FAILED && syscall(SYS_mprotect, mapped, guard, PROT_NONE) == 0;
  if (!made && need == FaultStack::Need::kMust) {
    log(LogLevel::kError, "no stack of {} bytes to answer an access to a shared object on: {}",
        kFaultStackBytes, strerrordesc_np(errno));
    std::abort();
  }
  if (!made) {
    if (mapped != MAP_FAILED) (void)munmap(mapped, guard + kFaultStackBytes);
    return nullptr;
  }
  return static_cast<std::byte*>(mapped) + guard;
}

}  // namespace

FaultStack::FaultStack(Need need) noexcept : begin_(takeIdle()) {
  if (begin_ == nullptr) begin_ = makeStack(need);
}

FaultStack::~FaultStack() {
  if (begin_ != nullptr && !leaveIdle(begin_)) {
    (void)munmap(begin_ - pageBytes(), pageBytes() + kFaultStackBytes);
  }
}

}  // namespace gmac::os
