// SPDX-License-Identifier: Apache-2.0
#include "parboil/sad/sad.h"

#ifdef PARBOIL_CUDA
extern "C" const unsigned char sadImage[];
#endif

namespace parboil::sad {

const SearchKernel& search4x4Kernel() {
  static const SearchKernel kernel({
      .name = "sad.search4x4",
      .paramCount = 0,
      .paramSizes = nullptr,
      .host = &search4x4Block,
      .cudaImage = PARBOIL_CUDA_ONLY(sadImage),
      .cudaName = "sadSearch4x4",
      .cudartSymbol = PARBOIL_CUDA_ONLY(search4x4Symbol()),
      .constantCount = 0,
      .constants = nullptr,
  });
  return kernel;
}

const CombineKernel& combine8x8Kernel() {
  static const CombineKernel kernel({
      .name = "sad.combine8x8",
      .paramCount = 0,
      .paramSizes = nullptr,
      .host = &combine8x8Block,
      .cudaImage = PARBOIL_CUDA_ONLY(sadImage),
      .cudaName = "sadCombine8x8",
      .cudartSymbol = PARBOIL_CUDA_ONLY(combine8x8Symbol()),
      .constantCount = 0,
      .constants = nullptr,
  });
  return kernel;
}

const CombineKernel& combine16x16Kernel() {
  static const CombineKernel kernel({
      .name = "sad.combine16x16",
      .paramCount = 0,
      .paramSizes = nullptr,
      .host = &combine16x16Block,
      .cudaImage = PARBOIL_CUDA_ONLY(sadImage),
      .cudaName = "sadCombine16x16",
      .cudartSymbol = PARBOIL_CUDA_ONLY(combine16x16Symbol()),
      .constantCount = 0,
      .constants = nullptr,
  });
  return kernel;
}

}  // namespace parboil::sad

namespace parboil {

const Benchmark& sadBenchmark() {
  static constexpr Benchmark kBenchmark{
      "sad",         "sums of absolute differences",       &sad::generate,
      &sad::runGmac, PARBOIL_CUDA_ONLY(&sad::runExplicit), &sad::check};
  return kBenchmark;
}

}  // namespace parboil
