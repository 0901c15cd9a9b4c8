// SPDX-License-Identifier: Apache-2.0
//
// y = a * x + y as an ordinary CUDA program: cudaMalloc is adsmAlloc, the copies are gone, the
// launch is as it was.
#include <cuda_runtime.h>
#include <gmac/adsm.h>

#include <cstdio>

__global__ void saxpy(unsigned count, float a, const float* x, float* y) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] += a * x[i];
}

int main() {
  constexpr unsigned kCount = 1 << 20;
  constexpr unsigned kThreads = 256;
  auto* x = static_cast<float*>(adsmAlloc(kCount * sizeof(float)));
  auto* y = static_cast<float*>(adsmAlloc(kCount * sizeof(float)));
  if (x == nullptr || y == nullptr) {
    std::fprintf(stderr, "adsmAlloc: %s\n", adsmLastErrorString());
    return 1;
  }
  for (unsigned i = 0; i < kCount; ++i) {
    x[i] = static_cast<float>(i);
    y[i] = 1.0f;
  }

  saxpy<<<(kCount + kThreads - 1) / kThreads, kThreads>>>(kCount, 2.0f, x, y);
  if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) {
    std::fprintf(stderr, "saxpy: %s\n", cudaGetErrorString(error));
    return 1;
  }

  for (unsigned i = 0; i < kCount; ++i) {
    if (y[i] != 2.0f * static_cast<float>(i) + 1.0f) {
      std::fprintf(stderr, "y[%u] is %g\n", i, y[i]);
      return 1;
    }
  }
  adsmFree(x);
  adsmFree(y);
  std::puts("saxpy: correct");
  return 0;
}
