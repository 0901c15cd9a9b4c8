// SPDX-License-Identifier: Apache-2.0
//
// Rys polynomial equation solver (Table 2): the Coulomb matrix J of a molecule,
// J_ij = sum over kl of D_kl (ij|kl), from two-electron repulsion integrals over contracted
// Gaussian shells of s and p functions, by Rys quadrature (Dupuis, Rys and King, 1976).
//
// The CPU pairs up the shells and writes the list of all shell quartets, class by class. Kernels
// take the list batch by batch; within a class all quartets need the same number of roots. Every
// quartet (ij|kl) appears for both of its pairs as the first one, as is usual on GPUs, so that a
// thread needs to add to J_ij only. Sixteen quartets in a row share their first pair: the kernel
// adds up their contributions in float, the CPU adds up these partial sums in double. None is
// screened out, so that the work is a function of the size alone. The CPU waits for each launch and
// touches nothing of the accelerator's until after the last.
//
// rpes-*.in   Shell[shells], then the density matrix, float[functions * functions]
// rpes-*.out  double[coulombLength]: J for each shell pair in the pairs' order, first function slow
// rpes-*.ref  the same
#ifndef GMAC_PARBOIL_RPES_RPES_H_
#define GMAC_PARBOIL_RPES_RPES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "parboil/benchmark.h"
#include "parboil/files.h"
#include "parboil/kernel.h"

namespace parboil::rpes {

inline constexpr FileFormat kInput{"rpes.in", 1};
inline constexpr FileFormat kOutput{"rpes.out", 1};
inline constexpr FileFormat kReference{"rpes.ref", 1};

inline constexpr unsigned kThreads = 256;              // quartets per block
inline constexpr unsigned kGroup = 16;                 // quartets that are added up
inline constexpr std::size_t kBatch = 796 * kThreads;  // quartets per launch
inline constexpr std::uint16_t kNoPair = 0xffff;       // second pair of a quartet that pads a group

// The molecule is a box of water molecules of 7 shells: five of s and two of p functions.
inline constexpr std::uint32_t kShellsPerWater = 7;
inline constexpr std::uint32_t kPrimitives = 6;  // of a shell, at most

struct Parameters {
  std::uint32_t waters;
  bool longContractions;
  constexpr std::uint32_t shells() const { return waters * kShellsPerWater; }
};

constexpr Parameters parameters(Size size) {
  return size == Size::kSmall    ? Parameters{4, false}
         : size == Size::kMedium ? Parameters{15, false}
                                 : Parameters{24, true};
}

// A contracted shell: the sum over primitives of coefficient * exp(-exponent * r^2), times x, y and
// z for a shell of p functions. Normalised. Atomic units.
struct Shell {
  float centre[3];
  std::uint32_t angular;  // 0: s, 1: p
  std::uint32_t primitives;
  float exponent[kPrimitives];
  float coefficient[kPrimitives];
};
constexpr std::uint32_t functionsOf(std::uint32_t angular) { return 2 * angular + 1; }

// Classes of shell pairs; of a mixed pair the p shell comes first.
inline constexpr unsigned kClasses = 3;  // ss, ps, pp
constexpr unsigned componentsOf(unsigned pairClass) {
  return pairClass == 0 ? 1 : pairClass == 1 ? 3 : 9;
}

// A pair as kernels see it.
struct Pair {
  float offset[3];      // from the second shell's centre to the first's
  float density[9];     // of its functions; doubled for two different shells, which stand for (kl|
                        // and (lk|
  std::uint32_t first;  // primitive
  std::uint32_t count;
  std::uint32_t padding[2];
};

// A primitive of a pair: the product of two Gaussians, which is one again.
struct Primitive {
  float centre[3];
  float exponent;
  float fromFirst[3];  // from the first shell's centre to `centre`
  float factor;
};

struct Quartet {
  std::uint16_t bra, ket;  // pairs
};

// The molecule, as the CPU knows it: its pairs by class, and by length within a class.
struct Molecule {
  struct ShellPair {
    std::uint32_t a, b;   // shells
    std::uint32_t first;  // element of J
    std::uint32_t pairClass;
  };
  std::vector<Shell> shells;
  std::vector<float> density;  // functions x functions, symmetric
  std::vector<std::uint32_t> firstFunction;
  std::vector<ShellPair> pairs;
  std::uint32_t classBegin[kClasses + 1];
  std::size_t primitives;
  std::size_t coulombLength;

  std::uint32_t classSize(unsigned c) const { return classBegin[c + 1] - classBegin[c]; }
  std::uint32_t groups(unsigned ketClass) const {
    return (classSize(ketClass) + kGroup - 1) / kGroup;
  }
  std::size_t quartets(unsigned braClass, unsigned ketClass) const {
    return std::size_t{classSize(braClass)} * groups(ketClass) * kGroup;
  }
  std::size_t quartets() const;
  // Partial sums: one per group and component of the first pair, in the order of the list.
  std::size_t partials() const;
};

// Draws the molecule's shells and density matrix.
void makeMolecule(const Parameters& size, Molecule* molecule);
// Fills in all that follows from the shells. The density may still be empty.
void findPairs(Molecule* molecule);
std::size_t functionCount(const std::vector<Shell>& shells);
Molecule readMolecule(const Context& context);

// The accelerator's inputs. Everything is written once, in order.
void fillPairs(const Molecule& molecule, Pair* pairs, Primitive* primitives);
void fillQuartets(const Molecule& molecule, Quartet* quartets);
// The CPU's sum of the partial sums.
std::vector<double> sumPartials(const Molecule& molecule, const float* partials);

// pairs, primitives, root table, the batch's quartets, its partial sums, number of quartets.
using CoulombKernel =
    Kernel<const Pair*, const Primitive*, const float*, const Quartet*, float*, std::uint32_t>;
// Kernels by the classes of the quartets' first and second pair.
const CoulombKernel& coulombKernel(unsigned braClass, unsigned ketClass);
adsmHostKernel_t coulombBlock(unsigned braClass, unsigned ketClass);
const void* coulombSymbol(unsigned braClass, unsigned ketClass);

// J by another method in double (McMurchie and Davidson, 1978).
std::vector<double> reference(const Molecule& molecule);
Check compare(const std::vector<double>& got, const std::vector<double>& want);

void generate(const Context& context);
void runGmac(const Context& context);
void runExplicit(const Context& context);
Check check(const Context& context);

}  // namespace parboil::rpes

#endif  // GMAC_PARBOIL_RPES_RPES_H_
