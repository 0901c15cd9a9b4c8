// SPDX-License-Identifier: Apache-2.0
//
// One thread a GPU, all at once, with per-thread default streams: each has memory of its own, reads
// a table of all, and writes its part of one array of all; the CPU works on the own memory while
// other GPUs' kernels run. At the end all but the first GPU are reset, and the results read then.
// Result: the shared array and the own ones.
#include <algorithm>
#include <stdexcept>
#include <thread>

#include "managed/devices.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

constexpr unsigned kThreads = 256;
constexpr unsigned kParts = 8;  // of the array: the same for any number of devices

__host__ __device__ Word mixed(Word word, Word table) {
  word = (word ^ table) * 2246822519U + 7;
  return word ^ (word >> 15);
}

__global__ void mix(Word* own, const Word* table, Word* part, std::size_t count, Word round) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  own[i] = mixed(own[i], table[(i * 17 + round) % count]);
  part[i] += own[i];
}

Word tableWord(std::size_t i) { return static_cast<Word>(randomWord(i)); }
Word ownWord(unsigned part, std::size_t i) { return static_cast<Word>(i * 31 + part); }
void edit(Word* own, unsigned round) { own[round] += round; }

struct Shared {
  const Array<Word>& table;
  Array<Word>& all;
  std::size_t count;
  unsigned rounds;
};

void work(int device, unsigned part, const Shared& shared, std::vector<Word>* last) {
  use(device);
  Array<Word> own(shared.count);
  for (std::size_t i = 0; i < shared.count; ++i) own[i] = ownWord(part, i);
  for (unsigned round = 0; round < shared.rounds; ++round) {
    mix<<<blocksFor(shared.count, kThreads), kThreads, 0, cudaStreamPerThread>>>(
        own.data(), shared.table.data(), shared.all.data() + part * shared.count, shared.count,
        round);
    check(cudaGetLastError(), "launch");
    check(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
    edit(own.data(), round);
  }
  last->assign(own.data(), own.data() + shared.count);
  own.free();
}

Outcome run(const Request& request) {
  const std::size_t count = bySize<std::size_t>(request.size, 30'000, 1'000'000, 16'000'000);
  const unsigned rounds = bySize(request.size, 10U, 50U, 200U);
  const int devices = deviceCount();
  Outcome outcome;
  const Clock clock;
  use(0);
  Array<Word> table(count), all(kParts * count);
  for (std::size_t i = 0; i < count; ++i) table[i] = tableWord(i);
  std::fill_n(all.data(), all.size(), 0);
  const Shared shared{table, all, count, rounds};
  std::vector<std::vector<Word>> own(kParts);
  for (unsigned first = 0; first < kParts;) {
    std::vector<std::thread> threads;
    std::vector<std::string> errors(static_cast<std::size_t>(devices));
    for (int device = 0; device < devices && first < kParts; ++device, ++first) {
      threads.emplace_back([&, device, part = first] {
        try {
          work(device, part, shared, &own[part]);
        } catch (const std::exception& error) {
          errors[static_cast<std::size_t>(device)] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& error : errors) {
      if (!error.empty()) throw std::runtime_error(error);
    }
  }
  for (int device = 1; device < devices; ++device) {
    use(device);
    check(cudaDeviceReset(), "cudaDeviceReset");
  }
  use(0);
  append(outcome.result, all.data(), all.bytes());
  for (const auto& one : own) append(outcome.result, one.data(), count * sizeof(Word));
  table.free();
  all.free();
  outcome.seconds = clock.seconds();
  outcome.note = std::to_string(devices) + " devices";

  if (request.check) {
    std::vector<Word> wanted(kParts * count);
    std::vector<Word> wantedOwn(kParts * count);
    inParallel(kParts, [&](std::size_t firstPart, std::size_t lastPart) {
      for (std::size_t part = firstPart; part < lastPart; ++part) {
        Word* const words = wantedOwn.data() + part * count;
        for (std::size_t i = 0; i < count; ++i) words[i] = ownWord(static_cast<unsigned>(part), i);
        for (unsigned round = 0; round < rounds; ++round) {
          for (std::size_t i = 0; i < count; ++i) {
            words[i] = mixed(words[i], tableWord((i * 17 + round) % count));
            wanted[part * count + i] += words[i];
          }
          edit(words, round);
        }
      }
    });
    wanted.insert(wanted.end(), wantedOwn.begin(), wantedOwn.end());
    outcome.wrong = firstDifference("word", reinterpret_cast<const Word*>(outcome.result.data()),
                                    wanted.data(), wanted.size());
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "devices_at_once", run); }
