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
//  - A round is a wait of the program after which the CPU comes for the same few bytes again. It
//    takes from the first launch that took these bytes from the CPU until that wait is over, so
//    that a pause of the program is no part of it. An object moves after `leastRounds` << n rounds
//    of at most `longest`, and `each` for each further object that has a round then (what takes
//    longer has little to gain), where n counts the times that it has moved back.
//  - Once moved, a round is slow that takes more than twice as long as rounds did before, plus
//    `slack`. The object moves back when kMostInARow + 1 rounds in a row are slow; when more than
//    kMostSlow of kTrialRounds are, or the others took longer than before; and when kMostIdle waits
//    pass without a round. (The first kernel after another process has used the device is slow, and
//    now and then one or two others are.)
//
// The bound: a wrong move costs the two moves, about a millisecond each, and at most five slow
// rounds, whose kernels ran in at most that time from the device's memory. The n-th comes after at
// least `leastRounds` << n rounds that cost more than they had to.
#ifndef GMAC_COHERENCE_ZERO_COPY_POLICY_H_
#define GMAC_COHERENCE_ZERO_COPY_POLICY_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "gmac/coherence/options.h"

namespace gmac {

// Of one object; guarded like that. Constant time, allocates nothing.
class ZeroCopyPolicy {
 public:
  using Nanoseconds = std::uint64_t;
  enum class Advice : std::uint8_t { kStay, kMove };  // kMove: to the other kind of memory

  using Limits = ZeroCopyLimits;
  static constexpr std::uint32_t kTrialRounds = 32;
  static constexpr std::uint32_t kMostSlow = 4;
  static constexpr std::uint32_t kMostInARow = 2;
  static constexpr std::uint32_t kMostIdle = 8;
  static constexpr std::uint32_t kMostWrong = 20;

  // A launch takes the bytes that the CPU came for.
  void launched(Nanoseconds now) { begun_ = now; }
  // The program waits, and the CPU will come for the bytes that it came for after the last wait.
  void round() {
    inRound_ = true;
    idle_ = 0;
  }
  // The wait that round() announced is over; `objects`: of how many it did.
  Advice finished(Nanoseconds now, const Limits& limits, std::uint32_t objects = 1) {
    if (std::exchange(kept_, Advice::kStay) == Advice::kMove) {
      return Advice::kMove;
    }
    const Nanoseconds begun = std::exchange(begun_, 0);
    if (!std::exchange(inRound_, false) || begun == 0 || never_) {
      return Advice::kStay;
    }
    const Nanoseconds took = now - begun;
    if (!moved_) {
      if (took > limits.longest &&
          took - limits.longest > (objects - 1) * Nanoseconds{limits.each}) {
        rounds_ = 0;
        return Advice::kStay;
      }
      before_ = rounds_ == 0 ? took : (7 * before_ + took) / 8;
      return ++rounds_ >= std::uint64_t{limits.leastRounds} << wrong_ ? Advice::kMove
                                                                      : Advice::kStay;
    }
    ++rounds_;
    const bool slow = took > patience(limits);
    inARow_ = slow ? inARow_ + 1 : 0;
    slow_ += slow ? 1 : 0;
    sum_ += slow ? 0 : took;
    if (inARow_ > kMostInARow || slow_ > kMostSlow) {
      return Advice::kMove;
    }
    if (rounds_ < kTrialRounds) {
      return Advice::kStay;
    }
    const bool gains = sum_ <= (rounds_ - slow_) * before_;
    rounds_ = slow_ = 0;
    sum_ = 0;
    return gains ? Advice::kStay : Advice::kMove;
  }
  // The same where a call has waited for its kernel. The advice is kept for the next finished();
  // whether it is kMove.
  bool finishedInCall(Nanoseconds now, const Limits& limits) {
    kept_ = finished(now, limits);
    return kept_ == Advice::kMove;
  }
  // Once moved: a round that takes longer is slow.
  Nanoseconds patience(const Limits& limits) const { return 2 * before_ + limits.slack; }
  // The program waits; perhaps no round begins.
  Advice waits() { return moved_ && idle_++ >= kMostIdle ? Advice::kMove : Advice::kStay; }
  // The object has moved: to the CPU's pages, or back.
  void moved(bool toCpu) {
    wrong_ = !toCpu ? std::min(wrong_ + 1, kMostWrong) : wrong_;
    moved_ = toCpu;
    inRound_ = false;
    rounds_ = slow_ = inARow_ = idle_ = 0;
    kept_ = Advice::kStay;
    begun_ = sum_ = 0;
  }
  // It cannot move.
  void stays() { never_ = true; }

 private:
  Nanoseconds begun_ = 0;   // the launch of this round; 0: there was none
  Nanoseconds before_ = 0;  // what a round takes with two copies: a moving average
  Nanoseconds sum_ = 0;     // of the rounds of this trial, but for slow ones
  std::uint64_t rounds_ = 0;
  std::uint32_t slow_ = 0;  // of this trial's rounds
  std::uint32_t inARow_ = 0;
  std::uint32_t idle_ = 0;  // waits since the last round
  std::uint32_t wrong_ = 0;
  Advice kept_ = Advice::kStay;  // of a call
  bool moved_ = false;
  bool inRound_ = false;
  bool never_ = false;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_ZERO_COPY_POLICY_H_
