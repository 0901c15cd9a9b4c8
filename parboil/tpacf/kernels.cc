// SPDX-License-Identifier: Apache-2.0
#include "parboil/tpacf/tpacf.h"

#ifdef PARBOIL_CUDA
extern "C" const unsigned char tpacfImage[];
#endif

namespace parboil::tpacf {

const CountKernel& countKernel() {
  static const adsmConstant_t kEdges{kEdgesConstant, sizeof hostEdges, hostEdges,
                                     PARBOIL_CUDA_ONLY(edgesSymbol())};
  static const CountKernel kernel({
      .name = "tpacf.count",
      .paramCount = 0,
      .paramSizes = nullptr,
      .host = &countBlock,
      .cudaImage = PARBOIL_CUDA_ONLY(tpacfImage),
      .cudaName = "tpacfCount",
      .cudartSymbol = PARBOIL_CUDA_ONLY(countSymbol()),
      .constantCount = 1,
      .constants = &kEdges,
  });
  return kernel;
}

}  // namespace parboil::tpacf

namespace parboil {

const Benchmark& tpacfBenchmark() {
  static constexpr Benchmark kBenchmark{
      "tpacf",         "two-point angular correlation",        &tpacf::generate,
      &tpacf::runGmac, PARBOIL_CUDA_ONLY(&tpacf::runExplicit), &tpacf::check};
  return kBenchmark;
}

}  // namespace parboil
