// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "exchange/bench/devices/kernels.h"

namespace gmac::exchange::bench {
namespace {

constexpr unsigned kThreads = 256;
// Loads in flight in one thread of a long message.
constexpr unsigned kUnroll = 4;
// So many words are spread over as many threads: all of them run at once.
constexpr std::int64_t kFewWords = std::int64_t{1} << 18;

// kGoesOn: to further words, where there are fewer blocks than the words take.
template <unsigned kEach, bool kGoesOn, typename Word>
__global__ void __launch_bounds__(kThreads)
    words(Place to, Word* __restrict__ target, Place from, const Word* __restrict__ source,
          std::uint32_t count) {
  std::uint32_t first = blockIdx.x * (kThreads * kEach) + threadIdx.x;
  do {
    Word value[kEach];
#pragma unroll
    for (unsigned k = 0; k < kEach; ++k) {
      const std::uint32_t i = first + k * kThreads;
      if (i < count) value[k] = source[placeOf(from, i)];
    }
#pragma unroll
    for (unsigned k = 0; k < kEach; ++k) {
      const std::uint32_t i = first + k * kThreads;
      if (i < count) target[placeOf(to, i)] = value[k];
    }
    first += gridDim.x * (kThreads * kEach);
  } while (kGoesOn && first < count);
}

template <typename Word>
void launchWords(const Place& to, std::byte* target, const Place& from, const std::byte* source,
                 std::int64_t count, std::int64_t mostBlocks, cudaStream_t stream) {
  auto* const out = reinterpret_cast<Word*>(target);
  const auto* const in = reinterpret_cast<const Word*>(source);
  const auto blocks = [=](std::int64_t each) {
    return static_cast<unsigned>((count + kThreads * each - 1) / (kThreads * each));
  };
  const auto number = static_cast<std::uint32_t>(count);
  if (mostBlocks > 0 && blocks(kUnroll) > mostBlocks) {
    words<kUnroll, true>
        <<<static_cast<unsigned>(mostBlocks), kThreads, 0, stream>>>(to, out, from, in, number);
  } else if (count <= kFewWords && mostBlocks == 0) {
    words<1, false><<<blocks(1), kThreads, 0, stream>>>(to, out, from, in, number);
  } else {
    words<kUnroll, false><<<blocks(kUnroll), kThreads, 0, stream>>>(to, out, from, in, number);
  }
}

template <typename Word>
__device__ __forceinline__ void copyByWarp(std::byte* to, const std::byte* from, std::int64_t bytes,
                                           unsigned lane) {
  auto* const out = reinterpret_cast<Word*>(to);
  const auto* const in = reinterpret_cast<const Word*>(from);
  for (std::int64_t i = lane; i < bytes / static_cast<std::int64_t>(sizeof(Word)); i += warpSize) {
    out[i] = in[i];
  }
}

__global__ void __launch_bounds__(kThreads)
    warpPieces(const Piece* __restrict__ pieces, std::int64_t count, std::byte* __restrict__ target,
               const std::byte* __restrict__ source) {
  const unsigned lane = threadIdx.x % warpSize;
  const std::int64_t warps = std::int64_t{gridDim.x} * (kThreads / warpSize);
  for (std::int64_t i = std::int64_t{blockIdx.x} * (kThreads / warpSize) + threadIdx.x / warpSize;
       i < count; i += warps) {
    const Piece piece = pieces[i];
    std::byte* const to = target + piece.to;
    const std::byte* const from = source + piece.from;
    const std::int64_t all = piece.to | piece.from | piece.bytes;
    if (all % 16 == 0) {
      copyByWarp<uint4>(to, from, piece.bytes, lane);
    } else if (all % 8 == 0) {
      copyByWarp<std::uint64_t>(to, from, piece.bytes, lane);
    } else if (all % 4 == 0) {
      copyByWarp<std::uint32_t>(to, from, piece.bytes, lane);
    } else {
      copyByWarp<unsigned char>(to, from, piece.bytes, lane);
    }
  }
}

void checkLaunch(const char* kernel) {
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    throw std::runtime_error(std::string(kernel) + ": " + cudaGetErrorString(error));
  }
}

}  // namespace

void moveWords(const Place& to, std::byte* target, const Place& from, const std::byte* source,
               std::int64_t words, std::int64_t wordBytes, void* stream, int mostBlocks) {
  auto* const on = static_cast<cudaStream_t>(stream);
  switch (wordBytes) {
    case 16:
      launchWords<uint4>(to, target, from, source, words, mostBlocks, on);
      break;
    case 8:
      launchWords<std::uint64_t>(to, target, from, source, words, mostBlocks, on);
      break;
    case 4:
      launchWords<std::uint32_t>(to, target, from, source, words, mostBlocks, on);
      break;
    default:
      throw std::runtime_error("words of " + std::to_string(wordBytes) +
                               " bytes; there are those of 4, 8 and 16");
  }
  checkLaunch("a copy of words");
}

void movePieces(const Piece* pieces, std::int64_t count, std::byte* target, const std::byte* source,
                void* stream, int mostBlocks) {
  // As many as a GPU of 132 multiprocessors runs at once; each goes on to further pieces.
  constexpr std::int64_t kMostBlocks = std::int64_t{132} * 8;
  constexpr std::int64_t kWarps = kThreads / 32;
  const std::int64_t most = mostBlocks > 0 ? mostBlocks : kMostBlocks;
  const auto blocks = static_cast<unsigned>(std::min(most, (count + kWarps - 1) / kWarps));
  warpPieces<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(pieces, count, target,
                                                                         source);
  checkLaunch("a warp for a piece");
}

}  // namespace gmac::exchange::bench
