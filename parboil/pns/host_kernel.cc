// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "parboil/pns/pns.h"

namespace parboil::pns {

void simulateBlock(const adsmThreadBlock_t* block, void** args) {
  constexpr std::int32_t kFree = std::numeric_limits<std::int32_t>::max();
  const Transition* net = argument<const Transition*>(args, 0);
  const std::int32_t* initial = argument<const std::int32_t*>(args, 1);
  const auto simulation = argument<Simulation>(args, 5);
  const std::uint32_t places = simulation.places;
  const std::uint32_t run = simulation.firstRun + block->blockIdx.x;
  std::int32_t* trajectory =
      argument<std::int32_t*>(args, 2) +
      block->blockIdx.x * trajectoryLength(simulation.places, simulation.steps);
  std::int32_t* fired = trajectory + (std::size_t{simulation.steps} + 1) * places;

  auto* marking = static_cast<std::int32_t*>(block->shared);
  std::int32_t* claim = marking + places;
  std::uint32_t drawn[kThreads];
  bool proposes[kThreads];

  std::copy(initial, initial + places, marking);
  std::copy(initial, initial + places, trajectory);
  std::fill(claim, claim + places, kFree);
  std::uint64_t total = 0;
  for (std::uint32_t step = 0; step < simulation.steps; ++step) {
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      drawn[thread] = draw(run, step, thread, simulation.transitions);
      const Transition& transition = net[drawn[thread]];
      bool enabled = true;
      for (const Arc& arc : transition.inputs)
        enabled = enabled && marking[arc.place] >= arc.weight;
      proposes[thread] = enabled;
      if (!enabled) continue;
      for (const Arc& arc : transition.inputs) {
        if (arc.weight != 0)
          claim[arc.place] = std::min(claim[arc.place], static_cast<std::int32_t>(thread));
      }
    }
    std::int32_t count = 0;
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      if (!proposes[thread]) continue;
      const Transition& transition = net[drawn[thread]];
      bool wins = true;
      for (const Arc& arc : transition.inputs)
        wins = wins && (arc.weight == 0 || claim[arc.place] == static_cast<std::int32_t>(thread));
      if (!wins) continue;
      ++count;
      for (const Arc& arc : transition.inputs) marking[arc.place] -= arc.weight;
      for (const Arc& arc : transition.outputs) marking[arc.place] += arc.weight;
    }
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      if (!proposes[thread]) continue;
      for (const Arc& arc : net[drawn[thread]].inputs) claim[arc.place] = kFree;
    }
    std::copy(marking, marking + places, trajectory + (std::size_t{step} + 1) * places);
    fired[step] = count;
    total += static_cast<std::uint64_t>(count);
  }

  std::uint32_t begin = 0;
  while (static_cast<std::uint64_t>(fired[begin]) * simulation.steps < total) ++begin;
  const std::uint64_t measured = simulation.steps - begin;
  std::uint64_t spread = 0;
  std::int32_t peak = 0;
  for (std::uint32_t p = 0; p < places; ++p) {
    std::uint64_t sum = 0;
    std::uint64_t squares = 0;
    for (std::uint32_t step = begin; step < simulation.steps; ++step) {
      const std::int32_t tokens = trajectory[(std::size_t{step} + 1) * places + p];
      sum += static_cast<std::uint32_t>(tokens);
      squares += static_cast<std::uint32_t>(tokens * tokens);
      peak = std::max(peak, tokens);
    }
    spread += measured * squares - sum * sum;
  }
  argument<float*>(args, 3)[block->blockIdx.x] = meanVariance(spread, measured, places);
  argument<std::int32_t*>(args, 4)[block->blockIdx.x] = peak;
}

}  // namespace parboil::pns
