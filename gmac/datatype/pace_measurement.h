// SPDX-License-Identifier: Apache-2.0
//
// Finds the pace at which a device's memory opens rows best.
#ifndef GMAC_DATATYPE_PACE_MEASUREMENT_H_
#define GMAC_DATATYPE_PACE_MEASUREMENT_H_

#include "gmac/base/status.h"
#include "gmac/datatype/device.h"
#include "gmac/datatype/row_pace.h"

namespace gmac::datatype {

// Some 270 kernels of 60 us, and 1 GiB of the device's memory meanwhile. `processors` are the
// device's. adsmErrorSystem when others use the device at the same time.
Result<RowPace> measurePace(Device& device, const Multiprocessors& processors);

// The pace of a device as an earlier process has measured and stored it; else measured, and stored.
// What cannot be measured is not known: all zero.
RowPace paceOf(Device& device);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_PACE_MEASUREMENT_H_
