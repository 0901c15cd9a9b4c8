// SPDX-License-Identifier: Apache-2.0
#include "parboil/host_kernel.h"

#include <algorithm>

#include "parboil/mri_q/mri_q.h"

namespace parboil::mriq {

Sample hostSamples[kChunk];

namespace {

// The samples' sums for `n` voxels.
PARBOIL_HOST_KERNEL void sumSamples(const float* x, const float* y, const float* z, float* qr,
                                    float* qi, unsigned n, const Sample* samples, unsigned count) {
  float sumReal[kQThreads];
  float sumImaginary[kQThreads];
  std::copy_n(qr, n, sumReal);
  std::copy_n(qi, n, sumImaginary);
  for (unsigned k = 0; k < count; ++k) {
    const Sample sample = samples[k];
    for (unsigned i = 0; i < n; ++i) {
      float cosine;
      float sine;
      mri::expTurns(sample.kx * x[i] + sample.ky * y[i] + sample.kz * z[i], &cosine, &sine);
      sumReal[i] += sample.phiMag * cosine;
      sumImaginary[i] += sample.phiMag * sine;
    }
  }
  std::copy_n(sumReal, n, qr);
  std::copy_n(sumImaginary, n, qi);
}

}  // namespace

void phiMagBlock(const adsmThreadBlock_t* block, void** args) {
  const float* phiR = argument<const float*>(args, 0);
  const float* phiI = argument<const float*>(args, 1);
  float* phiMag = argument<float*>(args, 2);
  const auto samples = argument<unsigned>(args, 3);
  const unsigned begin = block->blockIdx.x * block->blockDim.x;
  for (unsigned k = begin; k < std::min(begin + block->blockDim.x, samples); ++k) {
    phiMag[k] = phiR[k] * phiR[k] + phiI[k] * phiI[k];
  }
}

void qBlock(const adsmThreadBlock_t* block, void** args) {
  const auto voxels = argument<unsigned>(args, 5);
  const unsigned begin = block->blockIdx.x * kQThreads;
  sumSamples(argument<const float*>(args, 0) + begin, argument<const float*>(args, 1) + begin,
             argument<const float*>(args, 2) + begin, argument<float*>(args, 3) + begin,
             argument<float*>(args, 4) + begin, std::min(kQThreads, voxels - begin), hostSamples,
             argument<unsigned>(args, 6));
}

}  // namespace parboil::mriq
