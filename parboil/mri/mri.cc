// SPDX-License-Identifier: Apache-2.0
#include "parboil/mri/mri.h"

#include <algorithm>
#include <cmath>

#include "parboil/parallel.h"

namespace parboil::mri {

Points makeTrajectory(std::size_t samples, Random& random) {
  constexpr std::size_t kSpoke = 32;
  Points k{std::vector<float>(samples), std::vector<float>(samples), std::vector<float>(samples)};
  double direction[3] = {};
  for (std::size_t i = 0; i < samples; ++i) {
    if (i % kSpoke == 0) {
      double length = 0;
      for (double& d : direction) {
        d = random.normal();
        length += d * d;
      }
      for (double& d : direction) d /= std::sqrt(length);
    }
    const double radius =
        kMaxFrequency * (2.0 * (static_cast<double>(i % kSpoke) + random.uniform()) / kSpoke - 1.0);
    k.x[i] = static_cast<float>(radius * direction[0]);
    k.y[i] = static_cast<float>(radius * direction[1]);
    k.z[i] = static_cast<float>(radius * direction[2]);
  }
  return k;
}

Points makeVoxels(std::size_t edge) {
  const std::size_t count = edge * edge * edge;
  Points voxels{std::vector<float>(count), std::vector<float>(count), std::vector<float>(count)};
  const auto coordinate = [edge](std::size_t i) {
    return static_cast<float>((static_cast<double>(i) + 0.5) / static_cast<double>(edge) - 0.5);
  };
  for (std::size_t i = 0; i < count; ++i) {
    voxels.x[i] = coordinate(i % edge);
    voxels.y[i] = coordinate(i / edge % edge);
    voxels.z[i] = coordinate(i / edge / edge);
  }
  return voxels;
}

std::vector<float> makeValues(std::size_t count, Random& random) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.uniform(-1, 1));
  return values;
}

Sums reference(const Parameters& parameters, const Points& trajectory, std::span<const double> real,
               std::span<const double> imaginary, const Points& voxels) {
  constexpr double kTwoPi = 6.283185307179586;
  const std::size_t count = parameters.referenceVoxels();
  Sums sums{std::vector<double>(count), std::vector<double>(count)};
  constexpr std::size_t kChunk = 256;
  parallelFor((count + kChunk - 1) / kChunk, [&](std::size_t chunk) {
    for (std::size_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
      const std::size_t voxel = i * parameters.sampleStride;
      const double x = voxels.x[voxel];
      const double y = voxels.y[voxel];
      const double z = voxels.z[voxel];
      double sumReal = 0;
      double sumImaginary = 0;
      for (std::size_t k = 0; k < parameters.samples; ++k) {
        const double angle =
            kTwoPi * (trajectory.x[k] * x + trajectory.y[k] * y + trajectory.z[k] * z);
        const double c = std::cos(angle);
        const double s = std::sin(angle);
        sumReal += real[k] * c - imaginary[k] * s;
        sumImaginary += imaginary[k] * c + real[k] * s;
      }
      sums.real[i] = sumReal;
      sums.imaginary[i] = sumImaginary;
    }
  });
  return sums;
}

// Tolerance: k.x is at most 28 turns and off by three roundings, at worst 5e-6 turns or 3e-5
// radians, typically a third of that: the error of one sample relative to its magnitude. The
// samples' errors are independent, so that the error of their sum grows like the square root of
// their number; five deviations are allowed. Adding them up rounds the sum each time, by at most
// 2^-24 of it, in both directions alike.
Check compare(const Parameters& parameters, double magnitude, std::span<const float> real,
              std::span<const float> imaginary, const Sums& wanted) {
  if (real.size() != parameters.voxels() || imaginary.size() != parameters.voxels()) {
    return {false, "wrong number of voxels"};
  }
  const double growth = std::sqrt(static_cast<double>(parameters.samples));
  Comparison comparison(5e-5 * magnitude * growth, 0x1p-24 * growth);
  for (std::size_t i = 0; i < wanted.real.size(); ++i) {
    comparison.add(real[i * parameters.sampleStride], wanted.real[i]);
    comparison.add(imaginary[i * parameters.sampleStride], wanted.imaginary[i]);
  }
  return comparison.result();
}

}  // namespace parboil::mri
