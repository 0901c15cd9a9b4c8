// SPDX-License-Identifier: Apache-2.0
//
// A program that allocates what a step needs and frees it after the step, as one does that is made
// of functions with vectors of their own: two arrays, filled by the CPU, one kernel, the result
// folded by the CPU, over and over. Sizes differ a little from step to step. Result: the digest.
#include "managed/program.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

constexpr std::size_t kDigestWords = 256;

__host__ __device__ Word mixed(Word word, Word step) {
  word = (word ^ step) * 2246822519U;
  return word ^ (word >> 15);
}

__global__ void mix(const Word* in, Word* out, std::size_t count, Word step) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = mixed(in[i], step);
}

std::size_t countOf(unsigned step, std::size_t most) { return most - step % 7 * 64; }

void fold(std::vector<Word>& digest, Word word, std::size_t i) {
  digest[i % kDigestWords] = digest[i % kDigestWords] * 31 + word;
}

Outcome churn(const Request& request) {
  const std::size_t most = bySize<std::size_t>(request.size, 10'000, 262'144, 262'144);
  const unsigned steps = bySize(request.size, 20U, 625U, 2500U);
  Outcome outcome;
  std::vector<Word> digest(kDigestWords);
  const Clock clock;
  for (unsigned step = 0; step < steps; ++step) {
    const std::size_t count = countOf(step, most);
    Array<Word> in(count), out(count);
    for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<Word>(i * 40503U + step);
    constexpr unsigned kThreads = 256;
    mix<<<blocksFor(count, kThreads), kThreads>>>(in.data(), out.data(), count, step);
    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (std::size_t i = 0; i < count; i += 16) fold(digest, out[i], i);
    in.free();
    out.free();
  }
  outcome.seconds = clock.seconds();
  append(outcome.result, digest.data(), digest.size() * sizeof(Word));

  if (request.check) {
    std::vector<Word> wanted(kDigestWords);
    for (unsigned step = 0; step < steps; ++step) {
      const std::size_t count = countOf(step, most);
      for (std::size_t i = 0; i < count; i += 16) {
        fold(wanted, mixed(static_cast<Word>(i * 40503U + step), step), i);
      }
    }
    outcome.wrong =
        firstDifference("word of the digest", digest.data(), wanted.data(), kDigestWords);
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "allocation_churn", churn); }
