// SPDX-License-Identifier: Apache-2.0
//
// A simulation whose kernels count events of 64 kinds, from all threads, in counters of managed
// memory. Before each launch the CPU notes the step beside them, and it waits for none but the
// last. Result: the counters and the notes.
#include "managed/program.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

constexpr std::size_t kKinds = 64;
constexpr std::size_t kNotes = 16;
constexpr unsigned kBlocks = 128;
constexpr unsigned kThreads = 256;

__host__ __device__ std::size_t kindOf(std::size_t particle, unsigned step, unsigned event) {
  return (particle * 31 + step * 7 + event) % kKinds;
}

__global__ void simulate(Word* counters, unsigned step, unsigned events) {
  const std::size_t particle = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (unsigned event = 0; event < events; ++event) {
    atomicAdd(&counters[kindOf(particle, step, event)], 1U);
  }
}

Outcome count(const Request& request) {
  const unsigned steps = bySize(request.size, 200U, 2000U, 20'000U);
  const unsigned events = bySize(request.size, 10U, 50U, 50U);
  Outcome outcome;
  const Clock clock;
  {
    Array<Word> counters(kKinds + kNotes);
    for (std::size_t i = 0; i < counters.size(); ++i) counters[i] = 0;
    for (unsigned step = 0; step < steps; ++step) {
      counters[kKinds + step % kNotes] = step;
      simulate<<<kBlocks, kThreads>>>(counters.data(), step, events);
      check(cudaGetLastError(), "launch");
    }
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    append(outcome.result, counters.data(), counters.bytes());
    counters.free();
  }
  outcome.seconds = clock.seconds();

  if (request.check) {
    std::vector<Word> wanted(kKinds + kNotes);
    // Each step counts as many of each kind, or one more of those with which it begins.
    std::vector<Word> first(kKinds);
    for (std::size_t particle = 0; particle < std::size_t{kBlocks} * kThreads; ++particle) {
      for (unsigned event = 0; event < events; ++event) ++first[kindOf(particle, 0, event)];
    }
    for (unsigned step = 0; step < steps; ++step) {
      for (std::size_t kind = 0; kind < kKinds; ++kind) {
        wanted[(kind + std::size_t{step} * 7) % kKinds] += first[kind];
      }
      wanted[kKinds + step % kNotes] = step;
    }
    outcome.wrong = firstDifference("word", reinterpret_cast<const Word*>(outcome.result.data()),
                                    wanted.data(), wanted.size());
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "event_counters", count); }
