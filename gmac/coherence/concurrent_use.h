// SPDX-License-Identifier: Apache-2.0
//
// Objects with one copy (zero_copy_policy.h) that the CPU and kernels use at once.
//
// They are open for the CPU as a whole, and calls pass over them: however many there are, a call
// and a wait take no longer for them. A kernel and the CPU see each other's writes, since there is
// one copy; what is lost is that an access of the CPU waits for kernels. So a call waits for its
// kernel itself (prompt_waits.h), or closes them. Where the program is one for CUDA's managed
// memory, which has no such order either, nothing waits.
//
// What is not looked at may go wrong unseen, so there is one trial of rounds for all, and one after
// another is checked:
//
//  - A round takes from the first call on a stream after a wait to the end of the next wait for
//    that stream, or, where a wait is for all, from the first of all these calls. It is slow if it
//    takes more than twice as long as a round took, with two copies, for the object where that was
//    shortest, plus `slack`. (Where several streams are in use, a round is compared with those of
//    its own stream, and one of an unknown stream with none.) When a trial fails (round_trial.h),
//    each object is watched by itself.
//  - Where several threads wait, each stream has a trial of its own, and the objects whose rounds
//    were on it move back when that fails on average. A thread's round may take longer as another
//    thread keeps the runtime busy: it is not slow if the time from one wait for its stream to the
//    next is at most kLessThan of what it was with two copies. (Of a new stream that is the least
//    that it was for another one.) Where a stream that no object's rounds are on is slow, all
//    objects move back, but only after kMostFailed trials: its thread may have two copies yet, and
//    wait for the others.
//  - Where an object has got one copy as accesses waited in the program's place, it is known what a
//    call took then, and how many calls there were for each time that the CPU came (`every`). Until
//    no such object is left a round's calls are compared with that, each: with less, where checks
//    find that the CPU comes more rarely, and with kCall more, as a call takes that anyhow.
//  - In each `interval` calls each object is closed once, and is watched until the CPU comes. The
//    interval is kLeastInterval at first. It doubles, up to kMostInterval, whenever the CPU has
//    come for as many as there are. As a check takes longer than a few short kernels, there is one
//    in kLeastBetween calls at most, which doubles, up to kMostBetween, with each that the CPU has
//    come for; but after one for which it has not, there is one at each call until it comes, and
//    all this starts anew. An object that the program copies from or to is closed once in
//    kLeastInterval copies, too.
//
// The bound: an object that the CPU comes for no longer costs kernels what they lose by one copy,
// less than half of their rounds, for at most as many calls as it has gained in, or kMostBetween
// for each object.
#ifndef GMAC_COHERENCE_CONCURRENT_USE_H_
#define GMAC_COHERENCE_CONCURRENT_USE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "gmac/coherence/options.h"
#include "gmac/coherence/round_trial.h"

namespace gmac {

// Of all objects; guarded by their lock. Constant time, allocates nothing.
class ConcurrentUse {
 public:
  using Nanoseconds = RoundTrial::Nanoseconds;
  using Verdict = RoundTrial::Verdict;
  // Of calls: the library's own, or a stream of the program's.
  using Queue = std::uintptr_t;
  static constexpr Queue kOwnQueue = UINTPTR_MAX;

  static constexpr std::size_t kLeastInterval = 64;
  static constexpr std::size_t kMostInterval = 4096;
  static constexpr std::size_t kLeastBetween = 64;
  static constexpr std::size_t kMostBetween = 512;
  static constexpr Nanoseconds kLessThan = 3;  // quarters
  static constexpr std::uint32_t kSeveral = 256;
  static constexpr std::uint32_t kMostFailed = 4;
  static constexpr Nanoseconds kCall = 5'000;
  static constexpr std::size_t kMostIntervalUnwaited = 512;

  explicit ConcurrentUse(const ZeroCopyLimits& limits) : limits_(limits) {}

