// SPDX-License-Identifier: Apache-2.0
//
// How this program fails: loudly, at the first thing that is wrong.
#ifndef GMAC_BENCH_PACK_KERNELS_CHECK_H_
#define GMAC_BENCH_PACK_KERNELS_CHECK_H_

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define CHECK_CUDA(call)                                                 \
  do {                                                                   \
    if (const cudaError_t error_ = (call); error_ != cudaSuccess) {      \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
                   cudaGetErrorString(error_));                          \
      std::exit(1);                                                      \
    }                                                                    \
  } while (false)

#endif  // GMAC_BENCH_PACK_KERNELS_CHECK_H_
