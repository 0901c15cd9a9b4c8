// SPDX-License-Identifier: Apache-2.0
//
// Tasks with a small buffer of managed memory each, of 4 to 20,000 bytes: a batch of them is
// allocated, filled in part, given to a kernel each, waited for together, read and freed. Result: a
// word of each task.
#include "managed/program.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

constexpr std::size_t kBatch = 200;
constexpr std::size_t kMostWords = 5000;

std::size_t wordsOf(std::size_t task) { return 1 + randomWord(task) % kMostWords; }
__host__ __device__ Word answerTo(Word question) { return (question ^ 0x5bd1e995U) * 2654435761U; }

// The last word answers the first one.
__global__ void answer(Word* words, std::size_t count) { words[count - 1] = answerTo(words[0]); }

Outcome tasks(const Request& request) {
  const std::size_t batches = bySize<std::size_t>(request.size, 5, 50, 500);
  Outcome outcome;
  const Clock clock;
  for (std::size_t batch = 0; batch < batches; ++batch) {
    std::vector<Array<Word>> buffers;
    for (std::size_t i = 0; i < kBatch; ++i) {
      const std::size_t task = batch * kBatch + i;
      Array<Word>& buffer = buffers.emplace_back(wordsOf(task));
      buffer[0] = static_cast<Word>(task);
      answer<<<1, 1>>>(buffer.data(), buffer.size());
      check(cudaGetLastError(), "launch");
    }
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (Array<Word>& buffer : buffers) {
      append(outcome.result, &buffer[buffer.size() - 1], sizeof(Word));
      buffer.free();
    }
  }
  outcome.seconds = clock.seconds();

  if (request.check) {
    std::vector<Word> wanted(batches * kBatch);
    for (std::size_t task = 0; task < wanted.size(); ++task) {
      wanted[task] = answerTo(static_cast<Word>(task));
    }
    outcome.wrong = firstDifference("answer", reinterpret_cast<const Word*>(outcome.result.data()),
                                    wanted.data(), wanted.size());
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "small_objects", tasks); }
