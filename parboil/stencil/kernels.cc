// SPDX-License-Identifier: Apache-2.0
#include "parboil/stencil/stencil.h"

#ifdef PARBOIL_CUDA
extern "C" const unsigned char stencilImage[];
#endif

namespace parboil::stencil {

const StepKernel& stepKernel() {
  static const StepKernel kernel({
      .name = "stencil.step",
      .paramCount = 0,
      .paramSizes = nullptr,
      .host = &stepBlock,
      .cudaImage = PARBOIL_CUDA_ONLY(stencilImage),
      .cudaName = "stencilStep",
      .cudartSymbol = PARBOIL_CUDA_ONLY(stepSymbol()),
      .constantCount = 0,
      .constants = nullptr,
  });
  return kernel;
}

}  // namespace parboil::stencil

namespace parboil {

const Benchmark& stencilBenchmark() {
  static constexpr Benchmark kBenchmark{"stencil",
                                        "3D stencil",
                                        &stencil::generate,
                                        &stencil::runGmac,
                                        PARBOIL_CUDA_ONLY(&stencil::runExplicit),
                                        &stencil::check};
  return kBenchmark;
}

}  // namespace parboil
