// SPDX-License-Identifier: Apache-2.0
//
// Whether the program waits for each of its calls at once.
//
// Where it does, a call may wait for its kernel itself, since the program does nothing else
// meanwhile. Then what has one copy (zero_copy_policy.h) stays open: no access of the CPU comes
// between such a call and its wait, so that neither the call has to close a page nor the wait to
// open it. That is what a store, a short kernel and a load cost most.
//
//  - A round is a call, and a wait that begins within `soon` of the call's end; or, within
//    kAccessesLater times as long, an access by the call's thread that waits for the call (a fault
//    takes up to 10 us, now and then, and such a round saves more). After `leastRounds` << n rounds
//    in a row calls may wait, where n counts the times that they had to cease to.
//  - A miss is a call after which another one comes first, a wait or an access that comes later, or
//    a call that has waited as long as it may and whose kernel still runs. Calls cease to wait
//    after more than kMostMissed misses in kTrialRounds rounds. After kForgivingTrials trials n is
//    one less.
//  - Accesses to what stays open are not seen. Where they have been prompt, late waits for calls
//    that have waited are rounds, and some calls look whether accesses still come
//    (unseen_accesses.h): where more than a few do not, calls cease to wait as well.
//  - Where other processes use the device, now and then a kernel begins a time slice later. A call
//    that gave up then would close, and accesses open again, what is open, for nothing. So it may
//    wait for `slice` more. That is right where the kernel ends meanwhile and the program waits at
//    once. A slice is paid for by kRoundsOfASlice << m prompt rounds before it, where m counts the
//    slices that were in vain less those that were right; a right one costs nothing.
//
// The bound: a miss costs what the program would have done while that kernel ran, for as long as
// calls may wait at most: a small multiple of what its rounds take. There are at most kMostMissed
// misses in kTrialRounds rounds, or one more before calls cease to wait, and the n-th such end
// comes after at least `leastRounds` << n rounds that were faster for it. Of a program whose
// accesses cease to be prompt, UnseenAccesses::kMost calls more have waited in vain at most, or as
// many as there were since the last miss. (One whose accesses are prompt where they are looked at
// and nowhere else is not found out.) The slices in vain are at most one, and one more for
// kRoundsOfASlice prompt rounds; and the logarithm of the rounds, where none is right and all are
// seen.
//
// (A program that never waits has nothing that could stay open: zero_copy_policy.h.)
#ifndef GMAC_COHERENCE_PROMPT_WAITS_H_
#define GMAC_COHERENCE_PROMPT_WAITS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "gmac/coherence/options.h"
#include "gmac/coherence/unseen_accesses.h"

namespace gmac {

// Of all calls of the process; guarded by the lock of all objects, but for on() and found().
// Constant time, allocates nothing.
class PromptWaits {
 public:
  using Nanoseconds = std::uint64_t;

  using Limits = PromptWaitLimits;
  static constexpr std::uint32_t kTrialRounds = 32;
  static constexpr std::uint32_t kMostMissed = 4;
  static constexpr std::uint32_t kForgivingTrials = 32;
  static constexpr std::uint32_t kMostWrong = 20;
  static constexpr std::uint32_t kRoundsOfASlice = 256;
  static constexpr std::uint32_t kAccessesLater = 4;

  // One that returns to the program.
  struct Call {
    std::uint64_t thread = 0;
    bool awaited = false;  // it has waited for its kernel's end
    bool sliced = false;   // which came in a slice
  };

  explicit PromptWaits(const Limits& limits) : limits_(limits) {}

  // Whether it watches: while something has one copy.
  bool on() const { return on_.load(std::memory_order_relaxed); }
  void watch(bool on) {
    on_.store(on, std::memory_order_relaxed);
    pending_ = looked_ = false;
    rounds_ = 0;
    unseen_.forget();
  }

