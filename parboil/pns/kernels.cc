// SPDX-License-Identifier: Apache-2.0
#include "parboil/pns/pns.h"

#ifdef PARBOIL_CUDA
extern "C" const unsigned char pnsImage[];
#endif

namespace parboil::pns {

const SimulateKernel& simulateKernel() {
  static const SimulateKernel kernel({
      .name = "pns.simulate",
      .paramCount = 0,
      .paramSizes = nullptr,
      .host = &simulateBlock,
      .cudaImage = PARBOIL_CUDA_ONLY(pnsImage),
      .cudaName = "pnsSimulate",
      .cudartSymbol = PARBOIL_CUDA_ONLY(simulateSymbol()),
      .constantCount = 0,
      .constants = nullptr,
  });
  return kernel;
}

}  // namespace parboil::pns

namespace parboil {

const Benchmark& pnsBenchmark() {
  static constexpr Benchmark kBenchmark{"pns",
                                        "Petri net simulation",
                                        &pns::generate,
                                        &pns::runGmac,
                                        PARBOIL_CUDA_ONLY(&pns::runExplicit),
                                        &pns::check};
  return kBenchmark;
}

}  // namespace parboil
