// SPDX-License-Identifier: Apache-2.0
//
// CPU and a running kernel talk to each other through managed memory: the kernel waits for a number
// from the CPU, answers, and waits for the next. Works where CPU and GPU may use managed memory at
// the same time; cannot work where memory is consistent at calls only, and is here to see that such
// a program is told so. The kernel gives up by itself when nothing comes for about a minute.
// Result: the answers.
#include <atomic>
#include <stdexcept>
#include <thread>

#include "managed/program.h"

namespace {

using namespace managed;

constexpr unsigned kRounds = 100;
constexpr long long kPatience = 60LL * 2'000'000'000;  // cycles
constexpr double kPatienceOfCpu = 90;                  // seconds

struct Table {
  unsigned ball;  // the round whose question is there
  unsigned answered;
  unsigned question;
  unsigned answer;
};

__global__ void play(volatile Table* table) {
  const long long start = clock64();
  for (unsigned round = 1; round <= kRounds; ++round) {
    while (table->ball != round) {
      if (clock64() - start > kPatience) return;
    }
    __threadfence_system();
    table->answer = table->question * 3 + 1;
    __threadfence_system();
    table->answered = round;
  }
}

Outcome talk(const Request& request) {
  Outcome outcome;
  std::vector<unsigned> answers;
  const Clock clock;
  {
    Array<Table> array(1);
    array[0] = {};
    volatile Table* const table = array.data();
    play<<<1, 1>>>(table);
    check(cudaGetLastError(), "launch");
    for (unsigned round = 1; round <= kRounds; ++round) {
      table->question = round * 7;
      std::atomic_thread_fence(std::memory_order_seq_cst);
      table->ball = round;
      while (table->answered != round) {
        if (clock.seconds() > kPatienceOfCpu) {
          throw std::runtime_error("the kernel does not answer");
        }
        std::this_thread::yield();
      }
      std::atomic_thread_fence(std::memory_order_seq_cst);
      const unsigned answer = table->answer;
      answers.push_back(answer);
    }
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    array.free();
  }
  outcome.seconds = clock.seconds();
  append(outcome.result, answers.data(), answers.size() * sizeof(unsigned));
  for (unsigned round = 1; request.check && round <= kRounds; ++round) {
    if (answers[round - 1] != round * 21 + 1) outcome.wrong = "an answer is not the question's";
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "ping_pong", talk); }
