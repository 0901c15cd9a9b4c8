// SPDX-License-Identifier: Apache-2.0
//
// By which method a device copies from another device's memory.
#ifndef GMAC_DATATYPE_ENGINE_LINK_COSTS_H_
#define GMAC_DATATYPE_ENGINE_LINK_COSTS_H_

#include <cstdint>

#include "gmac/api/adsm_datatype.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::datatype {

// For the part [offset, offset + bytes), in packed order, of both layouts: adsmMethodCopy for one
// piece, which the copy engine moves faster than any kernel; adsmMethodCopy2d where that engine
// takes the layouts and has few bytes, in few rows; else adsmMethodKernel, which loads over the
// link.
adsmMethod_t methodOverLink(const Layout& to, const Layout& from, std::int64_t offset,
                            std::int64_t bytes);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_LINK_COSTS_H_
