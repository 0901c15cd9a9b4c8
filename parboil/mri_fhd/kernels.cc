// SPDX-License-Identifier: Apache-2.0
#include "parboil/mri_fhd/mri_fhd.h"

#ifdef PARBOIL_CUDA
extern "C" const unsigned char mriFhdImage[];
#endif

namespace parboil::mrifhd {

const RhoKernel& rhoKernel() {
  static const RhoKernel kernel({
      .name = "mri-fhd.rho",
      .paramCount = 0,
      .paramSizes = nullptr,
      .host = &rhoBlock,
      .cudaImage = PARBOIL_CUDA_ONLY(mriFhdImage),
      .cudaName = "mriFhdRho",
      .cudartSymbol = PARBOIL_CUDA_ONLY(rhoSymbol()),
      .constantCount = 0,
      .constants = nullptr,
  });
  return kernel;
}

const FhdKernel& fhdKernel() {
  static const adsmConstant_t kConstants[] = {
      {kSamplesConstant, sizeof hostSamples, hostSamples, PARBOIL_CUDA_ONLY(samplesSymbol())},
  };
  static const FhdKernel kernel({
      .name = "mri-fhd.fhd",
      .paramCount = 0,
      .paramSizes = nullptr,
      .host = &fhdBlock,
      .cudaImage = PARBOIL_CUDA_ONLY(mriFhdImage),
      .cudaName = "mriFhd",
      .cudartSymbol = PARBOIL_CUDA_ONLY(fhdSymbol()),
      .constantCount = 1,
      .constants = kConstants,
  });
  return kernel;
}

}  // namespace parboil::mrifhd

namespace parboil {

const Benchmark& mriFhdBenchmark() {
  static constexpr Benchmark kBenchmark{
      "mri-fhd",        "magnetic resonance imaging FHD",        &mrifhd::generate,
      &mrifhd::runGmac, PARBOIL_CUDA_ONLY(&mrifhd::runExplicit), &mrifhd::check};
  return kBenchmark;
}

}  // namespace parboil
