// SPDX-License-Identifier: Apache-2.0
#include "parboil/pns/pns.h"

using parboil::pns::Arc;
using parboil::pns::kThreads;
using parboil::pns::Simulation;
using parboil::pns::Transition;

// One block of kThreads threads per run. The marking and the claims live in shared memory, the
// trajectory is only streamed out and, at the end, in.
extern "C" __global__ void __launch_bounds__(parboil::pns::kThreads)
    pnsSimulate(const Transition* net, const std::int32_t* initial, std::int32_t* trajectories,
                float* variance, std::int32_t* peaks, Simulation simulation) {
  struct Totals {
    unsigned long long fired, spread;
    std::int32_t firedNow[2];  // of this step and the next
    std::uint32_t begin;
    std::int32_t peak;
  };
  static_assert(sizeof(Totals) <= 48, "sharedBytes() leaves 48");
  constexpr std::int32_t kFree = 0x7fffffff;
  extern __shared__ unsigned long long shared[];
  Totals& totals = *reinterpret_cast<Totals*>(shared);
  std::int32_t* marking = reinterpret_cast<std::int32_t*>(&totals + 1);
  std::int32_t* claim = marking + simulation.places;

  const std::uint32_t places = simulation.places;
  const std::uint32_t run = simulation.firstRun + blockIdx.x;
  const std::int32_t thread = static_cast<std::int32_t>(threadIdx.x);
  std::int32_t* trajectory =
      trajectories + blockIdx.x * parboil::pns::trajectoryLength(places, simulation.steps);
  std::int32_t* fired = trajectory + (std::size_t{simulation.steps} + 1) * places;

  for (std::uint32_t p = threadIdx.x; p < places; p += kThreads) {
    trajectory[p] = marking[p] = initial[p];
    claim[p] = kFree;
  }
  if (threadIdx.x == 0) totals = {0, 0, {0, 0}, simulation.steps, 0};
  __syncthreads();

  for (std::uint32_t step = 0; step < simulation.steps; ++step) {
    const Transition transition =
        net[parboil::pns::draw(run, step, threadIdx.x, simulation.transitions)];
    bool proposes = true;
    for (const Arc& arc : transition.inputs)
      proposes = proposes && marking[arc.place] >= arc.weight;
    if (proposes) {
      for (const Arc& arc : transition.inputs) {
        if (arc.weight != 0) atomicMin(&claim[arc.place], thread);
      }
    }
    __syncthreads();
    if (proposes) {
      bool wins = true;
      for (const Arc& arc : transition.inputs)
        wins = wins && (arc.weight == 0 || claim[arc.place] == thread);
      if (wins) {
        // A winner owns its input places, but others may put tokens there.
        for (const Arc& arc : transition.inputs) {
          if (arc.weight != 0) atomicSub(&marking[arc.place], arc.weight);
        }
        for (const Arc& arc : transition.outputs) {
          if (arc.weight != 0) atomicAdd(&marking[arc.place], arc.weight);
        }
        atomicAdd(&totals.firedNow[step % 2], 1);
      }
    }
    __syncthreads();
    if (proposes) {
      for (const Arc& arc : transition.inputs) {
        if (arc.weight != 0) claim[arc.place] = kFree;
      }
    }
    std::int32_t* after = trajectory + (std::size_t{step} + 1) * places;
    for (std::uint32_t p = threadIdx.x; p < places; p += kThreads) after[p] = marking[p];
    if (threadIdx.x == 0) {
      fired[step] = totals.firedNow[step % 2];
      totals.fired += totals.firedNow[step % 2];
      totals.firedNow[(step + 1) % 2] = 0;
    }
    __syncthreads();
  }

  for (std::uint32_t step = threadIdx.x; step < simulation.steps; step += kThreads) {
    if (static_cast<unsigned long long>(fired[step]) * simulation.steps >= totals.fired) {
      atomicMin(&totals.begin, step);
      break;
    }
  }
  __syncthreads();
  const std::uint32_t begin = totals.begin;
  const std::uint64_t measured = simulation.steps - begin;
  std::uint64_t spread = 0;
  std::int32_t peak = 0;
  for (std::uint32_t p = threadIdx.x; p < places; p += kThreads) {
    std::uint64_t sum = 0;
    std::uint64_t squares = 0;
    for (std::uint32_t step = begin; step < simulation.steps; ++step) {
      const std::int32_t tokens = trajectory[(std::size_t{step} + 1) * places + p];
      sum += static_cast<std::uint32_t>(tokens);
      squares += static_cast<std::uint32_t>(tokens * tokens);
      peak = max(peak, tokens);
    }
    spread += measured * squares - sum * sum;
  }
  atomicAdd(&totals.spread, static_cast<unsigned long long>(spread));
  atomicMax(&totals.peak, peak);
  __syncthreads();
  if (threadIdx.x == 0) {
    variance[blockIdx.x] = parboil::pns::meanVariance(totals.spread, measured, places);
    peaks[blockIdx.x] = totals.peak;
  }
}

namespace parboil::pns {

const void* simulateSymbol() { return reinterpret_cast<const void*>(&pnsSimulate); }

}  // namespace parboil::pns