  // A call is about to be submitted to a queue while there are `count` such objects; `calls`: since
  // the last one of which this was told, with it. Whether one of the objects, that which has not
  // been checked for longest, is to be closed.
  bool submits(Nanoseconds now, Queue queue, std::size_t count, std::size_t calls = 1) {
    begins(now, queue);
    calls_ += calls;
    if (calls_ * count < interval_ || (calls_ < between_ && cpuComes_)) {
      return false;
    }
    calls_ = 0;
    return true;
  }
  // How many calls there are before that, with this one.
  std::size_t callsToCheck(std::size_t count) const {
    const std::size_t due = (interval_ + count - 1) / count;
    const std::size_t most = cpuComes_ ? std::max(due, between_) : due;
    return most - std::min(most, calls_);
  }
  // A copy of the program's names such an object, as do programs whose CPU no longer looks itself:
  // once in kLeastInterval of them the object is to be closed.
  bool names() { return ++named_ % kLeastInterval == 0; }
  // A call that is to be measured, though there are no such objects yet.
  void begins(Nanoseconds now, Queue queue) {
    if (Round* const own = roundOf(queue); own != nullptr) {
      own->newest = now;
    } else if (count_ < kMostRounds) {
      several_ = count_ > 0 ? kSeveral : several_;
      rounds_[count_++] = {queue, now, now, 0};
    }
  }
  // One that begins() or submits() has told of is submitted.
  void submitted(Queue queue) {
    if (Round* const own = roundOf(queue); own != nullptr) {
      ++own->calls;
    }
  }
  // The program, or a call, has waited for a queue; none: for all. What the round took, unless
  // there was none.
  std::optional<Nanoseconds> roundEnds(Nanoseconds now, std::optional<Queue> queue) {
    Nanoseconds begun = now;
    const auto gone = std::remove_if(rounds_.begin(), rounds_.begin() + count_, [&](Round& round) {
      const bool ended = !queue || round.queue == *queue;
      begun = ended ? std::min(begun, round.begun) : begun;
      return ended;
    });
    const auto left = static_cast<std::size_t>(gone - rounds_.begin());
    if (std::exchange(count_, left) == left) {
      return std::nullopt;
    }
    several_ -= several_ > 0 ? 1 : 0;
    return now - begun;
  }
  Verdict ended(Nanoseconds now, std::optional<Queue> queue) {
    const std::optional<Nanoseconds> took = roundEnds(now, queue);
    return took ? judge(*took, queue) : Verdict::kOpen;
  }
  // Since the newest call of the rounds that a wait for a queue, or for all, would end.
  Nanoseconds sinceNewest(Nanoseconds now, std::optional<Queue> queue) const {
    Nanoseconds newest = 0;
    std::for_each(rounds_.begin(), rounds_.begin() + count_, [&](const Round& round) {
      newest = !queue || round.queue == *queue ? std::max(newest, round.newest) : newest;
    });
    return now - std::min(now, newest);
  }
  // How long those have taken so far that have not ended.
  Nanoseconds longestRound(Nanoseconds now) const {
    return longest(now, [](const Round&) { return std::uint64_t{1}; });
  }
  // The same for each call.
  Nanoseconds longestUnderWay(Nanoseconds now) const {
    return longest(now, [](const Round& round) { return std::max(round.calls, std::uint64_t{1}); });
  }
  // While there are no such objects: what a round on a queue took that has ended now.
  void tookBefore(Nanoseconds now, Queue queue, Nanoseconds took) {
    Known* known = find(queue);
    if (known == nullptr) {
      known = &add(queue, took);
      known->cycle = 0;  // its own
    } else {
      known->before = std::max(took, known->before - known->before / 8);
    }
    const Nanoseconds cycle = known->cycles(now);
    known->cycle = known->cycle == 0 ? cycle : (7 * known->cycle + cycle) / 8;
    known->cycleNow = known->cycle;
  }
  // Those that have begun say nothing: something else took its time.
  void forgetRounds() {
    count_ = 0;
    for (Known& known : known_) {
      known.ended = known.sum = known.mayTake = 0;
      known.rounds = 0;
    }
  }
  // Those of some queues do not, as who knows when their calls ended.
  template <typename Ended>
  void forgetIf(Ended ended) {
    const auto gone = std::remove_if(rounds_.begin(), rounds_.begin() + count_,
                                     [&](const Round& round) { return ended(round.queue); });
    count_ = static_cast<std::size_t>(gone - rounds_.begin());
  }
  // The queue is no more; another one may get its number.
  void forget(Queue queue) {
    forgetIf([&](Queue other) { return other == queue; });
    if (Known* const known = find(queue); known != nullptr) {
      *known = {};
    }
  }
  // While there is an object for which accesses have waited: what a call may take.
  Nanoseconds beforeOfCall() const {
    return before_ * every_ / std::max(everyNow_, every_) + kCall;
  }
  // A round of so many calls that has ended now; `queue`: that was waited for; none: all.
  // `contended`: several threads wait.
  Verdict took(Nanoseconds now, Nanoseconds took, std::optional<Queue> queue, bool contended,
               std::uint64_t calls = 1) {
    if ((!contended || !queue) && unwaited()) {
      const Nanoseconds before = beforeOfCall();
      return judge(took / std::max(calls, std::uint64_t{1}), before);
    }
    if (!contended || !queue) {
      return judge(took, queue);
    }
    Known* known = find(*queue);
    if (known == nullptr) {
      known = &add(*queue, before_);
    }
    known->cycleNow = (known->cycleNow + known->cycles(now)) / 2;
    const bool gains = known->cycle != 0 && known->cycleNow <= known->cycle / 4 * kLessThan;
    return known->adds(gains ? std::min(took, known->before) : took, patience(known->before));
  }
  // Whether many trials of a queue have failed, one after another; then they are counted anew.
  bool failsLong(Queue queue) {
    Known* const known = find(queue);
    if (known != nullptr && known->failed < kMostFailed) {
      return false;
    }
    if (known != nullptr) {
      known->failed = 0;
    }
    return true;
  }
  // A call has waited as long as it may, and its kernel still runs.
  Verdict tookTooLong() {
    count_ = 0;
    return judge(patience() + 1, std::nullopt);
  }
  // Rounds on a queue that go on without the lock of all objects (unlocked_rounds.h).
  struct Unlocked {
    Nanoseconds begun = 0;     // the one that has not ended; 0: there is none
    std::uint64_t calls = 0;   // of it
    std::uint64_t rounds = 0;  // that have ended, and were not slow
    Nanoseconds took = 0;      // together
    Nanoseconds ended = 0;     // the newest of them
    bool several = false;      // they overlapped those of another queue
  };
  // They do so from now on: what has begun. What takes longer than patienceOf() is slow, and comes
  // back.
  Unlocked leaves(Queue queue) {
    const Round* const own = roundOf(queue);
    const Unlocked begun = own == nullptr ? Unlocked{} : Unlocked{own->begun, own->calls};
    forgetIf([queue](Queue other) { return other == queue; });
    return begun;
  }
  Nanoseconds patienceOf(std::optional<Queue> queue, bool contended) {
    if (!queue || (!contended && several_ == 0)) {
      return patience();
    }
    const Known* known = find(*queue);
    if (known == nullptr && contended) {
      known = &add(*queue, before_);
    }
    return known == nullptr ? std::numeric_limits<Nanoseconds>::max() : patience(known->before);
  }
  // They do no longer. None: of rounds that waits for all have ended.
  Verdict comesBack(std::optional<Queue> queue, const Unlocked& of, bool contended) {
    if (of.begun != 0 && queue) {
      begins(of.begun, *queue);
      Round* const own = roundOf(*queue);
      if (own != nullptr) {
        own->begun = std::min(own->begun, of.begun);
        own->calls += of.calls;
      }
    }
    if (of.rounds == 0) {
      return Verdict::kOpen;
    }
    several_ =
        of.several
            ? kSeveral
            : several_ - static_cast<std::uint32_t>(std::min<std::uint64_t>(several_, of.rounds));
    Known* const known = contended && queue ? find(*queue) : nullptr;
    if (known != nullptr) {
      known->goesOn(of.rounds, of.ended);
    }
    Verdict verdict = Verdict::kOpen;
    const auto most = std::min<std::uint64_t>(of.rounds, RoundTrial::kRounds);
    for (std::uint64_t i = 0; i < most && verdict == Verdict::kOpen; ++i) {
      const Nanoseconds took = of.took / of.rounds;
      verdict = known != nullptr ? known->adds(took, patience(known->before)) : judge(took, queue);
    }
    return verdict;
  }
  // Whether calls were submitted to a queue for which nothing has waited yet.
  bool begunOn(Queue queue) { return roundOf(queue) != nullptr; }
  // On how many queues.
  std::size_t roundsBegun() const { return count_; }
  Nanoseconds patience() const { return patience(before_); }

