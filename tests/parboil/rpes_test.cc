// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "parboil/rpes/boys.h"
#include "parboil/rpes/rys.h"
#include "tests/parboil/host_executor.h"
#include "tests/support/temporary_folder.h"

namespace parboil::rpes {
namespace {

std::vector<double> coulombOnHost(const Molecule& molecule) {
  std::vector<Pair> pairs(molecule.pairs.size());
  std::vector<Primitive> primitives(molecule.primitives);
  std::vector<float> table(kTableLength);
  std::vector<Quartet> quartets(molecule.quartets());
  std::vector<float> partials(molecule.partials());
  fillPairs(molecule, pairs.data(), primitives.data());
  fillTable(table.data());
  fillQuartets(molecule, quartets.data());
  const Quartet* batch = quartets.data();
  float* sums = partials.data();
  for (unsigned bra = 0; bra < kClasses; ++bra) {
    for (unsigned ket = 0; ket < kClasses; ++ket) {
      const std::size_t count = molecule.quartets(bra, ket);
      if (count == 0) continue;
      runOnHost(
          coulombBlock(bra, ket), {blocksFor(count, kThreads), 1, 1}, {kThreads, 1, 1}, 0,
          static_cast<const Pair*>(pairs.data()), static_cast<const Primitive*>(primitives.data()),
          static_cast<const float*>(table.data()), batch, sums, static_cast<std::uint32_t>(count));
      batch += count;
      sums += count / kGroup * componentsOf(bra);
    }
  }
  return sumPartials(molecule, partials.data());
}

Molecule moleculeOf(const Parameters& size) {
  Molecule molecule;
  makeMolecule(size, &molecule);
  findPairs(&molecule);
  return molecule;
}

Shell primitive(float x, float y, float z, std::uint32_t angular, float exponent) {
  return {{x, y, z}, angular, 1, {exponent}, {1}};
}

TEST(Rpes, BoysFunctionIsTheErrorFunctionAndItsDerivatives) {
  for (const double t : {1e-9, 0.3, 7.0, 33.0, 59.0, 61.0, 400.0}) {
    double values[3];
    boys(t, 2, values);
    const double zero = std::sqrt(std::numbers::pi / t) / 2 * std::erf(std::sqrt(t));
    EXPECT_NEAR(values[0], zero, 1e-14) << t;
    if (t < 1e-3) continue;
    const double one = (zero - std::exp(-t)) / (2 * t);
    EXPECT_NEAR(values[1], one, 1e-14) << t;
    EXPECT_NEAR(values[2], (3 * one - std::exp(-t)) / (2 * t), 1e-14) << t;
  }
}

// n roots and weights integrate the first 2n powers of t^2, whose integrals are the moments.
TEST(Rpes, RootsReproduceTheMomentsOfTheirWeight) {
  for (int count = 1; count <= kMaxRoots; ++count) {
    for (const double t : {0.0, 0.01, 1.0, 10.0, 39.9}) {
      double roots[kMaxRoots];
      double weights[kMaxRoots];
      double moments[2 * kMaxRoots];
      findRoots(count, t, roots, weights);
      boys(t, 2 * count - 1, moments);
      for (int m = 0; m < 2 * count; ++m) {
        double sum = 0;
        for (int r = 0; r < count; ++r) sum += weights[r] * std::pow(roots[r], m);
        EXPECT_NEAR(sum / moments[m], 1, 1e-9) << count << " roots, T " << t << ", moment " << m;
      }
    }
  }
}

template <int N>
void expectTableIsExact(const std::vector<float>& table, double t) {
  float roots[N];
  float weights[N];
  lookUpRoots<N>(table.data(), static_cast<float>(t), roots, weights);
  double wantRoots[N];
  double wantWeights[N];
  findRoots(N, t, wantRoots, wantWeights);
  for (int r = 0; r < N; ++r) {
    EXPECT_NEAR(roots[r], wantRoots[r], 2e-7) << N << " roots, T " << t;
    EXPECT_NEAR(weights[r], wantWeights[r], 2e-7) << N << " roots, T " << t;
  }
}

TEST(Rpes, TableGivesTheRootsToFloatPrecision) {
  std::vector<float> table(kTableLength);
  fillTable(table.data());
  for (double t = 0; t < 55; t += 0.1875) {
    expectTableIsExact<1>(table, t);
    expectTableIsExact<2>(table, t);
    expectTableIsExact<3>(table, t);
  }
}

// (ss|ss) has a closed form: here with two shells, J of the first from the density of the second.
TEST(Rpes, AnSIntegralIsItsClosedForm) {
  Molecule molecule;
  molecule.shells = {primitive(0, 0, 0, 0, 0.8f), primitive(0.3f, -1.1f, 0.7f, 0, 1.7f)};
  molecule.density = {0, 0, 0, 1};
  findPairs(&molecule);
  const double p = 2 * static_cast<double>(0.8f);
  const double q = 2 * static_cast<double>(1.7f);
  const double square = 0.3 * 0.3 + 1.1 * 1.1 + 0.7 * 0.7;
  double f;
  boys(p * q / (p + q) * square, 0, &f);
  const double want = 2 * std::pow(std::numbers::pi, 2.5) / (p * q * std::sqrt(p + q)) * f;
  for (const auto& pair : molecule.pairs) {
    if (pair.a != 0 || pair.b != 0) continue;
    EXPECT_NEAR(coulombOnHost(molecule)[pair.first] / want, 1, 1e-6);
    EXPECT_NEAR(reference(molecule)[pair.first] / want, 1, 1e-6);
  }
}

// The derivative of an s Gaussian by its centre is 2 * exponent times a p Gaussian.
TEST(Rpes, APIntegralIsTheDerivativeOfAnSIntegral) {
  constexpr float kExponent = 0.5f;
  constexpr float kStep = 0x1p-7f;
  const auto coulombOfFirstTwo = [](std::uint32_t angular, float x) {
    Molecule molecule;
    molecule.shells = {primitive(x, 0.2f, 0, angular, kExponent), primitive(0.9f, 0, 0.4f, 0, 1.3f),
                       primitive(-0.4f, 1, 0.6f, 0, 0.6f)};
    const std::size_t functions = functionCount(molecule.shells);
    molecule.density.assign(functions * functions, 0);
    molecule.density.back() = 1;
    findPairs(&molecule);
    for (const auto& pair : molecule.pairs) {
      if (pair.a + pair.b == 1) return reference(molecule)[pair.first];
    }
    ADD_FAILURE() << "no pair of the first two shells";
    return 0.0;
  };
  const double slope =
      (coulombOfFirstTwo(0, 0.1f + kStep) - coulombOfFirstTwo(0, 0.1f - kStep)) / (2 * kStep);
  EXPECT_NEAR(coulombOfFirstTwo(1, 0.1f), slope / (2 * kExponent), 1e-4);
  EXPECT_GT(std::abs(slope), 0.1);
}

TEST(Rpes, HostKernelsAgreeWithTheReference) {
  for (const Parameters size : {Parameters{1, true}, Parameters{2, false}}) {
    const Molecule molecule = moleculeOf(size);
    const Check check = compare(coulombOnHost(molecule), reference(molecule));
    EXPECT_TRUE(check.ok) << check.detail;
  }
}

TEST(Rpes, TheTwoHundredThousandQuartetsOfABatchAreWholeBlocks) {
  const Molecule molecule = moleculeOf(parameters(Size::kMedium));
  EXPECT_EQ(molecule.shells.size(), 105u);
  std::size_t launches = 0;
  for (unsigned bra = 0; bra < kClasses; ++bra) {
    for (unsigned ket = 0; ket < kClasses; ++ket)
      launches += (molecule.quartets(bra, ket) + kBatch - 1) / kBatch;
  }
  EXPECT_EQ(launches, 158u);
  EXPECT_LT(molecule.pairs.size(), kNoPair);
  EXPECT_LT(moleculeOf(parameters(Size::kLarge)).pairs.size(), kNoPair);
}

class RpesFiles : public gmac::testing::FolderTest {
 protected:
  void writeOutput(const Context& context, const std::vector<double>& coulomb) {
    OutputFile output(dataPath(context, "rpes", "out"), kOutput, context.size);
    output.write(coulomb.data(), coulomb.size() * sizeof(double));
    output.commit();
  }
};

TEST_F(RpesFiles, CheckPassesARightFileAndFindsOneWrongElement) {
  const Context context{Size::kSmall, folder_};
  generate(context);
  std::vector<double> coulomb = coulombOnHost(readMolecule(context));
  writeOutput(context, coulomb);
  const Check right = check(context);
  EXPECT_TRUE(right.ok) << right.detail;
  coulomb[coulomb.size() / 2] += 1e-3;
  writeOutput(context, coulomb);
  EXPECT_FALSE(check(context).ok);
}

}  // namespace
}  // namespace parboil::rpes
