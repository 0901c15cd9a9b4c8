// SPDX-License-Identifier: Apache-2.0
//
// Kernels written by hand, each for one layout: what the engine's are measured against.
#ifndef GMAC_BENCH_PACK_KERNELS_HAND_CUH_
#define GMAC_BENCH_PACK_KERNELS_HAND_CUH_

#include <cstdint>

namespace hand {

struct Call {
  const void* source;
  void* target;
  std::uint32_t elements;  // words moved
  std::uint32_t piece;     // words of a piece
  std::uint32_t stride;    // words between pieces
  std::uint32_t side;      // 4-D: log2 of it; others: see the kernel
  const void* table;
};

template <typename Word>
__global__ void vector(const Call c) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.elements) return;
  const auto* in = static_cast<const Word*>(c.source);
  auto* out = static_cast<Word*>(c.target);
  if (c.piece == 1) {
    out[i] = in[static_cast<std::size_t>(i) * c.stride];
  } else {
    out[i] = in[static_cast<std::size_t>(i / c.piece) * c.stride + i % c.piece];
  }
}

// One row of blocks a matrix row; `side` is unused.
__global__ void submatrix(const Call c) {
  const auto* in =
      static_cast<const ulonglong2*>(c.source) + static_cast<std::size_t>(blockIdx.y) * c.stride;
  auto* out = static_cast<ulonglong2*>(c.target) + static_cast<std::size_t>(blockIdx.y) * c.piece;
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < c.piece) out[i] = in[i];
}

// Column j has N - j words, from the diagonal on; one block a column.
__global__ void triangle(const Call c) {
  const std::uint32_t n = c.piece;
  const std::uint64_t j = blockIdx.x;
  const auto* in = static_cast<const std::uint64_t*>(c.source) + j * n + j;
  auto* out = static_cast<std::uint64_t*>(c.target) + j * n - j * (j - 1) / 2;
  const std::uint32_t length = n - blockIdx.x;
  std::uint32_t i = threadIdx.x;
  for (; i + 3 * blockDim.x < length; i += 4 * blockDim.x) {
    const std::uint64_t v0 = in[i];
    const std::uint64_t v1 = in[i + blockDim.x];
    const std::uint64_t v2 = in[i + 2 * blockDim.x];
    const std::uint64_t v3 = in[i + 3 * blockDim.x];
    out[i] = v0;
    out[i + blockDim.x] = v1;
    out[i + 2 * blockDim.x] = v2;
    out[i + 3 * blockDim.x] = v3;
  }
  for (; i < length; i += blockDim.x) out[i] = in[i];
}

// A cube of 2^side words an edge in 64^4.
__global__ void fourD(const Call c) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.elements) return;
  const std::uint32_t mask = (1U << c.side) - 1;
  const std::uint32_t x = i & mask;
  const std::uint32_t y = i >> c.side & mask;
  const std::uint32_t z = i >> (2 * c.side) & mask;
  const std::uint32_t w = i >> (3 * c.side);
  static_cast<std::uint64_t*>(c.target)[i] =
      static_cast<const std::uint64_t*>(c.source)[((w * 64 + z) * 64 + y) * 64 + x];
}

// Pieces of equal length at the word offsets of a table.
template <typename Word>
__global__ void indexed(const Call c) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.elements) return;
  const auto* at = static_cast<const std::uint32_t*>(c.table);
  const auto* in = static_cast<const Word*>(c.source);
  auto* out = static_cast<Word*>(c.target);
  out[i] = c.piece == 1 ? in[at[i]] : in[at[i / c.piece] + i % c.piece];
}

// Pairs of one word and 16 words.
__global__ void pairs(const Call c) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.elements) return;
  const std::uint32_t pair = i / 17;
  const std::uint32_t word = i % 17;
  const auto* at = static_cast<const std::uint32_t*>(c.table);
  static_cast<std::uint64_t*>(c.target)[i] = static_cast<const std::uint64_t*>(
      c.source)[word == 0 ? at[2 * pair] : at[2 * pair + 1] + word - 1];
}

struct Struct {
  double a;
  int b[2];
  char c;
};

// One structure a thread, 17 bytes of 24.
__global__ void structs(const Call c) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.elements) return;
  const Struct s = static_cast<const Struct*>(c.source)[i];
  auto* out = static_cast<unsigned char*>(c.target) + static_cast<std::size_t>(i) * 17;
  memcpy(out, &s, 17);
}

// 256 structures a block, by way of shared memory, so that words are written; 256 threads, a
// multiple of 256 structures.
__global__ void structsShared(const Call c) {
  __shared__ alignas(16) unsigned char packed[256 * 17];
  const auto* in =
      static_cast<const std::uint64_t*>(c.source) + static_cast<std::size_t>(blockIdx.x) * 256 * 3;
  __shared__ std::uint64_t raw[256 * 3];
  for (int k = 0; k < 3; ++k) raw[threadIdx.x + 256 * k] = in[threadIdx.x + 256 * k];
  __syncthreads();
  memcpy(packed + threadIdx.x * 17, raw + threadIdx.x * 3, 17);
  __syncthreads();
  auto* out = reinterpret_cast<uint4*>(static_cast<unsigned char*>(c.target) +
                                       static_cast<std::size_t>(blockIdx.x) * 256 * 17);
  for (unsigned i = threadIdx.x; i < 256 * 17 / 16; i += 256) {
    out[i] = reinterpret_cast<const uint4*>(packed)[i];
  }
}

// N x N words, tiles of 32; blocks of 32 x 8.
__global__ void transpose(const Call c) {
  __shared__ std::uint64_t tile[32][33];
  const std::uint32_t n = c.piece;
  const auto* in = static_cast<const std::uint64_t*>(c.source);
  auto* out = static_cast<std::uint64_t*>(c.target);
  for (int k = 0; k < 32; k += 8) {
    tile[threadIdx.y + k][threadIdx.x] =
        in[static_cast<std::size_t>(blockIdx.y * 32 + threadIdx.y + k) * n + blockIdx.x * 32 +
           threadIdx.x];
  }
  __syncthreads();
  for (int k = 0; k < 32; k += 8) {
    out[static_cast<std::size_t>(blockIdx.x * 32 + threadIdx.y + k) * n + blockIdx.y * 32 +
        threadIdx.x] = tile[threadIdx.x][threadIdx.y + k];
  }
}

// 32 pieces of 64 B, 128 B apart, every 8 KiB; words of 16 B.
__global__ void vectorOfVectors(const Call c) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.elements) return;
  const std::uint32_t word = i % 4;
  const std::uint32_t inner = i / 4 % 32;
  const std::uint32_t outer = i / 128;
  static_cast<ulonglong2*>(c.target)[i] = static_cast<const ulonglong2*>(
      c.source)[static_cast<std::size_t>(outer) * 512 + inner * 8 + word];
}

}  // namespace hand

#endif  // GMAC_BENCH_PACK_KERNELS_HAND_CUH_
