// SPDX-License-Identifier: Apache-2.0
//
// Whether the CPU still comes at once for what stays open, which nobody sees (prompt_waits.h).
//
// Where accesses have been prompt, a late wait of the program for a call that has waited itself is
// no miss: the access that would tell has met an open object. After some of them a call does not
// wait, and closes the object: that is a look. An access answers it, or a late wait or another call
// without one; a prompt wait does not, since others are in question. (What comes after calls that
// do not look says little of the others: those that are seen are late ones above all.)
//
//  - Looks come after kLeast late waits at most, and once an access has been seen to be prompt,
//    after twice as many as there were before it, up to kMost. Each comes at a time by chance in
//    the second half of that, so that a program whose rounds have a period cannot keep being seen
//    at its prompt ones. After a late answer the next call looks as well.
//  - More than kMostLate late answers in kTrial: accesses are not prompt.
//  - A look that only prompt waits have met, kTrial of them, ends: the program is one that waits,
//    and its late waits are misses from then on.
#ifndef GMAC_COHERENCE_UNSEEN_ACCESSES_H_
#define GMAC_COHERENCE_UNSEEN_ACCESSES_H_

#include <algorithm>
#include <cstdint>

namespace gmac {

// Of all calls of the process; guarded by the lock of all objects. Constant time, allocates
// nothing.
class UnseenAccesses {
 public:
  static constexpr std::uint32_t kLeast = 32;
  static constexpr std::uint32_t kMost = 512;
  static constexpr std::uint32_t kTrial = 32;
  static constexpr std::uint32_t kMostLate = 4;

  UnseenAccesses() = default;

  // Whether accesses have been prompt, so that late waits may be no misses.
  bool expected() const { return most_ != 0; }
  // Whether the next call is to look.
  bool looks() const { return looks_; }
  // Nothing is known; a trial begins.
  void forget() { *this = UnseenAccesses(chance_); }
  void tryAnew() {
    unseen_ = answers_ = late_ = 0;
    looks_ = false;
  }

  // A late wait for a call that has waited itself; a prompt one for any.
  void unseen() { looks_ = ++unseen_ >= next_; }
  void waited() {
    if (looks_ && ++waits_ == kTrial) {
      forget();
    }
  }
  // An access was prompt, after a call that looked or another one. For how many unseen rounds it
  // speaks. (Others change nothing: looks would come where these do not.)
  std::uint32_t prompt(bool looked) {
    if (expected() && !looked) {
      return 0;
    }
    const std::uint32_t unseen = unseen_;
    most_ = std::clamp(std::max(most_, 2 * unseen_), kLeast, kMost);
    answer();
    looks_ = false;
    return unseen;
  }
  // After a call that looked one was late, or none came. Whether too many were.
  bool late() {
    if (!expected()) {
      return false;
    }
    ++late_;
    const bool many = late_ > kMostLate;
    most_ = kLeast;
    answer();
    looks_ = true;
    return many;
  }

 private:
  explicit UnseenAccesses(std::uint32_t chance) : chance_(chance) {}

  void answer() {
    chance_ = chance_ * 1664525 + 1013904223;
    next_ = most_ / 2 + (chance_ >> 16) % (most_ / 2 + 1);
    unseen_ = waits_ = 0;
    if (++answers_ == kTrial) {
      answers_ = late_ = 0;
    }
  }

  std::uint32_t chance_ = 1;
  std::uint32_t most_ = 0;     // unseen rounds before a look; 0: accesses are not expected
  std::uint32_t next_ = 0;     // so many, this time
  std::uint32_t unseen_ = 0;   // since the newest answer
  std::uint32_t answers_ = 0;  // of this trial
  std::uint32_t late_ = 0;     // of them
  std::uint32_t waits_ = 0;    // prompt ones during looks, since the newest answer
  bool looks_ = false;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_UNSEEN_ACCESSES_H_
