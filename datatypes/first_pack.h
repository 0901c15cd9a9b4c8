// SPDX-License-Identifier: Apache-2.0
//
// The first pack of a kind in a process, which only a process of its own can measure.
#ifndef GMAC_DATATYPES_FIRST_PACK_H_
#define GMAC_DATATYPES_FIRST_PACK_H_

#include "datatypes/gpu.h"
#include "datatypes/workload.h"

namespace datatypes {

// Microseconds, the wait for the result included.
struct FirstPack {
  double first = 0;
  double later = 0;  // the median of the packs after it
};

// Rows of 8 bytes every 512, which other packs do not prepare for.
Workload firstPackWorkload(Place into);

// Measures in this process, in which short rows have not been packed into that place yet. Throws
// Failure.
FirstPack measureFirstPack(Gpu& gpu, Place into);
// Runs this program anew with --first-pack, and waits for it. Throws Failure.
FirstPack firstPackOfNewProcess(Place into);

}  // namespace datatypes

#endif  // GMAC_DATATYPES_FIRST_PACK_H_
