// SPDX-License-Identifier: Apache-2.0
//
// Managed memory that nobody allocates: __managed__ variables, which the CUDA runtime makes when
// the program starts. CPU and GPU take turns on a counter and a table. Result: both.
#include "managed/program.h"

namespace {

using namespace managed;

constexpr unsigned kEntries = 100'000;
constexpr unsigned kTurns = 10;

__managed__ unsigned counter = 5;
__managed__ unsigned table[kEntries];

__global__ void addCounter() {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kEntries) table[i] += counter * i;
}

Outcome count(const Request& request) {
  Outcome outcome;
  const Clock clock;
  for (unsigned i = 0; i < kEntries; ++i) table[i] = i;
  constexpr unsigned kThreads = 256;
  for (unsigned turn = 0; turn < kTurns; ++turn) {
    addCounter<<<blocksFor(kEntries, kThreads), kThreads>>>();
    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    counter += table[1] % 3;
  }
  append(outcome.result, &counter, sizeof counter);
  append(outcome.result, table, sizeof table);
  outcome.seconds = clock.seconds();
  if (request.check) {
    unsigned wantedCounter = 5;
    std::vector<unsigned> wanted(kEntries);
    for (unsigned i = 0; i < kEntries; ++i) wanted[i] = i;
    for (unsigned turn = 0; turn < kTurns; ++turn) {
      for (unsigned i = 0; i < kEntries; ++i) wanted[i] += wantedCounter * i;
      wantedCounter += wanted[1] % 3;
    }
    outcome.wrong = firstDifference("counter", &counter, &wantedCounter, 1);
    if (outcome.wrong.empty()) {
      outcome.wrong = firstDifference("entry", table, wanted.data(), kEntries);
    }
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "managed_variable", count); }
