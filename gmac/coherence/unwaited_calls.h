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
//    wait is longer than kBehind calls took each. If these took more than kShort each, as many of
//    the things that have one copy get two again as all these calls took `moves` for each, and as
//    can be paid for, but none if that is less than one in kPart.
//  - The next look, after kFirst calls, tells whether these took less than kLess of what the others
//    took. Else the moves were in vain, and what has moved needs less evidence to get one copy
//    again. So it does where the run ends before.
//  - Looks, and moves in vain, are paid for in advance: by a part of the time of all runs, one in
//    kPrice, and by kFirstSaved at first. No look takes longer than what is saved, kLeastPatience
//    and kMostPatience apart. A look is paid with all that it has waited, but kernels ran
//    meanwhile: the program has lost no more than what it does until the next look, or until it
//    waits, which it would have done beside these kernels. What is more is paid back then.
//
// Nor do rounds tell what should have one copy where accesses wait in the program's place: it
// stores a word before each call, and waits for none. So kTurns calls of a run that each take what
// the CPU came for (turns) are a round, once nothing is in flight as a call begins. Where, in
// kMostWorse of them in a row, calls take longer than before something got one copy so, that has
// two copies again.
//
// What gets one copy so is on trial first: the next kTrial calls, or those of two turns. Before
// each turn's call, or each kMostStep-th, what is in flight is waited for, as accesses have waited
// until then: kernels may reach one copy a hundred times more slowly, and many might be in flight
// before one has ended. As soon as the calls together have taken longer than all of them took
// before, and an eighth, it has two copies again; but not for one stretch between two of these
// waits, which something else may have held up, unless that is kMuch times as long. Then the next
// rounds of turns give nothing one copy: one at first, twice as many each time, until a trial is
// passed.
//
// The bound: looks and moves in vain take one in kPrice of the runs' time and kFirstSaved, but for
// the way back. A run whose kernels one copy makes slow pays for that in 2 * kFirst calls, or in as
// much time as its moves take; and where runs before have spent what was saved, in kPrice times as
// much. A trial that fails takes an eighth more than its calls took before, and one stretch, or
// kMostTimeouts times kTrialPatience, and the moves. (A wait of any thread ends the run. And where,
// by the time that it can pay, more is in flight than ends within kMostPatience, it pays until the
// program waits.)
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
  static constexpr std::uint64_t kTurns = 64;
  static constexpr std::uint32_t kMostTries = 32;
  static constexpr std::uint64_t kTrial = 16;
  static constexpr std::uint64_t kMostTrial = 128;
  static constexpr std::uint64_t kMostStep = 8;
  static constexpr Nanoseconds kMuch = 8;
  static constexpr Nanoseconds kTrialPatience = 200'000'000;
  static constexpr std::uint32_t kMostTimeouts = 5;
  static constexpr std::uint32_t kMostFailures = 10;
  static constexpr std::uint32_t kMostWorse = 2;
  static constexpr Nanoseconds kShort = 6'000;
  static constexpr std::uint64_t kLess = 7;  // eighths
  static constexpr std::size_t kPart = 4;
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

  // A call has taken what the CPU came for; `calls`: how many there have been in all. How many have
  // taken such bytes, in the run and since a round of them.
  std::uint64_t turned(Nanoseconds now, std::uint64_t calls) {
    noteWaits();
    if (turns_++ == 0) {
      turnsBegun_ = now;
      callsThen_ = calls;
    }
    if (turns_ > kTurns) {
      turnsAreDue_.store(true, std::memory_order_relaxed);
    }
    return turns_;
  }
  // Whether so many have that the next call may be a round's end. Without the lock.
  bool turnsAreDue() const { return turnsAreDue_.load(std::memory_order_relaxed); }
  // It is not, as something is in flight: one of the next may be.
  void turnsGoOn() {
    if (++tries_ == kMostTries) {
      endTurns();
    }
  }
  // It is. How many turns it was, what they took together, and how many calls; none: the program
  // has waited since.
  struct Turns {
    std::uint64_t count = 0;
    Nanoseconds took = 0;
    std::uint64_t calls = 0;
  };
  Turns takeTurns(Nanoseconds now, std::uint64_t calls) {
    noteWaits();
    const std::uint64_t count = turns_;
    endTurns();
    return count > kTurns ? Turns{count - 1, now - std::min(now, turnsBegun_),
                                  std::max(calls - callsThen_, count - 1)}
                          : Turns{};
  }
  // In a round of turns a call took longer than before something got one copy so, or not. Whether
  // that is to have two copies again.
  bool judgeTurns(bool longer) {
    worse_ = longer ? worse_ + 1 : 0;
    return worse_ == kMostWorse && std::exchange(worse_, 0) != 0;
  }

  // A round of turns has ended: whether it may give anything one copy.
  bool mayTry() {
    const bool rests = rests_ != 0;
    rests_ -= rests ? 1 : 0;
    return !rests;
  }
  // Something has got one copy as turns have told; `each`: what a call took before, `every`: how
  // many there are for a turn.
  void trialBegins(Nanoseconds now, Nanoseconds each, std::uint64_t every) {
    noteWaits();
    trial_ = {.calls = std::clamp(2 * every, kTrial, kMostTrial),
              .step = std::clamp(every, std::uint64_t{1}, kMostStep),
              .each = each + each / 8,
              .since = now};
    trial_.mayTake = trial_.calls * trial_.each;
    onTrial_.store(true, std::memory_order_relaxed);
  }
  // Whether something is on trial. Without the lock.
  bool onTrial() const { return onTrial_.load(std::memory_order_relaxed); }
  // A call comes: whether it waits for what is in flight.
  bool trialWaits() { return ++trial_.call >= trial_.step; }
  // It cannot: one of the next is to. Or what is in flight has not ended in kTrialPatience: the
  // next one goes on.
  void trialGoesOn() {
    if (++trial_.skipped >= kMostTries) {
      trialEnds();
    }
  }
  void trialTimesOut() {
    if (++trial_.timeouts >= kMostTimeouts) {
      trialEnds();
    }
  }
  // That has ended. What it tells of what is on trial: nothing yet; it gets two copies again; or it
  // is right. (A stretch in which the program has waited does not count.)
  Verdict tried(Nanoseconds now) {
    noteWaits();
    const Nanoseconds since = std::exchange(trial_.since, now);
    const std::uint64_t calls = std::exchange(trial_.call, 0);
    if (since == 0) {
      trialGoesOn();
      return Verdict::kNothing;
    }
    const Nanoseconds took = now - std::min(now, since);
    trial_.took += took;
    trial_.slow += took > calls * trial_.each ? 1 : 0;
    trial_.calls -= std::min(trial_.calls, calls);
    if (trial_.took > trial_.mayTake && (trial_.slow > 1 || trial_.took > kMuch * trial_.mayTake)) {
      failures_ = std::min(failures_ + 1, kMostFailures);
      rests_ = (std::uint32_t{1} << failures_) / 2;
      trialEnds();
      return Verdict::kMove;
    }
    if (trial_.calls != 0) {
      return Verdict::kNothing;
    }
    failures_ = 0;
    trialEnds();
    return Verdict::kRight;
  }

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
    payBack(now);
    looked_ = now;
    return std::clamp(static_cast<Nanoseconds>(std::max(saved_, std::int64_t{0})), kLeastPatience,
                      kMostPatience);
  }
  // The program waits from now on, where that makes a difference: under the lock, before waited().
  bool owes() const { return owed_ != 0; }
  void payBack(Nanoseconds now) {
    const Nanoseconds since = now - std::min(now, lookEnded_);
    save(owed_ - std::min(owed_, since));
    owed_ = 0;
  }
  // It cannot look; or that has not ended by now.
  void cannot() {
    due_.store(false, std::memory_order_relaxed);
    next_ = 2 * std::max(next_, calls_);
  }
  void gaveUp(Nanoseconds now) {
    cannot();
    pays(now, now - std::min(now, looked_));
  }
  // It has ended now. `things`: how many have one copy.
  Verdict looks(Nanoseconds now, std::size_t things) {
    const Nanoseconds waited = now - std::min(now, looked_);
    pays(now, std::max(kLook, waited));
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
      const bool right = each < before / 8 * kLess;
      save(right ? paid_ : 0);
      return right ? Verdict::kRight : Verdict::kInVain;
    }
    const auto saved = static_cast<Nanoseconds>(std::max(saved_, std::int64_t{0}));
    toMove_ = std::min(things, static_cast<std::size_t>(std::min(saved / 2, took) / moves_));
    if (first || toMove_ == 0 || kPart * toMove_ < things || each <= kShort ||
        waited <= kBehind * each) {
      return Verdict::kNothing;
    }
    paid_ = 2 * moves_ * toMove_;
    pay(paid_);
    tried_ = each;
    next_ = kFirst;
    return Verdict::kMove;
  }
  // How many of them move: the first ones.
  std::size_t toMove() const { return toMove_; }
  // These have moved by now; or none has.
  void moved(Nanoseconds now, bool any) {
    begun_ = newest_ = lookEnded_ = now;
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
  struct Trial {
    std::uint64_t calls = 0;  // so many more
    std::uint64_t step = 1;   // so many from one wait to the next
    Nanoseconds each = 0;     // what takes longer is slow
    Nanoseconds since = 0;    // the newest wait; 0: the program has waited since
    Nanoseconds mayTake = 0;  // all calls together
    Nanoseconds took = 0;     // so far
    std::uint64_t call = 0;   // since the newest wait
    std::uint32_t slow = 0;   // stretches
    std::uint32_t skipped = 0;
    std::uint32_t timeouts = 0;
  };
  void save(Nanoseconds time) {
    saved_ = std::min(saved_ + static_cast<std::int64_t>(time), kMostSaved);
  }
  // A look has ended.
  void pays(Nanoseconds now, Nanoseconds time) {
    pay(time);
    owed_ = time - std::min(time, kLook);
    lookEnded_ = now;
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
    endTurns();
    worse_ = 0;
    owed_ = 0;
    trial_.since = 0;
  }
  void trialEnds() { onTrial_.store(false, std::memory_order_relaxed); }
  void endTurns() {
    turns_ = tries_ = 0;
    turnsAreDue_.store(false, std::memory_order_relaxed);
  }

  const Nanoseconds moves_;
  std::atomic<std::uint64_t> waits_{0};
  std::atomic<bool> due_{false};
  std::atomic<bool> turnsAreDue_{false};
  std::atomic<bool> onTrial_{false};
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
  std::size_t toMove_ = 0;
  bool unjudged_ = false;
  std::int64_t saved_ = kFirstSaved;  // nanoseconds
  std::uint64_t turns_ = 0;           // since the newest round of them, or the run's begin
  Nanoseconds turnsBegun_ = 0;        // by the first of them
  std::uint64_t callsThen_ = 0;       // and with it
  std::uint32_t tries_ = 0;           // to end a round
  std::uint32_t worse_ = 0;           // rounds in a row
  Nanoseconds owed_ = 0;              // of what the newest look was paid with
  Nanoseconds lookEnded_ = 0;
  Trial trial_;
  std::uint32_t failures_ = 0;  // trials in a row
  std::uint32_t rests_ = 0;     // so many rounds of turns give nothing one copy
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_UNWAITED_CALLS_H_
