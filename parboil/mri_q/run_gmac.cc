// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "parboil/mri_q/mri_q.h"

namespace parboil::mriq {

void runGmac(const Context& context) {
  const mri::Parameters parameters = mri::parameters(context.size);
  const auto samples = static_cast<unsigned>(parameters.samples);
  const auto voxels = static_cast<unsigned>(parameters.voxels());
  const std::size_t sampleBytes = parameters.samples * sizeof(float);
  const std::size_t voxelBytes = parameters.voxels() * sizeof(float);
  mri::Points trajectory{std::vector<float>(samples), std::vector<float>(samples),
                         std::vector<float>(samples)};
  InputFile input(dataPath(context, "mri-q", "in"), kInput, context.size);
  input.read(trajectory.x.data(), sampleBytes);
  input.read(trajectory.y.data(), sampleBytes);
  input.read(trajectory.z.data(), sampleBytes);

  float* phiR = requireShared<float>(adsmAlloc(sampleBytes));
  float* phiI = requireShared<float>(adsmAlloc(sampleBytes));
  float* phiMag = requireShared<float>(adsmAlloc(sampleBytes));
  float* x = requireShared<float>(adsmAlloc(voxelBytes));
  float* y = requireShared<float>(adsmAlloc(voxelBytes));
  float* z = requireShared<float>(adsmAlloc(voxelBytes));
  float* qr = requireShared<float>(adsmAlloc(voxelBytes));
  float* qi = requireShared<float>(adsmAlloc(voxelBytes));
  input.read(phiR, sampleBytes);
  input.read(phiI, sampleBytes);
  input.read(x, voxelBytes);
  input.read(y, voxelBytes);
  input.read(z, voxelBytes);
  std::memset(qr, 0, voxelBytes);
  std::memset(qi, 0, voxelBytes);

  phiMagKernel().call({blocksFor(samples, kPhiThreads), 1, 1}, {kPhiThreads, 1, 1}, 0, phiR, phiI,
                      phiMag, samples);
  require(adsmSync());

  const std::vector<Sample> joined = joinSamples(trajectory, phiMag);
  for (std::size_t first = 0; first < samples; first += kChunk) {
    const std::size_t count = std::min(kChunk, samples - first);
    qKernel().setConstant(kSamplesConstant, joined.data() + first, count * sizeof(Sample));
    qKernel().call({blocksFor(voxels, kQThreads), 1, 1}, {kQThreads, 1, 1}, 0, x, y, z, qr, qi,
                   voxels, static_cast<unsigned>(count));
  }
  require(adsmSync());

  OutputFile output(dataPath(context, "mri-q", "out"), kOutput, context.size);
  output.write(qr, voxelBytes);
  output.write(qi, voxelBytes);
  output.commit();
  require(adsmFree(phiR));
  require(adsmFree(phiI));
  require(adsmFree(phiMag));
  require(adsmFree(x));
  require(adsmFree(y));
  require(adsmFree(z));
  require(adsmFree(qr));
  require(adsmFree(qi));
}

}  // namespace parboil::mriq
