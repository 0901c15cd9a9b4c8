// SPDX-License-Identifier: Apache-2.0
//
// The choice of constants: every build of a kernel and every shape of its launch, on one layout.
#ifndef GMAC_BENCH_PACK_KERNELS_SWEEP_H_
#define GMAC_BENCH_PACK_KERNELS_SWEEP_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "bench/pack_kernels/cases.h"
#include "bench/pack_kernels/gpu.h"

namespace packbench {

struct SweepTarget {
  const Case& item;
  void* source;  // the layout's lowest byte
  std::size_t sourceBytes;
  void* target;
  const void* handTable;  // of the case
  double boundMicroseconds;
  int turns;
  cudaStream_t stream;
  std::function<bool()> correct;  // whether the target has what it should, which it then loses
};

// Runs each way once, and drops those that pack wrong bytes with a line about it.
void keepCorrect(const SweepTarget& target, std::vector<Way>& ways);

// Prints the `most` fastest of the ways, by the device's clock.
void report(const char* stage, std::vector<Way> ways, double boundMicroseconds, std::size_t most);

// Prints the ten best of each stage. Layouts of rows in one dimension, even lists, and long and
// marked lists, whose width is 8 or 16.
void sweep(const SweepTarget& target);

}  // namespace packbench

#endif  // GMAC_BENCH_PACK_KERNELS_SWEEP_H_
