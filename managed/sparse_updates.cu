// SPDX-License-Identifier: Apache-2.0
//
// A large table that the GPU works through at every step, while the CPU, between the steps, changes
// a few entries that lie anywhere and reads a few others: a simulation with a little steering.
// Result: the whole table at the end, and all that was read on the way.
#include "managed/program.h"

namespace {

using namespace managed;
using Entry = std::uint32_t;

constexpr unsigned kTouches = 24;  // writes, and reads, of a step

__host__ __device__ Entry advanced(Entry entry, unsigned step) {
  entry = entry * 1664525U + 1013904223U + step;
  return entry ^ (entry >> 15);
}

__global__ void advance(Entry* table, std::size_t count, unsigned step) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) table[i] = advanced(table[i], step);
}

Entry firstEntry(std::size_t i) { return static_cast<Entry>(i * 2654435761U); }

// The CPU's work before a step.
void steer(Entry* table, std::size_t count, unsigned step, std::vector<Entry>& seen) {
  for (unsigned k = 0; k < kTouches; ++k) {
    const std::uint64_t word = randomWord(std::uint64_t{step} * kTouches + k);
    table[word % count] ^= static_cast<Entry>(word >> 32);
    seen.push_back(table[randomWord(~word) % count]);
  }
}

Outcome simulate(const Request& request) {
  const std::size_t count = bySize<std::size_t>(request.size, 300'000, 32'000'000, 128'000'000);
  const unsigned steps = bySize(request.size, 20U, 60U, 60U);
  Outcome outcome;
  std::vector<Entry> seen;
  const Clock clock;
  {
    Array<Entry> table(count);
    for (std::size_t i = 0; i < count; ++i) table[i] = firstEntry(i);
    constexpr unsigned kThreads = 256;
    for (unsigned step = 0; step < steps; ++step) {
      steer(table.data(), count, step, seen);
      advance<<<blocksFor(count, kThreads), kThreads>>>(table.data(), count, step);
      check(cudaGetLastError(), "launch");
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
    append(outcome.result, table.data(), table.bytes());
    append(outcome.result, seen.data(), seen.size() * sizeof(Entry));
    table.free();
  }
  outcome.seconds = clock.seconds();

  if (request.check) {
    std::vector<Entry> table(count), wantedSeen;
    for (std::size_t i = 0; i < count; ++i) table[i] = firstEntry(i);
    for (unsigned step = 0; step < steps; ++step) {
      steer(table.data(), count, step, wantedSeen);
      inParallel(count, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i) table[i] = advanced(table[i], step);
      });
    }
    outcome.wrong = firstDifference("entry seen", seen.data(), wantedSeen.data(), seen.size());
    if (outcome.wrong.empty()) {
      outcome.wrong = firstDifference(
          "entry", reinterpret_cast<const Entry*>(outcome.result.data()), table.data(), count);
    }
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "sparse_updates", simulate); }
