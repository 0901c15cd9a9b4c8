// SPDX-License-Identifier: Apache-2.0
//
// From a layout to the one launch that unpacks a message while it arrives.
#ifndef GMAC_DATATYPE_PLAN_ARRIVAL_PLAN_H_
#define GMAC_DATATYPE_PLAN_ARRIVAL_PLAN_H_

#include <cstdint>
#include <optional>

#include "gmac/datatype/kernels/arrival_params.h"
#include "gmac/datatype/kernels/pack_kernels.h"
#include "gmac/datatype/plan/device_plan.h"

namespace gmac::datatype {

// The first bytes of the plan's layout, in packed order, which arrive in the slots of a ring.
struct ArrivalJob {
  std::int64_t bytes = 0;
  std::uint64_t strided = 0;       // address of the layout's offset 0
  std::uint64_t ring = 0;          // a multiple of 16
  std::int64_t fragmentBytes = 0;  // of a slot: a multiple of 4096
  std::uint32_t slots = 0;         // 1 to kMaxArrivalSlots
  std::uint64_t words = 0;         // device addresses of the ArrivalWords and the ArrivalState
  std::uint64_t state = 0;
  std::uint64_t firstPatience = 0;  // nanoseconds, until the first fragment is there
  std::uint64_t patience = 0;       // and after that, until another one is
};

struct ArrivalLaunch {
  ArrivalKernelId kernel;
  ArrivalParams params;
};

// Empty: there is no kernel for it. There is one for rows in one dimension that consist of words of
// 4 bytes or more, in whole words, and for fragments of whole chunks, or of one. Allocates nothing;
// thread-safe.
std::optional<ArrivalLaunch> makeArrivalLaunch(const DevicePlan& plan, const ArrivalJob& job);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_PLAN_ARRIVAL_PLAN_H_
