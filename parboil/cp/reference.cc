// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "parboil/comparison.h"
#include "parboil/cp/cp.h"
#include "parboil/host_kernel.h"
#include "parboil/parallel.h"
#include "parboil/values.h"

namespace parboil::cp {
namespace {

PARBOIL_HOST_KERNEL void addAtom(const Atom& atom, const double* x, const double* y,
                                 double* potential, std::size_t count) {
  const double atomX = atom.x;
  const double atomY = atom.y;
  const double atomZ = atom.z;
  const double charge = atom.charge;
  for (std::size_t k = 0; k < count; ++k) {
    const double dx = x[k] - atomX;
    const double dy = y[k] - atomY;
    potential[k] += charge / std::sqrt(dx * dx + dy * dy + atomZ * atomZ);
  }
}

}  // namespace

std::vector<double> reference(const Parameters& parameters, std::span<const Atom> atoms) {
  const std::size_t points = parameters.points;
  const std::size_t samples =
      (points * points + parameters.sampleStride - 1) / parameters.sampleStride;
  const double spacing = parameters.spacing();
  std::vector<double> result(samples);
  constexpr std::size_t kChunk = 64;
  parallelFor((samples + kChunk - 1) / kChunk, [&](std::size_t chunk) {
    double x[kChunk];
    double y[kChunk];
    for (std::size_t k = 0; k < kChunk; ++k) {
      const std::size_t point = (chunk * kChunk + k) * parameters.sampleStride;
      const std::size_t row = point / points;
      x[k] = spacing * static_cast<double>(point % points);
      y[k] = spacing * static_cast<double>(row);
    }
    double potential[kChunk] = {};
    for (const Atom& atom : atoms) addAtom(atom, x, y, potential, kChunk);
    const std::size_t first = chunk * kChunk;
    std::copy_n(potential, std::min(kChunk, samples - first),
                result.begin() + static_cast<std::ptrdiff_t>(first));
  });
  return result;
}

// Tolerance: every term is good to a few units in the last place (an accelerator's reciprocal
// square root may be 2 off), and terms of both signs cancel while they are added in single
// precision, so that the error grows with the number of atoms and not with the result: 5e-9 for
// each atom, and 1e-5 of the result.
Check compare(const Parameters& parameters, std::span<const float> potential,
              std::span<const double> reference) {
  if (potential.size() != std::size_t{parameters.points} * parameters.points)
    return {false, "wrong number of points"};
  Comparison comparison(5e-9 * static_cast<double>(parameters.atoms), 1e-5);
  for (std::size_t k = 0; k < reference.size(); ++k) {
    comparison.add(potential[k * parameters.sampleStride], reference[k]);
  }
  return comparison.result();
}

Check check(const Context& context) {
  const Parameters parameters = cp::parameters(context.size);
  const auto wanted = keptReference<double>(context, "cp", kReference, [&] {
    return reference(parameters,
                     readValues<Atom>(dataPath(context, "cp", "in"), kInput, context.size));
  });
  const auto potential = readValues<float>(dataPath(context, "cp", "out"), kOutput, context.size);
  return compare(parameters, potential, wanted);
}

}  // namespace parboil::cp
