// SPDX-License-Identifier: Apache-2.0
//
// The working set's kernel; for .cu files. Apart from the others as touch_kernel.h is.
#ifndef GMAC_BENCH_SWEEP_KERNEL_H_
#define GMAC_BENCH_SWEEP_KERNEL_H_

// Reads and writes all of it.
extern "C" __global__ void addOneToAll(unsigned* data, size_t words) {
  const size_t step = gridDim.x * static_cast<size_t>(blockDim.x);
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < words; i += step)
    ++data[i];
}

#endif  // GMAC_BENCH_SWEEP_KERNEL_H_
