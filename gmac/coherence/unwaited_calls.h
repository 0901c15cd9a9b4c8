// SPDX-License-Identifier: Apache-2.0
//
// Calls, one after another, for which the program does not wait, while something has one copy.
//
// Whether one copy is right is told by rounds, and a round ends with a wait (zero_copy_policy.h).
// Kernels that nothing waits for may read over the bus, again and again, all that has one copy. So
// the library looks, now and then, in the place of a wait:
//
//  - A run is the calls since the program waited. After kFirst calls the next one waits until
//    nothing is in flight: it looks. So it does after kFirst further ones, and after twice as many
//    each time from then on.
//  - What has happened from one look to the next is judged. Kernels were what took the time if the
//    wait is longer than kBehind calls took each. If these took more than kShort each, and all of
//    them together `moves` for each thing that has one copy, all these get two copies again.
//  - The next look, after kFirst calls, tells whether these took less than kLess of what the others
//    took. Else the moves were in vain, and what has moved needs less evidence to get one copy
//    again. So it does where the run ends before.
//  - Looks, and moves in vain, are paid for in advance: by a part of the time of all runs, one in
//    kPrice, and by kFirstSaved at first. No look takes longer than what is saved, kLeastPatience
//    and kMostPatience apart.
//
// The bound: looks and moves in vain take one in kPrice of the runs' time and kFirstSaved, but for
// the way back. A run whose kernels one copy makes slow pays for that in 2 * kFirst calls, or in as
// much time as its moves take; and where runs before have spent what was saved, in kPrice times as
// much. (A wait of any thread ends the run.)
#ifndef GMAC_COHERENCE_UNWAITED_CALLS_H_
#define GMAC_COHERENCE_UNWAITED_CALLS_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace gmac {

// Of all calls of the process; guarded by the lock of all objects, but for waited() and isDue().
// Constant time, allocates nothing.
class UnwaitedCalls {
 public:
  using Nanoseconds = std::uint64_t;
  static constexpr std::uint64_t kFirst = 32;
  static constexpr std::uint64_t kFewest = 16;
  static constexpr Nanoseconds kShort = 6'000;
  static constexpr std::uint64_t kLess = 3;  // quarters
  static constexpr Nanoseconds kPrice = 32;
  static constexpr Nanoseconds kLook = 25'000;
  static constexpr std::int64_t kFirstSaved = 32'000'000;
  static constexpr std::int64_t kMostSaved = 1'000'000'000;
  static constexpr Nanoseconds kBehind = 2;
  static constexpr Nanoseconds kLeastPatience = 1'000'000;
  static constexpr Nanoseconds kMostPatience = 100'000'000;

  // What a look tells: nothing; what has one copy gets two; that this was right, or in vain.
  enum class Verdict : std::uint8_t { kNothing, kMove, kRight, kInVain };

  // `moves`: what one of the two moves of a thing takes.
  explicit UnwaitedCalls(Nanoseconds moves) : moves_(moves) {}

  // The program waits, or a call has waited. Without the lock.
  void waited() { waits_.fetch_add(1, std::memory_order_relaxed); }
  // Whether the next call looks. Without the lock.
  bool isDue() const { return due_.load(std::memory_order_relaxed); }

  // Whether it counts calls where nothing has one copy, either.
  bool tries() const { return tried_ != 0; }
  // Whether it is open, or has not been asked, if the newest moves were right.
  bool isOpen() const { return tries() || unjudged_; }
  // Calls were submitted until now.
  void called(Nanoseconds now, std::uint64_t calls) {
    noteWaits();
    if (!std::exchange(runs_, true)) {
      begun_ = newest_ = now;  // (it has taken no time yet)
      calls = 0;
    }
    save((now - std::min(now, newest_)) / kPrice);
    newest_ = now;
    calls_ += calls;
    if (calls_ >= next_ && (tried_ != 0 || canPay(kLeastPatience))) {
      due_.store(true, std::memory_order_relaxed);
    }
  }