  // An object joins the others, `count` of them; `before`: what its rounds took with two copies,
  // and for which queue the program waited then; `again`: after a check; `every`: not 0 where
  // accesses waited in the program's place: then `before` is of a call.
  void joins(Nanoseconds before, std::size_t count, std::optional<Queue> queue = {},
             bool again = false, std::uint64_t every = 0) {
    if (count == 0 && !again) {
      forgetRounds();
      every_ = 0;
    }
    if (count == 0) {
      before_ = before;
    }
    if (every != 0 && !unwaited()) {
      every_ = everyNow_ = every;
    }
    before_ = std::min(before_, before);
    if (queue && find(*queue) == nullptr) {
      add(*queue, before);
    }
  }
  // Whether there is an object for which accesses have waited; and that there is none any more.
  bool unwaited() const { return every_ != 0; }
  // `before`: the least of what rounds took for the others.
  void noneUnwaited(Nanoseconds before) {
    every_ = 0;
    before_ = before;
  }
  Nanoseconds before() const { return before_; }
  // What a check has found.
  void checked(bool came, std::size_t count) {
    between_ = came && cpuComes_ ? std::min(2 * between_, kMostBetween) : kLeastBetween;
    cpuComes_ = came;
    if (came && unwaited()) {
      everyNow_ = (3 * everyNow_ + 2 * calls_ + 1) / 4;  // (it may come at any of them)
    }
    if (!came) {
      interval_ = kLeastInterval;
      came_ = 0;
    } else if (++came_ >= count) {
      interval_ = std::min(2 * interval_, unwaited() ? kMostIntervalUnwaited : kMostInterval);
      came_ = 0;
    }
  }

