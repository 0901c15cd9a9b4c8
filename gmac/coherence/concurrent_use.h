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
//  - A round takes from the first call after a wait to the end of a wait for all calls since. It
//    is slow if it takes more than twice as long as a round took, with two copies, for the object
//    where that was shortest, plus `slack`. When a trial fails (round_trial.h), each object is
//    watched by itself.
//  - In each `interval` calls each object is closed once, and is watched until the CPU comes. The
//    interval is kLeastInterval at first. It doubles, up to kMostInterval, whenever the CPU has
//    come for as many as there are. As a check takes longer than a short kernel, there is one in
//    kLeastBetween calls at most; but after one for which the CPU has not come, there is one at
//    each call until it comes, and the interval starts anew. An object that the program copies from
//    or to is closed once in kLeastInterval copies, too.
//
// The bound: an object that the CPU comes for no longer costs kernels what they lose by one copy,
// less than half of their rounds, for at most as many calls as it has gained in, or kLeastBetween
// for each object.
#ifndef GMAC_COHERENCE_CONCURRENT_USE_H_
#define GMAC_COHERENCE_CONCURRENT_USE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

  explicit ConcurrentUse(const ZeroCopyLimits& limits) : limits_(limits) {}

  // A call is about to be submitted to a queue while there are `count` such objects; `calls`: since
  // the last one of which this was told, with it. Whether one of the objects, that which has not
  // been checked for longest, is to be closed.
  bool submits(Nanoseconds now, Queue queue, std::size_t count, std::size_t calls = 1) {
    if (begun_ == 0) {
      begun_ = now;
      queue_ = queue;
    } else if (queue != queue_) {
      queue_.reset();
    }
    calls_ += calls;
    if (calls_ * count < interval_ || (calls_ < kLeastBetween && cpuComes_)) {
      return false;
    }
    calls_ = 0;
    return true;
  }
  // A copy of the program's names such an object, as do programs whose CPU no longer looks itself:
  // once in kLeastInterval of them the object is to be closed.
  bool names() { return ++named_ % kLeastInterval == 0; }
  // The program, or a call, has waited for a queue; none: for all.
  Verdict ended(Nanoseconds now, std::optional<Queue> queue) {
    if (begun_ == 0 || (queue && queue != queue_)) {
      return Verdict::kOpen;
    }
    return judge(now - std::exchange(begun_, 0));
  }
  // A round, or rounds on average, whose begin and end were not told.
  Verdict took(Nanoseconds took) { return judge(took); }
  // A call has waited as long as it may, and its kernel still runs.
  Verdict tookTooLong() {
    begun_ = 0;
    return judge(patience() + 1);
  }
  // Whether calls were submitted for which nothing has waited yet.
  bool inRound() const { return begun_ != 0; }
  Nanoseconds patience() const { return 2 * before_ + limits_.slack; }

  // An object joins the others, `count` of them; `before`: what its rounds took with two copies.
  void joins(Nanoseconds before, std::size_t count) {
    before_ = count == 0 ? before : std::min(before_, before);
  }
  // What a check has found.
  void checked(bool came, std::size_t count) {
    cpuComes_ = came;
    if (!came) {
      interval_ = kLeastInterval;
      came_ = 0;
    } else if (++came_ >= count) {
      interval_ = std::min(2 * interval_, kMostInterval);
      came_ = 0;
    }
  }

 private:
  Verdict judge(Nanoseconds took) {
    const Verdict verdict = trial_.add(took, before_, patience());
    if (verdict == Verdict::kBad) {
      trial_ = {};
    }
    return verdict;
  }

  const ZeroCopyLimits limits_;
  RoundTrial trial_;
  Nanoseconds begun_ = 0;       // the first call since the last wait; 0: there was none
  std::optional<Queue> queue_;  // of all calls since; none: there are several
  Nanoseconds before_ = 0;      // the least of the objects'
  std::size_t calls_ = 0;       // since the last check
  std::size_t interval_ = kLeastInterval;
  std::size_t came_ = 0;   // checks in a row since the interval changed
  std::size_t named_ = 0;  // copies
  bool cpuComes_ = true;   // at the last check
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_CONCURRENT_USE_H_
