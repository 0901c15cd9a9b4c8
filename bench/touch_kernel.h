// SPDX-License-Identifier: Apache-2.0
//
// The access patterns' kernel; for .cu files. Apart from the others because a kernel is defined
// once in a program, and two files of the benchmark's are compiled for the CUDA runtime.
#ifndef GMAC_BENCH_TOUCH_KERNEL_H_
#define GMAC_BENCH_TOUCH_KERNEL_H_

extern "C" __global__ void touchPages(unsigned* data, size_t bytes) {
  const size_t page = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  if (page * 4096 < bytes) ++data[page * (4096 / sizeof(unsigned))];
}

#endif  // GMAC_BENCH_TOUCH_KERNEL_H_
