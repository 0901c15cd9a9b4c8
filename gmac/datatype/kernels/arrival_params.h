// SPDX-License-Identifier: Apache-2.0
//
// The parameters of the arrival kernels: one launch unpacks a message while fragments of it arrive
// in a ring. For the CPU's compiler and for nvcc.
#ifndef GMAC_DATATYPE_KERNELS_ARRIVAL_PARAMS_H_
#define GMAC_DATATYPE_KERNELS_ARRIVAL_PARAMS_H_

#include <cstdint>

#include "gmac/datatype/kernels/pack_params.h"

namespace gmac::datatype {

// The most slots of a ring; each holds a fragment.
inline constexpr std::uint32_t kMaxArrivalSlots = 8;
// The threads of a block: a quarter of what a multiprocessor of most devices holds, and half of its
// registers. (With all of these, packs of the same process did not begin, and two processes that
// send to each other waited for each other until their kernels ended by themselves.) One block for
// each multiprocessor unpacks, and one more asks for news.
inline constexpr std::uint32_t kArrivalThreads = 512;
// What a block unpacks at a time, in packed bytes; of a shorter fragment all.
inline constexpr std::uint32_t kArrivalChunkBytes = 64 << 10;

// How many fragments have arrived, as one word; greater for more.
GMAC_HOST_DEVICE std::uint32_t arrivedWord(std::uint32_t fragments, bool last) {
  return 2 * fragments + (last ? 1 : 0);
}
// Whether the word says that fragment `number` is there, and that no more will come.
GMAC_HOST_DEVICE bool hasArrived(std::uint32_t word, std::uint32_t number) {
  return word >= arrivedWord(number + 1, false);
}
GMAC_HOST_DEVICE bool isLastWord(std::uint32_t word) { return (word & 1) != 0; }

// Pinned memory of the CPU's, which it sets to 0 before the launch.
struct ArrivalWords {
  alignas(64) std::uint32_t arrived;  // arrivedWord(), by the CPU
  // By the kernel: of each slot, the number of the last fragment that was unpacked, and 1.
  alignas(64) std::uint32_t unpacked[kMaxArrivalSlots];
};

// Device memory, 0 before and after each launch.
struct ArrivalState {
  std::uint32_t arrived;                   // as ArrivalWords
  std::uint32_t next;                      // the chunk that the next free block takes
  std::uint32_t ended;                     // blocks
  std::uint32_t chunks[kMaxArrivalSlots];  // that are unpacked of the fragment in each slot
};

// A message in rows of one dimension, from its first byte to its last, in whole elements.
struct ArrivalParams {
  RowsParams<1> rows;   // part.packed does not count
  std::uint64_t ring;   // where the packed fragments are, one after the other
  std::uint64_t words;  // the addresses of ArrivalWords and ArrivalState
  std::uint64_t state;
  // The kernel ends when it hears nothing for so many nanoseconds: before the first fragment, and
  // after it.
  std::uint64_t firstPatience;
  std::uint64_t patience;
  std::uint32_t slots;
  std::uint32_t fragments;
  std::uint32_t chunks;            // of the message
  std::uint32_t chunksOfFragment;  // but for the last one
  std::uint32_t chunkElements;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_KERNELS_ARRIVAL_PARAMS_H_
