// SPDX-License-Identifier: Apache-2.0
//
// Several accelerators as one.
#ifndef GMAC_ACCEL_GROUP_GROUP_H_
#define GMAC_ACCEL_GROUP_GROUP_H_

#include <memory>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"

namespace gmac::accel {

// An accelerator whose devices (devices.h) are the members, in their order. They share addresses,
// and none reaches another one's memory: what moves goes through pinned memory of the CPU's. New
// memory is the first member's, or that of the first one with room. The first one may have streams
// of the application's, whose work uses what lies on it. Errors: those of pinned memory.
Result<std::unique_ptr<Accelerator>> makeGroup(std::vector<std::unique_ptr<Accelerator>> members);

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_GROUP_GROUP_H_
