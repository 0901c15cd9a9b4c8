// SPDX-License-Identifier: Apache-2.0
//
// 3D stencil (Figure 9): explicit time steps of a diffusion on a volume with fixed faces,
//   next = center + kCoupling * (sum of the six neighbours - 6 * center).
// Before each step the CPU adds a source along one short row of cells; every few steps it writes
// the volume to disk.
//
// stencil-*.in   float[steps]: the source's strength at each step; then float[cells]: the volume at
// the start stencil-*.out  float[snapshots][cells] stencil-*.ref  the same
#ifndef GMAC_PARBOIL_STENCIL_STENCIL_H_
#define GMAC_PARBOIL_STENCIL_STENCIL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parboil/benchmark.h"
#include "parboil/files.h"
#include "parboil/kernel.h"

namespace parboil::stencil {

inline constexpr FileFormat kInput{"stencil.in", 1};
inline constexpr FileFormat kOutput{"stencil.out", 1};
inline constexpr FileFormat kReference{"stencil.ref", 1};

inline constexpr float kCoupling = 0.125f;
// Cells in the emitter's row.
inline constexpr std::size_t kEmitterCells = 32;
// A thread block sweeps a tile of kTileX x kTileY columns through kTileZ planes.
inline constexpr unsigned kTileX = 32;
inline constexpr unsigned kTileY = 8;
inline constexpr unsigned kTileZ = 16;

struct Parameters {
  unsigned nx, ny,
      nz;  // cells; x is contiguous. At least 3 each, and nx at least 2 + kEmitterCells
  unsigned steps;
  unsigned snapshotEvery;  // divides steps
  constexpr std::size_t cells() const { return std::size_t{nx} * ny * nz; }
  constexpr std::size_t snapshots() const { return steps / snapshotEvery; }
  // The emitter's first cell: near the middle of the volume.
  constexpr std::size_t emitter() const {
    return (std::size_t{nz / 2} * ny + ny / 2) * nx + (nx - kEmitterCells) / 2;
  }
};

constexpr Parameters parameters(Size size) {
  switch (size) {
    case Size::kSmall:
      return {120, 120, 60, 40, 10};
    case Size::kMedium:
      return {512, 512, 64, 100, 25};
    case Size::kLarge:
      break;
  }
  return {512, 512, 512, 2000, 1000};
}

std::vector<float> makeSource(const Parameters& parameters);
std::vector<float> makeVolume(const Parameters& parameters);
// The CPU's part of a step.
void addSource(float* emitter, float strength);
// All snapshots, one after another.
std::vector<float> reference(const Parameters& parameters, std::span<const float> source,
                             std::span<const float> volume);
Check compare(const Parameters& parameters, std::span<const float> snapshots,
              std::span<const float> reference);

// One step: next from current, faces copied.
using StepKernel = Kernel<const float*, float*, unsigned, unsigned, unsigned>;
const StepKernel& stepKernel();
constexpr adsmDim_t stepGrid(const Parameters& parameters) {
  return {blocksFor(parameters.nx, kTileX), blocksFor(parameters.ny, kTileY),
          blocksFor(parameters.nz, kTileZ)};
}
inline constexpr adsmDim_t kStepBlock{kTileX, kTileY, 1};
void stepBlock(const adsmThreadBlock_t* block, void** args);
const void* stepSymbol();

void generate(const Context& context);
void runGmac(const Context& context);
void runExplicit(const Context& context);
Check check(const Context& context);

}  // namespace parboil::stencil

#endif  // GMAC_PARBOIL_STENCIL_STENCIL_H_
