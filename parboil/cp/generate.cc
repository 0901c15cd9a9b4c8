// SPDX-License-Identifier: Apache-2.0
#include "parboil/cp/cp.h"
#include "parboil/random.h"
#include "parboil/values.h"

namespace parboil::cp {

std::vector<Atom> makeAtoms(std::size_t count) {
  Random random(40000);
  std::vector<Atom> atoms(count);
  for (Atom& atom : atoms) {
    atom.x = static_cast<float>(random.uniform(0, kBox));
    atom.y = static_cast<float>(random.uniform(0, kBox));
    atom.z = static_cast<float>(random.uniform(kClearance, kBox));
    atom.charge = static_cast<float>(random.uniform(-2, 2));
  }
  return atoms;
}

void prepareSlice(std::span<const Atom> atoms, PlaneAtom* slice) {
  for (std::size_t i = 0; i < atoms.size(); ++i) {
    slice[i] = {atoms[i].x, atoms[i].y, atoms[i].z * atoms[i].z, atoms[i].charge};
  }
}

void generate(const Context& context) {
  const auto path = dataPath(context, "cp", "in");
  if (isCurrent(path, kInput, context.size)) return;
  writeValues(path, kInput, context.size, makeAtoms(parameters(context.size).atoms));
}

}  // namespace parboil::cp
