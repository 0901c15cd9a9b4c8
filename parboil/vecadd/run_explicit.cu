// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "parboil/require_cuda.h"
#include "parboil/vecadd/vecadd.h"

extern "C" __global__ void vecaddAdd(const float* a, const float* b, float* c, std::uint64_t count);

namespace parboil::vecadd {

void runExplicit(const Context& context) {
  const std::size_t count = elements(context.size);
  const std::size_t bytes = count * sizeof(float);
  Seeds seeds;
  InputFile input(dataPath(context, "vecadd", "in"), kInput, context.size);
  input.read(&seeds, sizeof seeds);

  float* a = requireMemory<float>(malloc(bytes));
  float* b = requireMemory<float>(malloc(bytes));
  float* c = requireMemory<float>(malloc(bytes));
  float* deviceA;
  float* deviceB;
  float* deviceC;
  require(cudaMalloc(&deviceA, bytes));
  require(cudaMalloc(&deviceB, bytes));
  require(cudaMalloc(&deviceC, bytes));
  fill(a, count, seeds.a);
  fill(b, count, seeds.b);

  require(cudaMemcpy(deviceA, a, bytes, cudaMemcpyHostToDevice));
  require(cudaMemcpy(deviceB, b, bytes, cudaMemcpyHostToDevice));
  vecaddAdd<<<blocksFor(count, kThreads), kThreads>>>(deviceA, deviceB, deviceC, count);
  require(cudaGetLastError());
  require(cudaMemcpy(c, deviceC, bytes, cudaMemcpyDeviceToHost));

  const double total = sum(c, count);
  OutputFile output(dataPath(context, "vecadd", "out"), kOutput, context.size);
  output.write(&total, sizeof total);
  for (std::size_t k = 0; k < kSamples; ++k)
    output.write(c + k * (count / kSamples), sizeof(float));
  output.commit();
  require(cudaFree(deviceA));
  require(cudaFree(deviceB));
  require(cudaFree(deviceC));
  free(a);
  free(b);
  free(c);
}

}  // namespace parboil::vecadd
