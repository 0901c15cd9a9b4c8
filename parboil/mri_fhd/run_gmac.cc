// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "parboil/mri_fhd/mri_fhd.h"

namespace parboil::mrifhd {

void runGmac(const Context& context) {
  const mri::Parameters parameters = mri::parameters(context.size);
  const auto samples = static_cast<unsigned>(parameters.samples);
  const auto voxels = static_cast<unsigned>(parameters.voxels());
  const std::size_t sampleBytes = parameters.samples * sizeof(float);
  const std::size_t voxelBytes = parameters.voxels() * sizeof(float);
  mri::Points trajectory{std::vector<float>(samples), std::vector<float>(samples),
                         std::vector<float>(samples)};
  InputFile input(dataPath(context, "mri-fhd", "in"), kInput, context.size);
  input.read(trajectory.x.data(), sampleBytes);
  input.read(trajectory.y.data(), sampleBytes);
  input.read(trajectory.z.data(), sampleBytes);

  float* phiR = requireShared<float>(adsmAlloc(sampleBytes));
  float* phiI = requireShared<float>(adsmAlloc(sampleBytes));
  float* dR = requireShared<float>(adsmAlloc(sampleBytes));
  float* dI = requireShared<float>(adsmAlloc(sampleBytes));
  float* rhoR = requireShared<float>(adsmAlloc(sampleBytes));
  float* rhoI = requireShared<float>(adsmAlloc(sampleBytes));
  float* x = requireShared<float>(adsmAlloc(voxelBytes));
  float* y = requireShared<float>(adsmAlloc(voxelBytes));
  float* z = requireShared<float>(adsmAlloc(voxelBytes));
  float* fhdR = requireShared<float>(adsmAlloc(voxelBytes));
  float* fhdI = requireShared<float>(adsmAlloc(voxelBytes));
  input.read(phiR, sampleBytes);
  input.read(phiI, sampleBytes);
  input.read(dR, sampleBytes);
  input.read(dI, sampleBytes);
  input.read(x, voxelBytes);
  input.read(y, voxelBytes);
  input.read(z, voxelBytes);
  std::memset(fhdR, 0, voxelBytes);
  std::memset(fhdI, 0, voxelBytes);

  rhoKernel().call({blocksFor(samples, kRhoThreads), 1, 1}, {kRhoThreads, 1, 1}, 0, phiR, phiI, dR,
                   dI, rhoR, rhoI, samples);
  require(adsmSync());

  const std::vector<Sample> joined = joinSamples(trajectory, rhoR, rhoI);
  for (std::size_t first = 0; first < samples; first += kChunk) {
    const std::size_t count = std::min(kChunk, samples - first);
    fhdKernel().setConstant(kSamplesConstant, joined.data() + first, count * sizeof(Sample));
    fhdKernel().call({blocksFor(voxels, kFhdThreads), 1, 1}, {kFhdThreads, 1, 1}, 0, x, y, z, fhdR,
                     fhdI, voxels, static_cast<unsigned>(count));
  }
  require(adsmSync());

  OutputFile output(dataPath(context, "mri-fhd", "out"), kOutput, context.size);
  output.write(fhdR, voxelBytes);
  output.write(fhdI, voxelBytes);
  output.commit();
  require(adsmFree(phiR));
  require(adsmFree(phiI));
  require(adsmFree(dR));
  require(adsmFree(dI));
  require(adsmFree(rhoR));
  require(adsmFree(rhoI));
  require(adsmFree(x));
  require(adsmFree(y));
  require(adsmFree(z));
  require(adsmFree(fhdR));
  require(adsmFree(fhdI));
}

}  // namespace parboil::mrifhd
