// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_TESTS_PARBOIL_HOST_EXECUTOR_H_
#define GMAC_TESTS_PARBOIL_HOST_EXECUTOR_H_

#include <cstddef>
#include <cstring>
#include <vector>

#include "gmac/api/adsm.h"

namespace parboil {

// Runs a host kernel's blocks one after another on plain memory, without the runtime. The blocks'
// scratch memory starts out full of garbage, and they run backwards: neither may matter.
template <typename... Params>
void runOnHost(adsmHostKernel_t kernel, adsmDim_t grid, adsmDim_t block, std::size_t sharedBytes,
               Params... params) {
  void* args[] = {static_cast<void*>(&params)...};
  struct alignas(64) Line {
    unsigned char bytes[64];
  };
  std::vector<Line> shared(sharedBytes / sizeof(Line) + 1);
  const std::size_t count = std::size_t{grid.x} * grid.y * grid.z;
  for (std::size_t i = count; i-- > 0;) {
    std::memset(shared.data(), 0xA5, shared.size() * sizeof(Line));
    adsmThreadBlock_t here{};
    here.gridDim = grid;
    here.blockDim = block;
    here.blockIdx = {static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                     static_cast<unsigned>(i / grid.x / grid.y)};
    here.shared = shared.data();
    here.sharedBytes = sharedBytes;
    kernel(&here, args);
  }
}

}  // namespace parboil

#endif  // GMAC_TESTS_PARBOIL_HOST_EXECUTOR_H_
