// SPDX-License-Identifier: Apache-2.0
//
// Which objects should have one copy, in the CPU's pages, which kernels reach over the bus
// (zero-copy memory).
//
// A program that stores a flag or a counter, launches a kernel, waits, and reads it, again and
// again, spends more time on copying these few bytes and on changing protections than the kernel
// takes. Where there is one copy, nothing is copied. But kernels reach it 4 to 135 times more
// slowly, so an object moves on evidence only, and moves back when the evidence is against it:
//
//  - A round is a launch that takes bytes which the CPU has fetched, and the wait of the program
//    after which the CPU comes again; once the object has moved, for the same few bytes. It takes
//    from the first launch that took these bytes from the CPU, or the first one on the
//    stream that is waited for, until that wait is over, so that a pause of the program is no part
//    of it. What two copies cost outside of that counts as well: a launch closes and flushes these
//    bytes first, and an access of the CPU, or the end of a wait, fetches and opens them. But no
//    more than the round itself takes, and not where threads keep each other waiting. (Where
//    threads launch kernels on streams of their own, others' launches take these bytes, and
//    accesses of the CPU wait for others' kernels: a round takes no longer than since the first
//    launch on the stream that is waited for, and on those that are not.) An object moves after
//    `leastRounds` << n rounds of at most `longest`, and `each` for each further time that a launch
//    takes such bytes then, of this object or another one (what takes longer has little to gain),
//    where n counts the times that it has moved back; after kMany times as many where it has more
//    than `few` bytes. Where launches take such bytes many times in a round, or threads keep each
//    other waiting, a quarter of `leastRounds` is enough if these rounds took `moves` << n, each
//    shared by the objects that had a round then; and so are kFewRounds << n rounds in which
//    launches took such bytes `leastRounds` << n times. (Where the program does not wait, many such
//    launches are a round: unwaited_calls.h.)
//  - Once moved, a round is slow that takes more than twice as long as rounds did before, plus
//    `slack`. The object moves back when a trial of its rounds fails (round_trial.h), and when
//    kMostIdle waits pass in which the CPU does not come. So does one whose rounds have become slow
//    (below), when kMostRoundless waits pass of which none ends a round: what comes for it then is
//    not the CPU for a few bytes, but, say, a driver that copies by the CPU for the program.
//  - Most of the time the CPU and kernels use a moved object at once, and nobody looks at it
//    (concurrent_use.h). Then its rounds are tried together with those of all such objects. When
//    these have become slow, it is watched by itself, closed by each call, until a trial of its own
//    succeeds.
//
// The bound: a wrong move costs the two moves, about a millisecond each, and at most nine slow
// rounds, two where they are very slow, or one trial of rounds that are longer than before and not
// slow; their kernels ran in at most that time from the device's memory. The n-th comes after at
// least `leastRounds` << n rounds, or launches, that cost more than they had to, or after rounds
// that took `moves` << n.
#ifndef GMAC_COHERENCE_ZERO_COPY_POLICY_H_
#define GMAC_COHERENCE_ZERO_COPY_POLICY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "gmac/coherence/options.h"
#include "gmac/coherence/round_trial.h"

namespace gmac {

// Of a wait: what its round took, from the first launch on the queue that it was for; and the most
// that the newest kernel can have taken, and those beside it.
struct KernelTimes {
  using Nanoseconds = RoundTrial::Nanoseconds;
  static constexpr Nanoseconds kUnknown = std::numeric_limits<Nanoseconds>::max();

  Nanoseconds round = kUnknown;
  Nanoseconds newest = kUnknown;
  bool contended = false;   // other threads wait, too, and may have kept this one waiting
  std::uint32_t turns = 1;  // the sum of those of all objects' rounds
  std::uint64_t calls = 1;  // of the round, by all threads
  std::uint64_t every = 0;  // not 0: no wait of the program ended it; so many calls for each turn
};

// Of one object; guarded like that. Constant time, allocates nothing.
class ZeroCopyPolicy {
 public:
  using Nanoseconds = std::uint64_t;
  enum class Advice : std::uint8_t { kStay, kMove };  // kMove: to the other kind of memory

