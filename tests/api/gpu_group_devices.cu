// SPDX-License-Identifier: Apache-2.0
//
// The kernels of the programs on several devices (devices_programs.h), for a GPU among them.
#include <cstdint>

__constant__ std::uint32_t addend = 1;

extern "C" {

__global__ void addTo(std::uint32_t* data, std::uint64_t count) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    data[i] += addend;
  }
}

__global__ void crash() { __trap(); }

}  // extern "C"
