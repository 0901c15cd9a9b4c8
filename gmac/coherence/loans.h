// SPDX-License-Identifier: Apache-2.0
//
// Bytes of objects that other processes read where they lie (MemoryPort::lend, lendOnDevice).
#ifndef GMAC_COHERENCE_LOANS_H_
#define GMAC_COHERENCE_LOANS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "gmac/coherence/lock.h"
#include "gmac/coherence/memory_port.h"

namespace gmac {

// How many loans there are, and how they are asked back. On the CPU they are holds that may last
// long, as others decide when they end: so whoever needs held blocks asks for them first. On the
// device an object knows which of its bytes are lent (Object::lent), and who may write these, or
// frees or moves the object, asks. Guarded by the lock of all objects.
class Loans {
 public:
  void begins(coherence::Lent lent) {
    ++of(lent).live;
    of(lent).triedAt = kNever;
  }
  void ends(coherence::Lent lent) { --of(lent).live; }
  bool any(coherence::Lent lent) const { return kinds_[static_cast<std::size_t>(lent)].live != 0; }

  // For a call that has found blocks held, or bytes lent: has the borrower give back what it has,
  // with the lock free meanwhile. True: what was known of objects must be looked up again. False:
  // the lock was held all the time, and there is nothing to do but to wait for a change.
  bool reclaim(Lock& lock, coherence::Lent lent) {
    const std::uint64_t now = lock.changes();
    if (of(lent).live == 0 || now == of(lent).triedAt) {
      return false;
    }
    of(lent).triedAt = now;
    const Free free(lock);
    coherence::reclaimLoans(lent);
    return true;
  }
  // The same, and that wait.
  void awaitReturn(Lock& lock, coherence::Lent lent) {
    if (!reclaim(lock, lent)) {
      lock.waitForChange();
    }
  }

 private:
  static constexpr std::uint64_t kNever = UINT64_MAX;
  struct Kind {
    std::uint64_t live = 0;
    // A loan that could not be given back (there was no memory for a copy) is not asked for again
    // until something has changed.
    std::uint64_t triedAt = kNever;
  };
  Kind& of(coherence::Lent lent) { return kinds_[static_cast<std::size_t>(lent)]; }

  std::array<Kind, 2> kinds_;  // by Lent
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_LOANS_H_