  using Limits = ZeroCopyLimits;
  static constexpr std::uint32_t kMostIdle = 8;
  static constexpr std::uint32_t kMostRoundless = 32;
  static constexpr std::uint32_t kMostWrong = 20;
  static constexpr std::uint32_t kFew = 4;
  static constexpr std::uint32_t kManyTurns = 2;
  static constexpr std::uint32_t kFewRounds = 2;
  static constexpr std::uint32_t kMany = 4;

  // Of what has two copies: it took so long to close bytes of it for a launch, or to open them for
  // the CPU, waits for kernels aside.
  void costs(Nanoseconds took) { cost_ += begun_ == 0 || interrupted_ ? took : 0; }
  // A launch takes the bytes that the CPU came for.
  void launched(Nanoseconds now) {
    begun_ = now;
    interrupted_ = false;
    ++turns_;
  }
  // A call of the program's has waited for work of its own, and for what launches had taken: the
  // round begins with the next launch on the stream that is waited for then.
  void interrupted() { interrupted_ = begun_ != 0; }
  // Whether one has, since the last round ended.
  bool taken() const { return begun_ != 0 && (turns_ != 0 || inRound_); }
  // Of what has two copies: the CPU fetches bytes of it; a launch takes some. Whether it takes what
  // the CPU has come for.
  void fetched() { fetched_ = true; }
  bool isFetched() const { return fetched_; }
  bool takes(Nanoseconds now) {
    if (!std::exchange(fetched_, false)) {
      return false;
    }
    launched(now);
    return true;
  }
  // The same, but not the first kFew times: waits would have something to do for what is rare.
  bool takesAgain(Nanoseconds now) {
    if (!takes(now)) {
      return false;
    }
    few_ += few_ < kFew ? 1 : 0;
    return few_ == kFew;
  }
  // The CPU stores to bytes that it has, which the next launch is to see; and a launch takes these.
  // Only turns tell of such bytes (unwaited_calls.h).
  void stored() { stored_ = true; }
  bool takesStored(Nanoseconds now) {
    const bool takes = std::exchange(stored_, false);
    if (takes) {
      begun_ = now;
      ++storedTurns_;
    }
    return takes;
  }
  // The program does not wait: these are turns as well.
  void countsStored() { turns_ += std::exchange(storedTurns_, 0); }
  // The program waits, and the CPU will come for the bytes that it came for after the last wait.
  // How often launches have taken such bytes since then, at least once.
  std::uint32_t round() {
    inRound_ = true;
    idle_ = roundless_ = 0;
    storedTurns_ = 0;
    return roundTurns_ = std::max(std::exchange(turns_, 0), std::uint32_t{1});
  }
  // How often so far; and that this is no round.
  std::uint32_t turns() const { return turns_; }
  void passes() { begun_ = cost_ = turns_ = storedTurns_ = 0; }
  bool inRound() const { return inRound_; }
  // The wait that round() announced is over; `turns`: the sum of those of all objects; `queue`:
  // which it was for.
  // (And of how many bytes.)
  Advice finished(Nanoseconds now, const Limits& limits, std::uint32_t turns = 1,
                  const KernelTimes& kernels = {}, std::optional<std::uintptr_t> queue = {},
                  std::size_t bytes = 0) {
    Nanoseconds begun = std::exchange(begun_, 0);
    const bool interrupted = std::exchange(interrupted_, false);
    const Nanoseconds outside = std::exchange(cost_, 0);
    if (!std::exchange(inRound_, false) || begun == 0 || never_) {
      return Advice::kStay;
    }
    const bool known = kernels.round != KernelTimes::kUnknown;
    if (interrupted && !known) {
      return Advice::kStay;
    }
    begun = interrupted ? now - std::min(now, kernels.round) : begun;
    queue_ = queue;
    if (moved_) {
      const RoundTrial::Verdict verdict =
          trial_.add((known ? kernels.round : now - begun) / (every_ != 0 ? kernels.calls : 1),
                     before_, patience(limits));
      trusted_ = trusted_ || verdict == RoundTrial::Verdict::kGood;
      if (verdict != RoundTrial::Verdict::kBad) {
        return Advice::kStay;
      }
      trial_ = {};
      return ++bad_ % (1U << failed_) == 0 ? Advice::kMove : Advice::kStay;
    }
    // (Another thread's launch may have taken the bytes before the round, and the CPU may have come
    // for them between two launches of the round.)
    const Nanoseconds round = std::max(now - begun, known ? kernels.round : 0);
    const Nanoseconds took = round + (kernels.contended ? 0 : std::min(outside, round));
    const Nanoseconds ran = kernels.newest == KernelTimes::kUnknown ? round : kernels.newest;
    if (ran > limits.longest && ran - limits.longest > (turns - 1) * Nanoseconds{limits.each}) {
      rounds_ = kernels.contended ? rounds_ : 0;
      return Advice::kStay;
    }
    noteBefore(took, kernels);
    const Nanoseconds share = took / std::max(kernels.turns, roundTurns_) * roundTurns_;
    spent_ = rounds_ == 0 ? share : spent_ + share;
    taken_ = rounds_ == 0 ? roundTurns_ : taken_ + roundTurns_;
    ++rounds_;
    const std::uint64_t least = std::uint64_t{limits.leastRounds} << wrong_;
    const bool costly = kernels.contended || roundTurns_ >= kManyTurns;
    const bool often = roundTurns_ >= kManyTurns && taken_ >= least &&
                       rounds_ >= std::uint64_t{kFewRounds} << wrong_;
    const bool cost = costly && (rounds_ >= least / 4 || often) && spent_ >= limits.moves << wrong_;
    const bool many = bytes > limits.few && !costly;
    return rounds_ >= (many ? kMany * least : least) || cost ? Advice::kMove : Advice::kStay;
  }
  // For which queue the program waited in the newest round; none: for all work.
  std::optional<std::uintptr_t> queue() const { return queue_; }
  void isOn(std::optional<std::uintptr_t> queue) { queue_ = queue ? queue : queue_; }
  void isOnNoMore(std::uintptr_t queue) { queue_ = queue_ == queue ? std::nullopt : queue_; }
  // Not 0: turns for which the program did not wait have told that it should move, too, and there
  // were so many calls for each.
  std::uint64_t every() const { return every_; }
  // Once moved: what rounds took before, or calls where turns have told that it should move; and
  // that what takes longer is slow.
  Nanoseconds before() const { return before_; }
  Nanoseconds patience(const Limits& limits) const { return 2 * before_ + limits.slack; }
  // The program waits; perhaps no round begins.
  Advice waits() {
    const bool idle = moved_ && !open_ && idle_++ >= kMostIdle << failed_;
    const bool roundless = moved_ && !trusted_ && roundless_++ >= kMostRoundless << failed_;
    roundless_ = roundless ? 0 : roundless_;
    return idle || roundless ? Advice::kMove : Advice::kStay;
  }
  // The object has moved: to the CPU's pages, or back.
  void moved(bool toCpu) {
    wrong_ = !toCpu ? std::min(wrong_ + 1, kMostWrong) : wrong_;
    moved_ = trusted_ = came_ = toCpu;
    inRound_ = interrupted_ = fetched_ = stored_ = open_ = checked_ = ordered_ = false;
    rounds_ = 0;
    idle_ = roundless_ = unusedLives_ = failed_ = bad_ = 0;
    trial_ = {};
    begun_ = cost_ = turns_ = storedTurns_ = 0;
  }
  // It has moved back in vain, and its rounds were evidence enough: it moves with the next one.
  void movedBackInVain(const Limits& limits) {
    wrong_ -= wrong_ > 0 ? 1 : 0;
    rounds_ = kMany * (std::uint64_t{limits.leastRounds} << wrong_);
  }
  // Of a page, which is an object of its own only once it has moved: how often it has moved back.
  void movedBack(std::uint32_t times) { wrong_ = std::min(times, kMostWrong); }
  // Its rounds count as quick until those of all objects that are used at once say otherwise.
  void trust() { trusted_ = true; }
  bool trusted() const { return trusted_; }
  // The object is freed; `used`: device work came in its life, and so did the CPU, as far as
  // anybody has looked. Whether the next object, if it gets the memory, should have one copy from
  // its allocation on.
  bool outlives(bool used) {
    unusedLives_ = used ? 0 : unusedLives_ + 1;
    return unusedLives_ < kMostIdle;
  }
  // The next object begins where this one has ended. `sameThread`: as the thread that came for it.
  ZeroCopyPolicy forNext(bool sameThread) const {
    ZeroCopyPolicy next = *this;
    next.inRound_ = next.interrupted_ = next.fetched_ = next.stored_ = next.ordered_ = next.never_ =
        false;
    next.begun_ = next.cost_ = next.turns_ = next.storedTurns_ = 0;
    next.queue_ = sameThread ? queue_ : std::nullopt;
    return next;
  }
  // It cannot move. Where it could not go back, it tries again, ever more rarely.
  void stays() {
    never_ = !moved_;
    failed_ = moved_ ? std::min(failed_ + 1, kMostWrong) : 0;
    idle_ = roundless_ = bad_ = 0;
    trial_ = {};
  }

