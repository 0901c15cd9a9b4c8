// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_COHERENCE_ACCESS_TURNS_H_
#define GMAC_COHERENCE_ACCESS_TURNS_H_

#include <algorithm>
#include <cstdint>

namespace gmac {

// Whether launches let accesses of the CPU go first that wait for device work.
//
// An access waits for the work that may write its bytes, and looks again: where other threads have
// launched meanwhile, it would wait for as long as they go on. So when it has waited kFew times, or
// for kLeast, and has to wait again, it has a claim: others' launches are held up until it has
// ended. (Threads that launch and wait in turns do not need that, and would keep each other's
// kernels from running at once.)
//
// Where its waits were long, the device has been given a lot, and would be before each access. For
// kShare times as long the device is crowded: accesses have a claim from their first wait on, and a
// launch waits until what its queue has been given before is over.
//
// What an access or a launch waits for may itself need a launch (a host function in a stream that
// waits for another thread, say). So launches are held up for a limited time, at first kLeast, and
// then go on for as long. The limit doubles each time that it was too short, up to kMost. Launches
// are held up for at most half of the time so, and an access waits at most some four times as long
// as the device takes for what it has been given. A launch waits for its queue for at most
// kMostInQueue; where that is too short, none does for kShare times as long.
//
// Guarded by the lock of all objects. Times in nanoseconds; constant time, allocates nothing.
class AccessTurns {
 public:
  using Nanoseconds = std::uint64_t;
  static constexpr Nanoseconds kLeast = 1'000'000;
  static constexpr Nanoseconds kMost = 1'000'000'000;
  static constexpr Nanoseconds kMostInQueue = 2'000'000'000;
  static constexpr std::uint32_t kFew = 2;
  static constexpr Nanoseconds kShare = 16;

  // An access begins to wait for device work, and has waited `times` before, for so long. Whether
  // it has a claim from now on, which it ends.
  bool waits(Nanoseconds now, std::uint32_t times, Nanoseconds waited) {
    if (waited >= kLeast && now >= deepUntil_) {
      crowdedUntil_ = std::max(crowdedUntil_, now + kShare * waited);
    }
    const bool claims = waited >= kLeast || times >= kFew || crowded(now);
    claims_ += claims ? 1 : 0;
    return claims;
  }
  void ended() {
    if (--claims_ == 0 && held_) {
      held_ = false;
      limit_ = std::max(kLeast, limit_ - limit_ / 8);
    }
  }
  bool claimed() const { return claims_ > 0; }

  // Whether a launch of a thread that has no claim is held up now.
  bool holdsUp(Nanoseconds now) {
    if (claims_ == 0 || now < freeUntil_) {
      return false;
    }
    if (!held_) {
      held_ = true;
      since_ = now;
    }
    if (now - since_ < limit_) {
      return true;
    }
    held_ = false;
    freeUntil_ = now + limit_;
    limit_ = std::min(kMost, 2 * limit_);
    return false;
  }

  // Whether launches wait for their queues.
  bool crowded(Nanoseconds now) const { return now < crowdedUntil_; }
  // One has done so for kMostInQueue, in vain.
  void queueGoesOn(Nanoseconds now) {
    crowdedUntil_ = 0;
    deepUntil_ = now + kShare * kMostInQueue;
  }

 private:
  std::uint32_t claims_ = 0;
  bool held_ = false;  // since then
  Nanoseconds since_ = 0;
  Nanoseconds freeUntil_ = 0;
  Nanoseconds limit_ = kLeast;
  Nanoseconds crowdedUntil_ = 0;
  Nanoseconds deepUntil_ = 0;  // not crowded before
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_ACCESS_TURNS_H_
