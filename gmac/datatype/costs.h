// SPDX-License-Identifier: Apache-2.0
//
// What the ways of moving a part cost on a device; the choice between them.
#ifndef GMAC_DATATYPE_COSTS_H_
#define GMAC_DATATYPE_COSTS_H_

#include <cstdint>

#include "gmac/adsm_datatype.h"
#include "gmac/datatype/device_plan.h"
#include "gmac/datatype/layout.h"

namespace gmac::datatype {

// A part of a layout on a device and contiguous bytes on the CPU's side.
struct Crossing {
  const Layout* layout;
  std::int64_t bytes;  // of the part
  bool whole;          // the part is all of the layout
  bool pinned;         // kernels reach the CPU's side
  Direction direction;
};

// Role: the measured costs of one device, in microseconds and bytes per microsecond. A value.
struct Costs {
  double launch = 4.0;         // a kernel, alone
  double zeroCopyRate = 47e3;  // a kernel that writes pinned memory
  double zeroCopyPiece = 0;    // a piece of a layout, by such a kernel
  double copy = 4.5;           // a copy, alone
  double copyRate = 55e3;      // of pinned memory
  double copy2d = 4.5;         // a strided copy, alone
  double copy2dRow = 0.0013;   // one row of it
  double copy2dRate = 55e3;    // its bytes
  double stagedStep = 6.0;     // a step of the pipeline: kernel, copy, and their order

  // The cheapest way of adsmMethodKernel, adsmMethodCopy2d, adsmMethodStaged.
  adsmMethod_t choose(const Crossing& crossing) const;
};

// Whether the device's strided copy can do a part, and its rows.
bool fitsCopy2d(const Layout& layout, bool whole, std::int64_t* rows);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_COSTS_H_
