// SPDX-License-Identifier: Apache-2.0
//
// The access patterns' memory, managed by the CUDA runtime alone.
#include <cuda_runtime.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "bench/pattern_memory.h"
#include "bench/touch_kernel.h"

namespace gmac::bench {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
  }
}

class ManagedMemory final : public PatternMemory {
 public:
  std::byte* allocate(std::size_t bytes) override {
    std::byte* data = nullptr;
    check(cudaMallocManaged(&data, bytes), "cudaMallocManaged");
    return data;
  }
  void release(std::byte* data) override { check(cudaFree(data), "cudaFree"); }
  void launch(std::byte* data, std::size_t bytes) override {
    touchPages<<<static_cast<unsigned>(touchBlocks(bytes)), kTouchThreads>>>(
        reinterpret_cast<unsigned*>(data), bytes);
    check(cudaGetLastError(), "launch");
  }
  void sync() override { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }
};

}  // namespace

std::unique_ptr<PatternMemory> makeManagedMemory() { return std::make_unique<ManagedMemory>(); }

}  // namespace gmac::bench
