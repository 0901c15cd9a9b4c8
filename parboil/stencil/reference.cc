// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "parboil/comparison.h"
#include "parboil/parallel.h"
#include "parboil/stencil/stencil.h"
#include "parboil/values.h"

namespace parboil::stencil {
namespace {

void stepPlane(const Parameters& parameters, const double* current, double* next, std::size_t z) {
  const std::size_t nx = parameters.nx;
  const std::size_t plane = nx * parameters.ny;
  for (std::size_t y = 1; y + 1 < parameters.ny; ++y) {
    const std::size_t row = z * plane + y * nx;
    for (std::size_t i = row + 1; i < row + nx - 1; ++i) {
      const double around = current[i - 1] + current[i + 1] + current[i - nx] + current[i + nx] +
                            current[i - plane] + current[i + plane];
      next[i] = current[i] + kCoupling * (around - 6 * current[i]);
    }
  }
}

}  // namespace

std::vector<float> reference(const Parameters& parameters, std::span<const float> source,
                             std::span<const float> volume) {
  std::vector<double> current(volume.begin(), volume.end());
  std::vector<double> next = current;
  std::vector<float> snapshots;
  snapshots.reserve(parameters.snapshots() * parameters.cells());
  for (unsigned step = 0; step < parameters.steps; ++step) {
    for (std::size_t i = 0; i < kEmitterCells; ++i)
      current[parameters.emitter() + i] += source[step];
    parallelFor(parameters.nz - 2,
                [&](std::size_t i) { stepPlane(parameters, current.data(), next.data(), i + 1); });
    std::swap(current, next);
    if ((step + 1) % parameters.snapshotEvery == 0) {
      snapshots.insert(snapshots.end(), current.begin(), current.end());
    }
  }
  return snapshots;
}

// Tolerance: a step averages cells of magnitude below 4 and rounds a handful of times, by 2^-23 at
// most. The weights are positive and add up to one, so that earlier errors are never amplified but
// averaged away like the volume itself: what stays is that of a few steps, however many there are.
Check compare(const Parameters& parameters, std::span<const float> snapshots,
              std::span<const float> reference) {
  if (snapshots.size() != parameters.snapshots() * parameters.cells() ||
      reference.size() != snapshots.size()) {
    return {false, "wrong number of cells"};
  }
  Comparison comparison(0x1p-19, 0);
  for (std::size_t i = 0; i < snapshots.size(); ++i) comparison.add(snapshots[i], reference[i]);
  return comparison.result();
}

Check check(const Context& context) {
  const Parameters parameters = stencil::parameters(context.size);
  const auto wanted = keptReference<float>(context, "stencil", kReference, [&] {
    const auto values = readValues<float>(dataPath(context, "stencil", "in"), kInput, context.size);
    const std::span<const float> all(values);
    return reference(parameters, all.first(parameters.steps), all.subspan(parameters.steps));
  });
  const auto snapshots =
      readValues<float>(dataPath(context, "stencil", "out"), kOutput, context.size);
  return compare(parameters, snapshots, wanted);
}

}  // namespace parboil::stencil
