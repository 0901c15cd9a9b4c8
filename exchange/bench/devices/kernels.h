// SPDX-License-Identifier: Apache-2.0
//
// Kernels written by hand: what a program would have that packs, or copies, one known pair of
// layouts itself; and the one of FALCON-X, section 5.
#ifndef GMAC_EXCHANGE_BENCH_DEVICES_KERNELS_H_
#define GMAC_EXCHANGE_BENCH_DEVICES_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "exchange/bench/devices/place.h"

namespace gmac::exchange::bench {

// A piece of memory that both sides have in one. Bytes.
struct Piece {
  std::int64_t from;
  std::int64_t to;
  std::int64_t bytes;
};

// Asynchronous, on the stream (a cudaStream_t). Throw std::runtime_error with CUDA's words.
//
// `mostBlocks`: the most thread blocks, which then go on to further words or pieces; 0: as many as
// run best.
// Word i from its place in the source to its place in the target: a thread for a word, or for four.
void moveWords(const Place& to, std::byte* target, const Place& from, const std::byte* source,
               std::int64_t words, std::int64_t wordBytes, void* stream, int mostBlocks = 0);
// A warp for a piece. `pieces` is device memory.
void movePieces(const Piece* pieces, std::int64_t count, std::byte* target, const std::byte* source,
                void* stream, int mostBlocks = 0);

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_DEVICES_KERNELS_H_
