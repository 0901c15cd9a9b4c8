// SPDX-License-Identifier: Apache-2.0
#include "parboil/rpes/rys.h"

using parboil::rpes::kGroup;
using parboil::rpes::kNoPair;
using parboil::rpes::kThreads;
using parboil::rpes::Pair;
using parboil::rpes::Primitive;
using parboil::rpes::Quartet;

namespace {

// One thread per quartet; the threads of a group add up within their warp.
template <int LA, int LB, int LC, int LD>
__device__ void coulomb(const Pair* pairs, const Primitive* primitives, const float* table,
                        const Quartet* quartets, float* partials, std::uint32_t count) {
  constexpr unsigned kComponents = (2 * LA + 1) * (2 * LB + 1);
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  float sums[kComponents] = {};
  if (i < count) {
    const Quartet quartet = quartets[i];
    if (quartet.ket != kNoPair) {
      parboil::rpes::addQuartet<LA, LB, LC, LD>(pairs[quartet.bra], pairs[quartet.ket], primitives,
                                                table, sums);
    }
  }
  for (unsigned c = 0; c < kComponents; ++c) {
    for (unsigned distance = kGroup / 2; distance > 0; distance /= 2)
      sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], static_cast<int>(distance));
    if (i < count && threadIdx.x % kGroup == 0)
      partials[static_cast<std::size_t>(i / kGroup) * kComponents + c] = sums[c];
  }
}

}  // namespace

#define RPES_COULOMB(name, LA, LB, LC, LD)                                        \
  extern "C" __global__ void __launch_bounds__(parboil::rpes::kThreads)           \
      name(const Pair* pairs, const Primitive* primitives, const float* table,    \
           const Quartet* quartets, float* partials, std::uint32_t count) {       \
    coulomb<LA, LB, LC, LD>(pairs, primitives, table, quartets, partials, count); \
  }
RPES_COULOMB(rpesSsSs, 0, 0, 0, 0)
RPES_COULOMB(rpesSsPs, 0, 0, 1, 0)
RPES_COULOMB(rpesSsPp, 0, 0, 1, 1)
RPES_COULOMB(rpesPsSs, 1, 0, 0, 0)
RPES_COULOMB(rpesPsPs, 1, 0, 1, 0)
RPES_COULOMB(rpesPsPp, 1, 0, 1, 1)
RPES_COULOMB(rpesPpSs, 1, 1, 0, 0)
RPES_COULOMB(rpesPpPs, 1, 1, 1, 0)
RPES_COULOMB(rpesPpPp, 1, 1, 1, 1)
#undef RPES_COULOMB

namespace parboil::rpes {

const void* coulombSymbol(unsigned braClass, unsigned ketClass) {
  using Function = decltype(&rpesSsSs);
  static constexpr Function kFunctions[kClasses][kClasses] = {{&rpesSsSs, &rpesSsPs, &rpesSsPp},
                                                              {&rpesPsSs, &rpesPsPs, &rpesPsPp},
                                                              {&rpesPpSs, &rpesPpPs, &rpesPpPp}};
  return reinterpret_cast<const void*>(kFunctions[braClass][ketClass]);
}

}  // namespace parboil::rpes
