// SPDX-License-Identifier: Apache-2.0
//
// Every GPU in turn on the same memory: kernels on their default streams, on streams of their own
// that wait for each other, peer copies, copies and fills on another GPU's stream, and edits of the
// CPU in between. Memory is allocated while whichever GPU is current. Result: all arrays.
#include <algorithm>

#include "managed/devices.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

constexpr unsigned kThreads = 256;

__host__ __device__ Word turned(Word word, Word by) { return (word ^ by) * 2654435761U + by; }

__global__ void turn(Word* words, std::size_t count, Word by) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) words[i] = turned(words[i], by);
}

// A list whose nodes lie in managed memory: a kernel is given its head alone.
struct Node {
  Node* next;
  Word* words;
};
__global__ void turnAll(const Node* head, std::size_t count, Word by) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  for (const Node* node = head; node != nullptr && i < count; node = node->next)
    node->words[i] = turned(node->words[i], by);
}

void turnOn(const Lane& lane, Array<Word>& words, Word by, bool onDefaultStream) {
  use(lane.device());
  turn<<<blocksFor(words.size(), kThreads), kThreads, 0,
         onDefaultStream ? nullptr : lane.stream()>>>(words.data(), words.size(), by);
  check(cudaGetLastError(), "launch");
}

Outcome run(const Request& request) {
  const std::size_t count = bySize<std::size_t>(request.size, 100'000, 4'000'000, 64'000'000);
  const unsigned rounds = bySize(request.size, 12U, 40U, 100U);
  const int devices = deviceCount();
  std::vector<Lane> lanes;
  for (int device = 0; device < devices; ++device) lanes.emplace_back(device);
  const auto laneOf = [&](unsigned turns) -> const Lane& { return lanes[turns % lanes.size()]; };
  Outcome outcome;
  const Clock clock;
  constexpr std::size_t kArrays = 3;
  std::vector<Array<Word>> arrays;
  for (std::size_t i = 0; i < kArrays; ++i) {
    use(static_cast<int>(i) % devices);
    arrays.emplace_back(count);
    for (std::size_t k = 0; k < count; ++k) arrays[i][k] = static_cast<Word>(randomWord(k + i));
  }
  Array<Node> nodes(kArrays);
  for (std::size_t i = 0; i < kArrays; ++i)
    nodes[i] = {i + 1 < kArrays ? &nodes[i + 1] : nullptr, arrays[i].data()};

  for (unsigned round = 0; round < rounds; ++round) {
    Array<Word>& words = arrays[round % kArrays];
    // One after the other, without a wait of the CPU.
    for (unsigned k = 0; k < 3; ++k) {
      const Lane& lane = laneOf(round + k);
      if (k != 0) lane.follow(laneOf(round + k - 1));
      turnOn(lane, words, round + k, false);
      lane.record();
    }
    laneOf(round + 2).wait();
    words[round] += round;
    turnOn(laneOf(round + 1), words, round, true);
    use(laneOf(round + 1).device());
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    // On one device's stream while another is current.
    use(laneOf(round).device());
    Array<Word>& target = arrays[(round + 1) % kArrays];
    const Lane& other = laneOf(round + 1);
    check(cudaMemcpyAsync(target.data(), words.data(), count / 2 * sizeof(Word), cudaMemcpyDefault,
                          other.stream()),
          "cudaMemcpyAsync");
    check(cudaMemsetAsync(words.data() + count / 2, static_cast<int>(round), count / 4,
                          other.stream()),
          "cudaMemsetAsync");
    check(cudaMemcpyPeerAsync(arrays[(round + 2) % kArrays].data() + count / 4, other.device(),
                              words.data(), laneOf(round).device(), count / 8 * sizeof(Word),
                              other.stream()),
          "cudaMemcpyPeerAsync");
    other.wait();
    target[0] += 1;
    const Lane& last = laneOf(round + 2);
    use(last.device());
    turnAll<<<blocksFor(count, kThreads), kThreads, 0, last.stream()>>>(nodes.data(), count, round);
    check(cudaGetLastError(), "launch");
    last.wait();
  }
  for (const Array<Word>& words : arrays)
    append(outcome.result, words.data(), count * sizeof(Word));
  arrays.clear();
  nodes.free();
  outcome.seconds = clock.seconds();
  outcome.note = std::to_string(devices) + " devices";
  lanes.clear();

  if (request.check) {
    std::vector<std::vector<Word>> wanted(kArrays, std::vector<Word>(count));
    for (std::size_t i = 0; i < kArrays; ++i) {
      for (std::size_t k = 0; k < count; ++k) wanted[i][k] = static_cast<Word>(randomWord(k + i));
    }
    const auto turnOne = [&](std::vector<Word>& words, Word by) {
      for (Word& word : words) word = turned(word, by);
    };
    for (unsigned round = 0; round < rounds; ++round) {
      auto& words = wanted[round % kArrays];
      for (unsigned k = 0; k < 3; ++k) turnOne(words, round + k);
      words[round] += round;
      turnOne(words, round);
      auto& target = wanted[(round + 1) % kArrays];
      std::copy_n(words.begin(), count / 2, target.begin());
      auto* const bytes = reinterpret_cast<unsigned char*>(words.data() + count / 2);
      std::fill_n(bytes, count / 4, static_cast<unsigned char>(round));
      std::copy_n(words.begin(), count / 8, wanted[(round + 2) % kArrays].begin() + count / 4);
      target[0] += 1;
      for (auto& one : wanted) turnOne(one, round);
    }
    for (std::size_t i = 0; i < kArrays && outcome.wrong.empty(); ++i) {
      outcome.wrong =
          firstDifference("word", reinterpret_cast<const Word*>(outcome.result.data()) + i * count,
                          wanted[i].data(), count);
    }
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "devices_in_turn", run); }
