// SPDX-License-Identifier: Apache-2.0
//
// The cost of memory that lies on another GPU: the last GPU reads an array that the first one is
// advised to hold, and the array is prefetched to and fro between the two. The note has the rates.
// Result: the sums that the readers made.
#include <algorithm>

#include "managed/devices.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

constexpr unsigned kThreads = 512;
constexpr unsigned kBlocks = 1024;
constexpr unsigned kRounds = 9;

// Each block's sum.
__global__ void sum(const uint4* words, std::size_t count, Word* sums) {
  __shared__ Word parts[kThreads];
  Word part = 0;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::size_t{kBlocks} * kThreads) {
    const uint4 four = words[i];
    part += four.x + four.y + four.z + four.w;
  }
  parts[threadIdx.x] = part;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = parts[0];
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Outcome run(const Request& request) {
  const std::size_t bytes = bySize<std::size_t>(request.size, 8U << 20, 64U << 20, 1U << 30);
  const std::size_t count = bytes / sizeof(Word);
  const int devices = deviceCount();
  const int first = 0;
  const int last = devices - 1;
  std::vector<Lane> lanes;
  for (int device = 0; device < devices; ++device) lanes.emplace_back(device);
  const Lane& reader = lanes.back();
  Outcome outcome;
  std::vector<double> reads;
  std::vector<double> moves;
  const Clock clock;
  {
    use(first);
    Array<Word> words(count);
    inParallel(count, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) words[i] = static_cast<Word>(i * 2654435761U);
    });
    use(last);
    Array<Word> sums(kBlocks);
    advise(words.data(), bytes, cudaMemAdviseSetPreferredLocation, first);
    advise(words.data(), bytes, cudaMemAdviseSetAccessedBy, last);
    prefetch(words.data(), bytes, first, lanes[0].stream());
    lanes[0].wait();
    const auto readOnce = [&] {
      sum<<<kBlocks, kThreads, 0, reader.stream()>>>(reinterpret_cast<const uint4*>(words.data()),
                                                     count / 4, sums.data());
      check(cudaGetLastError(), "launch");
      reader.wait();
    };
    readOnce();
    for (unsigned round = 0; round < kRounds; ++round) {
      const Clock reading;
      readOnce();
      reads.push_back(reading.seconds());
    }
    append(outcome.result, sums.data(), sums.bytes());
    check(cudaMemAdvise(words.data(), bytes, cudaMemAdviseUnsetPreferredLocation, placeOn(first)),
          "cudaMemAdvise");
    for (unsigned round = 0; round < kRounds; ++round) {
      const int target = round % 2 == 0 ? last : first;
      const Lane& lane = lanes[static_cast<std::size_t>(target)];
      const Clock moving;
      use(target);
      prefetch(words.data(), bytes, target, lane.stream());
      lane.wait();
      moves.push_back(moving.seconds());
    }
    use(last);
    readOnce();
    append(outcome.result, sums.data(), sums.bytes());
    words.free();
    sums.free();
  }
  outcome.seconds = clock.seconds();
  outcome.note =
      "device " + std::to_string(last) + " reads memory of device " + std::to_string(first) +
      " at " + std::to_string(static_cast<double>(bytes) / median(reads) / 1e9) + " GB/s; " +
      std::to_string(bytes >> 20) + " MiB move in " + std::to_string(median(moves) * 1e3) + " ms";
  lanes.clear();

  if (request.check) {
    std::vector<Word> wanted(kBlocks, 0);
    inParallel(kBlocks, [&](std::size_t begin, std::size_t end) {
      for (std::size_t block = begin; block < end; ++block) {
        for (std::size_t i = block * kThreads * 4; i < count;
             i += std::size_t{kBlocks} * kThreads * 4) {
          for (std::size_t k = i; k < std::min(i + kThreads * 4, count); ++k)
            wanted[block] += static_cast<Word>(k * 2654435761U);
        }
      }
    });
    const auto* const got = reinterpret_cast<const Word*>(outcome.result.data());
    outcome.wrong = firstDifference("sum", got, wanted.data(), kBlocks);
    if (outcome.wrong.empty())
      outcome.wrong = firstDifference("later sum", got + kBlocks, wanted.data(), kBlocks);
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "devices_links", run); }
