// SPDX-License-Identifier: Apache-2.0
#include "parboil/rpes/rpes.h"

#ifdef PARBOIL_CUDA
extern "C" const unsigned char rpesImage[];
#endif

namespace parboil::rpes {
namespace {

struct Names {
  const char* name;
  const char* cuda;
};
constexpr Names kNames[kClasses][kClasses] = {
    {{"rpes.ss-ss", "rpesSsSs"}, {"rpes.ss-ps", "rpesSsPs"}, {"rpes.ss-pp", "rpesSsPp"}},
    {{"rpes.ps-ss", "rpesPsSs"}, {"rpes.ps-ps", "rpesPsPs"}, {"rpes.ps-pp", "rpesPsPp"}},
    {{"rpes.pp-ss", "rpesPpSs"}, {"rpes.pp-ps", "rpesPpPs"}, {"rpes.pp-pp", "rpesPpPp"}}};

CoulombKernel makeKernel(unsigned braClass, unsigned ketClass) {
  return CoulombKernel({
      .name = kNames[braClass][ketClass].name,
      .paramCount = 0,
      .paramSizes = nullptr,
      .host = coulombBlock(braClass, ketClass),
      .cudaImage = PARBOIL_CUDA_ONLY(rpesImage),
      .cudaName = kNames[braClass][ketClass].cuda,
      .cudartSymbol = PARBOIL_CUDA_ONLY(coulombSymbol(braClass, ketClass)),
      .constantCount = 0,
      .constants = nullptr,
  });
}

}  // namespace

const CoulombKernel& coulombKernel(unsigned braClass, unsigned ketClass) {
  static const CoulombKernel kernels[kClasses][kClasses] = {
      {makeKernel(0, 0), makeKernel(0, 1), makeKernel(0, 2)},
      {makeKernel(1, 0), makeKernel(1, 1), makeKernel(1, 2)},
      {makeKernel(2, 0), makeKernel(2, 1), makeKernel(2, 2)}};
  return kernels[braClass][ketClass];
}

}  // namespace parboil::rpes

namespace parboil {

const Benchmark& rpesBenchmark() {
  static constexpr Benchmark kBenchmark{
      "rpes",         "Rys polynomial equation solver",      &rpes::generate,
      &rpes::runGmac, PARBOIL_CUDA_ONLY(&rpes::runExplicit), &rpes::check};
  return kBenchmark;
}

}  // namespace parboil
