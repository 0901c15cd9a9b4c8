// SPDX-License-Identifier: Apache-2.0
//
// Splits the CPU references' outer loops over the cores.
#ifndef GMAC_PARBOIL_PARALLEL_H_
#define GMAC_PARBOIL_PARALLEL_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace parboil {

// Calls body(i) once for every i in [0, count), from all cores, in no particular order; returns
// when all are done. `body` must not throw.
template <typename Body>
void parallelFor(std::size_t count, const Body& body) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) body(i);
  };
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> helpers;
  for (std::size_t i = 1; i < std::min(cores, count); ++i) helpers.emplace_back(work);
  work();
}

}  // namespace parboil

#endif  // GMAC_PARBOIL_PARALLEL_H_
