// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "parboil/require_cuda.h"
#include "parboil/stencil/stencil.h"

extern "C" __global__ void stencilStep(const float* current, float* next, unsigned nx, unsigned ny,
                                       unsigned nz);

namespace parboil::stencil {

void runExplicit(const Context& context) {
  const Parameters parameters = stencil::parameters(context.size);
  const std::size_t bytes = parameters.cells() * sizeof(float);
  std::vector<float> source(parameters.steps);
  InputFile input(dataPath(context, "stencil", "in"), kInput, context.size);
  input.read(source.data(), source.size() * sizeof(float));

  float* volume = requireMemory<float>(malloc(bytes));
  float* current;
  float* next;
  require(cudaMalloc(&current, bytes));
  require(cudaMalloc(&next, bytes));
  input.read(volume, bytes);
  require(cudaMemcpy(current, volume, bytes, cudaMemcpyHostToDevice));

  OutputFile output(dataPath(context, "stencil", "out"), kOutput, context.size);
  for (unsigned step = 0; step < parameters.steps; ++step) {
    // Only the emitter's row travels.
    float row[kEmitterCells];
    require(cudaMemcpy(row, current + parameters.emitter(), sizeof row, cudaMemcpyDeviceToHost));
    addSource(row, source[step]);
    require(cudaMemcpy(current + parameters.emitter(), row, sizeof row, cudaMemcpyHostToDevice));
    stencilStep<<<cudaDim(stepGrid(parameters)), cudaDim(kStepBlock)>>>(
        current, next, parameters.nx, parameters.ny, parameters.nz);
    require(cudaGetLastError());
    std::swap(current, next);
    if ((step + 1) % parameters.snapshotEvery == 0) {
      require(cudaMemcpy(volume, current, bytes, cudaMemcpyDeviceToHost));
      output.write(volume, bytes);
    }
  }
  output.commit();
  require(cudaFree(current));
  require(cudaFree(next));
  free(volume);
}

}  // namespace parboil::stencil
