// SPDX-License-Identifier: Apache-2.0
//
// Memory with known contents, and time.
#ifndef GMAC_BENCH_PACK_KERNELS_GPU_H_
#define GMAC_BENCH_PACK_KERNELS_GPU_H_

#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gmac/datatype/layout/layout.h"

namespace packbench {

// Device memory that holds, at word k, patternWord(k).
std::uint64_t patternWord(std::uint64_t k);
void fillPattern(void* memory, std::size_t bytes);

// The result of a pack of the layout from such memory (at offset 0: the layout's lowest byte).
std::vector<std::uint8_t> expectedPacked(const gmac::datatype::Layout& layout);

// 64-byte pieces of memory, aligned, that the layout touches.
std::uint64_t burstsOf(const gmac::datatype::Layout& layout);

// Ways to do the same, timed in turns: each turn every way once, launch and synchronisation
// included. Medians in microseconds.
struct Way {
  std::string name;
  std::function<void(cudaStream_t)> run;
  double wall = 0;  // host clock around launch and synchronisation
  double gpu = 0;   // between two events around it
};
// `before` is done in front of every run that is timed, and is over by then.
void timeInTurns(std::vector<Way>& ways, cudaStream_t stream, int turns,
                 const std::function<void(const Way&)>& before = {});

// Bytes read and written in a second by large copies inside of the device.
double deviceCopyRate(cudaStream_t stream);

}  // namespace packbench

#endif  // GMAC_BENCH_PACK_KERNELS_GPU_H_
