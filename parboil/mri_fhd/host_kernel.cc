// SPDX-License-Identifier: Apache-2.0
#include "parboil/host_kernel.h"

#include <algorithm>

#include "parboil/mri_fhd/mri_fhd.h"

namespace parboil::mrifhd {

Sample hostSamples[kChunk];

namespace {

// The samples' sums for `n` voxels.
PARBOIL_HOST_KERNEL void sumSamples(const float* x, const float* y, const float* z, float* fhdR,
                                    float* fhdI, unsigned n, const Sample* samples,
                                    unsigned count) {
  float sumReal[kFhdThreads];
  float sumImaginary[kFhdThreads];
  std::copy_n(fhdR, n, sumReal);
  std::copy_n(fhdI, n, sumImaginary);
  for (unsigned k = 0; k < count; ++k) {
    const Sample sample = samples[k];
    for (unsigned i = 0; i < n; ++i) {
      float cosine;
      float sine;
      mri::expTurns(sample.kx * x[i] + sample.ky * y[i] + sample.kz * z[i], &cosine, &sine);
      sumReal[i] += sample.rhoR * cosine - sample.rhoI * sine;
      sumImaginary[i] += sample.rhoI * cosine + sample.rhoR * sine;
    }
  }
  std::copy_n(sumReal, n, fhdR);
  std::copy_n(sumImaginary, n, fhdI);
}

}  // namespace

void rhoBlock(const adsmThreadBlock_t* block, void** args) {
  const float* phiR = argument<const float*>(args, 0);
  const float* phiI = argument<const float*>(args, 1);
  const float* dR = argument<const float*>(args, 2);
  const float* dI = argument<const float*>(args, 3);
  float* rhoR = argument<float*>(args, 4);
  float* rhoI = argument<float*>(args, 5);
  const auto samples = argument<unsigned>(args, 6);
  const unsigned begin = block->blockIdx.x * block->blockDim.x;
  for (unsigned k = begin; k < std::min(begin + block->blockDim.x, samples); ++k) {
    rhoR[k] = phiR[k] * dR[k] + phiI[k] * dI[k];
    rhoI[k] = phiR[k] * dI[k] - phiI[k] * dR[k];
  }
}

void fhdBlock(const adsmThreadBlock_t* block, void** args) {
  const auto voxels = argument<unsigned>(args, 5);
  const unsigned begin = block->blockIdx.x * kFhdThreads;
  sumSamples(argument<const float*>(args, 0) + begin, argument<const float*>(args, 1) + begin,
             argument<const float*>(args, 2) + begin, argument<float*>(args, 3) + begin,
             argument<float*>(args, 4) + begin, std::min(kFhdThreads, voxels - begin), hostSamples,
             argument<unsigned>(args, 6));
}

}  // namespace parboil::mrifhd
