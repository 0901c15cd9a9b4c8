// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "parboil/mri_q/mri_q.h"
#include "parboil/require_cuda.h"

extern "C" __global__ void mriQPhiMag(const float* phiR, const float* phiI, float* phiMag,
                                      unsigned samples);
extern "C" __global__ void mriQ(const float* x, const float* y, const float* z, float* qr,
                                float* qi, unsigned voxels, unsigned count);

namespace parboil::mriq {

void runExplicit(const Context& context) {
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

  float* phiR = requireMemory<float>(malloc(sampleBytes));
  float* phiI = requireMemory<float>(malloc(sampleBytes));
  float* phiMag = requireMemory<float>(malloc(sampleBytes));
  float* x = requireMemory<float>(malloc(voxelBytes));
  float* y = requireMemory<float>(malloc(voxelBytes));
  float* z = requireMemory<float>(malloc(voxelBytes));
  float* qr = requireMemory<float>(malloc(voxelBytes));
  float* qi = requireMemory<float>(malloc(voxelBytes));
  float* devicePhiR;
  float* devicePhiI;
  float* devicePhiMag;
  float* deviceX;
  float* deviceY;
  float* deviceZ;
  float* deviceQr;
  float* deviceQi;
  require(cudaMalloc(&devicePhiR, sampleBytes));
  require(cudaMalloc(&devicePhiI, sampleBytes));
  require(cudaMalloc(&devicePhiMag, sampleBytes));
  require(cudaMalloc(&deviceX, voxelBytes));
  require(cudaMalloc(&deviceY, voxelBytes));
  require(cudaMalloc(&deviceZ, voxelBytes));
  require(cudaMalloc(&deviceQr, voxelBytes));
  require(cudaMalloc(&deviceQi, voxelBytes));
  input.read(phiR, sampleBytes);
  input.read(phiI, sampleBytes);
  input.read(x, voxelBytes);
  input.read(y, voxelBytes);
  input.read(z, voxelBytes);
  require(cudaMemcpy(devicePhiR, phiR, sampleBytes, cudaMemcpyHostToDevice));
  require(cudaMemcpy(devicePhiI, phiI, sampleBytes, cudaMemcpyHostToDevice));
  require(cudaMemcpy(deviceX, x, voxelBytes, cudaMemcpyHostToDevice));
  require(cudaMemcpy(deviceY, y, voxelBytes, cudaMemcpyHostToDevice));
  require(cudaMemcpy(deviceZ, z, voxelBytes, cudaMemcpyHostToDevice));
  require(cudaMemset(deviceQr, 0, voxelBytes));
  require(cudaMemset(deviceQi, 0, voxelBytes));

  mriQPhiMag<<<blocksFor(samples, kPhiThreads), kPhiThreads>>>(devicePhiR, devicePhiI, devicePhiMag,
                                                               samples);
  require(cudaGetLastError());
  require(cudaMemcpy(phiMag, devicePhiMag, sampleBytes, cudaMemcpyDeviceToHost));

  const std::vector<Sample> joined = joinSamples(trajectory, phiMag);
  for (std::size_t first = 0; first < samples; first += kChunk) {
    const std::size_t count = std::min(kChunk, samples - first);
    require(cudaMemcpyToSymbol(samplesSymbol(), joined.data() + first, count * sizeof(Sample)));
    mriQ<<<blocksFor(voxels, kQThreads), kQThreads>>>(deviceX, deviceY, deviceZ, deviceQr, deviceQi,
                                                      voxels, static_cast<unsigned>(count));
    require(cudaGetLastError());
  }
  require(cudaMemcpy(qr, deviceQr, voxelBytes, cudaMemcpyDeviceToHost));
  require(cudaMemcpy(qi, deviceQi, voxelBytes, cudaMemcpyDeviceToHost));

  OutputFile output(dataPath(context, "mri-q", "out"), kOutput, context.size);
  output.write(qr, voxelBytes);
  output.write(qi, voxelBytes);
  output.commit();
  require(cudaFree(devicePhiR));
  require(cudaFree(devicePhiI));
  require(cudaFree(devicePhiMag));
  require(cudaFree(deviceX));
  require(cudaFree(deviceY));
  require(cudaFree(deviceZ));
  require(cudaFree(deviceQr));
  require(cudaFree(deviceQi));
  free(phiR);
  free(phiI);
  free(phiMag);
  free(x);
  free(y);
  free(z);
  free(qr);
  free(qi);
}

}  // namespace parboil::mriq
