// SPDX-License-Identifier: Apache-2.0
#include "parboil/mri_fhd/mri_fhd.h"

__constant__ parboil::mrifhd::Sample mriFhdSamples[parboil::mrifhd::kChunk];

extern "C" __global__ void mriFhdRho(const float* phiR, const float* phiI, const float* dR,
                                     const float* dI, float* rhoR, float* rhoI, unsigned samples) {
  const unsigned k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= samples) return;
  rhoR[k] = phiR[k] * dR[k] + phiI[k] * dI[k];
  rhoI[k] = phiR[k] * dI[k] - phiI[k] * dR[k];
}

extern "C" __global__ void __launch_bounds__(256)
    mriFhd(const float* x, const float* y, const float* z, float* fhdR, float* fhdI,
           unsigned voxels, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= voxels) return;
  const float atX = x[i];
  const float atY = y[i];
  const float atZ = z[i];
  float sumReal = fhdR[i];
  float sumImaginary = fhdI[i];
#pragma unroll 4
  for (unsigned k = 0; k < count; ++k) {
    const parboil::mrifhd::Sample sample = mriFhdSamples[k];
    const float turns = sample.kx * atX + sample.ky * atY + sample.kz * atZ;
    float sine;
    float cosine;
    sincospif(2.0f * turns, &sine, &cosine);
    sumReal += sample.rhoR * cosine - sample.rhoI * sine;
    sumImaginary += sample.rhoI * cosine + sample.rhoR * sine;
  }
  fhdR[i] = sumReal;
  fhdI[i] = sumImaginary;
}

namespace parboil::mrifhd {

const void* rhoSymbol() { return reinterpret_cast<const void*>(&mriFhdRho); }
const void* fhdSymbol() { return reinterpret_cast<const void*>(&mriFhd); }
const void* samplesSymbol() { return mriFhdSamples; }

}  // namespace parboil::mrifhd
