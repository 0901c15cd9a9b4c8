// SPDX-License-Identifier: Apache-2.0
#include "parboil/mri_q/mri_q.h"
#include "parboil/random.h"

namespace parboil::mriq {

Input makeInput(const mri::Parameters& parameters) {
  Random random(2048);
  Input input;
  input.trajectory = mri::makeTrajectory(parameters.samples, random);
  input.phiR = mri::makeValues(parameters.samples, random);
  input.phiI = mri::makeValues(parameters.samples, random);
  input.voxels = mri::makeVoxels(parameters.edge);
  return input;
}

std::vector<Sample> joinSamples(const mri::Points& trajectory, const float* phiMag) {
  std::vector<Sample> samples(trajectory.x.size());
  for (std::size_t k = 0; k < samples.size(); ++k) {
    samples[k] = {trajectory.x[k], trajectory.y[k], trajectory.z[k], phiMag[k]};
  }
  return samples;
}

void generate(const Context& context) {
  const auto path = dataPath(context, "mri-q", "in");
  if (isCurrent(path, kInput, context.size)) return;
  const Input input = makeInput(mri::parameters(context.size));
  OutputFile file(path, kInput, context.size);
  for (const auto* values :
       {&input.trajectory.x, &input.trajectory.y, &input.trajectory.z, &input.phiR, &input.phiI,
        &input.voxels.x, &input.voxels.y, &input.voxels.z}) {
    file.write(values->data(), values->size() * sizeof(float));
  }
  file.commit();
}

}  // namespace parboil::mriq
