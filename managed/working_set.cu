// SPDX-License-Identifier: Apache-2.0
//
// A working set that does not fit: a plain reservation takes the GPU's memory but for a small room,
// and kernels sweep over arrays of 1.5 times that room, again and again, while the CPU changes a
// few words of each. Real managed memory is never asked for more than is free, which can hang a
// GPU: there the arrays have half of the room, and the note says so. Result: the sums of the arrays
// that both have.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>

#include "managed/program.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr unsigned kThreads = 256;
constexpr unsigned kBlocks = 1024;
// Of the room's eighths, each an array.
constexpr std::size_t kEighths = 8;
constexpr std::size_t kFit = 4;
constexpr std::size_t kDoNotFit = 12;
// The CPU changes a word of each array every so many words, before each sweep.
constexpr std::size_t kStride = 65'536;

__host__ __device__ Word swept(Word word, Word sweep) {
  word = word * 1664525U + 1013904223U + sweep;
  return word ^ (word >> 13);
}

__global__ void sweepOver(Word* words, std::size_t count, Word sweep) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    words[i] = swept(words[i], sweep);
  }
}

Word startWord(std::size_t array, std::size_t i) {
  return static_cast<Word>(i * 2654435761U + array * 40503U);
}

// Whether managed memory is gmac's, which moves what does not fit: its library is in this process
// and has been told to take these calls.
bool isGmacs() {
  const char* const taken = std::getenv("GMAC_MANAGED");
  return taken != nullptr && *taken != '\0' && std::string(taken) != "0" &&
         dlsym(RTLD_DEFAULT, "adsmAlloc") != nullptr;
}

std::size_t freeBytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

// Plain memory of the GPU that takes all but a room.
class Reservation {
 public:
  explicit Reservation(std::size_t room) {
    const std::size_t free = freeBytes();
    if (free < room) {
      throw std::runtime_error("the GPU has " + std::to_string(free) + " bytes free, and " +
                               std::to_string(room) + " are needed");
    }
    check(cudaMalloc(&memory_, free - room), "cudaMalloc");
  }
  ~Reservation() { (void)cudaFree(memory_); }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

 private:
  void* memory_ = nullptr;
};

std::uint64_t sumOf(const Word* words, std::size_t count) {
  return std::accumulate(words, words + count, std::uint64_t{0});
}

std::uint64_t wantedSum(std::size_t array, std::size_t count, Word sweeps) {
  std::vector<std::uint64_t> sums(count / kStride + 1);
  inParallel(sums.size(), [&](std::size_t first, std::size_t last) {
    for (std::size_t part = first; part < last; ++part) {
      for (std::size_t i = part * kStride; i < std::min(count, (part + 1) * kStride); ++i) {
        Word word = startWord(array, i);
        for (Word sweep = 0; sweep < sweeps; ++sweep) {
          word = swept(i % kStride == 0 ? word + 1 : word, sweep);
        }
        sums[part] += word;
      }
    }
  });
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

Outcome sweepAll(const Request& request) {
  const std::size_t room = bySize(request.size, 256 * kMiB, 1024 * kMiB, 4096 * kMiB);
  const Word sweeps = bySize(request.size, 4U, 10U, 10U);
  const std::size_t count = room / kEighths / sizeof(Word);
  const bool gmacs = isGmacs();
  Array<Word>(1).free();  // whatever manages the memory has what it needs from here on
  const Reservation reservation(room);
  // Asked once more: what real managed memory is asked for must fit, whoever else uses the GPU.
  if (!gmacs && freeBytes() < kFit * room / kEighths) {
    throw std::runtime_error("others have taken the GPU's memory meanwhile");
  }

  Outcome outcome;
  std::vector<std::uint64_t> sums;
  const Clock clock;
  std::vector<Array<Word>> arrays;
  for (std::size_t array = 0; array < (gmacs ? kDoNotFit : kFit); ++array) {
    Word* const words = arrays.emplace_back(count).data();
    for (std::size_t i = 0; i < count; ++i) words[i] = startWord(array, i);
  }
  const Clock sweepClock;
  for (Word sweep = 0; sweep < sweeps; ++sweep) {
    for (const Array<Word>& array : arrays) {
      for (std::size_t i = 0; i < count; i += kStride) ++array[i];
      sweepOver<<<kBlocks, kThreads>>>(array.data(), count, sweep);
      check(cudaGetLastError(), "launch");
    }
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  const double sweepSeconds = sweepClock.seconds();
  for (Array<Word>& array : arrays) {
    sums.push_back(sumOf(array.data(), count));
    array.free();
  }
  outcome.seconds = clock.seconds();
  outcome.note = std::to_string(sums.size()) + " arrays of an eighth of the GPU's room, " +
                 std::to_string(room / kMiB) + " MiB, swept in " + std::to_string(sweepSeconds) +
                 " s" + (gmacs ? "" : "; real managed memory gets no more than half of the room");
  append(outcome.result, sums.data(), kFit * sizeof sums[0]);

  if (request.check) {
    std::vector<std::uint64_t> wanted;
    for (std::size_t array = 0; array < sums.size(); ++array) {
      wanted.push_back(wantedSum(array, count, sweeps));
    }
    outcome.wrong = firstDifference("sum", sums.data(), wanted.data(), wanted.size());
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "working_set", sweepAll); }
