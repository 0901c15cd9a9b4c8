// SPDX-License-Identifier: Apache-2.0
#include "parboil/cp/cp.h"

#ifdef PARBOIL_CUDA
extern "C" const unsigned char cpImage[];
#endif

namespace parboil::cp {

const PotentialKernel& potentialKernel() {
  static const adsmConstant_t kConstants[] = {
      {kAtomsConstant, sizeof hostAtoms, hostAtoms, PARBOIL_CUDA_ONLY(atomsSymbol())},
  };
  static const PotentialKernel kernel({
      .name = "cp.potential",
      .paramCount = 0,
      .paramSizes = nullptr,
      .host = &potentialBlock,
      .cudaImage = PARBOIL_CUDA_ONLY(cpImage),
      .cudaName = "cpPotential",
      .cudartSymbol = PARBOIL_CUDA_ONLY(potentialSymbol()),
      .constantCount = 1,
      .constants = kConstants,
  });
  return kernel;
}

}  // namespace parboil::cp

namespace parboil {

const Benchmark& cpBenchmark() {
  static constexpr Benchmark kBenchmark{"cp",
                                        "Coulombic potential",
                                        &cp::generate,
                                        &cp::runGmac,
                                        PARBOIL_CUDA_ONLY(&cp::runExplicit),
                                        &cp::check};
  return kBenchmark;
}

}  // namespace parboil
