// SPDX-License-Identifier: Apache-2.0
//
// The choice of constants for rows that are asked for at a pace.
#ifndef GMAC_BENCH_PACK_KERNELS_PACED_SWEEP_H_
#define GMAC_BENCH_PACK_KERNELS_PACED_SWEEP_H_

#include "bench/pack_kernels/sweep.h"
#include "gmac/datatype/plan/device_plan.h"

namespace packbench {

// Prints the ten best of all hints, numbers of threads and intervals (cycles between two groups of
// 32 words; 0: no pace), after each of the works that leave caches differently: the same pack, the
// hand kernel, a kernel that writes all that lies between the rows, and one that writes something
// else. `launch` is a pack of rows of one or two words of 8 or 16 bytes.
void sweepPaced(const SweepTarget& target, const gmac::datatype::DeviceLaunch& launch);

}  // namespace packbench

#endif  // GMAC_BENCH_PACK_KERNELS_PACED_SWEEP_H_
