// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <tuple>

#include "parboil/rpes/rpes.h"

namespace parboil::rpes {

std::size_t functionCount(const std::vector<Shell>& shells) {
  std::size_t functions = 0;
  for (const Shell& shell : shells) functions += functionsOf(shell.angular);
  return functions;
}

std::size_t Molecule::quartets() const {
  std::size_t sum = 0;
  for (unsigned bra = 0; bra < kClasses; ++bra) {
    for (unsigned ket = 0; ket < kClasses; ++ket) sum += quartets(bra, ket);
  }
  return sum;
}

std::size_t Molecule::partials() const {
  std::size_t sum = 0;
  for (unsigned bra = 0; bra < kClasses; ++bra) {
    for (unsigned ket = 0; ket < kClasses; ++ket)
      sum += quartets(bra, ket) / kGroup * componentsOf(bra);
  }
  return sum;
}

void findPairs(Molecule* molecule) {
  const std::vector<Shell>& shells = molecule->shells;
  molecule->firstFunction.clear();
  std::uint32_t function = 0;
  for (const Shell& shell : shells) {
    molecule->firstFunction.push_back(function);
    function += functionsOf(shell.angular);
  }
  std::vector<Molecule::ShellPair>& pairs = molecule->pairs;
  pairs.clear();
  molecule->primitives = 0;
  for (std::uint32_t i = 0; i < shells.size(); ++i) {
    for (std::uint32_t j = 0; j <= i; ++j) {
      const bool swap = shells[i].angular < shells[j].angular;
      pairs.push_back({swap ? j : i, swap ? i : j, 0, shells[i].angular + shells[j].angular});
      molecule->primitives += std::size_t{shells[i].primitives} * shells[j].primitives;
    }
  }
  // By length within a class, so that neighbouring threads have the same to do.
  const auto rank = [&](const Molecule::ShellPair& pair) {
    return std::tuple(pair.pairClass, shells[pair.a].primitives * shells[pair.b].primitives, pair.a,
                      pair.b);
  };
  std::sort(pairs.begin(), pairs.end(),
            [&](const auto& left, const auto& right) { return rank(left) < rank(right); });
  std::uint32_t first = 0;
  std::fill(std::begin(molecule->classBegin), std::end(molecule->classBegin), 0);
  for (Molecule::ShellPair& pair : pairs) {
    pair.first = first;
    first += componentsOf(pair.pairClass);
    ++molecule->classBegin[pair.pairClass + 1];
  }
  for (unsigned c = 0; c < kClasses; ++c) molecule->classBegin[c + 1] += molecule->classBegin[c];
  molecule->coulombLength = first;
}

Molecule readMolecule(const Context& context) {
  const Parameters size = parameters(context.size);
  Molecule molecule;
  molecule.shells.resize(size.shells());
  InputFile input(dataPath(context, "rpes", "in"), kInput, context.size);
  input.read(molecule.shells.data(), molecule.shells.size() * sizeof(Shell));
  for (const Shell& shell : molecule.shells) {
    if (shell.angular > 1 || shell.primitives < 1 || shell.primitives > kPrimitives)
      throw Failure("rpes: the input file has a shell that is neither s nor p");
  }
  const std::size_t functions = functionCount(molecule.shells);
  molecule.density.resize(functions * functions);
  input.read(molecule.density.data(), molecule.density.size() * sizeof(float));
  findPairs(&molecule);
  return molecule;
}

void fillPairs(const Molecule& molecule, Pair* pairs, Primitive* primitives) {
  const std::size_t functions = functionCount(molecule.shells);
  std::uint32_t first = 0;
  for (std::size_t n = 0; n < molecule.pairs.size(); ++n) {
    const Molecule::ShellPair& shellPair = molecule.pairs[n];
    const Shell& a = molecule.shells[shellPair.a];
    const Shell& b = molecule.shells[shellPair.b];
    Pair pair{};
    double square = 0;
    for (int d = 0; d < 3; ++d) {
      const double offset = static_cast<double>(a.centre[d]) - b.centre[d];
      pair.offset[d] = static_cast<float>(offset);
      square += offset * offset;
    }
    const float weight = shellPair.a == shellPair.b ? 1 : 2;
    float* density = pair.density;
    for (std::uint32_t i = 0; i < functionsOf(a.angular); ++i) {
      for (std::uint32_t j = 0; j < functionsOf(b.angular); ++j) {
        *density++ =
            weight * molecule.density[(molecule.firstFunction[shellPair.a] + i) * functions +
                                      molecule.firstFunction[shellPair.b] + j];
      }
    }
    pair.first = first;
    pair.count = a.primitives * b.primitives;
    first += pair.count;
    pairs[n] = pair;
    for (std::uint32_t i = 0; i < a.primitives; ++i) {
      for (std::uint32_t j = 0; j < b.primitives; ++j) {
        const double x = a.exponent[i];
        const double y = b.exponent[j];
        Primitive primitive;
        primitive.exponent = static_cast<float>(x + y);
        for (int d = 0; d < 3; ++d) {
          const double centre = (x * a.centre[d] + y * b.centre[d]) / (x + y);
          primitive.centre[d] = static_cast<float>(centre);
          primitive.fromFirst[d] = static_cast<float>(centre - a.centre[d]);
        }
        primitive.factor =
            static_cast<float>(static_cast<double>(a.coefficient[i]) * b.coefficient[j] *
                               std::exp(-x * y / (x + y) * square));
        *primitives++ = primitive;
      }
    }
  }
}

void fillQuartets(const Molecule& molecule, Quartet* quartets) {
  for (unsigned braClass = 0; braClass < kClasses; ++braClass) {
    for (unsigned ketClass = 0; ketClass < kClasses; ++ketClass) {
      const std::uint32_t begin = molecule.classBegin[ketClass];
      const std::uint32_t end = molecule.classBegin[ketClass + 1];
      const std::uint32_t paddedEnd = begin + molecule.groups(ketClass) * kGroup;
      for (std::uint32_t bra = molecule.classBegin[braClass];
           bra < molecule.classBegin[braClass + 1]; ++bra) {
        for (std::uint32_t ket = begin; ket < paddedEnd; ++ket) {
          *quartets++ = {static_cast<std::uint16_t>(bra),
                         ket < end ? static_cast<std::uint16_t>(ket) : kNoPair};
        }
      }
    }
  }
}

std::vector<double> sumPartials(const Molecule& molecule, const float* partials) {
  std::vector<double> coulomb(molecule.coulombLength);
  for (unsigned braClass = 0; braClass < kClasses; ++braClass) {
    for (unsigned ketClass = 0; ketClass < kClasses; ++ketClass) {
      for (std::uint32_t bra = molecule.classBegin[braClass];
           bra < molecule.classBegin[braClass + 1]; ++bra) {
        double* const sums = coulomb.data() + molecule.pairs[bra].first;
        for (std::uint32_t group = 0; group < molecule.groups(ketClass); ++group) {
          for (unsigned c = 0; c < componentsOf(braClass); ++c) sums[c] += *partials++;
        }
      }
    }
  }
  return coulomb;
}

}  // namespace parboil::rpes
