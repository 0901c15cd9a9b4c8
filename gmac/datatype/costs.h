// SPDX-License-Identifier: Apache-2.0
//
// What the ways across the bus cost on a device, and the choice between them.
#ifndef GMAC_DATATYPE_COSTS_H_
#define GMAC_DATATYPE_COSTS_H_

#include <cstdint>
#include <string>

#include "gmac/api/adsm_datatype.h"
#include "gmac/base/status.h"
#include "gmac/datatype/device.h"
#include "gmac/datatype/device_plan.h"
#include "gmac/datatype/layout.h"
#include "gmac/datatype/staging.h"

namespace gmac::datatype {

// A part of a layout on a device, and contiguous bytes on the CPU's side.
struct Crossing {
  const Layout* layout;
  std::int64_t bytes;  // of the part
  bool whole;          // the part is all of the layout
  bool pinned;         // kernels reach the CPU's side
  Direction direction;
};

// What the first step of the pipeline packs before there is anything to copy, in bytes per
// microsecond: short pieces far apart, the slowest.
inline constexpr double kFirstStepRate = 200e3;

// What a kernel needs for a piece at least, in microseconds: rows in memory that has to be opened
// for each (bench/pack_kernels, "reads alone"). The bus is busy meanwhile.
inline constexpr double kPieceCost = 2.4e-5;

// Every cost by its name in files. Microseconds; rates are bytes per microsecond. The defaults are
// those of an NVIDIA H200 behind PCIe 5.
#define GMAC_PACK_COSTS(X)                                           \
  X(launch, 4.0)        /* a kernel, to its end */                   \
  X(zeroCopyRate, 50e3) /* a kernel that writes pinned memory */     \
  X(readLaunch, 4.0)    /* a kernel that only reads pinned memory */ \
  X(zeroCopyReadRate, 40e3)                                          \
  X(copy, 5.0) /* a plain copy, to its end */                        \
  X(copyRate, 55e3)                                                  \
  X(copy2d, 5.0)       /* a strided copy, to its end */              \
  X(copy2dRow, 1.3e-3) /* one of its rows */                         \
  X(copy2dRate, 50e3)                                                \
  X(staged, 2.0) /* a copy behind a kernel, beyond both */

// Role: the costs of one device. A value.
struct Costs {
#define GMAC_PACK_COST(name, value) double name = value;
  GMAC_PACK_COSTS(GMAC_PACK_COST)
#undef GMAC_PACK_COST

  // The cheapest of adsmMethodKernel, adsmMethodCopy2d and adsmMethodStaged.
  adsmMethod_t choose(const Crossing& crossing) const;
};

// Whether the device's strided copy can do a part, and its rows.
bool fitsCopy2d(const Layout& layout, bool whole, std::int64_t* rows);

// Measures; some milliseconds on a device that has nothing else to do.
Result<Costs> measureCosts(Device& device, Staging& staging);

// The costs of a device as an earlier process has measured and stored them; else measured, and
// stored. What cannot be read or written is done without, and what cannot be measured has its
// default.
Costs costsOf(Device& device, Staging& staging);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_COSTS_H_