  // Whether a call that is about to be submitted may wait for its kernel.
  bool mayWait() {
    noteFound();
    return may_ && !pending_ && !unseen_.looks();
  }
  // Whether calls may wait.
  bool may() const { return may_; }
  // A call returns to the program.
  void returns(Nanoseconds now, const Call& call) {
    noteFound();
    if (pending_) {
      missed();
    }
    pending_ = true;
    looked_ = unseen_.looks();
    call_ = call;
    returned_ = now;
  }
  // The program waits.
  void waits(Nanoseconds now) {
    if (!std::exchange(pending_, false)) {
      return;
    }
    if (now - returned_ <= limits_.soon) {
      wasPrompt();
      unseen_.waited();
    } else if (call_.awaited && unseen_.expected()) {
      unseen_.unseen();
      countRound();
    } else {
      missed();
    }
  }
  // A thread comes for what the newest call may use, and that is closed.
  void accesses(Nanoseconds now, std::uint64_t thread) {
    noteFound();
    if (!pending_ || thread != call_.thread) {
      return;
    }
    pending_ = false;
    if (now - returned_ > kAccessesLater * limits_.soon) {
      missed();
    } else {
      saved_ = std::min(saved_ + unseen_.prompt(looked_), price());
      wasPrompt();
    }
  }
  // The program waits, and nothing is to be waited for.
  void found(Nanoseconds now) { found_.store(now, std::memory_order_relaxed); }
  // How much longer a call may wait whose kernel still runs; 0: no longer. Pays for it.
  Nanoseconds takeSlice() {
    if (limits_.slice == 0 || !hasSlice()) {
      return 0;
    }
    saved_ = 0;
    return limits_.slice;
  }
  bool hasSlice() const { return saved_ >= price(); }
  // A call has waited as long as it may, and its kernel still runs. `sliced`: for a slice, too.
  void inVain(bool sliced) {
    inVain_ += sliced && inVain_ < kMostWrong ? 1 : 0;
    countMiss(false);
  }

 private:
  std::uint32_t price() const { return kRoundsOfASlice << inVain_; }  // of a slice, in rounds
  void noteFound() {
    if (const Nanoseconds when = found_.exchange(0, std::memory_order_relaxed); when != 0) {
      waits(when);
    }
  }
  void wasPrompt() {
    if (std::exchange(call_.sliced, false)) {
      inVain_ -= inVain_ > 0 ? 1 : 0;
      saved_ = price();
    }
    if (!may_) {
      if (++rounds_ >= std::uint64_t{limits_.leastRounds} << wrong_) {
        may_ = true;
        rounds_ = missed_ = trials_ = 0;
        unseen_.tryAnew();
      }
      return;
    }
    saved_ = std::min(saved_ + 1, price());
    countRound();
  }
  void countRound() {
    if (++rounds_ + missed_ >= kTrialRounds && may_) {
      rounds_ = missed_ = 0;
      if (++trials_ == kForgivingTrials) {
        trials_ = 0;
        wrong_ -= wrong_ > 0 ? 1 : 0;
      }
    }
  }
  void missed() {
    inVain_ += std::exchange(call_.sliced, false) && inVain_ < kMostWrong ? 1 : 0;
    countMiss(looked_ && unseen_.late());
  }
  void countMiss(bool tooMany) {
    ++missed_;
    if (!may_) {
      rounds_ = 0;
    } else if (missed_ > kMostMissed || tooMany) {
      may_ = false;
      rounds_ = 0;
      wrong_ += wrong_ < kMostWrong ? 1 : 0;
      unseen_.forget();
    }
  }

  const Limits limits_;
  std::atomic<bool> on_{false};
  std::atomic<Nanoseconds> found_{0};  // when the newest such wait began; 0: it has been noted
  Nanoseconds returned_ = 0;
  std::uint64_t rounds_ = 0;  // in a row; of this trial, once calls may wait
  std::uint32_t missed_ = 0;  // of this trial
  std::uint32_t trials_ = 0;
  std::uint32_t wrong_ = 0;
  bool may_ = false;
  // Prompt rounds that pay for the next slice, while calls may wait. (The first comes after one
  // trial.)
  std::uint32_t saved_ = kRoundsOfASlice - kTrialRounds;
  std::uint32_t inVain_ = 0;  // slices, less those that were right
  Call call_;                 // the newest
  bool pending_ = false;      // it has returned, and nothing has waited since
  bool looked_ = false;       // it has not waited, to see an access
  UnseenAccesses unseen_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_PROMPT_WAITS_H_
