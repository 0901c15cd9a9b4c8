// SPDX-License-Identifier: Apache-2.0
//
// Kernels that take their time before they read, so that what comes too early is seen.
#include <cstdint>

__constant__ std::uint32_t addend;

namespace {

__device__ void rest() {
  for (int i = 0; i < 20; ++i) __nanosleep(10'000);
}

__device__ std::uint64_t first() { return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

__device__ std::uint64_t stride() { return std::uint64_t{gridDim.x} * blockDim.x; }

}  // namespace

extern "C" {

__global__ void increment(std::uint32_t* data, std::uint64_t count) {
  rest();
  for (std::uint64_t i = first(); i < count; i += stride()) ++data[i];
}

__global__ void addTo(std::uint32_t* to, const std::uint32_t* from, std::uint64_t count) {
  rest();
  for (std::uint64_t i = first(); i < count; i += stride()) to[i] += from[i];
}

__global__ void addConstant(std::uint32_t* data, std::uint64_t count) {
  for (std::uint64_t i = first(); i < count; i += stride()) data[i] += addend;
}

}  // extern "C"
