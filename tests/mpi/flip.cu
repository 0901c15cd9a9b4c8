// SPDX-License-Identifier: Apache-2.0
//
// The kernel of shared.h for CUDA. Its host twin is there.
#include <stddef.h>

extern "C" __global__ void flip(unsigned char* bytes, size_t count) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    bytes[i] ^= 0x5a;
  }
}
