// SPDX-License-Identifier: Apache-2.0
//
// The working set, streamed by the CUDA runtime alone.
#include <cuda_runtime.h>

#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/sweep_kernel.h"
#include "bench/working_set.h"

namespace gmac::bench {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
  }
}

class Streamed final : public StreamedByHand {
 public:
  Streamed(std::size_t pieces, std::size_t bytes) : bytes_(bytes), pieces_(pieces) {
    for (unsigned*& piece : pieces_) {
      check(cudaMallocHost(&piece, bytes), "cudaMallocHost");
      std::memset(piece, 0, bytes);
    }
    for (Buffer& buffer : buffers_) {
      check(cudaMalloc(&buffer.data, bytes), "cudaMalloc");
      check(cudaStreamCreateWithFlags(&buffer.stream, cudaStreamNonBlocking), "cudaStreamCreate");
    }
  }
  ~Streamed() override {
    for (Buffer& buffer : buffers_) {
      cudaStreamDestroy(buffer.stream);
      cudaFree(buffer.data);
    }
    for (unsigned* piece : pieces_) cudaFreeHost(piece);
  }
  void use(std::size_t piece) override {
    const Buffer& buffer = buffers_[next_++ % buffers_.size()];
    check(
        cudaMemcpyAsync(buffer.data, pieces_[piece], bytes_, cudaMemcpyHostToDevice, buffer.stream),
        "cudaMemcpyAsync");
    addOneToAll<<<kSweepBlocks, kSweepThreads, 0, buffer.stream>>>(buffer.data,
                                                                   bytes_ / sizeof(unsigned));
    check(cudaGetLastError(), "launch");
    check(
        cudaMemcpyAsync(pieces_[piece], buffer.data, bytes_, cudaMemcpyDeviceToHost, buffer.stream),
        "cudaMemcpyAsync");
  }
  void sync() override { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }
  unsigned firstWord(std::size_t piece) const override { return *pieces_[piece]; }

 private:
  struct Buffer {
    unsigned* data = nullptr;
    cudaStream_t stream = nullptr;
  };
  const std::size_t bytes_;
  std::vector<unsigned*> pieces_;
  std::array<Buffer, 2> buffers_;
  std::size_t next_ = 0;
};

class Taken final : public Reservation {
 public:
  explicit Taken(std::size_t left) {
    size_t free = 0;
    size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    if (free > left) check(cudaMalloc(&memory_, free - left), "cudaMalloc");
  }
  ~Taken() override { cudaFree(memory_); }

 private:
  void* memory_ = nullptr;
};

}  // namespace

std::unique_ptr<StreamedByHand> streamByHand(std::size_t pieces, std::size_t bytes) {
  return std::make_unique<Streamed>(pieces, bytes);
}
std::unique_ptr<Reservation> leaveFree(std::size_t bytes) { return std::make_unique<Taken>(bytes); }

}  // namespace gmac::bench
