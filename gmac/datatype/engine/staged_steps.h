// SPDX-License-Identifier: Apache-2.0
//
// Between device memory and CPU memory through staging buffers, as a pipeline (Jenkins et al.,
// section 4; Wu et al., section 5.1): while one step is copied across, the next is packed.
#ifndef GMAC_DATATYPE_ENGINE_STAGED_STEPS_H_
#define GMAC_DATATYPE_ENGINE_STAGED_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <list>

#include "gmac/base/status.h"
#include "gmac/datatype/engine/operation.h"
#include "gmac/datatype/engine/placement.h"
#include "gmac/datatype/engine/staging.h"
#include "gmac/datatype/engine/submissions.h"

namespace gmac::datatype {

// The pipeline of one operation. For the stack of one operation, which
// outlives it, and one thread.
class StagedSteps {
 public:
  StagedSteps(Staging& staging, const Operation& operation, const Placement& placement,
              Submissions& submissions, Outcome& outcome)
      : staging_(staging),
        op_(operation),
        placement_(placement),
        submissions_(submissions),
        outcome_(outcome) {}
  StagedSteps(const StagedSteps&) = delete;
  StagedSteps& operator=(const StagedSteps&) = delete;

  Status run(const Portion& portion);
  // Finishes all steps; afterwards pageable memory has its bytes.
  Status finish() { return drain(0); }

 private:
  struct Step {
    StagingSlot slot;
    std::int64_t offset;
    std::int64_t bytes;
  };

  Status pack(StagingSlot slot, std::int64_t offset, std::int64_t bytes);
  Status unpack(StagingSlot slot, std::int64_t offset, std::int64_t bytes);
  // Finishes steps until at most `left` are under way.
  Status drain(std::size_t left);

  Staging& staging_;
  const Operation& op_;
  const Placement& placement_;
  Submissions& submissions_;
  Outcome& outcome_;
  std::list<Step> steps_;  // nothing is allocated for most operations
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_STAGED_STEPS_H_
