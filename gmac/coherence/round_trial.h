// SPDX-License-Identifier: Apache-2.0
//
// Whether rounds (zero_copy_policy.h) take longer than they did before.
#ifndef GMAC_COHERENCE_ROUND_TRIAL_H_
#define GMAC_COHERENCE_ROUND_TRIAL_H_

#include <cstdint>

namespace gmac {

// A trial is kRounds rounds. It fails, at once, with more than kMostInARow slow rounds in a row or
// more than kMostSlow slow ones (in a row, those that take kVery times as long count twice), and in
// its last round if the others took longer than before on average. (The first kernel after another
// process has used the device is slow, and now and then one or two others are.) Guarded like its
// owner. Constant time, allocates nothing.
class RoundTrial {
 public:
  using Nanoseconds = std::uint64_t;
  enum class Verdict : std::uint8_t { kOpen, kGood, kBad };  // of a trial

  static constexpr std::uint32_t kRounds = 32;
  static constexpr std::uint32_t kMostSlow = 4;
  static constexpr std::uint32_t kMostInARow = 2;
  static constexpr std::uint32_t kVery = 8;

  // A round is over. `before`: what rounds took; one that takes longer than `patience` is slow.
  Verdict add(Nanoseconds took, Nanoseconds before, Nanoseconds patience) {
    ++rounds_;
    const bool slow = took > patience;
    inARow_ = !slow ? 0 : inARow_ + (took / kVery > patience ? 2 : 1);
    slow_ += slow ? 1 : 0;
    sum_ += slow ? 0 : took;
    before_ += slow ? 0 : before;
    if (inARow_ > kMostInARow || slow_ > kMostSlow) {
      return Verdict::kBad;
    }
    if (rounds_ < kRounds) {
      return Verdict::kOpen;
    }
    const bool gains = sum_ <= before_;
    rounds_ = slow_ = 0;
    sum_ = before_ = 0;
    return gains ? Verdict::kGood : Verdict::kBad;
  }
  // The next trial fails with its first round if that is slow.
  void suspect() { *this = RoundTrial(kMostInARow); }

  RoundTrial() = default;

 private:
  explicit RoundTrial(std::uint32_t inARow) : inARow_(inARow) {}

  Nanoseconds sum_ = 0;     // of this trial's rounds, but for slow ones
  Nanoseconds before_ = 0;  // what they would have taken before
  std::uint32_t rounds_ = 0;
  std::uint32_t slow_ = 0;  // of them
  std::uint32_t inARow_ = 0;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_ROUND_TRIAL_H_
