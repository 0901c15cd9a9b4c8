// SPDX-License-Identifier: Apache-2.0
//
// The kernels of random_program_test.cc for CUDA, as a module (`cuda`) and in the test's own CUDA
// runtime (`cudart`). Their host twins are in the test.
#include <stdint.h>

#include "gmac/api/adsm.h"

extern "C" __global__ void transformBytes(uint8_t* data, uint64_t count, uint64_t key) {
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    data[i] = static_cast<uint8_t>(data[i] * 3 + key + i);
  }
}

extern "C" __global__ void addBytes(uint8_t* to, const uint8_t* from, uint64_t count) {
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    to[i] = static_cast<uint8_t>(to[i] + from[i]);
  }
}

// The kernels as the CUDA runtime knows them.
extern "C" const void* randomProgramTransformBytes() {
  return reinterpret_cast<const void*>(&transformBytes);
}
extern "C" const void* randomProgramAddBytes() { return reinterpret_cast<const void*>(&addBytes); }
