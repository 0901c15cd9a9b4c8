// SPDX-License-Identifier: Apache-2.0
//
// Coulombic potential (Table 2): the potential that point charges in a box cause at each point of
// one plane, V(p) = sum over atoms of charge / |p - atom|. The atoms go through constant memory in
// slices; the potential accumulates on the accelerator.
//
// cp-*.in   Atom[atoms]
// cp-*.out  float[points * points], row by row
// cp-*.ref  double[sampled points], every sampleStride-th point
#ifndef GMAC_PARBOIL_CP_CP_H_
#define GMAC_PARBOIL_CP_CP_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parboil/benchmark.h"
#include "parboil/files.h"
#include "parboil/kernel.h"

namespace parboil::cp {

inline constexpr FileFormat kInput{"cp.in", 1};
inline constexpr FileFormat kOutput{"cp.out", 1};
inline constexpr FileFormat kReference{"cp.ref", 1};

// An atom as in the file, in Angstrom and elementary charges.
struct Atom {
  float x, y, z, charge;
};

// An atom as the kernel wants it: with the squared distance to the plane instead of z.
struct PlaneAtom {
  float x, y, dz2, charge;
};

// 4,000 atoms of 16 bytes are what 64 KiB of constant memory hold.
inline constexpr std::size_t kSliceAtoms = 4000;
// The box's edge; a power of two, so that the points' coordinates are exact.
inline constexpr float kBox = 64.0f;
// Nearest that an atom comes to the plane, which is z = 0.
inline constexpr float kClearance = 0.5f;
// A thread computes kPointsPerThread points of a row, kThreadsX apart.
inline constexpr unsigned kThreadsX = 16;
inline constexpr unsigned kThreadsY = 8;
inline constexpr unsigned kPointsPerThread = 8;

struct Parameters {
  unsigned points;           // per edge of the plane
  std::size_t atoms;         // need not be a multiple of kSliceAtoms
  std::size_t sampleStride;  // the reference has every so many points
  constexpr float spacing() const { return kBox / static_cast<float>(points); }
};

constexpr Parameters parameters(Size size) {
  switch (size) {
    case Size::kSmall:
      return {256, 6000, 1};
    case Size::kMedium:
      return {512, 40000, 1};
    case Size::kLarge:
      break;
  }
  return {4096, 160000, 4093};
}

std::vector<Atom> makeAtoms(std::size_t count);
// The CPU's work on a slice before it goes to constant memory.
void prepareSlice(std::span<const Atom> atoms, PlaneAtom* slice);
std::vector<double> reference(const Parameters& parameters, std::span<const Atom> atoms);
Check compare(const Parameters& parameters, std::span<const float> potential,
              std::span<const double> reference);

// potential[y * points + x] += the atoms of the slice in constant memory, `count` of them.
using PotentialKernel = Kernel<float*, unsigned, float, unsigned>;
const PotentialKernel& potentialKernel();
constexpr adsmDim_t potentialGrid(unsigned points) {
  return {blocksFor(points, kThreadsX * kPointsPerThread), blocksFor(points, kThreadsY), 1};
}
inline constexpr adsmDim_t kPotentialBlock{kThreadsX, kThreadsY, 1};
inline constexpr const char* kAtomsConstant = "cpAtoms";
extern PlaneAtom hostAtoms[kSliceAtoms];
void potentialBlock(const adsmThreadBlock_t* block, void** args);
const void* potentialSymbol();
const void* atomsSymbol();

void generate(const Context& context);
void runGmac(const Context& context);
void runExplicit(const Context& context);
Check check(const Context& context);

}  // namespace parboil::cp

#endif  // GMAC_PARBOIL_CP_CP_H_
