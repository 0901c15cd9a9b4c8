// SPDX-License-Identifier: Apache-2.0
//
// The kinds of devices; for Device::make() and for tests.
#ifndef GMAC_DATATYPE_DEVICES_H_
#define GMAC_DATATYPE_DEVICES_H_

#include <memory>

#include "gmac/datatype/device.h"

namespace gmac::datatype {

// Any accelerator, by its own methods; kernels run as their host implementations. No streams of the
// application's, no strided copies.
Result<std::unique_ptr<Device>> makeHostDevice(accel::Accelerator& accelerator);
// `cuda` and `cudart`: the Driver API, in the accelerator's context.
Result<std::unique_ptr<Device>> makeCudaDevice(accel::Accelerator& accelerator);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_DEVICES_H_
