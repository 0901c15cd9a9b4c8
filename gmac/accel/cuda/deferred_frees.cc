// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/deferred_frees.h"

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "gmac/accel/cuda/application_memory.h"
#include "gmac/base/log.h"
#include "gmac/base/status.h"

namespace gmac::accel::cuda {
namespace {

constexpr std::chrono::milliseconds kPoll{1};

std::atomic<MayFree> asked{nullptr};
std::atomic<std::size_t> count{0};

struct Kept {
  std::mutex lock;  // guards the next
  std::set<std::uintptr_t> starts;
};
Kept& kept() {
  static auto* const kKept = new Kept;  // also for exit handlers
  return *kKept;
}

}  // namespace

void askBeforeFrees(MayFree mayFree) noexcept { asked.store(mayFree, std::memory_order_release); }

Freeing beforeFree(std::uintptr_t start) {
  const MayFree mayFree = asked.load(std::memory_order_acquire);
  if (mayFree == nullptr || start == 0) [[likely]] {
    return Freeing::kNow;
  }
  (void)freeDeferred();
  Kept& all = kept();
  {
    const std::lock_guard guard(all.lock);
    if (all.starts.contains(start)) {
      return Freeing::kTwice;
    }
  }
  if (mayFree(reinterpret_cast<void*>(start)) != 0) {
    return Freeing::kNow;
  }
  const std::lock_guard guard(all.lock);
  all.starts.insert(start);
  count.store(all.starts.size(), std::memory_order_release);
  return Freeing::kLater;
}

bool freeDeferred() {
  if (deferredFrees() == 0) {
    return false;
  }
  Kept& all = kept();
  std::vector<std::uintptr_t> starts;
  {
    const std::lock_guard guard(all.lock);
    starts.assign(all.starts.begin(), all.starts.end());
  }
  bool any = false;
  const MayFree mayFree = asked.load(std::memory_order_acquire);
  for (const std::uintptr_t start : starts) {
    if (mayFree(reinterpret_cast<void*>(start)) == 0) {
      continue;
    }
    {
      const std::lock_guard guard(all.lock);
      if (all.starts.erase(start) == 0) {
        continue;  // another thread frees it
      }
      count.store(all.starts.size(), std::memory_order_release);
    }
    any = true;
    if (const Status status = freeOfApplication(reinterpret_cast<void*>(start)); !status.ok()) {
      log(LogLevel::kError, "memory that the program had freed is lost: {}", lastErrorText());
    }
  }
  return any;
}

bool waitForDeferred(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (deferredFrees() != 0) {
    if (freeDeferred()) {
      return true;
    }
    if (std::chrono::steady_clock::now() >= end) {
      return false;
    }
    std::this_thread::sleep_for(kPoll);
  }
  return false;
}

std::size_t deferredFrees() noexcept { return count.load(std::memory_order_acquire); }

}  // namespace gmac::accel::cuda
