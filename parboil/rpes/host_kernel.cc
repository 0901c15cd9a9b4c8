// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "parboil/rpes/rys.h"

namespace parboil::rpes {
namespace {

template <int LA, int LB, int LC, int LD>
void coulomb(const adsmThreadBlock_t* block, void** args) {
  constexpr unsigned kComponents = (2 * LA + 1) * (2 * LB + 1);
  const Pair* pairs = argument<const Pair*>(args, 0);
  const Primitive* primitives = argument<const Primitive*>(args, 1);
  const float* table = argument<const float*>(args, 2);
  const Quartet* quartets = argument<const Quartet*>(args, 3);
  float* partials = argument<float*>(args, 4);
  const std::size_t count = argument<std::uint32_t>(args, 5);
  const std::size_t begin = std::size_t{block->blockIdx.x} * kThreads;
  const std::size_t end = std::min<std::size_t>(begin + kThreads, count);

  for (std::size_t group = begin / kGroup; group < end / kGroup; ++group) {
    float sums[kComponents] = {};
    for (std::size_t i = group * kGroup; i < (group + 1) * kGroup; ++i) {
      const Quartet quartet = quartets[i];
      if (quartet.ket == kNoPair) continue;
      addQuartet<LA, LB, LC, LD>(pairs[quartet.bra], pairs[quartet.ket], primitives, table, sums);
    }
    std::copy(sums, sums + kComponents, partials + group * kComponents);
  }
}

constexpr adsmHostKernel_t kBlocks[kClasses][kClasses] = {
    {&coulomb<0, 0, 0, 0>, &coulomb<0, 0, 1, 0>, &coulomb<0, 0, 1, 1>},
    {&coulomb<1, 0, 0, 0>, &coulomb<1, 0, 1, 0>, &coulomb<1, 0, 1, 1>},
    {&coulomb<1, 1, 0, 0>, &coulomb<1, 1, 1, 0>, &coulomb<1, 1, 1, 1>}};

}  // namespace

adsmHostKernel_t coulombBlock(unsigned braClass, unsigned ketClass) {
  return kBlocks[braClass][ketClass];
}

}  // namespace parboil::rpes
