// SPDX-License-Identifier: Apache-2.0
//
// The benchmarks' kernels; for .cu files.
#ifndef GMAC_BENCH_KERNELS_H_
#define GMAC_BENCH_KERNELS_H_

extern "C" __global__ void nothing() {}

// Rounds of arithmetic, each of which needs the one before.
extern "C" __global__ void chain(unsigned* data, unsigned long long rounds) {
  unsigned x = *data;
  for (unsigned long long i = 0; i < rounds; ++i) x = x * 1664525 + 1013904223;
  *data = x;
}

extern "C" __global__ void addVectors(float* sum, const float* a, const float* b, size_t count) {
  const size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  if (i < count) sum[i] = a[i] + b[i];
}

#endif  // GMAC_BENCH_KERNELS_H_
