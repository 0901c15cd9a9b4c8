// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "parboil/cp/cp.h"

namespace parboil::cp {

void runGmac(const Context& context) {
  const Parameters parameters = cp::parameters(context.size);
  const unsigned points = parameters.points;
  const std::size_t bytes = sizeof(float) * points * points;
  std::vector<Atom> atoms(parameters.atoms);
  InputFile input(dataPath(context, "cp", "in"), kInput, context.size);
  input.read(atoms.data(), atoms.size() * sizeof(Atom));

  float* potential = requireShared<float>(adsmAlloc(bytes));
  std::memset(potential, 0, bytes);

  std::vector<PlaneAtom> slice(kSliceAtoms);
  for (std::size_t first = 0; first < atoms.size(); first += kSliceAtoms) {
    const std::size_t count = std::min(kSliceAtoms, atoms.size() - first);
    prepareSlice({atoms.data() + first, count}, slice.data());
    potentialKernel().setConstant(kAtomsConstant, slice.data(), count * sizeof(PlaneAtom));
    potentialKernel().call(potentialGrid(points), kPotentialBlock, 0, potential, points,
                           parameters.spacing(), static_cast<unsigned>(count));
  }
  require(adsmSync());

  OutputFile output(dataPath(context, "cp", "out"), kOutput, context.size);
  output.write(potential, bytes);
  output.commit();
  require(adsmFree(potential));
}

}  // namespace parboil::cp
