// SPDX-License-Identifier: Apache-2.0
#include "parboil/require_cuda.h"
#include "parboil/rpes/rys.h"

namespace parboil::rpes {
namespace {

using CoulombFunction = void (*)(const Pair*, const Primitive*, const float*, const Quartet*,
                                 float*, std::uint32_t);

}  // namespace

void runExplicit(const Context& context) {
  const Molecule molecule = readMolecule(context);
  const std::size_t pairsBytes = molecule.pairs.size() * sizeof(Pair);
  const std::size_t primitivesBytes = molecule.primitives * sizeof(Primitive);
  const std::size_t tableBytes = kTableLength * sizeof(float);
  const std::size_t quartetsBytes = molecule.quartets() * sizeof(Quartet);
  const std::size_t partialsBytes = molecule.partials() * sizeof(float);

  Pair* pairs = requireMemory<Pair>(malloc(pairsBytes));
  Primitive* primitives = requireMemory<Primitive>(malloc(primitivesBytes));
  float* table = requireMemory<float>(malloc(tableBytes));
  Quartet* quartets = requireMemory<Quartet>(malloc(quartetsBytes));
  float* partials = requireMemory<float>(malloc(partialsBytes));
  Pair* devicePairs;
  Primitive* devicePrimitives;
  float* deviceTable;
  Quartet* deviceQuartets;
  float* devicePartials;
  require(cudaMalloc(&devicePairs, pairsBytes));
  require(cudaMalloc(&devicePrimitives, primitivesBytes));
  require(cudaMalloc(&deviceTable, tableBytes));
  require(cudaMalloc(&deviceQuartets, quartetsBytes));
  require(cudaMalloc(&devicePartials, partialsBytes));
  fillPairs(molecule, pairs, primitives);
  fillTable(table);
  fillQuartets(molecule, quartets);
  require(cudaMemcpy(devicePairs, pairs, pairsBytes, cudaMemcpyHostToDevice));
  require(cudaMemcpy(devicePrimitives, primitives, primitivesBytes, cudaMemcpyHostToDevice));
  require(cudaMemcpy(deviceTable, table, tableBytes, cudaMemcpyHostToDevice));
  require(cudaMemcpy(deviceQuartets, quartets, quartetsBytes, cudaMemcpyHostToDevice));

  const Quartet* batch = deviceQuartets;
  float* sums = devicePartials;
  for (unsigned bra = 0; bra < kClasses; ++bra) {
    for (unsigned ket = 0; ket < kClasses; ++ket) {
      for (std::size_t left = molecule.quartets(bra, ket), count; left > 0; left -= count) {
        count = std::min(left, kBatch);
        const auto coulomb =
            reinterpret_cast<CoulombFunction>(const_cast<void*>(coulombSymbol(bra, ket)));
        coulomb<<<blocksFor(count, kThreads), kThreads>>>(devicePairs, devicePrimitives,
                                                          deviceTable, batch, sums,
                                                          static_cast<std::uint32_t>(count));
        require(cudaGetLastError());
        require(cudaDeviceSynchronize());
        batch += count;
        sums += count / kGroup * componentsOf(bra);
      }
    }
  }
  require(cudaMemcpy(partials, devicePartials, partialsBytes, cudaMemcpyDeviceToHost));

  const std::vector<double> coulomb = sumPartials(molecule, partials);
  OutputFile output(dataPath(context, "rpes", "out"), kOutput, context.size);
  output.write(coulomb.data(), coulomb.size() * sizeof(double));
  output.commit();
  require(cudaFree(devicePairs));
  require(cudaFree(devicePrimitives));
  require(cudaFree(deviceTable));
  require(cudaFree(deviceQuartets));
  require(cudaFree(devicePartials));
  free(pairs);
  free(primitives);
  free(table);
  free(quartets);
  free(partials);
}

}  // namespace parboil::rpes