  // ---- Once moved: whether the CPU and kernels may use it at once

  // Not unless its rounds are known to be quick, and the CPU has come since it was last told.
  bool mayBeConcurrent() const { return trusted_ && came_; }
  // Whether they did so before.
  bool checked() const { return checked_; }
  // They do no longer, and all of it is open.
  void watched() {
    came_ = false;
    open_ = checked_ = true;
    idle_ = 0;
  }
  // The library is about to use its bytes for the program, after work that may use it: no wait and
  // no access of another thread's opens it meanwhile, but an access that has waited for that work.
  void ordered() {
    came_ = false;
    ordered_ = true;
  }
  void opensInOrder() { ordered_ = false; }
  // Whether an access may open it for the CPU and kernels at once; and then it does.
  bool mayJoinAtAccess() const { return trusted_ && !ordered_; }
  void comes() {
    came_ = true;
    idle_ = 0;
  }
  // That was because rounds became slow.
  void suspect() {
    trusted_ = false;
    roundless_ = 0;
    trial_.suspect();
  }
  // A call has closed it: the CPU had come, unless it was open all the time.
  void closed() {
    if (!std::exchange(open_, false)) {
      comes();
    }
  }

 private:
  void noteBefore(Nanoseconds took, const KernelTimes& kernels) {
    const bool calls = rounds_ != 0 && every_ != 0;
    if (kernels.every != 0) {
      const Nanoseconds each = took / std::max(kernels.calls, std::uint64_t{1});
      before_ = calls ? (7 * before_ + each) / 8 : each;
      every_ = kernels.every;
    } else if (calls) {
      before_ = (7 * before_ + took / (roundTurns_ * every_)) / 8;
    } else {
      before_ = rounds_ == 0 ? took : (7 * before_ + took) / 8;
      every_ = 0;
    }
  }

