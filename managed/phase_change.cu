// SPDX-License-Identifier: Apache-2.0
//
// A solver that alternates: many short steps after each of which the CPU looks at a counter beside
// the data and moves it on, then sweeps over all of the data, launched one behind the other without
// a wait. Result: the counters, and the sum of the data in the end.
#include "managed/program.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

__global__ void step(Word* counter) { *counter = *counter * 3 + 1; }

__global__ void sweep(Word* data, std::size_t count, Word round) {
  const std::size_t first = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::size_t i = first; i < count; i += std::size_t{gridDim.x} * blockDim.x) {
    data[i] = data[i] * 5 + round;
  }
}

Outcome solve(const Request& request) {
  const std::size_t count = std::size_t{1} << 19;  // 2 MiB with the counter
  const unsigned phases = bySize(request.size, 2U, 4U, 16U);
  const unsigned steps = bySize(request.size, 200U, 2000U, 4000U);
  const unsigned sweeps = bySize(request.size, 100U, 5000U, 20'000U);
  Outcome outcome;
  const Clock clock;
  {
    Array<Word> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<Word>(i);
    Word* const counter = data.data() + count - 1;
    Word round = 0;
    for (unsigned phase = 0; phase < phases; ++phase) {
      for (unsigned i = 0; i < steps; ++i) {
        ++*counter;
        step<<<1, 1>>>(counter);
        check(cudaGetLastError(), "launch");
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        append(outcome.result, counter, sizeof *counter);
      }
      for (unsigned i = 0; i < sweeps; ++i) {
        sweep<<<128, 256>>>(data.data(), count - 1, round++);
        check(cudaGetLastError(), "launch");
      }
    }
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    Word sum = 0;
    for (std::size_t i = 0; i + 1 < count; ++i) sum += data[i];
    append(outcome.result, &sum, sizeof sum);
    data.free();
  }
  outcome.seconds = clock.seconds();

  if (request.check) {
    std::vector<unsigned char> wanted;
    Word counter = static_cast<Word>(count - 1);
    for (unsigned i = 0; i < phases * steps; ++i) {
      counter = (counter + 1) * 3 + 1;
      append(wanted, &counter, sizeof counter);
    }
    // All of a sweep is linear: data[i] becomes i * factor + rest.
    Word factor = 1;
    Word rest = 0;
    for (Word round = 0; round < phases * sweeps; ++round) {
      factor *= 5;
      rest = rest * 5 + round;
    }
    Word sum = 0;
    for (std::size_t i = 0; i + 1 < count; ++i) sum += static_cast<Word>(i) * factor + rest;
    append(wanted, &sum, sizeof sum);
    outcome.wrong = firstDifference("byte", outcome.result.data(), wanted.data(), wanted.size());
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "phase_change", solve); }
