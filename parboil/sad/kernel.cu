// SPDX-License-Identifier: Apache-2.0
#include "parboil/sad/sad.h"

// All three kernels: one block of kThreads threads per macroblock, each thread every kThreads-th
// displacement, so that neighbouring threads write neighbouring SADs.
using parboil::sad::k16x16;
using parboil::sad::k16x8;
using parboil::sad::k4x4;
using parboil::sad::k4x8;
using parboil::sad::k8x16;
using parboil::sad::k8x4;
using parboil::sad::k8x8;
using parboil::sad::kDisplacements;
using parboil::sad::kMacroblock;
using parboil::sad::kNoSad;
using parboil::sad::kPartitions;
using parboil::sad::kPositions;
using parboil::sad::kRange;
using parboil::sad::kSide;
using parboil::sad::kThreads;
using parboil::sad::kWindow;

namespace {

__device__ std::uint16_t* macroblockSads(std::uint16_t* sads) {
  const std::size_t macroblock = static_cast<std::size_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  return sads + macroblock * kPartitions * kPositions;
}

__device__ std::uint32_t pack(const std::uint16_t (&samples)[4]) {
  return (samples[0] & 255u) | (samples[1] & 255u) << 8 | (samples[2] & 255u) << 16 |
         (samples[3] & 255u) << 24;
}

}  // namespace

// Four samples are compared at a time. `window` holds at each place the samples of that place and
// of the three to its right, so that any displacement reads aligned words.
extern "C" __global__ void __launch_bounds__(parboil::sad::kThreads)
    sadSearch4x4(const std::uint16_t* current, const std::uint16_t* reference, std::uint16_t* sads,
                 std::uint32_t width, std::uint32_t height) {
  constexpr int kPlaces = kWindow - 3;
  __shared__ std::uint32_t block[kMacroblock][kMacroblock / 4];
  __shared__ std::uint32_t window[kWindow][kPlaces];
  const int left = static_cast<int>(blockIdx.x) * kMacroblock;
  const int top = static_cast<int>(blockIdx.y) * kMacroblock;

  for (int i = static_cast<int>(threadIdx.x); i < kMacroblock * kMacroblock / 4; i += kThreads) {
    const int y = i / (kMacroblock / 4);
    const int x = i % (kMacroblock / 4);
    std::uint16_t samples[4];
    for (int k = 0; k < 4; ++k)
      samples[k] = current[static_cast<std::size_t>(top + y) * width + left + 4 * x + k];
    block[y][x] = pack(samples);
  }
  for (int i = static_cast<int>(threadIdx.x); i < kWindow * kPlaces; i += kThreads) {
    const int y = i / kPlaces;
    const int x = i % kPlaces;
    const std::uint16_t* line =
        reference +
        static_cast<std::size_t>(parboil::sad::clampTo(top + y - kRange, height)) * width;
    std::uint16_t samples[4];
    for (int k = 0; k < 4; ++k)
      samples[k] = line[parboil::sad::clampTo(left + x + k - kRange, width)];
    window[y][x] = pack(samples);
  }
  __syncthreads();

  std::uint16_t* out = macroblockSads(sads);
  for (int p = static_cast<int>(threadIdx.x); p < kPositions; p += kThreads) {
    const bool inRange = p < kDisplacements;
    const int dy = inRange ? p / kSide : 0;
    const int dx = inRange ? p % kSide : 0;
#pragma unroll
    for (int partition = 0; partition < 16; ++partition) {
      const int x0 = partition % 4;
      const int y0 = partition / 4 * 4;
      std::uint32_t sum = 0;
#pragma unroll
      for (int y = 0; y < 4; ++y)
        sum += __vsadu4(block[y0 + y][x0], window[y0 + y + dy][4 * x0 + dx]);
      out[(k4x4 + partition) * kPositions + p] = inRange ? static_cast<std::uint16_t>(sum) : kNoSad;
    }
  }
}

extern "C" __global__ void __launch_bounds__(parboil::sad::kThreads)
    sadCombine8x8(std::uint16_t* sads) {
  std::uint16_t* macroblock = macroblockSads(sads);
  for (int p = static_cast<int>(threadIdx.x); p < kPositions; p += kThreads) {
    const bool inRange = p < kDisplacements;
    const auto put = [=](int partition, unsigned sum) {
      macroblock[partition * kPositions + p] = inRange ? static_cast<std::uint16_t>(sum) : kNoSad;
    };
    unsigned small[4][4];
    for (int i = 0; i < 16; ++i) small[i / 4][i % 4] = macroblock[(k4x4 + i) * kPositions + p];
    for (int y = 0; y < 4; ++y) {
      for (int x = 0; x < 2; ++x) put(k8x4 + 2 * y + x, small[y][2 * x] + small[y][2 * x + 1]);
    }
    for (int y = 0; y < 2; ++y) {
      for (int x = 0; x < 4; ++x) put(k4x8 + 4 * y + x, small[2 * y][x] + small[2 * y + 1][x]);
      for (int x = 0; x < 2; ++x) {
        put(k8x8 + 2 * y + x, small[2 * y][2 * x] + small[2 * y][2 * x + 1] +
                                  small[2 * y + 1][2 * x] + small[2 * y + 1][2 * x + 1]);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(parboil::sad::kThreads)
    sadCombine16x16(std::uint16_t* sads) {
  std::uint16_t* macroblock = macroblockSads(sads);
  for (int p = static_cast<int>(threadIdx.x); p < kPositions; p += kThreads) {
    const bool inRange = p < kDisplacements;
    const auto put = [=](int partition, unsigned sum) {
      macroblock[partition * kPositions + p] = inRange ? static_cast<std::uint16_t>(sum) : kNoSad;
    };
    unsigned quarter[4];
    for (int i = 0; i < 4; ++i) quarter[i] = macroblock[(k8x8 + i) * kPositions + p];
    put(k16x8, quarter[0] + quarter[1]);
    put(k16x8 + 1, quarter[2] + quarter[3]);
    put(k8x16, quarter[0] + quarter[2]);
    put(k8x16 + 1, quarter[1] + quarter[3]);
    put(k16x16, quarter[0] + quarter[1] + quarter[2] + quarter[3]);
  }
}

namespace parboil::sad {

const void* search4x4Symbol() { return reinterpret_cast<const void*>(&sadSearch4x4); }
const void* combine8x8Symbol() { return reinterpret_cast<const void*>(&sadCombine8x8); }
const void* combine16x16Symbol() { return reinterpret_cast<const void*>(&sadCombine16x16); }

}  // namespace parboil::sad
