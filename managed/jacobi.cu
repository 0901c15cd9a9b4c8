// SPDX-License-Identifier: Apache-2.0
//
// Jacobi's iteration for the heat in a plate: the GPU makes a new grid of the old one and the
// largest change of each of its blocks; the CPU takes the largest of those after every step, to
// know when to stop. Result: the last grid, and the number of steps.
#include <algorithm>
#include <cmath>

#include "managed/program.h"

namespace {

using namespace managed;

constexpr unsigned kSide = 16;  // of a block of threads
constexpr float kStopAt = 2e-4F;

// The same operations in the same order on both sides, none of which a compiler may join.
__host__ __device__ float relaxed(float left, float right, float above, float below, float source) {
  return (left + right + above + below + source) * 0.25F;
}

__global__ void step(const float* old, const float* source, float* next, float* changes,
                     unsigned side) {
  __shared__ float largest[kSide * kSide];
  const unsigned x = blockIdx.x * kSide + threadIdx.x;
  const unsigned y = blockIdx.y * kSide + threadIdx.y;
  const unsigned here = threadIdx.y * kSide + threadIdx.x;
  float change = 0;
  if (x > 0 && y > 0 && x < side - 1 && y < side - 1) {
    const std::size_t at = std::size_t{y} * side + x;
    const float value =
        relaxed(old[at - 1], old[at + 1], old[at - side], old[at + side], source[at]);
    change = fabsf(value - old[at]);
    next[at] = value;
  }
  largest[here] = change;
  __syncthreads();
  for (unsigned half = kSide * kSide / 2; half > 0; half /= 2) {
    if (here < half) largest[here] = fmaxf(largest[here], largest[here + half]);
    __syncthreads();
  }
  if (here == 0) changes[blockIdx.y * gridDim.x + blockIdx.x] = largest[0];
}

// A hot edge, cold ones, and a few places that heat.
float edgeHeat(std::size_t x, std::size_t y) { return y == 0 && x > 0 ? 100.0F : 0.0F; }
float sourceHeat(std::size_t i) { return randomWord(i) % 1024 == 0 ? 8.0F : 0.0F; }

struct Plate {
  std::vector<float> heat;
  unsigned steps = 0;
};

Plate reference(unsigned side, unsigned mostSteps) {
  const std::size_t cells = std::size_t{side} * side;
  std::vector<float> old(cells), source(cells);
  for (std::size_t i = 0; i < cells; ++i) {
    old[i] = edgeHeat(i % side, i / side);
    source[i] = sourceHeat(i);
  }
  std::vector<float> next = old, rowChanges(side);
  Plate plate;
  for (float change = 2 * kStopAt; change > kStopAt && plate.steps < mostSteps; ++plate.steps) {
    inParallel(side - 2, [&](std::size_t first, std::size_t last) {
      for (std::size_t y = first + 1; y < last + 1; ++y) {
        float largest = 0;
        for (std::size_t at = y * side + 1; at < y * side + side - 1; ++at) {
          next[at] = relaxed(old[at - 1], old[at + 1], old[at - side], old[at + side], source[at]);
          largest = std::max(largest, std::fabs(next[at] - old[at]));
        }
        rowChanges[y] = largest;
      }
    });
    change = *std::max_element(rowChanges.begin() + 1, rowChanges.end() - 1);
    old.swap(next);
  }
  plate.heat = std::move(old);
  return plate;
}

Outcome solve(const Request& request) {
  const unsigned side = bySize(request.size, 300U, 2500U, 6000U);
  const unsigned mostSteps = bySize(request.size, 200U, 400U, 400U);
  const std::size_t cells = std::size_t{side} * side;
  const unsigned blocksAcross = blocksFor(side, kSide);
  Outcome outcome;
  unsigned steps = 0;
  const Clock clock;
  {
    Array<float> old(cells), source(cells), next(cells);
    Array<float> changes(std::size_t{blocksAcross} * blocksAcross);
    for (std::size_t i = 0; i < cells; ++i) {
      old[i] = next[i] = edgeHeat(i % side, i / side);
      source[i] = sourceHeat(i);
    }
    float* from = old.data();
    float* to = next.data();
    for (float change = 2 * kStopAt; change > kStopAt && steps < mostSteps; ++steps) {
      step<<<dim3(blocksAcross, blocksAcross), dim3(kSide, kSide)>>>(from, source.data(), to,
                                                                     changes.data(), side);
      check(cudaGetLastError(), "launch");
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      change = *std::max_element(changes.data(), changes.data() + changes.size());
      std::swap(from, to);
    }
    append(outcome.result, from, cells * sizeof(float));
    append(outcome.result, &steps, sizeof steps);
    old.free();
    source.free();
    next.free();
    changes.free();
  }
  outcome.seconds = clock.seconds();

  if (request.check) {
    const Plate wanted = reference(side, mostSteps);
    outcome.wrong = firstDifference("number of steps", &steps, &wanted.steps, 1);
    if (outcome.wrong.empty()) {
      outcome.wrong = firstDifference("cell", reinterpret_cast<const float*>(outcome.result.data()),
                                      wanted.heat.data(), cells);
    }
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "jacobi", solve); }
