// SPDX-License-Identifier: Apache-2.0
//
// Before the kernel has no mappings left for the program, and where it has none: blocks become
// larger.
#ifndef GMAC_COHERENCE_POLICIES_COARSENING_H_
#define GMAC_COHERENCE_POLICIES_COARSENING_H_

#include <cstddef>
#include <optional>

#include "gmac/base/status.h"
#include "gmac/coherence/freed_memory.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/mapping_use.h"
#include "gmac/coherence/object.h"

namespace gmac {

class Blocks;
class Ledger;

// Decides which object's blocks are joined, and when. Functions with a lock may let it go: kRetry
// then. Fault path.
class Coarsening {
 public:
  Coarsening(ObjectIndex& index, Ledger& ledger, MappingUse& mappings, FreedMemory& freed,
             Blocks& blocks)
      : index_(index), ledger_(ledger), mappings_(mappings), freed_(freed), blocks_(blocks) {}
  Coarsening(const Coarsening&) = delete;
  Coarsening& operator=(const Coarsening&) = delete;

  // Before blocks are opened one by one: joins blocks of the object that has the most mappings
  // where the objects would otherwise take those that are the program's. Waits for no kernel: an
  // object that one may write is passed over, and so is one that others are using. kDone also where
  // nothing can be joined.
  Result<Step> leaveMappings(Lock& lock, std::size_t more = MappingUse::kOfAChange);
  // Before an object is made. adsmErrorHostMemory: there is no mapping for it.
  Status leaveMappingsForObject(Lock& lock);
  // After a change failed: kRetry where the kernel's limit of mappings was the reason, and blocks
  // have been joined, or closed; else the failure.
  Result<Step> retry(Lock& lock, Status failed);

 private:
  Status coarsen(Lock& lock);
  Status join(Lock& lock, Object& object);
  bool closeParts(Lock& lock);

  ObjectIndex& index_;
  Ledger& ledger_;
  MappingUse& mappings_;
  FreedMemory& freed_;
  Blocks& blocks_;
  std::optional<std::size_t> nothingToJoinAt_;  // about so many edges
  // The object that was closed in place of being joined, and the newest work by then.
  std::uint64_t closedLast_ = 0;
  std::uint64_t closedAt_ = 0;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_COARSENING_H_
