// SPDX-License-Identifier: Apache-2.0
//
// The conformance suite's kernels for CUDA, one file for the `cuda` accelerator (as an image) and
// for `cudart` (linked in).
#include <cstdint>

#include "gmac/api/adsm.h"  // registers this program's CUDA runtime

struct Node {
  Node* next;
  std::uint64_t value;
};

struct Wide {
  std::uint64_t words[511];
};

__constant__ std::uint32_t addend;

extern "C" {

__global__ void increment(std::uint32_t* data, std::uint64_t count, std::uint32_t by) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) data[i] += by;
}

__global__ void sumList(const Node* head, std::uint64_t* sum) {
  if (threadIdx.x != 0) return;
  std::uint64_t total = 0;
  for (const Node* node = head; node != nullptr; node = node->next) total += node->value;
  *sum = total;
}

__global__ void reverseBlocks(std::uint32_t* data) {
  extern __shared__ std::uint32_t staged[];
  std::uint32_t* const mine = data + std::uint64_t{blockIdx.x} * blockDim.x;
  staged[threadIdx.x] = mine[threadIdx.x];
  __syncthreads();
  mine[threadIdx.x] = staged[blockDim.x - 1 - threadIdx.x];
}

__global__ void addConstant(std::uint32_t* data, std::uint64_t count) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) data[i] += addend;
}

// 4 KiB of arguments in all.
__global__ void storeWide(Wide wide, std::uint64_t* out) {
  for (unsigned i = threadIdx.x; i < 511; i += blockDim.x) out[i] = wide.words[i];
}

__global__ void poke(std::uint32_t* address) { *address = 1; }

}  // extern "C"

// The functions and variables of the program's own CUDA runtime, which the `cudart` accelerator
// calls.
extern "C" {
const void* conformanceIncrement() { return reinterpret_cast<const void*>(&increment); }
const void* conformanceSumList() { return reinterpret_cast<const void*>(&sumList); }
const void* conformanceReverseBlocks() { return reinterpret_cast<const void*>(&reverseBlocks); }
const void* conformanceAddConstant() { return reinterpret_cast<const void*>(&addConstant); }
const void* conformanceStoreWide() { return reinterpret_cast<const void*>(&storeWide); }
const void* conformancePoke() { return reinterpret_cast<const void*>(&poke); }
const void* conformanceAddend() { return &addend; }
}
