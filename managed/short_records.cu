// SPDX-License-Identifier: Apache-2.0
//
// Reads a file by fread, four bytes at a time and straight into managed memory, has a kernel work
// on it, and writes the result as lines of text. Result: the words, and what the lines add up to
// when they are read again.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "managed/program.h"

namespace {

using namespace managed;
using Word = std::uint32_t;
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File scratch() {
  File file(std::tmpfile(), &std::fclose);
  if (file == nullptr) throw std::runtime_error("cannot make a temporary file");
  return file;
}
void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

__host__ __device__ Word mixed(Word word) {
  word = (word ^ (word >> 15)) * 2246822519U;
  return word ^ (word >> 13);
}

__global__ void mix(Word* words, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) words[i] = mixed(words[i]);
}

Outcome convert(const Request& request) {
  const std::size_t count = bySize<std::size_t>(request.size, 50'000, 8'000'000, 32'000'000);
  const std::size_t lines = count / 8;
  const File input = scratch();
  for (std::size_t i = 0; i < count; ++i) {
    const auto word = static_cast<Word>(randomWord(i));
    require(std::fwrite(&word, sizeof word, 1, input.get()) == 1, "cannot write the input");
  }
  std::rewind(input.get());
  const File output = scratch();

  Outcome outcome;
  const Clock clock;
  {
    Array<Word> words(count);
    for (std::size_t i = 0; i < count; ++i) {
      require(std::fread(&words[i], sizeof(Word), 1, input.get()) == 1, "the input is short");
    }
    constexpr unsigned kThreads = 256;
    mix<<<blocksFor(count, kThreads), kThreads>>>(words.data(), count);
    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (std::size_t i = 0; i < lines; ++i) {
      require(std::fprintf(output.get(), "%zu %" PRIu32, i, words[i]) > 0 &&
                  std::fputs("\n", output.get()) >= 0,
              "cannot write a line");
    }
    append(outcome.result, words.data(), words.bytes() / 8);
    words.free();
  }
  outcome.seconds = clock.seconds();

  std::rewind(output.get());
  std::uint64_t sum = 0;
  char line[64];
  for (std::size_t i = 0; i < lines; ++i) {
    require(std::fgets(line, sizeof line, output.get()) != nullptr, "a line is missing");
    char* rest = nullptr;
    const std::uint64_t number = std::strtoull(line, &rest, 10);
    sum = sum * 31 + number + std::strtoull(rest, nullptr, 10);
  }
  append(outcome.result, &sum, sizeof sum);
  if (request.check) {
    std::uint64_t wantedSum = 0;
    std::vector<Word> wanted(count / 8);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      wanted[i] = mixed(static_cast<Word>(randomWord(i)));
      if (i < lines) wantedSum = wantedSum * 31 + i + wanted[i];
    }
    outcome.wrong = firstDifference("word", reinterpret_cast<const Word*>(outcome.result.data()),
                                    wanted.data(), wanted.size());
    if (outcome.wrong.empty() && sum != wantedSum)
      outcome.wrong = "the lines add up to another sum";
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "short_records", convert); }
