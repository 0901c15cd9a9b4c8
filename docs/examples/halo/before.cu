// SPDX-License-Identifier: Apache-2.0
//
// A halo exchange of a grid in device memory as CUDA alone has it: a kernel to gather a plane, one
// to scatter it, staging buffers on both sides, and copies between them.
#include <cuda_runtime.h>

#include "docs/examples/halo/messages.h"

// A grid of nx x ny x nz doubles, x varying fastest; planes 0 and nx - 1 are the neighbours'.
struct Exchange {
  int nx;
  int rows;             // ny * nz
  double* devicePlane;  // rows doubles of device memory
  double* out;          // and of pinned CPU memory
  double* in;
};

__global__ void gatherPlane(double* plane, const double* grid, int nx, int x, int rows) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows) plane[row] = grid[(size_t)row * nx + x];
}

__global__ void scatterPlane(double* grid, const double* plane, int nx, int x, int rows) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows) grid[(size_t)row * nx + x] = plane[row];
}

cudaError_t exchangeCreate(Exchange* e, int nx, int ny, int nz) {
  e->nx = nx;
  e->rows = ny * nz;
  e->devicePlane = e->out = e->in = nullptr;
  const size_t bytes = e->rows * sizeof(double);
  cudaError_t error = cudaMalloc(&e->devicePlane, bytes);
  if (error == cudaSuccess) error = cudaMallocHost(&e->out, bytes);
  if (error == cudaSuccess) error = cudaMallocHost(&e->in, bytes);
  return error;
}

cudaError_t exchangeHalo(const Exchange* e, double* grid, cudaStream_t stream) {
  const size_t bytes = e->rows * sizeof(double);
  const int threads = 256;
  const int blocks = (e->rows + threads - 1) / threads;
  for (int to = kLeft; to <= kRight; ++to) {
    const int own = to == kLeft ? 1 : e->nx - 2;
    const int halo = to == kLeft ? e->nx - 1 : 0;
    gatherPlane<<<blocks, threads, 0, stream>>>(e->devicePlane, grid, e->nx, own, e->rows);
    cudaError_t error =
        cudaMemcpyAsync(e->out, e->devicePlane, bytes, cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (error != cudaSuccess) return error;
    sendAndReceive(static_cast<side>(to), e->out, e->in, bytes);
    error = cudaMemcpyAsync(e->devicePlane, e->in, bytes, cudaMemcpyHostToDevice, stream);
    if (error != cudaSuccess) return error;
    scatterPlane<<<blocks, threads, 0, stream>>>(grid, e->devicePlane, e->nx, halo, e->rows);
    error = cudaGetLastError();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

void exchangeDestroy(Exchange* e) {
  cudaFree(e->devicePlane);
  cudaFreeHost(e->out);
  cudaFreeHost(e->in);
}
