// SPDX-License-Identifier: Apache-2.0
//
// Petri net simulation: Monte Carlo runs of one place/transition net, one thread block per run.
//
// A step of a run: every thread of the block draws a transition at random and proposes it if it is
// enabled, that is, if each of its input places holds at least the arc's weight in tokens. Two
// threads may draw one transition, or two transitions with a common input place. Such a conflict
// goes to the proposer with the lowest thread index: a transition fires if its proposer is the
// lowest among the proposers of each of its input places. All that fire in a step do so at once.
// Draws come from a counter-based generator, so a run is a function of its number: every
// implementation must give the same integers.
//
// The marking after every step goes to a trajectory in the accelerator's memory, which the CPU
// never touches. When the run is over, the trajectory is read back to measure its steady state:
// all steps from the first one on in which at least as many transitions fired as on average over
// the run. Results of a run: the variance of a place's tokens over those steps (averaged over
// places) and the most tokens that any place then held.
//
// pns-*.in   Transition[transitions], then the initial marking, int32[places]
// pns-*.out  for each launch: float variance[kRunsPerLaunch], int32 peak[kRunsPerLaunch]
// pns-*.ref  Outcome[runs]
#ifndef GMAC_PARBOIL_PNS_PNS_H_
#define GMAC_PARBOIL_PNS_PNS_H_

#include <cstddef>
#include <cstdint>

#include "parboil/benchmark.h"
#include "parboil/files.h"
#include "parboil/kernel.h"

#ifdef __CUDACC__
#define PNS_HOST_DEVICE __host__ __device__
#else
#define PNS_HOST_DEVICE
#endif

namespace parboil::pns {

inline constexpr FileFormat kInput{"pns.in", 2};
inline constexpr FileFormat kOutput{"pns.out", 1};
inline constexpr FileFormat kReference{"pns.ref", 2};

inline constexpr unsigned kThreads = 256;       // draws per step
inline constexpr unsigned kRunsPerLaunch = 18;  // 72 bytes of each result
inline constexpr unsigned kArcs = 3;            // at most, each way

struct Arc {
  std::uint16_t place;
  std::uint16_t weight;  // 0: no arc
};

struct Transition {
  Arc inputs[kArcs];  // of different places, at least one
  Arc outputs[kArcs];
};

struct Parameters {
  std::uint32_t places, transitions, steps, launches;
};

constexpr Parameters parameters(Size size) {
  return size == Size::kSmall    ? Parameters{200, 200, 1000, 4}
         : size == Size::kMedium ? Parameters{2000, 2000, 5000, 16}
                                 : Parameters{4000, 4000, 5000, 64};
}

// The kernel's parameters that are not pointers.
struct Simulation {
  std::uint32_t places, transitions, steps;
  std::uint32_t firstRun;  // of the launch; block b simulates run firstRun + b
};

// int32 values of one run's trajectory: a marking before every step and one after the last, then
// the number of transitions fired in each step.
PNS_HOST_DEVICE constexpr std::size_t trajectoryLength(std::uint32_t places, std::uint32_t steps) {
  return (std::size_t{steps} + 1) * places + steps;
}

// Bytes of shared memory for a block: the marking, the claims on its places and the totals.
constexpr std::size_t sharedBytes(std::uint32_t places) {
  return 2 * std::size_t{places} * sizeof(std::int32_t) + 48;
}

// The transition that a thread draws: the SplitMix64 output function of a counter.
PNS_HOST_DEVICE inline std::uint32_t draw(std::uint32_t run, std::uint32_t step,
                                          std::uint32_t thread, std::uint32_t transitions) {
  std::uint64_t x = (std::uint64_t{run} << 40) + (std::uint64_t{step} << 12) + thread + 1;
  x *= 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return static_cast<std::uint32_t>(((x >> 32) * transitions) >> 32);
}

// The variance from exact sums: `spread` is the sum over places of n * sum(x^2) - sum(x)^2 over n
// steps. Divided once in double, which rounds alike everywhere.
PNS_HOST_DEVICE inline float meanVariance(std::uint64_t spread, std::uint64_t steps,
                                          std::uint64_t places) {
  return static_cast<float>(static_cast<double>(spread) /
                            static_cast<double>(steps * steps * places));
}

// net, initial marking, trajectories, variance, peak.
using SimulateKernel = Kernel<const Transition*, const std::int32_t*, std::int32_t*, float*,
                              std::int32_t*, Simulation>;
const SimulateKernel& simulateKernel();
void simulateBlock(const adsmThreadBlock_t* block, void** args);
const void* simulateSymbol();

struct Outcome {
  float variance;
  std::int32_t peak;
};

// Fills a random net that never dies. A sixteenth of the places are resources with one token, which
// half of the transitions take and give back. Every other place feeds a transition that needs one
// or two of its tokens and hands them to other places; there are four tokens for each such place,
// so some transition is always enabled. At first they crowd in an eighth of the places. At least
// 16 places, and as many transitions.
void makeNet(std::uint64_t seed, const Parameters& size, Transition* net, std::int32_t* initial);

// One run on the CPU.
Outcome simulate(const Transition* net, const std::int32_t* initial, const Simulation& simulation,
                 std::uint32_t run);

void generate(const Context& context);
void runGmac(const Context& context);
void runExplicit(const Context& context);
Check check(const Context& context);

}  // namespace parboil::pns

#endif  // GMAC_PARBOIL_PNS_PNS_H_