 private:
  // Of a queue: the first call since the last wait for it, and the newest.
  struct Round {
    Queue queue{};
    Nanoseconds begun = 0;
    Nanoseconds newest = 0;
    std::uint64_t calls = 0;
  };
  // Those of further queues are not measured. (No more streams are known at a time: kMaxStreams.)
  static constexpr std::size_t kMostRounds = 64;

  Round* roundOf(Queue queue) {
    const auto end = rounds_.begin() + count_;
    const auto found = std::find_if(rounds_.begin(), end,
                                    [&](const Round& round) { return round.queue == queue; });
    return found == end ? nullptr : &*found;
  }
  // The longest that one has taken so far, by what it counts for.
  template <typename CountOf>
  Nanoseconds longest(Nanoseconds now, CountOf countOf) const {
    Nanoseconds longest = 0;
    std::for_each(rounds_.begin(), rounds_.begin() + count_, [&](const Round& round) {
      longest = std::max(longest, (now - std::min(now, round.begun)) / countOf(round));
    });
    return longest;
  }

  // What rounds on a queue took with two copies: the longest ones lately. And the time from the end
  // of one to that of the next: then, and now.
  struct Known {
    // Since the round before; one that the program does something else in between says little.
    Nanoseconds cycles(Nanoseconds now) {
      const Nanoseconds since = std::exchange(ended, now);
      const Nanoseconds took = since == 0 ? cycle : now - std::min(now, since);
      return cycle == 0 ? took : std::min(took, 2 * cycle);
    }
    // So many rounds have ended of which it was not told, the newest one then.
    void goesOn(std::uint64_t rounds, Nanoseconds then) {
      const Nanoseconds since = std::exchange(ended, then);
      if (since != 0 && since < then) {
        const Nanoseconds took = (then - since) / rounds;
        cycleNow = (cycleNow + (cycle == 0 ? took : std::min(took, 2 * cycle))) / 2;
      }
    }
    // A trial is kRounds rounds, and fails if they are slow on average: of those that another
    // thread has kept waiting there may be many in a row.
    Verdict adds(Nanoseconds took, Nanoseconds patience) {
      sum += took;
      mayTake += patience;
      if (++rounds < RoundTrial::kRounds) {
        return Verdict::kOpen;
      }
      rounds = 0;
      const bool slow = std::exchange(sum, 0) > std::exchange(mayTake, 0);
      failed = slow ? failed + 1 : 0;
      return slow ? Verdict::kBad : Verdict::kGood;
    }
    std::optional<Queue> queue;
    Nanoseconds before = 0;
    Nanoseconds ended = 0;  // the newest round; 0: it says nothing of the next one's cycle
    Nanoseconds cycle = 0;
    Nanoseconds cycleNow = 0;
    std::uint32_t rounds = 0;  // of the trial
    Nanoseconds sum = 0;       // what they took
    Nanoseconds mayTake = 0;
    std::uint32_t failed = 0;  // trials in a row
  };
  Known* find(Queue queue) {
    const auto found = std::find_if(known_.begin(), known_.end(),
                                    [&](const Known& one) { return one.queue == queue; });
    return found == known_.end() ? nullptr : &*found;
  }
  // In place of the one that is known for longest.
  Known& add(Queue queue, Nanoseconds before) {
    const Nanoseconds cycle = leastCycle();
    Known& known = known_[std::exchange(oldest_, (oldest_ + 1) % known_.size())];
    known = {};
    known.queue = queue;
    known.before = before;
    known.cycle = known.cycleNow = cycle;
    return known;
  }
  // 0: no cycle is known.
  Nanoseconds leastCycle() const {
    Nanoseconds least = 0;
    for (const Known& known : known_) {
      least = known.cycle != 0 && (least == 0 || known.cycle < least) ? known.cycle : least;
    }
    return least;
  }
  Nanoseconds patience(Nanoseconds before) const { return 2 * before + limits_.slack; }

