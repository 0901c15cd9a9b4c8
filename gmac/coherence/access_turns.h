// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_COHERENCE_ACCESS_TURNS_H_
#define GMAC_COHERENCE_ACCESS_TURNS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace gmac {

// Whether launches let accesses of the CPU go first that wait for device work.
//
// An access waits for the work that may write its bytes, and looks again: where other threads have
// launched meanwhile, it would wait for as long as they go on. So when it has waited for newer work
// for kLong, and has to wait again, it has a claim: others' launches are held up until it has
// ended. (Threads that launch and wait in turns do not need that, and would keep each other's
// kernels from running at once.)
//
// Where it has waited for newer work for kLong, the device has been given a lot, and would be
// before each access. So it is crowded from then on, until no access has had to wait for newer work
// for kCrowded. While it is crowded, an access that has to wait for newer work has a claim at once;
// and while that is so, or an access has a claim, a launch waits until what its queue has been
// given before is over.
//
// What an access or a launch waits for may itself need a launch (a host function in a stream that
// waits for another thread, or kernels that wait for each other). So launches are held up for a
// limited time, at first kLeast. Where that is too short, they go on for as long, and the limit
// doubles, up to kMost; the n-th time in a row they go on for n times as long, n being kMostInVain
// at most. A launch waits for its queue for at most kMostInQueue.
//
// Guarded by the lock of all objects, but for claimed(). Times in nanoseconds; constant time,
// allocates nothing.
class AccessTurns {
 public:
  using Nanoseconds = std::uint64_t;
  static constexpr Nanoseconds kLong = 2'000'000;
  static constexpr Nanoseconds kLeast = 1'000'000;
  static constexpr Nanoseconds kMost = 250'000'000;
  static constexpr Nanoseconds kCrowded = 100'000'000;
  static constexpr Nanoseconds kMostInQueue = 200'000'000;
  static constexpr std::uint32_t kMostInVain = 8;

  // An access begins to wait for device work; `newer`: it has waited for older work before, and for
  // such work for so long. Whether it has a claim from now on, which it ends.
  bool waits(Nanoseconds now, bool newer, Nanoseconds waited) {
    const bool claims = waited >= kLong || (newer && crowded(now));
    noteWait(now, newer, waited);
    claims_.fetch_add(claims ? 1 : 0);
    return claims;
  }
  // The same of one that has a claim.
  void noteWait(Nanoseconds now, bool newer, Nanoseconds waited) {
    if (waited >= kLong || (newer && crowded(now))) {
      crowdedUntil_ = now + kCrowded;
    }
  }
  void ended() {
    if (claims_.fetch_sub(1) == 1 && held_) {
      held_ = false;
      inVain_ = 0;
      limit_ = std::max(kLeast, limit_ - limit_ / 8);
    }
  }

  // Whether anything of what follows may be so: else it is not.
  bool any() const { return claimed() || crowdedUntil_ != 0; }
  bool claimed() const { return claims_.load() > 0; }
  bool crowded(Nanoseconds now) const { return now < crowdedUntil_; }
  // Until when a launch of a thread that has no claim is held up, at most; 0: it is not.
  Nanoseconds holdsUntil(Nanoseconds now) {
    if (!claimed() || now < freeUntil_) {
      return 0;
    }
    if (!held_) {
      held_ = true;
      since_ = now;
    }
    if (now - since_ < limit_) {
      return since_ + limit_;
    }
    held_ = false;
    inVain_ = std::min(inVain_ + 1, kMostInVain);
    freeUntil_ = now + inVain_ * limit_;
    limit_ = std::min(kMost, 2 * limit_);
    return 0;
  }
  // Until when a launch waits for its queue; in the past: it does not. `lets`: it lets claims go
  // first.
  Nanoseconds queueUntil(Nanoseconds now, bool lets = true) const {
    return lets && claimed() ? now + kMostInQueue : crowdedUntil_;
  }

 private:
  std::atomic<std::uint32_t> claims_{0};
  bool held_ = false;  // launches are held up, since then:
  Nanoseconds since_ = 0;
  std::uint32_t inVain_ = 0;  // times in a row
  Nanoseconds freeUntil_ = 0;
  Nanoseconds limit_ = kLeast;
  Nanoseconds crowdedUntil_ = 0;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_ACCESS_TURNS_H_
