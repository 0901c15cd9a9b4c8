// SPDX-License-Identifier: Apache-2.0
//
// A search in steps: after each of them the CPU reads a few bytes (how far it has come and a short
// text) out of a large table that the kernel works on, and writes nothing. Result: all that was
// read.
#include <cstring>

#include "managed/program.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

constexpr std::size_t kTextBytes = 41;
struct Report {
  Word best;
  char text[kTextBytes];
};

__host__ __device__ Word mixed(Word word, Word step) {
  word = (word + step) * 2654435761U;
  return word ^ (word >> 16);
}
__host__ __device__ void report(Report& to, Word best, Word step) {
  to.best = best;
  for (std::size_t i = 0; i < kTextBytes; ++i) {
    to.text[i] = static_cast<char>('a' + (best + step * 7 + i) % 26);
  }
}

// The report lies in the middle of the table.
__global__ void search(Word* table, std::size_t count, Report* to, Word step) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) table[i] = mixed(table[i], step);
  if (i == 0) report(*to, table[0], step);
}

Outcome look(const Request& request) {
  const std::size_t half = bySize<std::size_t>(request.size, 20'000, 500'000, 2'000'000);
  const unsigned steps = bySize(request.size, 50U, 1800U, 7200U);
  Outcome outcome;
  const Clock clock;
  {
    // Two tables with the report between them.
    const std::size_t reportWords = 64;
    Array<Word> table(2 * half + reportWords);
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<Word>(i);
    Report* const result = reinterpret_cast<Report*>(table.data() + half);
    constexpr unsigned kThreads = 256;
    for (unsigned step = 0; step < steps; ++step) {
      search<<<blocksFor(half, kThreads), kThreads>>>(table.data(), half, result, step);
      check(cudaGetLastError(), "launch");
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      append(outcome.result, &result->best, sizeof result->best);
      append(outcome.result, result->text, kTextBytes);
    }
    table.free();
  }
  outcome.seconds = clock.seconds();

  if (request.check) {
    Word first = 0;
    std::vector<unsigned char> wanted;
    for (unsigned step = 0; step < steps; ++step) {
      first = mixed(first, step);
      Report expected{};
      report(expected, first, step);
      append(wanted, &expected.best, sizeof expected.best);
      append(wanted, expected.text, kTextBytes);
    }
    outcome.wrong =
        firstDifference("byte read", outcome.result.data(), wanted.data(), wanted.size());
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "small_reads", look); }
