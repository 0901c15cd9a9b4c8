// SPDX-License-Identifier: Apache-2.0
#include "parboil/rpes/rys.h"

namespace parboil::rpes {

void runGmac(const Context& context) {
  const Molecule molecule = readMolecule(context);
  const std::size_t pairsBytes = molecule.pairs.size() * sizeof(Pair);
  const std::size_t primitivesBytes = molecule.primitives * sizeof(Primitive);
  const std::size_t tableBytes = kTableLength * sizeof(float);
  const std::size_t quartetsBytes = molecule.quartets() * sizeof(Quartet);
  const std::size_t partialsBytes = molecule.partials() * sizeof(float);

  Pair* pairs = requireShared<Pair>(adsmAlloc(pairsBytes));
  Primitive* primitives = requireShared<Primitive>(adsmAlloc(primitivesBytes));
  float* table = requireShared<float>(adsmAlloc(tableBytes));
  Quartet* quartets = requireShared<Quartet>(adsmAlloc(quartetsBytes));
  float* partials = requireShared<float>(adsmAlloc(partialsBytes));
  fillPairs(molecule, pairs, primitives);
  fillTable(table);
  fillQuartets(molecule, quartets);

  const Quartet* batch = quartets;
  float* sums = partials;
  for (unsigned bra = 0; bra < kClasses; ++bra) {
    for (unsigned ket = 0; ket < kClasses; ++ket) {
      for (std::size_t left = molecule.quartets(bra, ket), count; left > 0; left -= count) {
        count = std::min(left, kBatch);
        coulombKernel(bra, ket).call({blocksFor(count, kThreads), 1, 1}, {kThreads, 1, 1}, 0, pairs,
                                     primitives, table, batch, sums,
                                     static_cast<std::uint32_t>(count));
        require(adsmSync());
        batch += count;
        sums += count / kGroup * componentsOf(bra);
      }
    }
  }

  const std::vector<double> coulomb = sumPartials(molecule, partials);
  OutputFile output(dataPath(context, "rpes", "out"), kOutput, context.size);
  output.write(coulomb.data(), coulomb.size() * sizeof(double));
  output.commit();
  require(adsmFree(pairs));
  require(adsmFree(primitives));
  require(adsmFree(table));
  require(adsmFree(quartets));
  require(adsmFree(partials));
}

}  // namespace parboil::rpes
