// SPDX-License-Identifier: Apache-2.0
//
// Splits the blocks of objects of which the CPU touches a few places, and joins them again
// (split_policy.h).
#ifndef GMAC_COHERENCE_POLICIES_SPLITTING_H_
#define GMAC_COHERENCE_POLICIES_SPLITTING_H_

#include "gmac/accel/accelerator.h"
#include "gmac/coherence/blocks.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"

namespace gmac {

// Acts at the end of the program's waits, on objects of which the CPU has nothing open and whose
// flushes have finished: then a change of their blocks moves and protects nothing. Not for the
// fault handler.
class Splitting {
 public:
  Splitting(accel::Accelerator& accelerator, Blocks& blocks)
      : accelerator_(accelerator), blocks_(blocks) {}
  Splitting(const Splitting&) = delete;
  Splitting& operator=(const Splitting&) = delete;

  // The program has waited. May let the lock go. A hint: what fails leaves blocks as they
  // are, until the next wait.
  void afterWait(Lock& lock);

 private:
  bool mayChange(const Object& object) const;

  accel::Accelerator& accelerator_;
  Blocks& blocks_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_SPLITTING_H_
