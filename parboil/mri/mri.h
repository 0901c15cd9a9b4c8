// SPDX-License-Identifier: Apache-2.0
//
// Shared by the two magnetic resonance benchmarks: a scanner that samples k-space along a
// non-Cartesian trajectory, and an image of cubic voxels. Both sum, for every voxel at (x, y, z), a
// complex exponential of 2 pi (kx x + ky y + kz z) over all samples.
#ifndef GMAC_PARBOIL_MRI_MRI_H_
#define GMAC_PARBOIL_MRI_MRI_H_

#include <cstddef>
#include <span>
#include <vector>

#include "parboil/benchmark.h"
#include "parboil/comparison.h"
#include "parboil/random.h"

namespace parboil::mri {

struct Parameters {
  std::size_t edge;          // voxels along an edge of the image
  std::size_t samples;       // of k-space
  std::size_t sampleStride;  // the reference has every so many voxels
  constexpr std::size_t voxels() const { return edge * edge * edge; }
  constexpr std::size_t referenceVoxels() const {
    return (voxels() + sampleStride - 1) / sampleStride;
  }
};

// Small is a multiple of neither the thread block nor the constant memory.
constexpr Parameters parameters(Size size) {
  switch (size) {
    case Size::kSmall:
      return {42, 600, 1};
    case Size::kMedium:
      return {64, 2048, 1};
    case Size::kLarge:
      break;
  }
  return {256, 32768, 4093};
}

// Three coordinates, each an array.
struct Points {
  std::vector<float> x, y, z;
};

// k-space coordinates, in cycles per image edge: spokes through the centre in random directions,
// |k| up to kMaxFrequency.
inline constexpr double kMaxFrequency = 16;
Points makeTrajectory(std::size_t samples, Random& random);
// Voxel centres, in image edges.
Points makeVoxels(std::size_t edge);
// `count` values in [-1, 1).
std::vector<float> makeValues(std::size_t count, Random& random);

// sum over samples of (real + i imaginary) * exp(2 pi i k.x), at every sampleStride-th voxel.
struct Sums {
  std::vector<double> real, imaginary;
};
Sums reference(const Parameters& parameters, const Points& trajectory, std::span<const double> real,
               std::span<const double> imaginary, const Points& voxels);
// Both parts against each other, `got` holding every voxel. A sample is bounded by `magnitude`.
Check compare(const Parameters& parameters, double magnitude, std::span<const float> real,
              std::span<const float> imaginary, const Sums& wanted);

// exp(2 pi i turns) in single precision, good to 1e-6; vectorisable.
inline void expTurns(float turns, float* cosine, float* sine) {
  // Adding and subtracting 1.5 * 2^23 rounds to the nearest whole turn.
  constexpr float kRound = 12582912.0f;
  const float half = 3.14159265f * (turns - ((turns + kRound) - kRound));
  // Series for the half angle, in [-pi/2, pi/2], then the double angle.
  const float h2 = half * half;
  const float s =
      half *
      (1.0f + h2 * (-1.66666667e-1f +
                    h2 * (8.33333333e-3f +
                          h2 * (-1.98412698e-4f + h2 * (2.75573192e-6f + h2 * -2.50521084e-8f)))));
  const float c =
      1.0f +
      h2 * (-0.5f +
            h2 * (4.16666667e-2f +
                  h2 * (-1.38888889e-3f +
                        h2 * (2.48015873e-5f + h2 * (-2.75573192e-7f + h2 * 2.08767570e-9f)))));
  *sine = 2.0f * s * c;
  *cosine = 1.0f - 2.0f * s * s;
}

}  // namespace parboil::mri

#endif  // GMAC_PARBOIL_MRI_MRI_H_
