// SPDX-License-Identifier: Apache-2.0
#include "parboil/mri_q/mri_q.h"
#include "parboil/values.h"

namespace parboil::mriq {

mri::Sums reference(const mri::Parameters& parameters, const Input& input) {
  std::vector<double> real(parameters.samples);
  std::vector<double> imaginary(parameters.samples);
  for (std::size_t k = 0; k < parameters.samples; ++k) {
    const double phiR = input.phiR[k];
    const double phiI = input.phiI[k];
    real[k] = phiR * phiR + phiI * phiI;
  }
  return mri::reference(parameters, input.trajectory, real, imaginary, input.voxels);
}

Check check(const Context& context) {
  const mri::Parameters parameters = mri::parameters(context.size);
  const auto wanted = keptReference<double>(context, "mri-q", kReference, [&] {
    Input input;
    InputFile file(dataPath(context, "mri-q", "in"), kInput, context.size);
    for (auto* values : {&input.trajectory.x, &input.trajectory.y, &input.trajectory.z, &input.phiR,
                         &input.phiI}) {
      values->resize(parameters.samples);
      file.read(values->data(), values->size() * sizeof(float));
    }
    for (auto* values : {&input.voxels.x, &input.voxels.y, &input.voxels.z}) {
      values->resize(parameters.voxels());
      file.read(values->data(), values->size() * sizeof(float));
    }
    const mri::Sums sums = reference(parameters, input);
    std::vector<double> both = sums.real;
    both.insert(both.end(), sums.imaginary.begin(), sums.imaginary.end());
    return both;
  });
  const auto middle = wanted.begin() + static_cast<std::ptrdiff_t>(wanted.size() / 2);
  const auto image = readValues<float>(dataPath(context, "mri-q", "out"), kOutput, context.size);
  const std::span<const float> parts(image);
  return mri::compare(parameters, kMagnitude, parts.first(parts.size() / 2),
                      parts.subspan(parts.size() / 2),
                      {{wanted.begin(), middle}, {middle, wanted.end()}});
}

}  // namespace parboil::mriq
