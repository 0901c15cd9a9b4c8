// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_COHERENCE_CONCURRENT_OBJECTS_H_
#define GMAC_COHERENCE_CONCURRENT_OBJECTS_H_

#include <cstddef>
#include <cstdint>

#include "gmac/base/status.h"
#include "gmac/base/thread_number.h"
#include "gmac/coherence/blocks.h"
#include "gmac/coherence/concurrent_use.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"

namespace gmac {

// Opens objects with one copy for the CPU and kernels at once (concurrent_use.h). `unordered`: the
// program is one for managed memory, whose accesses have no order with kernels. Guarded by the lock
// of all objects. Fault path.
class ConcurrentObjects {
 public:
  ConcurrentObjects(const Ledger& ledger, Blocks& blocks, ConcurrentUse& use, bool unordered)
      : ledger_(ledger), blocks_(blocks), use_(use), unordered_(unordered) {}
  ConcurrentObjects(const ConcurrentObjects&) = delete;
  ConcurrentObjects& operator=(const ConcurrentObjects&) = delete;

  // Whether the object may join; the caller knows that the CPU comes for it, and what may run.
  static bool mayJoin(const Object& object) {
    return object.zeroCopy.mayBeConcurrent() && !object.sent && !object.closing &&
           !object.inTransit() && !object.held() && object.lent.empty() &&
           object.pagesReady(0, object.bytes());
  }
  Status join(Lock& lock, Object& object) {
    const std::size_t count = blocks_.concurrentObjects().size();
    GMAC_TRY(blocks_.beginConcurrent(lock, object));
    use_.joins(object.zeroCopy.before(), count, object.zeroCopy.queue(), object.zeroCopy.checked(),
               object.zeroCopy.every());
    if (object.zeroCopy.checked()) {
      use_.checked(true, count + 1);
    }
    return {};
  }
  // An object that is new, in the memory and with the one copy of one whose CPU and kernels used it
  // at once. One of so many, by chance, is the next to be checked: beside others that live longer
  // the turn of such an object would never come.
  Status joinAsBefore(Lock& lock, Object& object) {
    const std::size_t count = blocks_.concurrentObjects().size();
    constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15;
    const bool first = (object.number * kMix >> 32) % (count + 1) == 0;
    GMAC_TRY(blocks_.beginConcurrent(lock, object, first));
    use_.joins(object.zeroCopy.before(), count, object.zeroCopy.queue(), true,
               object.zeroCopy.every());
    return {};
  }
  // The CPU accesses an object, which joins if it may. Beside the program's kernels, where they
  // have no order with accesses: then the access waits for none of them, but not beside what the
  // library does for the program, nor beside copies, packs and the like, which name what they use.
  // Where calls wait for their kernels (`callsWait`), once nothing is in flight.
  bool joinAtAccess(Lock& lock, Object& object, bool callsWait) {
    if ((!unordered_ && !callsWait) || !object.isZeroCopy() || object.concurrent ||
        !object.zeroCopy.mayJoinAtAccess() || !(unordered_ ? kernelsAlone() : ledger_.quiet())) {
      return false;
    }
    object.comers.comes(threadNumber());
    object.zeroCopy.comes();
    return mayJoin(object) && join(lock, object).ok();
  }

 private:
  // Nothing else is in flight.
  bool kernelsAlone() const {
    return !ledger_.submissionUnderWay() && ledger_.runningCall().value == 0 &&
           ledger_.hostFunctionsRun() && !ledger_.namedWorkRuns();
  }

  const Ledger& ledger_;
  Blocks& blocks_;
  ConcurrentUse& use_;
  const bool unordered_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_CONCURRENT_OBJECTS_H_
