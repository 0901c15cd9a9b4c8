// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "parboil/random.h"
#include "parboil/stencil/stencil.h"

namespace parboil::stencil {

// A wavelet that repeats four times, with noise.
std::vector<float> makeSource(const Parameters& parameters) {
  Random random(9);
  std::vector<float> source(parameters.steps);
  for (unsigned step = 0; step < parameters.steps; ++step) {
    const double phase = 4.0 * (step + 0.5) / parameters.steps;
    const double t = 6.0 * (phase - std::floor(phase) - 0.5);
    source[step] =
        static_cast<float>((1 - 2 * t * t) * std::exp(-t * t) + random.uniform(-0.05, 0.05));
  }
  return source;
}

std::vector<float> makeVolume(const Parameters& parameters) {
  Random random(512);
  std::vector<float> volume(parameters.cells());
  for (float& cell : volume) cell = static_cast<float>(random.uniform(-1, 1));
  return volume;
}

void addSource(float* emitter, float strength) {
  for (std::size_t i = 0; i < kEmitterCells; ++i) emitter[i] += strength;
}

void generate(const Context& context) {
  const auto path = dataPath(context, "stencil", "in");
  if (isCurrent(path, kInput, context.size)) return;
  const Parameters parameters = stencil::parameters(context.size);
  const std::vector<float> source = makeSource(parameters);
  const std::vector<float> volume = makeVolume(parameters);
  OutputFile file(path, kInput, context.size);
  file.write(source.data(), source.size() * sizeof(float));
  file.write(volume.data(), volume.size() * sizeof(float));
  file.commit();
}

}  // namespace parboil::stencil
