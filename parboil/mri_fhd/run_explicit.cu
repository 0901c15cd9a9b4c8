// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "parboil/mri_fhd/mri_fhd.h"
#include "parboil/require_cuda.h"

extern "C" __global__ void mriFhdRho(const float* phiR, const float* phiI, const float* dR,
                                     const float* dI, float* rhoR, float* rhoI, unsigned samples);
extern "C" __global__ void mriFhd(const float* x, const float* y, const float* z, float* fhdR,
                                  float* fhdI, unsigned voxels, unsigned count);

namespace parboil::mrifhd {

void runExplicit(const Context& context) {
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

  float* phiR = requireMemory<float>(malloc(sampleBytes));
  float* phiI = requireMemory<float>(malloc(sampleBytes));
  float* dR = requireMemory<float>(malloc(sampleBytes));
  float* dI = requireMemory<float>(malloc(sampleBytes));
  float* rhoR = requireMemory<float>(malloc(sampleBytes));
  float* rhoI = requireMemory<float>(malloc(sampleBytes));
  float* x = requireMemory<float>(malloc(voxelBytes));
  float* y = requireMemory<float>(malloc(voxelBytes));
  float* z = requireMemory<float>(malloc(voxelBytes));
  float* fhdR = requireMemory<float>(malloc(voxelBytes));
  float* fhdI = requireMemory<float>(malloc(voxelBytes));
  float* devicePhiR;
  float* devicePhiI;
  float* deviceDR;
  float* deviceDI;
  float* deviceRhoR;
  float* deviceRhoI;
  float* deviceX;
  float* deviceY;
  float* deviceZ;
  float* deviceFhdR;
  float* deviceFhdI;
  require(cudaMalloc(&devicePhiR, sampleBytes));
  require(cudaMalloc(&devicePhiI, sampleBytes));
  require(cudaMalloc(&deviceDR, sampleBytes));
  require(cudaMalloc(&deviceDI, sampleBytes));
  require(cudaMalloc(&deviceRhoR, sampleBytes));
  require(cudaMalloc(&deviceRhoI, sampleBytes));
  require(cudaMalloc(&deviceX, voxelBytes));
  require(cudaMalloc(&deviceY, voxelBytes));
  require(cudaMalloc(&deviceZ, voxelBytes));
  require(cudaMalloc(&deviceFhdR, voxelBytes));
  require(cudaMalloc(&deviceFhdI, voxelBytes));
  input.read(phiR, sampleBytes);
  input.read(phiI, sampleBytes);
  input.read(dR, sampleBytes);
  input.read(dI, sampleBytes);
  input.read(x, voxelBytes);
  input.read(y, voxelBytes);
  input.read(z, voxelBytes);
  require(cudaMemcpy(devicePhiR, phiR, sampleBytes, cudaMemcpyHostToDevice));
  require(cudaMemcpy(devicePhiI, phiI, sampleBytes, cudaMemcpyHostToDevice));
  require(cudaMemcpy(deviceDR, dR, sampleBytes, cudaMemcpyHostToDevice));
  require(cudaMemcpy(deviceDI, dI, sampleBytes, cudaMemcpyHostToDevice));
  require(cudaMemcpy(deviceX, x, voxelBytes, cudaMemcpyHostToDevice));
  require(cudaMemcpy(deviceY, y, voxelBytes, cudaMemcpyHostToDevice));
  require(cudaMemcpy(deviceZ, z, voxelBytes, cudaMemcpyHostToDevice));
  require(cudaMemset(deviceFhdR, 0, voxelBytes));
  require(cudaMemset(deviceFhdI, 0, voxelBytes));

  mriFhdRho<<<blocksFor(samples, kRhoThreads), kRhoThreads>>>(
      devicePhiR, devicePhiI, deviceDR, deviceDI, deviceRhoR, deviceRhoI, samples);
  require(cudaGetLastError());
  require(cudaMemcpy(rhoR, deviceRhoR, sampleBytes, cudaMemcpyDeviceToHost));
  require(cudaMemcpy(rhoI, deviceRhoI, sampleBytes, cudaMemcpyDeviceToHost));

  const std::vector<Sample> joined = joinSamples(trajectory, rhoR, rhoI);
  for (std::size_t first = 0; first < samples; first += kChunk) {
    const std::size_t count = std::min(kChunk, samples - first);
    require(cudaMemcpyToSymbol(samplesSymbol(), joined.data() + first, count * sizeof(Sample)));
    mriFhd<<<blocksFor(voxels, kFhdThreads), kFhdThreads>>>(
        deviceX, deviceY, deviceZ, deviceFhdR, deviceFhdI, voxels, static_cast<unsigned>(count));
    require(cudaGetLastError());
  }
  require(cudaMemcpy(fhdR, deviceFhdR, voxelBytes, cudaMemcpyDeviceToHost));
  require(cudaMemcpy(fhdI, deviceFhdI, voxelBytes, cudaMemcpyDeviceToHost));

  OutputFile output(dataPath(context, "mri-fhd", "out"), kOutput, context.size);
  output.write(fhdR, voxelBytes);
  output.write(fhdI, voxelBytes);
  output.commit();
  require(cudaFree(devicePhiR));
  require(cudaFree(devicePhiI));
  require(cudaFree(deviceDR));
  require(cudaFree(deviceDI));
  require(cudaFree(deviceRhoR));
  require(cudaFree(deviceRhoI));
  require(cudaFree(deviceX));
  require(cudaFree(deviceY));
  require(cudaFree(deviceZ));
  require(cudaFree(deviceFhdR));
  require(cudaFree(deviceFhdI));
  free(phiR);
  free(phiI);
  free(dR);
  free(dI);
  free(rhoR);
  free(rhoI);
  free(x);
  free(y);
  free(z);
  free(fhdR);
  free(fhdI);
}

}  // namespace parboil::mrifhd
