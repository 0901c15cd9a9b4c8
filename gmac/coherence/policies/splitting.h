// SPDX-License-Identifier: Apache-2.0
//
// Splits the blocks of objects of which the CPU touches a few places, and joins them again
// (split_policy.h).
#ifndef GMAC_COHERENCE_POLICIES_SPLITTING_H_
#define GMAC_COHERENCE_POLICIES_SPLITTING_H_

#include "gmac/accel/accelerator.h"
#include "gmac/coherence/blocks.h"
#include "gmac/coherence/object.h"

namespace gmac {

class Ledger;

// Acts at the end of the program's waits, on objects of which the CPU has nothing open and whose
// flushes have finished: then a change of their blocks moves and protects nothing. Not for the
// fault handler.
class Splitting {
 public:
  Splitting(accel::Accelerator& accelerator, Ledger& ledger, Blocks& blocks)
      : accelerator_(accelerator), ledger_(ledger), blocks_(blocks) {}
  Splitting(const Splitting&) = delete;
  Splitting& operator=(const Splitting&) = delete;

  // The program has waited; under the lock. A hint: what cannot be changed now stays as it is.
  void afterWait();

 private:
  bool mayChange(const Object& object) const;

  accel::Accelerator& accelerator_;
  Ledger& ledger_;
  Blocks& blocks_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_SPLITTING_H_
