// SPDX-License-Identifier: Apache-2.0
//
// Sums of absolute differences (Table 2): the full-pixel motion search of an H.264 encoder. Each
// macroblock of 16 x 16 samples is compared with a reference frame at every displacement of up to
// kRange samples each way; beyond its border the reference frame repeats its edge. The result is
// the SAD of each of the macroblock's 41 partitions, from 4x4 to 16x16, at each displacement.
//
// Three kernels: the 4x4 partitions from the samples, then 8x4, 4x8 and 8x8 from those, then 16x8,
// 8x16 and 16x16. The encoder's CPU side looks at a few rows of macroblocks only.
//
// sad-*.in   frames, std::uint16_t[height * width] each, samples of 8 bits
// sad-*.out  for each frame but the first, searched in its oldest reference: the sampled rows of
//            macroblocks, std::uint16_t[columns][kPartitions][kPositions] each
// sad-*.ref  the same
#ifndef GMAC_PARBOIL_SAD_SAD_H_
#define GMAC_PARBOIL_SAD_SAD_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "parboil/benchmark.h"
#include "parboil/files.h"
#include "parboil/kernel.h"

#ifdef __CUDACC__
#define SAD_HOST_DEVICE __host__ __device__
#else
#define SAD_HOST_DEVICE
#endif

namespace parboil::sad {

inline constexpr FileFormat kInput{"sad.in", 1};
inline constexpr FileFormat kOutput{"sad.out", 1};
inline constexpr FileFormat kReference{"sad.ref", 1};

inline constexpr int kMacroblock = 16;
inline constexpr int kRange = 16;                         // largest displacement
inline constexpr int kSide = 2 * kRange + 1;              // displacements along one axis
inline constexpr int kDisplacements = kSide * kSide;      // row by row from (-kRange, -kRange)
inline constexpr int kPositions = 1096;                   // the same, padded to 16 bytes
inline constexpr std::uint16_t kNoSad = 0xffff;           // what the padding holds
inline constexpr int kWindow = kMacroblock + 2 * kRange;  // reference samples along one axis
inline constexpr unsigned kThreads = 128;

// Partitions, row by row within each shape. Width x height, as in the standard.
inline constexpr int k4x4 = 0;
inline constexpr int k8x4 = 16;
inline constexpr int k4x8 = 24;
inline constexpr int k8x8 = 32;
inline constexpr int k16x8 = 36;
inline constexpr int k8x16 = 38;
inline constexpr int k16x16 = 40;
inline constexpr int kPartitions = 41;

struct Parameters {
  std::uint32_t width, height;  // multiples of kMacroblock
  std::uint32_t frames;
  std::uint32_t references;  // at most so many frames before the current one are searched
  std::uint32_t rowStride;   // the CPU reads one row of macroblocks out of so many

  constexpr std::uint32_t columns() const { return width / kMacroblock; }
  constexpr std::uint32_t rows() const { return height / kMacroblock; }
  constexpr std::size_t samples() const { return std::size_t{width} * height; }
  constexpr std::size_t rowSads() const {
    return std::size_t{columns()} * kPartitions * kPositions;
  }
  constexpr std::uint32_t firstRow() const { return rowStride / 2; }
  constexpr std::uint32_t referencesOf(std::uint32_t frame) const {
    return std::min(frame, references);
  }
};

// Large searches 16 reference frames, the most that the standard allows, in 248 searches.
constexpr Parameters parameters(Size size) {
  return size == Size::kSmall    ? Parameters{352, 288, 2, 1, 6}
         : size == Size::kMedium ? Parameters{1920, 1072, 2, 1, 12}
                                 : Parameters{3840, 2160, 24, 16, 135};
}

// current, reference, SADs of all macroblocks row by row, width, height.
using SearchKernel = Kernel<const std::uint16_t*, const std::uint16_t*, std::uint16_t*,
                            std::uint32_t, std::uint32_t>;
using CombineKernel = Kernel<std::uint16_t*>;
const SearchKernel& search4x4Kernel();
const CombineKernel& combine8x8Kernel();
const CombineKernel& combine16x16Kernel();
void search4x4Block(const adsmThreadBlock_t* block, void** args);
void combine8x8Block(const adsmThreadBlock_t* block, void** args);
void combine16x16Block(const adsmThreadBlock_t* block, void** args);
const void* search4x4Symbol();
const void* combine8x8Symbol();
const void* combine16x16Symbol();

// A coordinate moved into the frame.
SAD_HOST_DEVICE inline int clampTo(int coordinate, std::uint32_t extent) {
  const int last = static_cast<int>(extent) - 1;
  return coordinate < 0 ? 0 : coordinate > last ? last : coordinate;
}

// Draws frame `number` of a moving scene.
void makeFrame(const Parameters& size, std::uint32_t number, std::uint16_t* frame);

// The SADs of one row of macroblocks, each partition straight from its definition.
void searchRow(const Parameters& size, const std::uint16_t* current, const std::uint16_t* reference,
               std::uint32_t row, std::uint16_t* sads);

void generate(const Context& context);
void runGmac(const Context& context);
void runExplicit(const Context& context);
Check check(const Context& context);

}  // namespace parboil::sad

#endif  // GMAC_PARBOIL_SAD_SAD_H_
