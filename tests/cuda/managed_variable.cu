// SPDX-License-Identifier: Apache-2.0
//
// A program with a __managed__ variable beside managed memory.
#include <cuda_runtime.h>

#include "tests/cuda/gpu_program.h"
#include "tests/cuda/managed_cases.h"

using namespace gmac::gpu_program;  // NOLINT: a program, not a library

__managed__ int total;

namespace {

__global__ void add(const int* data, int count) {
  for (int i = 0; i < count; ++i) total += data[i];
}

void adds() {
  int* data = nullptr;
  CHECK(cudaMallocManaged(&data, 1 << 20));
  for (int i = 0; i < 100; ++i) data[i] = i;
  total = 50;
  for (int round = 1; round <= 3; ++round) {
    add<<<1, 1>>>(data, 100);
    CHECK(cudaDeviceSynchronize());
    EXPECT_EQUAL(total, 50 + 4950 * round);
  }
  CHECK(cudaFree(data));
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("needs an NVIDIA GPU\n");
    return GMAC_MANAGED_NO_DEVICE;
  }
  try {
    adds();
    std::printf("passed\n");
    return 0;
  } catch (const Failed& failed) {
    std::printf("FAILED: %s\n", failed.what.c_str());
    return 1;
  }
}
