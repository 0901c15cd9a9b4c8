// SPDX-License-Identifier: Apache-2.0
//
// Clustering by k-means: the GPU gives every point to its nearest centre and adds up the points of
// each centre; the CPU moves the centres to the means and clears the sums, until they stay. All in
// whole numbers, so that the order of additions changes nothing. Result: the centres, every point's
// centre, and the number of rounds.
#include "managed/program.h"

namespace {

using namespace managed;

constexpr unsigned kAxes = 8;
constexpr unsigned kCentres = 16;
constexpr unsigned kMostRounds = 25;
constexpr unsigned kThreads = 256;
constexpr unsigned kPointsOfThread = 16;

struct Point {
  std::uint16_t at[kAxes];  // below kLimit
};
constexpr unsigned kLimit = 4096;

struct Centre {
  int at[kAxes];
};

// Of the points of one centre.
struct Sum {
  unsigned long long at[kAxes];
  unsigned long long count;
};

__host__ __device__ unsigned nearest(const Point& point, const Centre* centres) {
  unsigned best = 0;
  int bestDistance = 0;
  for (unsigned c = 0; c < kCentres; ++c) {
    int distance = 0;
    for (unsigned axis = 0; axis < kAxes; ++axis) {
      const int difference = static_cast<int>(point.at[axis]) - centres[c].at[axis];
      distance += difference * difference;
    }
    if (c == 0 || distance < bestDistance) {
      best = c;
      bestDistance = distance;
    }
  }
  return best;
}

__global__ void assign(const Point* points, std::size_t count, const Centre* centres,
                       unsigned char* centreOf, Sum* sums) {
  // A block's points do not overflow 32 bits: 4096 of them, each below 4096.
  __shared__ unsigned mine[kCentres][kAxes + 1];
  __shared__ Centre nearCentres[kCentres];
  for (unsigned i = threadIdx.x; i < kCentres * (kAxes + 1); i += kThreads) {
    mine[i / (kAxes + 1)][i % (kAxes + 1)] = 0;
  }
  if (threadIdx.x < kCentres) nearCentres[threadIdx.x] = centres[threadIdx.x];
  __syncthreads();
  const std::size_t first = std::size_t{blockIdx.x} * kThreads * kPointsOfThread + threadIdx.x;
  for (unsigned k = 0; k < kPointsOfThread; ++k) {
    const std::size_t i = first + std::size_t{k} * kThreads;
    if (i >= count) break;
    const Point point = points[i];
    const unsigned centre = nearest(point, nearCentres);
    centreOf[i] = static_cast<unsigned char>(centre);
    for (unsigned axis = 0; axis < kAxes; ++axis) atomicAdd(&mine[centre][axis], point.at[axis]);
    atomicAdd(&mine[centre][kAxes], 1U);
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < kCentres * (kAxes + 1); i += kThreads) {
    const unsigned axis = i % (kAxes + 1);
    Sum& sum = sums[i / (kAxes + 1)];
    atomicAdd(axis < kAxes ? &sum.at[axis] : &sum.count,
              static_cast<unsigned long long>(mine[i / (kAxes + 1)][axis]));
  }
}

// Around as many places as there are centres, so that there is something to find.
Point pointNumber(std::size_t i) {
  const std::uint64_t place = randomWord(i) % kCentres;
  const std::uint64_t near[] = {randomWord(2 * i + 1), randomWord(~(2 * i))};
  Point point;
  for (unsigned axis = 0; axis < kAxes; ++axis) {
    const unsigned middle = randomWord(~(place * kAxes + axis)) % (kLimit / 2);
    const unsigned offset = (near[axis / 4] >> (16 * (axis % 4))) % (kLimit / 2);
    point.at[axis] = static_cast<std::uint16_t>(middle + offset);
  }
  return point;
}

// Moves the centres to the means; whether any moved. A centre without points stays.
bool moveCentres(Centre* centres, const Sum* sums) {
  bool moved = false;
  for (unsigned c = 0; c < kCentres; ++c) {
    if (sums[c].count == 0) continue;
    for (unsigned axis = 0; axis < kAxes; ++axis) {
      const int mean = static_cast<int>(sums[c].at[axis] / sums[c].count);
      moved = moved || centres[c].at[axis] != mean;
      centres[c].at[axis] = mean;
    }
  }
  return moved;
}

// The first points are the first centres.
void chooseCentres(const Point* points, Centre* centres) {
  for (unsigned c = 0; c < kCentres; ++c) {
    for (unsigned axis = 0; axis < kAxes; ++axis) centres[c].at[axis] = points[c].at[axis];
  }
}

std::vector<unsigned char> reference(std::size_t count) {
  std::vector<Point> points(count);
  for (std::size_t i = 0; i < count; ++i) points[i] = pointNumber(i);
  std::vector<unsigned char> centreOf(count);
  Centre centres[kCentres];
  chooseCentres(points.data(), centres);
  unsigned rounds = 0;
  for (bool moved = true; moved && rounds < kMostRounds; ++rounds) {
    inParallel(count, [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) {
        centreOf[i] = static_cast<unsigned char>(nearest(points[i], centres));
      }
    });
    Sum sums[kCentres] = {};
    for (std::size_t i = 0; i < count; ++i) {
      Sum& sum = sums[centreOf[i]];
      for (unsigned axis = 0; axis < kAxes; ++axis) sum.at[axis] += points[i].at[axis];
      ++sum.count;
    }
    moved = moveCentres(centres, sums);
  }
  std::vector<unsigned char> result;
  append(result, centres, sizeof centres);
  append(result, centreOf.data(), count);
  append(result, &rounds, sizeof rounds);
  return result;
}

Outcome cluster(const Request& request) {
  const std::size_t count = bySize<std::size_t>(request.size, 60'000, 4'000'000, 30'000'000);
  Outcome outcome;
  const Clock clock;
  {
    Array<Point> points(count);
    Array<unsigned char> centreOf(count);
    Array<Centre> centres(kCentres);
    Array<Sum> sums(kCentres);
    for (std::size_t i = 0; i < count; ++i) points[i] = pointNumber(i);
    chooseCentres(points.data(), centres.data());
    unsigned rounds = 0;
    for (bool moved = true; moved && rounds < kMostRounds; ++rounds) {
      for (unsigned c = 0; c < kCentres; ++c) sums[c] = {};
      assign<<<blocksFor(count, kThreads * kPointsOfThread), kThreads>>>(
          points.data(), count, centres.data(), centreOf.data(), sums.data());
      check(cudaGetLastError(), "launch");
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      moved = moveCentres(centres.data(), sums.data());
    }
    append(outcome.result, centres.data(), centres.bytes());
    append(outcome.result, centreOf.data(), centreOf.bytes());
    append(outcome.result, &rounds, sizeof rounds);
    points.free();
    centreOf.free();
    centres.free();
    sums.free();
  }
  outcome.seconds = clock.seconds();

  if (request.check) {
    const std::vector<unsigned char> wanted = reference(count);
    outcome.wrong = firstDifference("byte", outcome.result.data(), wanted.data(), wanted.size());
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "kmeans", cluster); }
