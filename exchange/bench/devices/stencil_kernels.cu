// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "exchange/bench/devices/stencil_kernels.h"

namespace gmac::exchange::bench {
namespace {

constexpr unsigned kWide = 64;
constexpr unsigned kHigh = 4;
constexpr unsigned kThreads = 256;

unsigned blocksFor(std::int64_t count, unsigned each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

__global__ void fill(std::int64_t pitch, std::int64_t cells, double* to, std::int64_t left) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= cells) return;
  const std::int64_t row = i / pitch;
  to[i] = static_cast<double>((row * 31 + (left + i % pitch) * 17) % 1024) / 1024;
}

__global__ void __launch_bounds__(kWide* kHigh)
    step(std::int64_t columns, std::int64_t rows, double* __restrict__ to,
         const double* __restrict__ from) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kWide + threadIdx.x;
  const std::int64_t row = std::int64_t{blockIdx.y} * kHigh + threadIdx.y;
  if (column >= columns || row >= rows) return;
  const std::int64_t pitch = columns + 2;
  const std::int64_t at = (row + 1) * pitch + column + 1;
  constexpr double kMiddle = 0.25;
  constexpr double kSide = 0.125;
  constexpr double kCorner = 0.0625;
  const double* const above = from + at - pitch;
  const double* const here = from + at;
  const double* const below = from + at + pitch;
  to[at] = kMiddle * here[0] + kSide * here[-1] + kSide * here[1] + kSide * above[0] +
           kSide * below[0] + kCorner * above[-1] + kCorner * above[1] + kCorner * below[-1] +
           kCorner * below[1];
}

__global__ void pack(std::int64_t pitch, std::int64_t rows, double* to, const double* column) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row < rows) to[row] = column[(row + 1) * pitch];
}

__global__ void unpack(std::int64_t pitch, std::int64_t rows, double* column, const double* from) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row < rows) column[(row + 1) * pitch] = from[row];
}

void checkLaunch(const char* kernel) {
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    throw std::runtime_error(std::string(kernel) + ": " + cudaGetErrorString(error));
  }
}

}  // namespace

void fillGrid(const Grid& grid, double* cells, std::int64_t left, void* stream) {
  fill<<<blocksFor(grid.cells(), kThreads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      grid.pitch(), grid.cells(), cells, left);
  checkLaunch("filling a grid");
}

void stepGrid(const Grid& grid, double* to, const double* from, void* stream) {
  const dim3 blocks(blocksFor(grid.columns, kWide), blocksFor(grid.rows, kHigh));
  step<<<blocks, dim3(kWide, kHigh), 0, static_cast<cudaStream_t>(stream)>>>(grid.columns,
                                                                             grid.rows, to, from);
  checkLaunch("a step of the stencil");
}

void packColumn(const Grid& grid, double* to, const double* cells, std::int64_t column,
                void* stream) {
  pack<<<blocksFor(grid.rows, kThreads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      grid.pitch(), grid.rows, to, cells + column);
  checkLaunch("packing a column");
}

void unpackColumn(const Grid& grid, double* cells, const double* from, std::int64_t column,
                  void* stream) {
  unpack<<<blocksFor(grid.rows, kThreads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      grid.pitch(), grid.rows, cells + column, from);
  checkLaunch("unpacking a column");
}

}  // namespace gmac::exchange::bench
