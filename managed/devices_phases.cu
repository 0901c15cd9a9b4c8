// SPDX-License-Identifier: Apache-2.0
//
// The GPUs work in long phases, one at a time, on the same memory; the CPU reads a word after each
// kernel and edits some between two phases. Result: the words.
#include "managed/devices.h"

namespace {

using namespace managed;
using Word = std::uint32_t;

constexpr unsigned kThreads = 256;

// Two of them after each other are a third one, so that the CPU need not repeat all steps.
struct Step {
  Word factor;
  Word added;
  __host__ __device__ Word operator()(Word word) const { return word * factor + added; }
  Step then(const Step& next) const { return {factor * next.factor, next(added)}; }
};

__global__ void apply(Word* words, std::size_t count, Step step) {
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * kThreads)
    words[i] = step(words[i]);
}

Outcome run(const Request& request) {
  const std::size_t count = bySize<std::size_t>(request.size, 100'000, 16'000'000, 256'000'000);
  const unsigned steps = bySize(request.size, 50U, 400U, 400U);
  constexpr unsigned kPhases = 4;
  constexpr Step kStep{1664525, 1013904223};
  constexpr unsigned kBlocks = 1024;
  const int devices = deviceCount();
  std::vector<Lane> lanes;
  for (int device = 0; device < devices; ++device) lanes.emplace_back(device);
  Outcome outcome;
  const Clock clock;
  use(0);
  Array<Word> words(count);
  for (std::size_t i = 0; i < count; ++i) words[i] = static_cast<Word>(randomWord(i));
  const auto edited = [&](unsigned phase, std::size_t k) { return (phase + k * 977) % count; };
  constexpr std::size_t kEdited = 16;
  Word seen = 0;
  for (unsigned phase = 0; phase < kPhases; ++phase) {
    const Lane& lane = lanes[phase % lanes.size()];
    use(lane.device());
    for (unsigned step = 0; step < steps; ++step) {
      apply<<<kBlocks, kThreads, 0, lane.stream()>>>(words.data(), count, kStep);
      check(cudaGetLastError(), "launch");
      lane.wait();
      seen ^= words[count / 2];
    }
    for (std::size_t k = 0; k < kEdited; ++k) words[edited(phase, k)] ^= phase + 1;
  }
  append(outcome.result, words.data(), count * sizeof(Word));
  append(outcome.result, &seen, sizeof seen);
  words.free();
  outcome.seconds = clock.seconds();
  outcome.note = std::to_string(devices) + " devices";
  lanes.clear();

  if (request.check) {
    std::vector<Word> wanted(count);
    for (std::size_t i = 0; i < count; ++i) wanted[i] = static_cast<Word>(randomWord(i));
    Step all{1, 0};
    for (unsigned step = 0; step < steps; ++step) all = all.then(kStep);
    Word wantedSeen = 0;
    for (unsigned phase = 0; phase < kPhases; ++phase) {
      Word word = wanted[count / 2];
      for (unsigned step = 0; step < steps; ++step) {
        word = kStep(word);
        wantedSeen ^= word;
      }
      for (Word& each : wanted) each = all(each);
      for (std::size_t k = 0; k < kEdited; ++k) wanted[edited(phase, k)] ^= phase + 1;
    }
    const auto* const got = reinterpret_cast<const Word*>(outcome.result.data());
    outcome.wrong = firstDifference("word", got, wanted.data(), count);
    if (outcome.wrong.empty())
      outcome.wrong = firstDifference("what the CPU has seen", got + count, &wantedSeen, 1);
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "devices_phases", run); }
