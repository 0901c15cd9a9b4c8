// SPDX-License-Identifier: Apache-2.0
#include "parboil/cp/cp.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/parboil/host_executor.h"

namespace parboil::cp {
namespace {

// 40 points are no multiple of a thread block's 128, 4,100 atoms are one slice and a bit.
constexpr Parameters kTiny{40, 4100, 1};

std::vector<float> potentialOnHost(const std::vector<Atom>& atoms) {
  std::vector<float> potential(std::size_t{kTiny.points} * kTiny.points);
  for (std::size_t first = 0; first < atoms.size(); first += kSliceAtoms) {
    const std::size_t count = std::min(kSliceAtoms, atoms.size() - first);
    prepareSlice({atoms.data() + first, count}, hostAtoms);
    runOnHost(&potentialBlock, potentialGrid(kTiny.points), kPotentialBlock, 0, potential.data(),
              kTiny.points, kTiny.spacing(), static_cast<unsigned>(count));
  }
  return potential;
}

TEST(Cp, HostKernelAgreesWithTheReference) {
  const std::vector<Atom> atoms = makeAtoms(kTiny.atoms);
  const Check check = compare(kTiny, potentialOnHost(atoms), reference(kTiny, atoms));
  EXPECT_TRUE(check.ok) << check.detail;
}

TEST(Cp, OneAtomIsWorthItsChargeByItsDistance) {
  const std::vector<Atom> atoms = {{3.0f * kTiny.spacing(), 0, 2, 1.5f}};
  const std::vector<double> potential = reference({kTiny.points, 1, 1}, atoms);
  EXPECT_NEAR(potential[3], 0.75, 1e-12);
  EXPECT_NEAR(potentialOnHost(atoms)[3], 0.75, 1e-6);
}

TEST(Cp, CheckFindsOnePointThatIsOffByAThousandth) {
  const std::vector<Atom> atoms = makeAtoms(kTiny.atoms);
  const std::vector<double> wanted = reference(kTiny, atoms);
  std::vector<float> potential = potentialOnHost(atoms);
  float& largest = *std::max_element(potential.begin(), potential.end());
  largest *= 1.001f;
  EXPECT_FALSE(compare(kTiny, potential, wanted).ok);
}

TEST(Cp, CheckFindsAMissingSlice) {
  const std::vector<Atom> atoms = makeAtoms(kTiny.atoms);
  const std::vector<Atom> oneSlice(atoms.begin(), atoms.begin() + kSliceAtoms);
  EXPECT_FALSE(compare(kTiny, potentialOnHost(oneSlice), reference(kTiny, atoms)).ok);
}

}  // namespace
}  // namespace parboil::cp
