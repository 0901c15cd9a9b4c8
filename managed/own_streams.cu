// SPDX-License-Identifier: Apache-2.0
//
// Eight threads, each with a stream and an array of its own, that launch a short kernel and wait
// for it, again and again; each looks at a word of its array now and then. Result: all words that
// were seen, thread by thread.
#include <future>

#include "managed/program.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

constexpr unsigned kThreadsOfProgram = 8;
constexpr unsigned kLooks = 64;  // launches from one to the next
constexpr std::size_t kCount = 16'384;

__global__ void advance(Word* words, std::size_t count, Word by) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) words[i] += by;
}

std::vector<Word> work(unsigned thread, unsigned launches) {
  std::vector<Word> seen;
  const Stream stream;
  Array<Word> words(kCount);
  for (std::size_t i = 0; i < kCount; ++i) words[i] = static_cast<Word>(i);
  constexpr unsigned kThreads = 256;
  for (unsigned launch = 1; launch <= launches; ++launch) {
    advance<<<blocksFor(kCount, kThreads), kThreads, 0, stream.get()>>>(words.data(), kCount,
                                                                        thread + 1);
    check(cudaGetLastError(), "launch");
    stream.wait();
    if (launch % kLooks == 0) seen.push_back(words[launch % kCount]);
  }
  words.free();
  return seen;
}

Outcome advanceAll(const Request& request) {
  const unsigned launches = bySize(request.size, 512U, 8192U, 65'536U);
  Outcome outcome;
  const Clock clock;
  std::vector<std::future<std::vector<Word>>> threads;
  for (unsigned thread = 0; thread < kThreadsOfProgram; ++thread) {
    threads.push_back(std::async(std::launch::async, &work, thread, launches));
  }
  for (auto& thread : threads) {
    const std::vector<Word> seen = thread.get();
    append(outcome.result, seen.data(), seen.size() * sizeof(Word));
  }
  outcome.seconds = clock.seconds();

  if (request.check) {
    std::vector<Word> wanted;
    for (unsigned thread = 0; thread < kThreadsOfProgram; ++thread) {
      for (unsigned launch = kLooks; launch <= launches; launch += kLooks) {
        wanted.push_back(static_cast<Word>(launch % kCount) + launch * (thread + 1));
      }
    }
    outcome.wrong = firstDifference("word", reinterpret_cast<const Word*>(outcome.result.data()),
                                    wanted.data(), wanted.size());
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "own_streams", advanceAll); }
