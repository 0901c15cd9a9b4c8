// SPDX-License-Identifier: Apache-2.0
//
// The costs of the methods that cross the bus of a device, and the choice between them.
#ifndef GMAC_DATATYPE_ENGINE_COSTS_H_
#define GMAC_DATATYPE_ENGINE_COSTS_H_

#include <cstdint>

#include "gmac/api/adsm_datatype.h"
#include "gmac/base/status.h"
#include "gmac/datatype/engine/staging.h"
#include "gmac/datatype/layout/layout.h"
#include "gmac/datatype/plan/device_plan.h"

namespace gmac::datatype {

// A part of a layout on a device, and contiguous bytes on the CPU's side.
struct Crossing {
  const Layout* layout;
  std::int64_t bytes;  // of the part
  bool whole;          // the part is all of the layout
  bool pinned;         // kernels can access the CPU's side
  Direction direction;
};

// The rate at which the first step of the pipeline packs, before there is anything to copy, in
// bytes per microsecond: of short pieces far apart, the slowest.
inline constexpr double kFirstStepRate = 200e3;

// The least time of a kernel for a piece, in microseconds: short rows that each open a DRAM row,
// read alone. The bus is busy meanwhile.
inline constexpr double kPieceCost = 2.4e-5;

// The costs of one device, in microseconds; rates are bytes per microsecond. The defaults were
// measured on an NVIDIA H200 with 16 lanes of PCI Express 5. A value.
struct Costs {
  double launch = 9.0;           // a kernel that writes pinned memory, until it has ended
  double zeroCopyRate = 52.8e3;  // of its bytes
  double readLaunch = 9.9;       // a kernel that only reads pinned memory
  double zeroCopyReadRate = 51.9e3;
  double copy = 6.5;  // a plain copy, until it has ended
  double copyRate = 55.5e3;
  double copy2d = 6.4;        // a strided copy, until it has ended
  double copy2dRow = 1.4e-3;  // each of its rows
  double copy2dRate = 55.6e3;

  // The cheapest of adsmMethodKernel, adsmMethodCopy2d and adsmMethodStaged.
  adsmMethod_t choose(const Crossing& crossing) const;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_COSTS_H_
