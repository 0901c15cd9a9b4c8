// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "gmac/accel/digest/mix.h"

using gmac::accel::digest::add;
using gmac::accel::digest::Sums;

namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kMostWarps = 32;

__device__ unsigned long long sumOfWarp(unsigned long long value) {
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_down_sync(0xffffffffu, value, distance);
  }
  return value;
}

}  // namespace

// One thread block digests one slice of one block of the object. Whole warps only.
extern "C" __global__ void gmacDigest(const ulonglong2* pairs, std::uint64_t objectBytes,
                                      std::uint64_t blockBytes, std::uint64_t sliceBytes,
                                      std::uint64_t slices, std::uint64_t firstBlock, Sums* sums,
                                      std::uint64_t subtract) {
  __shared__ Sums ofWarp[kMostWarps];
  const std::uint64_t index = firstBlock + blockIdx.x / slices;
  const std::uint64_t begin = index * blockBytes + blockIdx.x % slices * sliceBytes;
  std::uint64_t end = begin + sliceBytes;
  end = end < (index + 1) * blockBytes ? end : (index + 1) * blockBytes;
  end = end < objectBytes ? end : objectBytes;
  Sums own{};
#pragma unroll 4
  for (std::uint64_t at = begin / sizeof *pairs + threadIdx.x; at < end / sizeof *pairs;
       at += blockDim.x) {
    const ulonglong2 pair = pairs[at];
    add(own, pair.x, 2 * at);
    add(own, pair.y, 2 * at + 1);
  }
  own = {sumOfWarp(own.low), sumOfWarp(own.high)};
  if (threadIdx.x % kWarp == 0) ofWarp[threadIdx.x / kWarp] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) {
    own.low += ofWarp[warp].low;
    own.high += ofWarp[warp].high;
  }
  if (subtract != 0) own = {0 - own.low, 0 - own.high};
  atomicAdd(reinterpret_cast<unsigned long long*>(&sums[index].low), own.low);
  atomicAdd(reinterpret_cast<unsigned long long*>(&sums[index].high), own.high);
}
