// SPDX-License-Identifier: Apache-2.0
//
// When something that has failed is tried again: it may succeed a moment later, and a system that
// refuses it for good is asked less and less often.
#ifndef GMAC_EXCHANGE_ATTEMPTS_H_
#define GMAC_EXCHANGE_ATTEMPTS_H_

#include <algorithm>
#include <cstdint>

namespace gmac::exchange {

// Of one thing. Not thread-safe.
class Attempts {
 public:
  // After n failures so many turns, twice as many each time, pass before the next attempt.
  static constexpr std::uint64_t kMostSkipped = 1024;

  // Asked at each turn. Takes the turn.
  bool mayTry() {
    if (left_ == 0) {
      return true;
    }
    --left_;
    return false;
  }
  void failed() {
    skipped_ = std::clamp<std::uint64_t>(2 * skipped_, 1, kMostSkipped);
    left_ = skipped_;
  }

 private:
  std::uint64_t skipped_ = 0;  // after the last attempt, in all
  std::uint64_t left_ = 0;     // of these
};

}  // namespace gmac::exchange

#endif  // GMAC_EXCHANGE_ATTEMPTS_H_
