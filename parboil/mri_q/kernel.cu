// SPDX-License-Identifier: Apache-2.0
#include "parboil/mri_q/mri_q.h"

// float4 and not Sample: one load of 16 bytes.
__constant__ float4 mriQSamples[parboil::mriq::kChunk];

extern "C" __global__ void mriQPhiMag(const float* phiR, const float* phiI, float* phiMag,
                                      unsigned samples) {
  const unsigned k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k < samples) phiMag[k] = phiR[k] * phiR[k] + phiI[k] * phiI[k];
}

extern "C" __global__ void __launch_bounds__(256)
    mriQ(const float* x, const float* y, const float* z, float* qr, float* qi, unsigned voxels,
         unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= voxels) return;
  const float atX = x[i];
  const float atY = y[i];
  const float atZ = z[i];
  float sumReal = qr[i];
  float sumImaginary = qi[i];
#pragma unroll 4
  for (unsigned k = 0; k < count; ++k) {
    const float4 sample = mriQSamples[k];
    const float turns = sample.x * atX + sample.y * atY + sample.z * atZ;
    float sine;
    float cosine;
    sincospif(2.0f * turns, &sine, &cosine);
    sumReal += sample.w * cosine;
    sumImaginary += sample.w * sine;
  }
  qr[i] = sumReal;
  qi[i] = sumImaginary;
}

namespace parboil::mriq {

const void* phiMagSymbol() { return reinterpret_cast<const void*>(&mriQPhiMag); }
const void* qSymbol() { return reinterpret_cast<const void*>(&mriQ); }
const void* samplesSymbol() { return mriQSamples; }

}  // namespace parboil::mriq
