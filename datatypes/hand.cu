// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <type_traits>

#include "datatypes/hand_kernels.h"

namespace datatypes {
namespace {

constexpr unsigned kThreads = 256;
// Loads in flight in one thread of a large pack.
constexpr unsigned kUnroll = 4;
// A pack of at most so many words is spread over as many threads as there are words: all of them
// run at once.
constexpr std::int64_t kFewWords = std::int64_t{1} << 18;

// kThreads * kEach words for a block of threads: all loads, then all stores. `place(i)` is where
// word i lies in the source, in words.
template <unsigned kEach, typename Word, typename PlaceOf>
__device__ __forceinline__ void gather(Word* __restrict__ to, const Word* __restrict__ from,
                                       std::uint32_t words, PlaceOf place) {
  const std::uint32_t first = blockIdx.x * (kThreads * kEach) + threadIdx.x;
  Word value[kEach];
#pragma unroll
  for (unsigned k = 0; k < kEach; ++k) {
    const std::uint32_t i = first + k * kThreads;
    if (i < words) value[k] = from[place(i)];
  }
#pragma unroll
  for (unsigned k = 0; k < kEach; ++k) {
    const std::uint32_t i = first + k * kThreads;
    if (i < words) to[i] = value[k];
  }
}

template <unsigned kEach>
using Each = std::integral_constant<unsigned, kEach>;

// Calls launch(Each<words for a thread>(), blocks of threads) for a kernel over `words`.
template <typename Launch>
void overWords(std::int64_t words, const Launch& launch) {
  const auto blocks = [=](std::int64_t each) {
    return static_cast<unsigned>((words + kThreads * each - 1) / (kThreads * each));
  };
  if (words <= kFewWords) {
    launch(Each<1>(), blocks(1));
  } else {
    launch(Each<kUnroll>(), blocks(kUnroll));
  }
}

template <unsigned kEach, typename Word>
__global__ void __launch_bounds__(kThreads)
    packContiguous(Word* to, const Word* from, std::uint32_t words) {
  gather<kEach>(to, from, words, [](std::uint32_t i) { return i; });
}

// Blocks of 2^shift words, `stride` words apart.
template <unsigned kEach, typename Word>
__global__ void __launch_bounds__(kThreads)
    packVectorShift(Word* to, const Word* from, std::uint32_t words, unsigned shift,
                    std::uint32_t stride) {
  const std::uint32_t mask = (1U << shift) - 1;
  gather<kEach>(to, from, words, [=](std::uint32_t i) {
    return static_cast<std::uint64_t>(i >> shift) * stride + (i & mask);
  });
}

// Blocks of any number of words.
template <unsigned kEach, typename Word>
__global__ void __launch_bounds__(kThreads)
    packVectorDivide(Word* to, const Word* from, std::uint32_t words, std::uint32_t blockWords,
                     std::uint32_t stride) {
  gather<kEach>(to, from, words, [=](std::uint32_t i) {
    const std::uint32_t block = i / blockWords;
    return static_cast<std::uint64_t>(block) * stride + (i - block * blockWords);
  });
}

// Blocks so long that a block of threads works on one alone: blockIdx.y.
template <typename Word>
__global__ void __launch_bounds__(kThreads)
    packRows(Word* to, const Word* from, std::uint32_t rowWords, std::uint64_t stride) {
  gather<kUnroll>(to + static_cast<std::uint64_t>(blockIdx.y) * rowWords,
                  from + blockIdx.y * stride, rowWords, [](std::uint32_t i) { return i; });
}

unsigned log2Of(std::int64_t power) {
  unsigned log = 0;
  while ((std::int64_t{1} << log) < power) ++log;
  return log;
}

template <typename Word>
cudaError_t launchVector(const Hand& hand, void* to, const void* from, cudaStream_t stream) {
  constexpr std::int64_t kWord = sizeof(Word);
  constexpr std::int64_t kMaxRows = 65535;
  const std::int64_t blockWords = hand.blockBytes / kWord;
  const std::int64_t words = blockWords * hand.count;
  const auto stride = static_cast<std::uint32_t>(hand.stride / kWord);
  auto* const target = static_cast<Word*>(to);
  const auto* const source = static_cast<const Word*>(from);
  if (blockWords >= kThreads && hand.count <= kMaxRows) {
    constexpr std::int64_t kBlock = kThreads * kUnroll;
    const dim3 grid(static_cast<unsigned>((blockWords + kBlock - 1) / kBlock),
                    static_cast<unsigned>(hand.count));
    packRows<<<grid, kThreads, 0, stream>>>(target, source, static_cast<std::uint32_t>(blockWords),
                                            stride);
  } else if ((blockWords & (blockWords - 1)) == 0) {
    overWords(words, [&](auto each, unsigned blocks) {
      packVectorShift<each.value><<<blocks, kThreads, 0, stream>>>(
          target, source, static_cast<std::uint32_t>(words), log2Of(blockWords), stride);
    });
  } else {
    overWords(words, [&](auto each, unsigned blocks) {
      packVectorDivide<each.value>
          <<<blocks, kThreads, 0, stream>>>(target, source, static_cast<std::uint32_t>(words),
                                            static_cast<std::uint32_t>(blockWords), stride);
    });
  }
  return cudaGetLastError();
}

// Column j and column n - 1 - j together have n + 1 elements, so that every block of threads has
// the same work. Without a stair.
__global__ void __launch_bounds__(kThreads)
    packTriangle(double* __restrict__ to, const double* __restrict__ from, std::uint32_t n) {
  const auto column = [=](std::uint64_t j) {
    const std::uint64_t length = n - j;
    const double* const source = from + j * (n + std::uint64_t{1});
    double* const target = to + j * n - j * (j - 1) / 2;
    for (std::uint64_t i = threadIdx.x; i < length; i += kThreads * kUnroll) {
      double value[kUnroll];
#pragma unroll
      for (unsigned k = 0; k < kUnroll; ++k) {
        if (i + k * kThreads < length) value[k] = source[i + k * kThreads];
      }
#pragma unroll
      for (unsigned k = 0; k < kUnroll; ++k) {
        if (i + k * kThreads < length) target[i + k * kThreads] = value[k];
      }
    }
  };
  const std::uint64_t j = blockIdx.x;
  column(j);
  if (n - 1 - j != j) column(n - 1 - j);
}

// Columns in steps of `stair`, an even number: everything is aligned to 16 bytes. blockIdx.x is the
// column within its step and the part of the column, blockIdx.y the step.
__global__ void __launch_bounds__(kThreads)
    packStair(double* __restrict__ to, const double* __restrict__ from, std::uint32_t n,
              std::uint32_t stair) {
  const std::uint64_t step = blockIdx.y;
  const std::uint64_t inStep = blockIdx.x;
  const std::uint64_t first = step * stair;
  const std::uint64_t column = first + inStep;
  const std::uint32_t words = static_cast<std::uint32_t>(n - first) / 2;
  const double2* const source = reinterpret_cast<const double2*>(from + column * n + first);
  // Columns before this step: stair of each of n, n - stair, ...
  const std::uint64_t before = stair * (step * n - stair * (step * (step - 1) / 2));
  double2* const target = reinterpret_cast<double2*>(to + before + inStep * (n - first));
  for (std::uint32_t i = threadIdx.x; i < words; i += kThreads * kUnroll) {
    double2 value[kUnroll];
#pragma unroll
    for (unsigned k = 0; k < kUnroll; ++k) {
      if (i + k * kThreads < words) value[k] = source[i + k * kThreads];
    }
#pragma unroll
    for (unsigned k = 0; k < kUnroll; ++k) {
      if (i + k * kThreads < words) target[i + k * kThreads] = value[k];
    }
  }
}

// The corner of 2^shift words in the fastest dimension and 2^side in the others, in 64^4 doubles.
template <unsigned kEach, typename Word>
__global__ void __launch_bounds__(kThreads)
    packSubarray(Word* to, const Word* from, std::uint32_t words, unsigned shift, unsigned side) {
  constexpr std::uint32_t kRow = 64 * sizeof(double) / sizeof(Word);
  const std::uint32_t mask = (1U << side) - 1;
  gather<kEach>(to, from, words, [=](std::uint32_t i) {
    const std::uint32_t x = i & ((1U << shift) - 1);
    i >>= shift;
    const std::uint32_t y = i & mask;
    i >>= side;
    const std::uint32_t z = i & mask;
    i >>= side;
    return ((i * 64 + z) * 64 + y) * kRow + x;
  });
}

// Blocks of 2^shift words at displacements in units of 8 bytes.
template <unsigned kEach, typename Word>
__global__ void __launch_bounds__(kThreads)
    packIndexed(Word* to, const Word* from, std::uint32_t words, unsigned shift,
                const std::int32_t* __restrict__ displacements) {
  constexpr std::uint32_t kUnits = sizeof(Word) / 8;
  const std::uint32_t mask = (1U << shift) - 1;
  gather<kEach>(to, from, words, [=](std::uint32_t i) {
    return static_cast<std::uint32_t>(displacements[i >> shift]) / kUnits + (i & mask);
  });
}

// Blocks of 1 and of 16 doubles in turn.
template <unsigned kEach>
__global__ void __launch_bounds__(kThreads)
    packIndexedPairs(double* to, const double* from, std::uint32_t words,
                     const std::int32_t* __restrict__ displacements) {
  gather<kEach>(to, from, words, [=](std::uint32_t i) {
    const std::uint32_t pair = i / 17;
    const std::uint32_t within = i - pair * 17;
    return within == 0 ? static_cast<std::uint32_t>(displacements[2 * pair])
                       : static_cast<std::uint32_t>(displacements[2 * pair + 1]) + within - 1;
  });
}

// Structs of 24 bytes of which 17 are packed: in and out as 16-byte words, through shared memory.
constexpr unsigned kExtent = 24;
constexpr unsigned kSize = 17;
__global__ void __launch_bounds__(kThreads)
    packStructs(unsigned char* to, const unsigned char* from, std::uint32_t count) {
  __shared__ __align__(16) unsigned char in[kThreads * kExtent];
  __shared__ __align__(16) unsigned char out[kThreads * kSize];
  const std::uint32_t first = blockIdx.x * kThreads;
  const std::uint32_t here = min(kThreads, count - first);
  const unsigned char* const source = from + static_cast<std::uint64_t>(first) * kExtent;
  unsigned char* const target = to + static_cast<std::uint64_t>(first) * kSize;
  // The last bytes, less than a word, go one by one; the last struct ends in its padding.
  const std::uint32_t inBytes = here * kExtent;
  for (std::uint32_t i = threadIdx.x; i < inBytes / 16; i += kThreads) {
    reinterpret_cast<uint4*>(in)[i] = reinterpret_cast<const uint4*>(source)[i];
  }
  for (std::uint32_t i = inBytes / 16 * 16 + threadIdx.x; i < inBytes; i += kThreads) {
    in[i] = source[i];
  }
  __syncthreads();
  if (threadIdx.x < here) {
#pragma unroll
    for (unsigned i = 0; i < kSize; ++i) {
      out[threadIdx.x * kSize + i] = in[threadIdx.x * kExtent + i];
    }
  }
  __syncthreads();
  const std::uint32_t outBytes = here * kSize;
  for (std::uint32_t i = threadIdx.x; i < outBytes / 16; i += kThreads) {
    reinterpret_cast<uint4*>(target)[i] = reinterpret_cast<const uint4*>(out)[i];
  }
  for (std::uint32_t i = outBytes / 16 * 16 + threadIdx.x; i < outBytes; i += kThreads) {
    target[i] = out[i];
  }
}

constexpr unsigned kTile = 32;
constexpr unsigned kTileRows = 8;
__global__ void __launch_bounds__(kTile* kTileRows)
    packTranspose(double* __restrict__ to, const double* __restrict__ from, std::uint32_t n) {
  __shared__ double tile[kTile][kTile + 1];
  const std::uint32_t x = blockIdx.x * kTile + threadIdx.x;
  const std::uint32_t y = blockIdx.y * kTile + threadIdx.y;
#pragma unroll
  for (unsigned k = 0; k < kTile; k += kTileRows) {
    tile[threadIdx.y + k][threadIdx.x] = from[(y + k) * n + x];
  }
  __syncthreads();
  const std::uint32_t column = blockIdx.y * kTile + threadIdx.x;
  const std::uint32_t row = blockIdx.x * kTile + threadIdx.y;
#pragma unroll
  for (unsigned k = 0; k < kTile; k += kTileRows) {
    to[(row + k) * n + column] = tile[threadIdx.x][threadIdx.y + k];
  }
}

// 8 words of 16 bytes every 32 bytes, every 512 bytes.
template <unsigned kEach>
__global__ void __launch_bounds__(kThreads)
    packNested(uint4* to, const uint4* from, std::uint32_t words) {
  gather<kEach>(to, from, words, [](std::uint32_t i) { return (i >> 3) * 32 + (i & 7) * 2; });
}

}  // namespace

cudaError_t launchHand(const Hand& hand, void* to, const void* from,
                       const std::int32_t* displacements, cudaStream_t stream) {
  const std::int64_t count = hand.count;
  const auto n = static_cast<std::uint32_t>(count);
  auto* const doubles = static_cast<double*>(to);
  auto* const wides = static_cast<uint4*>(to);
  const auto* const doublesFrom = static_cast<const double*>(from);
  const auto* const widesFrom = static_cast<const uint4*>(from);
  switch (hand.kernel) {
    case HandKernel::kContiguous:
      overWords(count / (count % 16 == 0 ? 16 : 8), [&](auto each, unsigned blocks) {
        if (count % 16 == 0) {
          packContiguous<each.value><<<blocks, kThreads, 0, stream>>>(wides, widesFrom, n / 16);
        } else {
          packContiguous<each.value><<<blocks, kThreads, 0, stream>>>(doubles, doublesFrom, n / 8);
        }
      });
      break;
    case HandKernel::kVector:
      if (hand.blockBytes % 16 == 0 && hand.stride % 16 == 0) {
        return launchVector<uint4>(hand, to, from, stream);
      }
      if (hand.blockBytes % 8 == 0 && hand.stride % 8 == 0) {
        return launchVector<uint2>(hand, to, from, stream);
      }
      return launchVector<std::uint32_t>(hand, to, from, stream);
    case HandKernel::kTriangle:
      if (hand.blockBytes == 1) {
        packTriangle<<<(n + 1) / 2, kThreads, 0, stream>>>(doubles, doublesFrom, n);
      } else {
        const auto stair = static_cast<std::uint32_t>(hand.blockBytes);
        packStair<<<dim3(stair, n / stair), kThreads, 0, stream>>>(doubles, doublesFrom, n, stair);
      }
      break;
    case HandKernel::kSubarray4d: {
      const unsigned side = log2Of(count);
      const std::int64_t words = count * count * count * count / 2;
      overWords(words, [&](auto each, unsigned blocks) {
        packSubarray<each.value><<<blocks, kThreads, 0, stream>>>(
            wides, widesFrom, static_cast<std::uint32_t>(words), side - 1, side);
      });
      break;
    }
    case HandKernel::kIndexed: {
      const bool narrow = hand.blockBytes == 8;
      const std::int64_t words = count * hand.blockBytes / (narrow ? 8 : 16);
      overWords(words, [&](auto each, unsigned blocks) {
        if (narrow) {
          packIndexed<each.value>
              <<<blocks, kThreads, 0, stream>>>(doubles, doublesFrom, n, 0, displacements);
        } else {
          packIndexed<each.value>
              <<<blocks, kThreads, 0, stream>>>(wides, widesFrom, static_cast<std::uint32_t>(words),
                                                log2Of(hand.blockBytes / 16), displacements);
        }
      });
      break;
    }
    case HandKernel::kIndexedPairs:
      overWords(count * 17, [&](auto each, unsigned blocks) {
        packIndexedPairs<each.value>
            <<<blocks, kThreads, 0, stream>>>(doubles, doublesFrom, n * 17, displacements);
      });
      break;
    case HandKernel::kStructs:
      packStructs<<<(n + kThreads - 1) / kThreads, kThreads, 0, stream>>>(
          static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), n);
      break;
    case HandKernel::kTranspose:
      packTranspose<<<dim3(n / kTile, n / kTile), dim3(kTile, kTileRows), 0, stream>>>(
          doubles, doublesFrom, n);
      break;
    case HandKernel::kNestedVector:
      overWords(count * 8, [&](auto each, unsigned blocks) {
        packNested<each.value><<<blocks, kThreads, 0, stream>>>(wides, widesFrom, n * 8);
      });
      break;
  }
  return cudaGetLastError();
}

}  // namespace datatypes
