// SPDX-License-Identifier: Apache-2.0
//
// Jacobi's iteration on every GPU at once: each has a band of the rows of two grids, which are one
// allocation each, and reads the row beyond its band from its neighbour. The bands are prefetched
// and advised. Result: the last grid.
#include <algorithm>

#include "managed/devices.h"

namespace {

using namespace managed;

constexpr unsigned kThreads = 256;
// Of a block. With the same number of blocks on each GPU a fraction of the grid would not take that
// fraction of the time: the GPU starts them one after the other.
constexpr unsigned kRows = 16;

__host__ __device__ float relaxed(float left, float right, float above, float below) {
  return (left + right + above + below) * 0.25F;
}

// Rows [first, last) of `side` cells each; each block has kRows of them.
__global__ void step(const float* old, float* next, unsigned side, unsigned first, unsigned last) {
  const unsigned x = blockIdx.x * kThreads + threadIdx.x;
  if (x == 0 || x >= side - 1) return;
  const unsigned begin = first + blockIdx.y * kRows;
  const unsigned end = min(begin + kRows, last);
  for (unsigned y = begin; y < end; ++y) {
    const std::size_t at = std::size_t{y} * side + x;
    next[at] = relaxed(old[at - 1], old[at + 1], old[at - side], old[at + side]);
  }
}

float startHeat(std::size_t x, std::size_t y, unsigned side) {
  if (x == 0 || y == 0 || x == side - 1 || y == side - 1) return y == 0 ? 100.0F : 0.0F;
  return static_cast<float>(randomWord(y * side + x) % 64);
}

void start(float* grid, unsigned side) {
  inParallel(side, [&](std::size_t first, std::size_t last) {
    for (std::size_t y = first; y < last; ++y) {
      for (std::size_t x = 0; x < side; ++x) grid[y * side + x] = startHeat(x, y, side);
    }
  });
}

std::vector<float> reference(unsigned side, unsigned steps) {
  std::vector<float> old(std::size_t{side} * side);
  start(old.data(), side);
  std::vector<float> next = old;
  for (unsigned i = 0; i < steps; ++i) {
    inParallel(side - 2, [&](std::size_t first, std::size_t last) {
      for (std::size_t y = first + 1; y < last + 1; ++y) {
        for (std::size_t at = y * side + 1; at < y * side + side - 1; ++at) {
          next[at] = relaxed(old[at - 1], old[at + 1], old[at - side], old[at + side]);
        }
      }
    });
    old.swap(next);
  }
  return old;
}

// A GPU and its rows.
struct Band {
  Lane lane;
  unsigned first, last;
};

std::vector<Band> bandsOf(unsigned side) {
  const auto devices = static_cast<unsigned>(deviceCount());
  std::vector<Band> bands;
  for (unsigned device = 0; device < devices; ++device) {
    const auto row = [&](unsigned part) { return 1 + (side - 2) * part / devices; };
    bands.push_back({Lane(static_cast<int>(device)), row(device), row(device + 1)});
  }
  return bands;
}

void place(const Array<float>& grid, const Band& band, unsigned side) {
  const float* const data = grid.data() + std::size_t{band.first} * side;
  const std::size_t bytes = std::size_t{band.last - band.first} * side * sizeof(float);
  advise(data, bytes, cudaMemAdviseSetPreferredLocation, band.lane.device());
  prefetch(data, bytes, band.lane.device(), band.lane.stream());
}

void relax(const std::vector<Band>& bands, const float* from, float* to, unsigned side) {
  for (std::size_t i = 0; i < bands.size(); ++i) {
    const Band& band = bands[i];
    use(band.lane.device());
    // Its neighbours have written the rows that it reads, and read those that it writes.
    if (i > 0) band.lane.follow(bands[i - 1].lane);
    if (i + 1 < bands.size()) band.lane.follow(bands[i + 1].lane);
    const dim3 blocks(blocksFor(side, kThreads), blocksFor(band.last - band.first, kRows));
    step<<<blocks, kThreads, 0, band.lane.stream()>>>(from, to, side, band.first, band.last);
    check(cudaGetLastError(), "launch");
  }
  for (const Band& band : bands) band.lane.record();
}

Outcome solve(const Request& request) {
  const unsigned side = bySize(request.size, 500U, 4096U, 16384U);
  const unsigned steps = bySize(request.size, 40U, 200U, 1000U);
  const std::size_t cells = std::size_t{side} * side;
  std::vector<Band> bands = bandsOf(side);
  Outcome outcome;
  const Clock clock;
  {
    Array<float> one(cells), two(cells);
    const Clock fillingClock;
    start(one.data(), side);
    start(two.data(), side);
    const double filling = fillingClock.seconds();
    const Clock placingClock;
    for (const Band& band : bands) {
      place(one, band, side);
      place(two, band, side);
    }
    for (const Band& band : bands) band.lane.wait();
    const double placing = placingClock.seconds();
    const Clock steppingClock;
    float* from = one.data();
    float* to = two.data();
    for (unsigned i = 0; i < steps; ++i) {
      relax(bands, from, to, side);
      std::swap(from, to);
    }
    for (const Band& band : bands) band.lane.wait();
    const double stepping = steppingClock.seconds();
    const Clock readingClock;
    append(outcome.result, from, cells * sizeof(float));
    const double reading = readingClock.seconds();
    const Clock freeingClock;
    one.free();
    two.free();
    outcome.note = std::to_string(bands.size()) + " devices, filled in " + std::to_string(filling) +
                   " s, placed in " + std::to_string(placing) + " s, steps in " +
                   std::to_string(stepping) + " s, read in " + std::to_string(reading) +
                   " s, freed in " + std::to_string(freeingClock.seconds()) + " s";
  }
  outcome.seconds = clock.seconds();
  bands.clear();

  if (request.check) {
    const std::vector<float> wanted = reference(side, steps);
    outcome.wrong = firstDifference("cell", reinterpret_cast<const float*>(outcome.result.data()),
                                    wanted.data(), cells);
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "devices_jacobi", solve); }
