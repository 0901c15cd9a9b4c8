// SPDX-License-Identifier: Apache-2.0
//
// The vector addition with the CUDA runtime alone.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

#include "bench/kernels.h"
#include "bench/vecadd.h"

namespace gmac::bench {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
  }
}

// Seconds since the last lap.
class Laps {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

void launch(float* sum, const float* a, const float* b, size_t count) {
  addVectors<<<static_cast<unsigned>((count + 255) / 256), 256>>>(sum, a, b, count);
  check(cudaGetLastError(), "launch");
}

// Moves a managed vector, to the device or to the CPU.
void prefetch(float* p, size_t bytes, bool toDevice) {
#if CUDART_VERSION >= 13000
  const cudaMemLocation place{toDevice ? cudaMemLocationTypeDevice : cudaMemLocationTypeHost, 0};
  check(cudaMemPrefetchAsync(p, bytes, place, 0, nullptr), "cudaMemPrefetchAsync");
#else
  check(cudaMemPrefetchAsync(p, bytes, toDevice ? 0 : cudaCpuDeviceId, nullptr),
        "cudaMemPrefetchAsync");
#endif
}

}  // namespace

bool cudaPresent() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

double cudaBytesInUse() {
  size_t free = 0;
  size_t total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<double>(total - free) : 0;
}

void createCudaContext() { check(cudaFree(nullptr), "cudaFree"); }

VecaddRun addManaged(size_t count, size_t sparseIterations, bool prefetched) {
  const size_t bytes = count * sizeof(float);
  VecaddRun run;
  Laps laps;
  float *a, *b, *sum;
  check(cudaMallocManaged(&a, bytes), "cudaMallocManaged");
  check(cudaMallocManaged(&b, bytes), "cudaMallocManaged");
  check(cudaMallocManaged(&sum, bytes), "cudaMallocManaged");
  run.allocate = laps.lap();
  fillVector(a, 0, count, 0);
  fillVector(b, 0, count, 1);
  run.fill = laps.lap();
  if (prefetched) {
    prefetch(a, bytes, true);
    prefetch(b, bytes, true);
    prefetch(sum, bytes, true);
  }
  launch(sum, a, b, count);
  if (prefetched) {
    prefetch(sum, bytes, false);
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  run.add = laps.lap();
  run.result = sumVector(sum, count);
  run.sum = laps.lap();
  for (size_t i = 0; i < sparseIterations; ++i) {
    const size_t element = sparseElement(i, count);
    a[element] = static_cast<float>(i);
    launch(sum, a, b, count);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    (void)*const_cast<volatile float*>(sum + element);
  }
  run.sparse = sparseIterations > 0 ? laps.lap() / static_cast<double>(sparseIterations) : 0;
  laps = Laps();
  check(cudaFree(a), "cudaFree");
  check(cudaFree(b), "cudaFree");
  check(cudaFree(sum), "cudaFree");
  run.release = laps.lap();
  return run;
}

VecaddRun addOverlapped(size_t count, size_t sparseIterations) {
  const size_t bytes = count * sizeof(float);
  VecaddRun run;
  Laps laps;
  float *a, *b, *sum, *deviceA, *deviceB, *deviceSum;
  cudaStream_t stream;
  check(cudaMallocHost(&a, bytes), "cudaMallocHost");
  check(cudaMallocHost(&b, bytes), "cudaMallocHost");
  check(cudaMallocHost(&sum, bytes), "cudaMallocHost");
  check(cudaMalloc(&deviceA, bytes), "cudaMalloc");
  check(cudaMalloc(&deviceB, bytes), "cudaMalloc");
  check(cudaMalloc(&deviceSum, bytes), "cudaMalloc");
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  run.allocate = laps.lap();
  for (unsigned which = 0; which < 2; ++which) {
    float* const host = which == 0 ? a : b;
    float* const device = which == 0 ? deviceA : deviceB;
    for (size_t first = 0; first < count; first += kFillChunk) {
      const size_t part = std::min(kFillChunk, count - first);
      fillVector(host + first, first, part, which);
      check(cudaMemcpyAsync(device + first, host + first, part * sizeof(float),
                            cudaMemcpyHostToDevice, stream),
            "cudaMemcpyAsync");
    }
  }
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  run.fill = laps.lap();
  launch(deviceSum, deviceA, deviceB, count);
  check(cudaMemcpy(sum, deviceSum, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  run.add = laps.lap();
  run.result = sumVector(sum, count);
  run.sum = laps.lap();
  for (size_t i = 0; i < sparseIterations; ++i) {
    const size_t element = sparseElement(i, count);
    a[element] = static_cast<float>(i);
    check(cudaMemcpy(deviceA + element, a + element, sizeof(float), cudaMemcpyHostToDevice),
          "cudaMemcpy");
    launch(deviceSum, deviceA, deviceB, count);
    check(cudaMemcpy(sum + element, deviceSum + element, sizeof(float), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    (void)*const_cast<volatile float*>(sum + element);
  }
  run.sparse = sparseIterations > 0 ? laps.lap() / static_cast<double>(sparseIterations) : 0;
  laps = Laps();
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  for (float* host : {a, b, sum}) {
    check(cudaFreeHost(host), "cudaFreeHost");
  }
  for (float* device : {deviceA, deviceB, deviceSum}) {
    check(cudaFree(device), "cudaFree");
  }
  run.release = laps.lap();
  return run;
}

}  // namespace gmac::bench