  // A call looks, from now on: how long it may wait for the end of what is in flight.
  Nanoseconds patience(Nanoseconds now) {
    due_.store(false, std::memory_order_relaxed);
    looked_ = now;
    return std::clamp(static_cast<Nanoseconds>(std::max(saved_, std::int64_t{0})), kLeastPatience,
                      kMostPatience);
  }
  // It cannot look; or that has not ended by now.
  void cannot() {
    due_.store(false, std::memory_order_relaxed);
    next_ = 2 * std::max(next_, calls_);
  }
  void gaveUp(Nanoseconds now) {
    cannot();
    pay(now - std::min(now, looked_));
  }
  // It has ended now. `things`: how many have one copy.
  Verdict looks(Nanoseconds now, std::size_t things) {
    const Nanoseconds waited = now - std::min(now, looked_);
    pay(std::max(kLook, waited));
    noteWaits();
    due_.store(false, std::memory_order_relaxed);  // (other threads may have called meanwhile)
    if (!runs_ || (tried_ != 0 && calls_ < kFewest)) {
      return Verdict::kNothing;  // (another thread has waited meanwhile, or moved)
    }
    const Nanoseconds took = now - std::min(now, begun_);
    const Nanoseconds each = took / std::max(calls_, std::uint64_t{1});
    const bool first = !std::exchange(drained_, true);
    next_ = first ? kFirst : 2 * std::max(next_, calls_);
    begun_ = newest_ = now;
    calls_ = 0;
    if (const Nanoseconds before = std::exchange(tried_, 0); before != 0) {
      const bool right = each < before / 4 * kLess;
      save(right ? paid_ : 0);
      return right ? Verdict::kRight : Verdict::kInVain;
    }
    const Nanoseconds cost = std::min(2 * moves_ * things, Nanoseconds{kMostSaved / 2});
    if (first || things == 0 || each <= kShort || waited <= kBehind * each || took < cost / 2 ||
        !canPay(cost)) {
      return Verdict::kNothing;
    }
    pay(cost);
    paid_ = cost;
    tried_ = each;
    next_ = kFirst;
    return Verdict::kMove;
  }
  // These have moved by now; or none has.
  void moved(Nanoseconds now, bool any) {
    begun_ = newest_ = now;
    save(any ? 0 : paid_);
    tried_ = any ? tried_ : 0;
  }
  // Whether moves have not been judged, as the run has ended, since the last question; `waits`: it
  // ends now.
  bool takeUnjudged(bool waits) {
    unjudged_ = unjudged_ || (waits && tried_ != 0);
    tried_ = waits ? 0 : tried_;
    return std::exchange(unjudged_, false);
  }

 private:
  void save(Nanoseconds time) {
    saved_ = std::min(saved_ + static_cast<std::int64_t>(time), kMostSaved);
  }
  void pay(Nanoseconds time) { saved_ -= static_cast<std::int64_t>(time); }
  bool canPay(Nanoseconds time) const { return saved_ >= static_cast<std::int64_t>(time); }
  void noteWaits() {
    const std::uint64_t waits = waits_.load(std::memory_order_relaxed);
    if (waits == std::exchange(waitsThen_, waits)) {
      return;
    }
    unjudged_ = unjudged_ || tried_ != 0;
    runs_ = drained_ = false;
    calls_ = tried_ = 0;
    next_ = kFirst;
    due_.store(false, std::memory_order_relaxed);
  }

  const Nanoseconds moves_;
  std::atomic<std::uint64_t> waits_{0};
  std::atomic<bool> due_{false};
  std::uint64_t waitsThen_ = 0;
  bool runs_ = false;            // there is a run
  bool drained_ = false;         // it has been looked at
  std::uint64_t calls_ = 0;      // since then, or since its first
  std::uint64_t next_ = kFirst;  // so many, and the next call looks
  Nanoseconds begun_ = 0;        // these
  Nanoseconds newest_ = 0;       // call, or look
  Nanoseconds looked_ = 0;       // the newest look began
  Nanoseconds tried_ = 0;        // what calls took each before the moves; 0: there were none
  Nanoseconds paid_ = 0;         // for these
  bool unjudged_ = false;
  std::int64_t saved_ = kFirstSaved;  // nanoseconds
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_UNWAITED_CALLS_H_
