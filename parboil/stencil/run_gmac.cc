// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "parboil/stencil/stencil.h"

namespace parboil::stencil {

void runGmac(const Context& context) {
  const Parameters parameters = stencil::parameters(context.size);
  const std::size_t bytes = parameters.cells() * sizeof(float);
  std::vector<float> source(parameters.steps);
  InputFile input(dataPath(context, "stencil", "in"), kInput, context.size);
  input.read(source.data(), source.size() * sizeof(float));

  float* current = requireShared<float>(adsmAlloc(bytes));
  float* next = requireShared<float>(adsmAlloc(bytes));
  input.read(current, bytes);

  OutputFile output(dataPath(context, "stencil", "out"), kOutput, context.size);
  for (unsigned step = 0; step < parameters.steps; ++step) {
    addSource(current + parameters.emitter(), source[step]);
    stepKernel().call(stepGrid(parameters), kStepBlock, 0, current, next, parameters.nx,
                      parameters.ny, parameters.nz);
    require(adsmSync());
    std::swap(current, next);
    if ((step + 1) % parameters.snapshotEvery == 0) {
      output.write(current, bytes);
    }
  }
  output.commit();
  require(adsmFree(current));
  require(adsmFree(next));
}

}  // namespace parboil::stencil
