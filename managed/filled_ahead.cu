// SPDX-License-Identifier: Apache-2.0
//
// The CPU fills the next chunk of the input while a kernel works on the one before: one stream, and
// an array for each chunk in flight. Nothing says which array a kernel uses but its arguments.
// Result: the sums of all chunks' mixed words.
#include <deque>

#include "managed/program.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

constexpr std::size_t kInFlight = 3;
constexpr unsigned kTurns =
    400;  // of a word's mixing, so that a kernel lasts about as long as a fill

__host__ __device__ Word mixed(Word word) {
  for (unsigned turn = 0; turn < kTurns; ++turn) {
    word = word * 2246822519U + turn;
    word ^= word >> 13;
  }
  return word;
}

__global__ void mix(Word* words, std::size_t count, unsigned long long* sum) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  words[i] = mixed(words[i]);
  atomicAdd(sum, words[i]);
}

Word wordOf(std::size_t chunk, std::size_t i) {
  return static_cast<Word>(randomWord(chunk * 0x100000000ULL + i));
}

Outcome sumChunks(const Request& request) {
  const std::size_t count = bySize<std::size_t>(request.size, 20'000, 500'000, 2'000'000);
  const std::size_t chunks = bySize<std::size_t>(request.size, 12, 60, 100);
  constexpr unsigned kThreads = 256;
  Outcome outcome;
  std::vector<unsigned long long> sums;
  const Clock clock;
  struct Chunk {
    Array<Word> words;
    Array<unsigned long long> sum;
    cudaEvent_t done = nullptr;
  };
  std::deque<Chunk> ring;
  for (std::size_t i = 0; i < kInFlight; ++i) {
    ring.push_back({Array<Word>(count), Array<unsigned long long>(1)});
    check(cudaEventCreateWithFlags(&ring.back().done, cudaEventDisableTiming), "cudaEventCreate");
  }
  const auto take = [&](std::size_t number) {
    const Chunk& chunk = ring[number % kInFlight];
    check(cudaEventSynchronize(chunk.done), "cudaEventSynchronize");
    sums.push_back(chunk.sum[0]);
  };
  for (std::size_t number = 0; number < chunks; ++number) {
    if (number >= kInFlight) take(number - kInFlight);
    const Chunk& chunk = ring[number % kInFlight];
    for (std::size_t i = 0; i < count; ++i) chunk.words[i] = wordOf(number, i);
    chunk.sum[0] = number;
    mix<<<blocksFor(count, kThreads), kThreads>>>(chunk.words.data(), count, chunk.sum.data());
    check(cudaGetLastError(), "launch");
    check(cudaEventRecord(chunk.done), "cudaEventRecord");
  }
  for (std::size_t number = chunks - kInFlight; number < chunks; ++number) take(number);
  for (Chunk& chunk : ring) {
    check(cudaEventDestroy(chunk.done), "cudaEventDestroy");
    chunk.words.free();
    chunk.sum.free();
  }
  outcome.seconds = clock.seconds();
  append(outcome.result, sums.data(), sums.size() * sizeof sums[0]);

  std::vector<unsigned long long> wanted(request.check ? chunks : 0);
  inParallel(wanted.size(), [&](std::size_t first, std::size_t last) {
    for (std::size_t number = first; number < last; ++number) {
      wanted[number] = number;
      for (std::size_t i = 0; i < count; ++i) wanted[number] += mixed(wordOf(number, i));
    }
  });
  outcome.wrong = firstDifference("sum", sums.data(), wanted.data(), wanted.size());
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "filled_ahead", sumChunks); }
