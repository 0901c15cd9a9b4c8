// SPDX-License-Identifier: Apache-2.0
//
// The costs of packing on a device, without measuring them there.
#ifndef GMAC_DATATYPE_ENGINE_DEVICE_CONSTANTS_H_
#define GMAC_DATATYPE_ENGINE_DEVICE_CONSTANTS_H_

#include <string_view>

#include "gmac/accel/accelerator.h"
#include "gmac/datatype/engine/costs.h"
#include "gmac/datatype/plan/issue_rate.h"

namespace gmac::datatype {

// The rate for a device of that name: a constant for devices that were measured, a formula of the
// traits for others. All zero where the traits do not say enough.
IssueRate issueRateOf(std::string_view name, const accel::DeviceTraits& traits);

// The costs of a device: those of the measured one, with rates in proportion to the link's.
Costs costsOf(const accel::DeviceTraits& traits);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_DEVICE_CONSTANTS_H_
