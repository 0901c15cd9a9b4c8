// SPDX-License-Identifier: Apache-2.0
#include "parboil/mri_fhd/mri_fhd.h"
#include "parboil/random.h"

namespace parboil::mrifhd {

Input makeInput(const mri::Parameters& parameters) {
  Random random(2049);
  Input input;
  input.trajectory = mri::makeTrajectory(parameters.samples, random);
  input.phiR = mri::makeValues(parameters.samples, random);
  input.phiI = mri::makeValues(parameters.samples, random);
  input.dR = mri::makeValues(parameters.samples, random);
  input.dI = mri::makeValues(parameters.samples, random);
  input.voxels = mri::makeVoxels(parameters.edge);
  return input;
}

std::vector<Sample> joinSamples(const mri::Points& trajectory, const float* rhoR,
                                const float* rhoI) {
  std::vector<Sample> samples(trajectory.x.size());
  for (std::size_t k = 0; k < samples.size(); ++k) {
    samples[k] = {trajectory.x[k], trajectory.y[k], trajectory.z[k], rhoR[k], rhoI[k]};
  }
  return samples;
}

void generate(const Context& context) {
  const auto path = dataPath(context, "mri-fhd", "in");
  if (isCurrent(path, kInput, context.size)) return;
  const Input input = makeInput(mri::parameters(context.size));
  OutputFile file(path, kInput, context.size);
  for (const auto* values :
       {&input.trajectory.x, &input.trajectory.y, &input.trajectory.z, &input.phiR, &input.phiI,
        &input.dR, &input.dI, &input.voxels.x, &input.voxels.y, &input.voxels.z}) {
    file.write(values->data(), values->size() * sizeof(float));
  }
  file.commit();
}

}  // namespace parboil::mrifhd
