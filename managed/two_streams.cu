// SPDX-License-Identifier: Apache-2.0
//
// Two threads, each with a stream and managed memory of its own that it has attached to that stream
// (cudaStreamAttachMemAsync): one thread's CPU works on its memory while the other's kernel runs.
// Each fills a message, has the GPU mix it, and folds what came out into its digest, many times.
// Result: both digests.
#include <algorithm>
#include <future>

#include "managed/program.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

constexpr unsigned kThreadsOfProgram = 2;
constexpr unsigned kTurns = 64;  // of a word's mixing, so that a kernel lasts

__host__ __device__ Word mixed(Word word, Word neighbour) {
  for (unsigned turn = 0; turn < kTurns; ++turn) {
    word = (word ^ neighbour) * 2246822519U + turn;
    word ^= word >> 13;
  }
  return word;
}

__global__ void mix(const Word* message, Word* out, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = mixed(message[i], message[i + 1 < count ? i + 1 : 0]);
}

// The messages of the two threads are never the same.
Word messageWord(unsigned thread, unsigned round, std::size_t i) {
  const auto word = static_cast<Word>(i * 2654435761U + round * 40503U + thread);
  return word ^ (word >> 16);
}

void fold(std::vector<Word>& digest, const Word* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    digest[i % digest.size()] = digest[i % digest.size()] * 31 + out[i];
}

constexpr std::size_t kDigestWords = 1024;

std::vector<Word> work(unsigned thread, std::size_t count, unsigned rounds) {
  std::vector<Word> digest(kDigestWords);
  const Stream stream;
  // Nobody's until they are attached.
  Array<Word> message(count, cudaMemAttachHost), out(count, cudaMemAttachHost);
  for (const Array<Word>* const array : {&message, &out}) {
    check(cudaStreamAttachMemAsync(stream.get(), array->data(), 0, cudaMemAttachSingle),
          "cudaStreamAttachMemAsync");
  }
  stream.wait();
  constexpr unsigned kThreads = 256;
  for (unsigned round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < count; ++i) message[i] = messageWord(thread, round, i);
    mix<<<blocksFor(count, kThreads), kThreads, 0, stream.get()>>>(message.data(), out.data(),
                                                                   count);
    check(cudaGetLastError(), "launch");
    stream.wait();
    fold(digest, out.data(), count);
  }
  message.free();
  out.free();
  return digest;
}

std::vector<Word> reference(unsigned thread, std::size_t count, unsigned rounds) {
  std::vector<Word> digest(kDigestWords), message(count), out(count);
  for (unsigned round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < count; ++i) message[i] = messageWord(thread, round, i);
    inParallel(count, [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) {
        out[i] = mixed(message[i], message[i + 1 < count ? i + 1 : 0]);
      }
    });
    fold(digest, out.data(), count);
  }
  return digest;
}

Outcome digestTwice(const Request& request) {
  const std::size_t count = bySize<std::size_t>(request.size, 100'000, 6'000'000, 30'000'000);
  const unsigned rounds = bySize(request.size, 5U, 12U, 12U);
  Outcome outcome;
  const Clock clock;
  std::vector<std::future<std::vector<Word>>> threads;
  for (unsigned thread = 0; thread < kThreadsOfProgram; ++thread) {
    threads.push_back(std::async(std::launch::async, work, thread, count, rounds));
  }
  for (auto& thread : threads) {
    const std::vector<Word> digest = thread.get();
    append(outcome.result, digest.data(), digest.size() * sizeof(Word));
  }
  outcome.seconds = clock.seconds();

  const auto* const got = reinterpret_cast<const Word*>(outcome.result.data());
  for (unsigned thread = 0; request.check && thread < kThreadsOfProgram; ++thread) {
    const std::vector<Word> wanted = reference(thread, count, rounds);
    if (outcome.wrong.empty()) {
      outcome.wrong = firstDifference("word of a digest", got + thread * kDigestWords,
                                      wanted.data(), kDigestWords);
    }
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "two_streams", digestTwice); }
