// SPDX-License-Identifier: Apache-2.0
#include "parboil/vecadd/vecadd.h"

#ifdef PARBOIL_CUDA
extern "C" const unsigned char vecaddImage[];
#endif

namespace parboil::vecadd {

const Kernel<const float*, const float*, float*, std::uint64_t>& addKernel() {
  static const Kernel<const float*, const float*, float*, std::uint64_t> kernel({
      .name = "vecadd.add",
      .paramCount = 0,
      .paramSizes = nullptr,
      .host = &addBlock,
      .cudaImage = PARBOIL_CUDA_ONLY(vecaddImage),
      .cudaName = "vecaddAdd",
      .cudartSymbol = PARBOIL_CUDA_ONLY(addSymbol()),
      .constantCount = 0,
      .constants = nullptr,
  });
  return kernel;
}

}  // namespace parboil::vecadd

namespace parboil {

const Benchmark& vecaddBenchmark() {
  static constexpr Benchmark kBenchmark{"vecadd",
                                        "vector addition",
                                        &vecadd::generate,
                                        &vecadd::runGmac,
                                        PARBOIL_CUDA_ONLY(&vecadd::runExplicit),
                                        &vecadd::check};
  return kBenchmark;
}

}  // namespace parboil
