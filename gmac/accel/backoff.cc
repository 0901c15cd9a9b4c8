// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/backoff.h"

#include <sched.h>
#include <time.h>

#include <algorithm>

namespace gmac::accel {
namespace {

using std::chrono::nanoseconds;

// A synchronous fetch of a small block takes 7 to 11 us: within that, giving the CPU away would
// double it.
constexpr nanoseconds kSpin{20'000};
// A sleep is late by the kernel's timer slack (50 us), which is noise only for waits longer than
// this.
constexpr nanoseconds kYield{300'000};
constexpr nanoseconds kMaxSleep{1'000'000};
constexpr int kSleepShare = 32;

}  // namespace

void Backoff::step() noexcept {
  const auto now = std::chrono::steady_clock::now();
  if (!started_) {
    started_ = true;
    start_ = now;
  }
  waited_ = now - start_;
  if (waited_ < kSpin) return;
  if (waited_ < kYield) {
    sched_yield();
    return;
  }
  const timespec pause{0, static_cast<long>(std::min(waited_ / kSleepShare, kMaxSleep).count())};
  nanosleep(&pause, nullptr);
}

}  // namespace gmac::accel
