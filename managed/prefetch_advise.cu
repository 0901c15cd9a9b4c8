// SPDX-License-Identifier: Apache-2.0
//
// A program that was tuned for managed memory: a table that both sides read is advised to be read
// mostly, requests are prefetched to the GPU, answers to the CPU. At every round the CPU writes
// requests (using the table itself), the GPU looks each up along a chain of four entries, the CPU
// folds the answers. Once, in the middle, the CPU changes the table. Result: the digest of all
// answers, and the last round's answers.
#include "managed/program.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

constexpr unsigned kLinks = 4;

__host__ __device__ Word answer(const Word* table, std::size_t entries, Word request) {
  for (unsigned link = 0; link < kLinks; ++link)
    request = table[request % entries] ^ (request >> 7);
  return request;
}

__global__ void lookUp(const Word* table, std::size_t entries, const Word* requests, Word* answers,
                       std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) answers[i] = answer(table, entries, requests[i]);
}

constexpr int kCpu = cudaCpuDeviceId;

#if CUDART_VERSION >= 13000
cudaMemLocation placeOf(int device) {
  return device == kCpu ? cudaMemLocation{cudaMemLocationTypeHost, 0}
                        : cudaMemLocation{cudaMemLocationTypeDevice, device};
}
#else
int placeOf(int device) { return device; }
#endif

void prefetch(const Array<Word>& array, int device) {
#if CUDART_VERSION >= 13000
  check(cudaMemPrefetchAsync(array.data(), array.bytes(), placeOf(device), 0, nullptr),
        "cudaMemPrefetchAsync");
#else
  check(cudaMemPrefetchAsync(array.data(), array.bytes(), placeOf(device), nullptr),
        "cudaMemPrefetchAsync");
#endif
}

void advise(const Array<Word>& array, cudaMemoryAdvise advice, int device) {
  check(cudaMemAdvise(array.data(), array.bytes(), advice, placeOf(device)), "cudaMemAdvise");
}

void fillTable(Word* table, std::size_t entries, unsigned version) {
  for (std::size_t i = 0; i < entries; ++i) {
    table[i] = static_cast<Word>(i * 2654435761U) ^ (version * 0x9E3779B9U);
  }
}

// Some of the table's own words are requests.
void fillRequests(Word* requests, std::size_t count, const Word* table, std::size_t entries,
                  unsigned round) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto word = static_cast<Word>(i * 2246822519U + round * 374761393U);
    requests[i] = i % 64 == 0 ? table[word % entries] : word ^ (word >> 15);
  }
}

Word fold(Word digest, const Word* answers, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) digest = (digest ^ answers[i]) * 16777619U;
  return digest;
}

struct Sizes {
  std::size_t entries;
  std::size_t count;
  unsigned rounds;
};

Outcome serve(const Request& request) {
  const Sizes sizes = bySize(request.size, Sizes{50'000, 100'000, 4},
                             Sizes{8'000'000, 16'000'000, 6}, Sizes{32'000'000, 64'000'000, 6});
  Outcome outcome;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  Word digest = 0;
  const Clock clock;
  {
    Array<Word> table(sizes.entries), requests(sizes.count), answers(sizes.count);
    fillTable(table.data(), sizes.entries, 0);
    advise(table, cudaMemAdviseSetReadMostly, device);
    advise(answers, cudaMemAdviseSetPreferredLocation, device);
    advise(answers, cudaMemAdviseSetAccessedBy, kCpu);
    prefetch(table, device);
    constexpr unsigned kThreads = 256;
    for (unsigned round = 0; round < sizes.rounds; ++round) {
      if (round == sizes.rounds / 2) {
        // Advice is a hint: writing stays allowed.
        fillTable(table.data(), sizes.entries, round);
        prefetch(table, device);
      }
      fillRequests(requests.data(), sizes.count, table.data(), sizes.entries, round);
      prefetch(requests, device);
      prefetch(answers, device);
      lookUp<<<blocksFor(sizes.count, kThreads), kThreads>>>(
          table.data(), sizes.entries, requests.data(), answers.data(), sizes.count);
      check(cudaGetLastError(), "launch");
      prefetch(answers, kCpu);
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      digest = fold(digest, answers.data(), sizes.count);
    }
    advise(table, cudaMemAdviseUnsetReadMostly, device);
    append(outcome.result, &digest, sizeof digest);
    append(outcome.result, answers.data(), answers.bytes());
    table.free();
    requests.free();
    answers.free();
  }
  outcome.seconds = clock.seconds();

  if (request.check) {
    std::vector<Word> table(sizes.entries), requests(sizes.count), answers(sizes.count);
    fillTable(table.data(), sizes.entries, 0);
    Word wanted = 0;
    for (unsigned round = 0; round < sizes.rounds; ++round) {
      if (round == sizes.rounds / 2) fillTable(table.data(), sizes.entries, round);
      fillRequests(requests.data(), sizes.count, table.data(), sizes.entries, round);
      inParallel(sizes.count, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i) {
          answers[i] = answer(table.data(), sizes.entries, requests[i]);
        }
      });
      wanted = fold(wanted, answers.data(), sizes.count);
    }
    outcome.wrong = firstDifference("digest", &digest, &wanted, 1);
    if (outcome.wrong.empty()) {
      outcome.wrong = firstDifference(
          "answer", reinterpret_cast<const Word*>(outcome.result.data() + sizeof digest),
          answers.data(), sizes.count);
    }
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "prefetch_advise", serve); }
