// SPDX-License-Identifier: Apache-2.0
#include "parboil/host_kernel.h"

#include <algorithm>
#include <cstdlib>

#include "parboil/sad/sad.h"

namespace parboil::sad {
namespace {

std::uint16_t* macroblockSads(const adsmThreadBlock_t* block, std::uint16_t* sads) {
  const std::size_t macroblock =
      std::size_t{block->blockIdx.y} * block->gridDim.x + block->blockIdx.x;
  return sads + macroblock * kPartitions * kPositions;
}

// The SADs of the 4x4 partition at `samples`; `window` points to the reference sample at
// displacement (-kRange, -kRange) of its first. One row of displacements at a time, for the vector
// units.
PARBOIL_HOST_KERNEL void search(const std::uint16_t* samples, std::size_t width,
                                const std::uint16_t* window, std::uint16_t* out) {
  for (int dy = 0; dy < kSide; ++dy) {
    std::uint16_t sums[kSide] = {};
    for (int y = 0; y < 4; ++y) {
      for (int x = 0; x < 4; ++x) {
        const int sample =
            samples[static_cast<std::size_t>(y) * width + static_cast<std::size_t>(x)];
        const std::uint16_t* shifted = window + (dy + y) * kWindow + x;
        for (int dx = 0; dx < kSide; ++dx)
          sums[dx] = static_cast<std::uint16_t>(sums[dx] + std::abs(sample - shifted[dx]));
      }
    }
    std::copy(sums, sums + kSide, out + dy * kSide);
  }
}

}  // namespace

void search4x4Block(const adsmThreadBlock_t* block, void** args) {
  const std::uint16_t* current = argument<const std::uint16_t*>(args, 0);
  const std::uint16_t* reference = argument<const std::uint16_t*>(args, 1);
  std::uint16_t* sads = macroblockSads(block, argument<std::uint16_t*>(args, 2));
  const auto width = argument<std::uint32_t>(args, 3);
  const auto height = argument<std::uint32_t>(args, 4);
  const int left = static_cast<int>(block->blockIdx.x) * kMacroblock;
  const int top = static_cast<int>(block->blockIdx.y) * kMacroblock;

  std::uint16_t window[kWindow][kWindow];
  for (int y = 0; y < kWindow; ++y) {
    const std::uint16_t* line =
        reference + static_cast<std::size_t>(clampTo(top + y - kRange, height)) * width;
    for (int x = 0; x < kWindow; ++x) window[y][x] = line[clampTo(left + x - kRange, width)];
  }
  for (int partition = 0; partition < 16; ++partition) {
    const int x0 = partition % 4 * 4;
    const int y0 = partition / 4 * 4;
    const std::uint16_t* samples =
        current + static_cast<std::size_t>(top + y0) * width + static_cast<std::size_t>(left + x0);
    std::uint16_t* out = sads + (k4x4 + partition) * kPositions;
    search(samples, width, &window[y0][x0], out);
    std::fill(out + kDisplacements, out + kPositions, kNoSad);
  }
}

namespace {

// out = a + b, but the padding stays what it is.
void addSads(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* out) {
  for (int p = 0; p < kDisplacements; ++p) out[p] = static_cast<std::uint16_t>(a[p] + b[p]);
  std::fill(out + kDisplacements, out + kPositions, kNoSad);
}

}  // namespace

void combine8x8Block(const adsmThreadBlock_t* block, void** args) {
  std::uint16_t* sads = macroblockSads(block, argument<std::uint16_t*>(args, 0));
  const auto of = [sads](int partition) { return sads + partition * kPositions; };
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 2; ++x) {
      addSads(of(k4x4 + 4 * y + 2 * x), of(k4x4 + 4 * y + 2 * x + 1), of(k8x4 + 2 * y + x));
    }
  }
  for (int y = 0; y < 2; ++y) {
    for (int x = 0; x < 4; ++x)
      addSads(of(k4x4 + 8 * y + x), of(k4x4 + 8 * y + 4 + x), of(k4x8 + 4 * y + x));
    for (int x = 0; x < 2; ++x)
      addSads(of(k8x4 + 4 * y + x), of(k8x4 + 4 * y + 2 + x), of(k8x8 + 2 * y + x));
  }
}

void combine16x16Block(const adsmThreadBlock_t* block, void** args) {
  std::uint16_t* sads = macroblockSads(block, argument<std::uint16_t*>(args, 0));
  const auto of = [sads](int partition) { return sads + partition * kPositions; };
  for (int i = 0; i < 2; ++i) {
    addSads(of(k8x8 + 2 * i), of(k8x8 + 2 * i + 1), of(k16x8 + i));
    addSads(of(k8x8 + i), of(k8x8 + 2 + i), of(k8x16 + i));
  }
  addSads(of(k16x8), of(k16x8 + 1), of(k16x16));
}

}  // namespace parboil::sad
