// SPDX-License-Identifier: Apache-2.0
//
// Two-point angular correlation (Table 2): how much more often than by chance two bodies of the
// observed sky stand at a given angle. The estimator needs histograms of the angles of all pairs
// within the observed set (DD), within each random set (RR) and between the observed and each
// random set (DR).
//
// One object holds all sets, each as three arrays x, y, z; the kernel gets one pointer and the CPU
// works through pointers into the middle. Right ascensions are read where the x will be and
// declinations where the y will be, and turned into unit vectors in place, in three passes.
//
// Angles are compared as squared chords, |a - b|^2 = 4 sin^2(angle / 2): unlike the cosine that
// keeps its precision for the smallest angles. Bin k counts edge[k] <= chord^2 < edge[k + 1].
//
// tpacf-*.in   for each set, the observed one first: float rightAscension[points], then
//              declination[points], in degrees
// tpacf-*.out  std::uint64_t[1 + 2 * randomSets][kBins]: DD, RR of each set, DR of each set
// tpacf-*.ref  Counts[1 + 2 * randomSets]
#ifndef GMAC_PARBOIL_TPACF_TPACF_H_
#define GMAC_PARBOIL_TPACF_TPACF_H_

#include <cstddef>
#include <cstdint>

#include "parboil/benchmark.h"
#include "parboil/files.h"
#include "parboil/kernel.h"

namespace parboil::tpacf {

inline constexpr FileFormat kInput{"tpacf.in", 1};
inline constexpr FileFormat kOutput{"tpacf.out", 1};
inline constexpr FileFormat kReference{"tpacf.ref", 1};

inline constexpr unsigned kBins = 20;        // five per decade,
inline constexpr double kSmallestAngle = 1;  // from 1 to 10,000 minutes of arc
inline constexpr unsigned kThreads = 256;    // per block; points are a multiple of it
inline constexpr unsigned kWarp = 32;        // threads that step together on a GPU
inline constexpr unsigned kWarps = kThreads / kWarp;

struct Parameters {
  std::uint32_t points, randomSets;
  constexpr std::uint32_t sets() const { return 1 + randomSets; }
  constexpr std::uint32_t histograms() const { return 1 + 2 * randomSets; }
};

constexpr Parameters parameters(Size size) {
  return size == Size::kSmall    ? Parameters{1024, 20}
         : size == Size::kMedium ? Parameters{4096, 100}
                                 : Parameters{16384, 500};
}

// The kBins + 1 edges as chords.
void makeEdges(double* chords);
// As the kernel wants them, squared.
void makeSquaredEdges(float* edges);

// sets, histograms (added to), points, random sets. Block (x, y) counts the pairs of histogram x
// whose first point is one of kThreads from y * kThreads on.
using CountKernel = Kernel<const float*, unsigned long long*, std::uint32_t, std::uint32_t>;
const CountKernel& countKernel();
inline constexpr const char* kEdgesConstant = "tpacfEdges";
extern float hostEdges[kBins + 1];
void countBlock(const adsmThreadBlock_t* block, void** args);
const void* countSymbol();
const void* edgesSymbol();

// Which sets histogram `index` is of, and whether they are one and the same.
struct Pairing {
  std::uint32_t first, second;
};
#ifdef __CUDACC__
__host__ __device__
#endif
    constexpr Pairing
    pairingOf(std::uint32_t index, std::uint32_t randomSets) {
  return index <= randomSets ? Pairing{index, index} : Pairing{0, index - randomSets};
}

// Degrees to unit vectors, in place: the arrays of right ascensions, declinations and nothing
// become those of x, y and z, for all sets.
void toUnitVectors(float* sets, const Parameters& size);

// A histogram, up to rounding: pairs that are in a bin for certain, and pairs so near to an edge
// that they may be counted on either side of it.
struct Counts {
  std::uint64_t sure[kBins];
  std::uint64_t near[kBins + 1];
};
// Chords from float unit vectors err by less than this: rounding a right ascension in radians
// (2.4e-7), a declination (0.6e-7) and three coordinates (0.5e-7) for each point, and evaluating a
// chord of at most 2 and its edge (3e-7).
inline constexpr double kChordSlack = 1.5e-6;

// Draws a set: observed ones have clusters, random ones are uniform over the sphere.
void makeSet(std::uint64_t seed, bool observed, std::uint32_t points, float* rightAscension,
             float* declination);

// All histograms on the CPU from the input file's values, set after set.
void countAll(const Parameters& size, const float* degrees, Counts* counts);
Check compare(const Parameters& size, const unsigned long long* histograms, const Counts* counts);

void generate(const Context& context);
void runGmac(const Context& context);
void runExplicit(const Context& context);
Check check(const Context& context);

}  // namespace parboil::tpacf

#endif  // GMAC_PARBOIL_TPACF_TPACF_H_
