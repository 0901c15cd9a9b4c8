// SPDX-License-Identifier: Apache-2.0
//
// The bodies of the arrival kernels: an unpack that begins when the first fragment of a message is
// there, and goes on with each one that the CPU names. For the CPU's compiler and for nvcc.
//
// On a device, block 0 asks the CPU's memory for news and passes it on in the device's: if all
// blocks asked there, they would slow each other to a tenth. The others take chunks in the order of
// the message, so that no chunk waits for a block that does not run. When the CPU says nothing for
// the launch's patience, or that no more will come, what has arrived is unpacked and the kernel
// ends: nothing that waits for it waits for the CPU.
#ifndef GMAC_DATATYPE_KERNELS_ARRIVAL_BODIES_H_
#define GMAC_DATATYPE_KERNELS_ARRIVAL_BODIES_H_

#include <cstdint>

#include "gmac/datatype/kernels/arrival_params.h"
#include "gmac/datatype/kernels/pack_bodies.h"
#include "gmac/datatype/kernels/pack_locators.h"

namespace gmac::datatype {

// A slot is filled again while the kernel runs, so the first level keeps nothing of it. (Half of
// what a thread unpacks of a chunk in words of 8 bytes is under way at a time.)
using ArrivalTuning = Tuning<Hint::kNoFirstLevel, Hint::kNone, 8>;

// Unpacks a chunk by all threads of a block.
template <int W>
GMAC_HOST_DEVICE void unpackChunk(const ArrivalParams& p, std::uint32_t chunk, Place place) {
  Part part = p.rows.part;
  part.begin = chunk * p.chunkElements;
  const std::uint32_t end = part.begin + p.chunkElements;
  part.end = end < part.end ? end : part.end;
  const std::uint32_t inRing = chunk % (p.slots * p.chunksOfFragment);
  part.packed =
      p.ring + std::uint64_t{inRing} * p.chunkElements * W - std::uint64_t{part.begin} * W;
  part.unrolled = 1;
  moveWhole<RowsLocator<1>, W, false, ArrivalTuning>(RowsLocator<1>{p.rows}, part,
                                                     {0, place.thread, 1, place.threads});
}

// Chunks of the fragment with that number.
GMAC_HOST_DEVICE std::uint32_t chunksOf(const ArrivalParams& p, std::uint32_t fragment) {
  const std::uint32_t left = p.chunks - fragment * p.chunksOfFragment;
  return left < p.chunksOfFragment ? left : p.chunksOfFragment;
}

#ifdef __CUDA_ARCH__
namespace arrival {

__device__ __forceinline__ std::uint32_t loadWord(const std::uint32_t* at) {
  std::uint32_t v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}
__device__ __forceinline__ void storeWord(std::uint32_t* at, std::uint32_t v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}
__device__ __forceinline__ std::uint64_t nanoseconds() {
  std::uint64_t v;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
  return v;
}

// Passes on what the CPU says, until all has arrived or no more will come.
__device__ __forceinline__ void passNewsOn(const ArrivalParams& p) {
  auto* const words = reinterpret_cast<ArrivalWords*>(p.words);
  auto* const state = reinterpret_cast<ArrivalState*>(p.state);
  std::uint32_t told = 0;
  std::uint64_t since = nanoseconds();
  while (!isLastWord(told) && !hasArrived(told, p.fragments - 1)) {
    const std::uint32_t word = loadWord(&words->arrived);
    if (word != told) {
      told = word;
      since = nanoseconds();
    } else if (nanoseconds() - since > (told == 0 ? p.firstPatience : p.patience)) {
      told |= 1;
    } else {
      continue;
    }
    storeWord(&state->arrived, told);
  }
}

// The chunk that this block unpacks next, once its fragment is there; p.chunks: none.
__device__ __forceinline__ std::uint32_t nextChunk(const ArrivalParams& p) {
  auto* const state = reinterpret_cast<ArrivalState*>(p.state);
  const std::uint32_t chunk = atomicAdd(&state->next, 1U);
  if (chunk >= p.chunks) return p.chunks;
  const std::uint32_t fragment = chunk / p.chunksOfFragment;
  for (;;) {
    const std::uint32_t word = loadWord(&state->arrived);
    if (hasArrived(word, fragment)) return chunk;
    if (isLastWord(word)) return p.chunks;
  }
}

// The block has unpacked a chunk: after the last one of a fragment the CPU is told.
__device__ __forceinline__ void countChunk(const ArrivalParams& p, std::uint32_t chunk) {
  auto* const words = reinterpret_cast<ArrivalWords*>(p.words);
  auto* const state = reinterpret_cast<ArrivalState*>(p.state);
  const std::uint32_t fragment = chunk / p.chunksOfFragment;
  const std::uint32_t slot = fragment % p.slots;
  __threadfence();  // the block's loads from the slot come before the count
  if (atomicAdd(&state->chunks[slot], 1U) + 1 == chunksOf(p, fragment)) {
    __threadfence();  // and so do all other blocks' loads and stores of this fragment
    state->chunks[slot] = 0;
    storeWord(&words->unpacked[slot], fragment + 1);
  }
}

// The last block to end leaves the state as the next launch needs it.
__device__ __forceinline__ void endBlock(const ArrivalParams& p, std::uint32_t blocks) {
  auto* const state = reinterpret_cast<ArrivalState*>(p.state);
  __threadfence();
  if (atomicAdd(&state->ended, 1U) + 1 == blocks) {
    state->arrived = 0;
    state->next = 0;
    state->ended = 0;
  }
}

template <int W>
__device__ __forceinline__ void run(const ArrivalParams& p, Place place) {
  __shared__ std::uint32_t chunk;
  if (place.block == 0) {
    if (place.thread == 0) passNewsOn(p);
  } else {
    for (;;) {
      if (place.thread == 0) chunk = nextChunk(p);
      __syncthreads();
      const std::uint32_t mine = chunk;
      if (mine >= p.chunks) break;
      unpackChunk<W>(p, mine, place);
      __syncthreads();
      if (place.thread == 0) countChunk(p, mine);
    }
  }
  if (place.thread == 0) endBlock(p, place.blocks);
}

}  // namespace arrival
#endif

}  // namespace gmac::datatype

// X(width): all arrival kernels.
#define GMAC_ARRIVAL_KERNELS(X) X(4) X(8) X(16)

#endif  // GMAC_DATATYPE_KERNELS_ARRIVAL_BODIES_H_
