// SPDX-License-Identifier: Apache-2.0
#include "parboil/mri_q/mri_q.h"

#ifdef PARBOIL_CUDA
extern "C" const unsigned char mriQImage[];
#endif

namespace parboil::mriq {

const PhiMagKernel& phiMagKernel() {
  static const PhiMagKernel kernel({
      .name = "mri-q.phiMag",
      .paramCount = 0,
      .paramSizes = nullptr,
      .host = &phiMagBlock,
      .cudaImage = PARBOIL_CUDA_ONLY(mriQImage),
      .cudaName = "mriQPhiMag",
      .cudartSymbol = PARBOIL_CUDA_ONLY(phiMagSymbol()),
      .constantCount = 0,
      .constants = nullptr,
  });
  return kernel;
}

const QKernel& qKernel() {
  static const adsmConstant_t kConstants[] = {
      {kSamplesConstant, sizeof hostSamples, hostSamples, PARBOIL_CUDA_ONLY(samplesSymbol())},
  };
  static const QKernel kernel({
      .name = "mri-q.q",
      .paramCount = 0,
      .paramSizes = nullptr,
      .host = &qBlock,
      .cudaImage = PARBOIL_CUDA_ONLY(mriQImage),
      .cudaName = "mriQ",
      .cudartSymbol = PARBOIL_CUDA_ONLY(qSymbol()),
      .constantCount = 1,
      .constants = kConstants,
  });
  return kernel;
}

}  // namespace parboil::mriq

namespace parboil {

const Benchmark& mriQBenchmark() {
  static constexpr Benchmark kBenchmark{
      "mri-q",        "magnetic resonance imaging Q",        &mriq::generate,
      &mriq::runGmac, PARBOIL_CUDA_ONLY(&mriq::runExplicit), &mriq::check};
  return kBenchmark;
}

}  // namespace parboil
