// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "parboil/cp/cp.h"
#include "parboil/require_cuda.h"

extern "C" __global__ void cpPotential(float* potential, unsigned points, float spacing,
                                       unsigned count);

namespace parboil::cp {

void runExplicit(const Context& context) {
  const Parameters parameters = cp::parameters(context.size);
  const unsigned points = parameters.points;
  const std::size_t bytes = sizeof(float) * points * points;
  std::vector<Atom> atoms(parameters.atoms);
  InputFile input(dataPath(context, "cp", "in"), kInput, context.size);
  input.read(atoms.data(), atoms.size() * sizeof(Atom));

  float* potential = requireMemory<float>(malloc(bytes));
  float* devicePotential;
  require(cudaMalloc(&devicePotential, bytes));
  require(cudaMemset(devicePotential, 0, bytes));

  std::vector<PlaneAtom> slice(kSliceAtoms);
  for (std::size_t first = 0; first < atoms.size(); first += kSliceAtoms) {
    const std::size_t count = std::min(kSliceAtoms, atoms.size() - first);
    prepareSlice({atoms.data() + first, count}, slice.data());
    require(cudaMemcpyToSymbol(atomsSymbol(), slice.data(), count * sizeof(PlaneAtom)));
    cpPotential<<<cudaDim(potentialGrid(points)), cudaDim(kPotentialBlock)>>>(
        devicePotential, points, parameters.spacing(), static_cast<unsigned>(count));
    require(cudaGetLastError());
  }
  require(cudaMemcpy(potential, devicePotential, bytes, cudaMemcpyDeviceToHost));

  OutputFile output(dataPath(context, "cp", "out"), kOutput, context.size);
  output.write(potential, bytes);
  output.commit();
  require(cudaFree(devicePotential));
  free(potential);
}

}  // namespace parboil::cp