  Verdict judge(Nanoseconds took, std::optional<Queue> queue) {
    Nanoseconds before = before_;
    if (several_ > 0 && queue) {
      const Known* const own = find(*queue);
      if (own == nullptr) {
        return Verdict::kOpen;
      }
      before = own->before;
    }
    return judge(took, before);
  }
  Verdict judge(Nanoseconds took, Nanoseconds before) {
    const Verdict verdict = trial_.add(took, before, patience(before));
    if (verdict == Verdict::kBad) {
      trial_ = {};
    }
    return verdict;
  }

  const ZeroCopyLimits limits_;
  RoundTrial trial_;
  std::array<Round, kMostRounds> rounds_;  // that have begun
  std::size_t count_ = 0;
  std::uint32_t several_ = 0;  // not 0: there were two at a time, within the last kSeveral
  std::array<Known, kMostRounds> known_;
  std::size_t oldest_ = 0;
  Nanoseconds before_ = 0;  // the least of the objects'
  std::uint64_t every_ = 0;
  std::uint64_t everyNow_ = 0;
  std::size_t calls_ = 0;  // since the last check
  std::size_t interval_ = kLeastInterval;
  std::size_t between_ = kLeastBetween;
  std::size_t came_ = 0;   // checks in a row since the interval changed
  std::size_t named_ = 0;  // copies
  bool cpuComes_ = true;   // at the last check
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_CONCURRENT_USE_H_
