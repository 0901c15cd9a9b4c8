// SPDX-License-Identifier: Apache-2.0
//
// Bytes of objects that other processes read where they lie (Port::lend).
#ifndef GMAC_COHERENCE_LOANS_H_
#define GMAC_COHERENCE_LOANS_H_

#include <cstdint>

#include "gmac/coherence/lock.h"
#include "gmac/coherence/port.h"

namespace gmac {

// Loans are holds that may last long, as others decide when they end. So whoever needs held blocks
// asks for the loans back first. Guarded by the lock of all objects.
class Loans {
 public:
  void begins() {
    ++live_;
    triedAt_ = kNever;
  }
  void ends() { --live_; }

  // For a call that has found blocks held: has the borrower give back what it has, with the lock
  // free meanwhile. True: what was known of objects must be looked up again. False: the lock was
  // held all the time, and there is nothing to do but to wait for a change.
  bool reclaim(Lock& lock) {
    const std::uint64_t now = lock.changes();
    if (live_ == 0 || now == triedAt_) {
      return false;
    }
    triedAt_ = now;
    const Free free(lock);
    coherence::reclaimLoans();
    return true;
  }

 private:
  static constexpr std::uint64_t kNever = UINT64_MAX;

  std::uint64_t live_ = 0;
  // What could not be given back then (there was no memory for a copy) is not asked for again until
  // something has changed.
  std::uint64_t triedAt_ = kNever;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_LOANS_H_
