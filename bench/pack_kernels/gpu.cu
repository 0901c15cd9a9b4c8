// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "bench/pack_kernels/check.h"
#include "bench/pack_kernels/gpu.h"

namespace packbench {
namespace {

__host__ __device__ std::uint64_t mix(std::uint64_t k) {
  std::uint64_t z = k * 0x9e3779b97f4a7c15ULL + 0x1234567;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  return z ^ (z >> 27);
}

__global__ void fill(std::uint64_t* words, std::uint64_t count) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += step) {
    words[i] = mix(i);
  }
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

}  // namespace

std::uint64_t patternWord(std::uint64_t k) { return mix(k); }

void fillPattern(void* memory, std::size_t bytes) {
  fill<<<4096, 256>>>(static_cast<std::uint64_t*>(memory), bytes / 8);
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaDeviceSynchronize());
}

std::vector<std::uint8_t> expectedPacked(const gmac::datatype::Layout& layout) {
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(layout.bytes()));
  const std::int64_t lowest = layout.bounds().first;
  layout.forEach(0, layout.bytes(), [&](std::int64_t offset, std::int64_t at, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes;) {
      const auto byte = static_cast<std::uint64_t>(offset - lowest + i);
      const std::uint64_t word = patternWord(byte / 8) >> (byte % 8 * 8);
      const std::int64_t take = std::min<std::int64_t>(8 - static_cast<int>(byte % 8), bytes - i);
      std::memcpy(packed.data() + at + i, &word, static_cast<std::size_t>(take));
      i += take;
    }
  });
  return packed;
}

std::uint64_t burstsOf(const gmac::datatype::Layout& layout) {
  const std::int64_t lowest = layout.bounds().first;
  std::vector<bool> touched(static_cast<std::size_t>((layout.bounds().last - lowest) / 64 + 1));
  layout.forEach(0, layout.bytes(), [&](std::int64_t offset, std::int64_t, std::int64_t bytes) {
    for (std::int64_t b = (offset - lowest) / 64; b <= (offset - lowest + bytes - 1) / 64; ++b) {
      touched[static_cast<std::size_t>(b)] = true;
    }
  });
  return static_cast<std::uint64_t>(std::count(touched.begin(), touched.end(), true));
}

void timeInTurns(std::vector<Way>& ways, cudaStream_t stream, int turns,
                 const std::function<void(const Way&)>& before) {
  cudaEvent_t began;
  cudaEvent_t ended;
  CHECK_CUDA(cudaEventCreate(&began));
  CHECK_CUDA(cudaEventCreate(&ended));
  std::vector<std::vector<double>> wall(ways.size());
  std::vector<std::vector<double>> gpu(ways.size());
  std::vector<std::size_t> order(ways.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(1);
  const auto prepare = [&](const Way& way) {
    if (before) before(way);
    CHECK_CUDA(cudaStreamSynchronize(stream));
  };
  for (int turn = -3; turn < turns; ++turn) {
    // Nobody always follows the same one, whose bytes it would find in the caches.
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      prepare(ways[i]);
      const auto start = std::chrono::steady_clock::now();
      ways[i].run(stream);
      CHECK_CUDA(cudaStreamSynchronize(stream));
      const auto end = std::chrono::steady_clock::now();
      if (before) prepare(ways[i]);
      CHECK_CUDA(cudaEventRecord(began, stream));
      ways[i].run(stream);
      CHECK_CUDA(cudaEventRecord(ended, stream));
      CHECK_CUDA(cudaEventSynchronize(ended));
      float milliseconds = 0;
      CHECK_CUDA(cudaEventElapsedTime(&milliseconds, began, ended));
      if (turn < 0) continue;
      wall[i].push_back(std::chrono::duration<double, std::micro>(end - start).count());
      gpu[i].push_back(static_cast<double>(milliseconds) * 1000);
    }
  }
  CHECK_CUDA(cudaGetLastError());
  for (std::size_t i = 0; i < ways.size(); ++i) {
    ways[i].wall = median(wall[i]);
    ways[i].gpu = median(gpu[i]);
  }
  CHECK_CUDA(cudaEventDestroy(began));
  CHECK_CUDA(cudaEventDestroy(ended));
}

double deviceCopyRate(cudaStream_t stream) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  void* memory = nullptr;
  CHECK_CUDA(cudaMalloc(&memory, 2 * kBytes));
  std::vector<Way> way{{"copy", [&](cudaStream_t s) {
                          CHECK_CUDA(cudaMemcpyAsync(static_cast<char*>(memory) + kBytes, memory,
                                                     kBytes, cudaMemcpyDeviceToDevice, s));
                        }}};
  timeInTurns(way, stream, 20);
  CHECK_CUDA(cudaFree(memory));
  return 2 * static_cast<double>(kBytes) / (way[0].gpu * 1e-6);
}

}  // namespace packbench