  Nanoseconds begun_ = 0;    // the launch of this round; 0: there was none
  Nanoseconds cost_ = 0;     // between the newest round and this one
  std::uint32_t turns_ = 0;  // such launches since the newest round()
  std::uint32_t storedTurns_ = 0;
  std::uint32_t roundTurns_ = 1;  // of that round
  Nanoseconds before_ = 0;        // what a round, or a call, takes with two copies: on average
  std::uint64_t every_ = 0;       // not 0: a call
  std::uint64_t rounds_ = 0;      // with two copies
  std::uint64_t taken_ = 0;       // how often launches took such bytes in these
  Nanoseconds spent_ = 0;         // what these took, of which this object has a share
  std::optional<std::uintptr_t> queue_;
  RoundTrial trial_;               // with one
  std::uint32_t idle_ = 0;         // waits since the CPU came
  std::uint32_t roundless_ = 0;    // waits since the last round
  std::uint32_t unusedLives_ = 0;  // of objects in this memory, one after another
  std::uint32_t wrong_ = 0;
  std::uint32_t failed_ = 0;  // moves back
  std::uint32_t bad_ = 0;     // trials since the newest of them
  bool moved_ = false;
  std::uint32_t few_ = 0;  // times that launches took such bytes, up to kFew
  bool inRound_ = false;
  bool interrupted_ = false;  // since begun_
  bool fetched_ = false;      // and no launch has taken anything since
  bool stored_ = false;
  bool never_ = false;
  bool trusted_ = false;  // its rounds are quick
  bool came_ = false;     // the CPU, since the object is watched
  bool open_ = false;     // until the next call closes it
  bool checked_ = false;
  bool ordered_ = false;  // the library is about to use it
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_ZERO_COPY_POLICY_H_
