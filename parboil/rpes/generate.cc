// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "parboil/random.h"
#include "parboil/rpes/rpes.h"

namespace parboil::rpes {
namespace {

// A shell with exponents in geometric progression.
Shell makeShell(const double* centre, std::uint32_t angular, std::uint32_t primitives,
                double smallest, double ratio) {
  Shell shell{};
  for (int d = 0; d < 3; ++d) shell.centre[d] = static_cast<float>(centre[d]);
  shell.angular = angular;
  shell.primitives = primitives;
  double exponent[kPrimitives] = {};
  double coefficient[kPrimitives] = {};
  for (std::uint32_t i = 0; i < primitives; ++i) {
    exponent[i] = smallest * std::pow(ratio, i);
    // Of a normalised primitive; steeper ones count less.
    coefficient[i] = std::pow(2 * exponent[i] / std::numbers::pi, 0.75) *
                     (angular == 1 ? 2 * std::sqrt(exponent[i]) : 1) / (1 + 0.7 * i);
  }
  double norm = 0;
  for (std::uint32_t i = 0; i < primitives; ++i) {
    for (std::uint32_t j = 0; j < primitives; ++j) {
      const double sum = exponent[i] + exponent[j];
      norm += coefficient[i] * coefficient[j] * std::pow(std::numbers::pi / sum, 1.5) *
              (angular == 1 ? 0.5 / sum : 1);
    }
  }
  for (std::uint32_t i = 0; i < primitives; ++i) {
    shell.exponent[i] = static_cast<float>(exponent[i]);
    shell.coefficient[i] = static_cast<float>(coefficient[i] / std::sqrt(norm));
  }
  return shell;
}

}  // namespace

void makeMolecule(const Parameters& size, Molecule* molecule) {
  constexpr double kSpacing = 5.6;  // between oxygen atoms, in Bohr
  constexpr double kBond = 1.81;
  constexpr double kBondAngle = 104.5 / 180 * std::numbers::pi;
  Random random(1976);
  const auto edge = static_cast<std::uint32_t>(std::ceil(std::cbrt(size.waters)));
  std::vector<Shell>& shells = molecule->shells;
  shells.clear();
  for (std::uint32_t w = 0; w < size.waters; ++w) {
    const std::uint32_t cell[3] = {w % edge, w / edge % edge, w / edge / edge};
    double oxygen[3];
    for (int d = 0; d < 3; ++d) oxygen[d] = kSpacing * cell[d];
    for (double& c : oxygen) c += random.uniform(-0.4, 0.4);
    const std::uint32_t more = size.longContractions ? 1 : 0;
    shells.push_back(makeShell(oxygen, 0, 3 + 3 * more, 6, 4));
    shells.push_back(makeShell(oxygen, 0, 2 + more, 0.8, 3));
    shells.push_back(makeShell(oxygen, 0, 1, 0.27, 3));
    shells.push_back(makeShell(oxygen, 1, 2 + 2 * more, 1, 4));
    shells.push_back(makeShell(oxygen, 1, 1, 0.3, 4));
    // Two bonds in a plane of random orientation.
    const double turn = random.uniform(0, 2 * std::numbers::pi);
    const double z = random.uniform(-1, 1);
    const double flat = std::sqrt(1 - z * z);
    const double u[3] = {flat * std::cos(turn), flat * std::sin(turn), z};
    const double v[3] = {-std::sin(turn), std::cos(turn), 0};  // at a right angle to u
    for (const double angle : {0.0, kBondAngle}) {
      double hydrogen[3];
      for (int d = 0; d < 3; ++d)
        hydrogen[d] = oxygen[d] + kBond * (std::cos(angle) * u[d] + std::sin(angle) * v[d]);
      shells.push_back(makeShell(hydrogen, 0, 2 + 2 * more, 0.2, 4));
    }
  }
  const std::size_t functions = functionCount(shells);
  molecule->density.assign(functions * functions, 0);
  for (std::size_t i = 0; i < functions; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      const double value = i == j ? random.uniform(0.5, 1.5) : random.uniform(-0.2, 0.2);
      molecule->density[i * functions + j] = molecule->density[j * functions + i] =
          static_cast<float>(value);
    }
  }
}

void generate(const Context& context) {
  const auto path = dataPath(context, "rpes", "in");
  if (isCurrent(path, kInput, context.size)) return;
  Molecule molecule;
  makeMolecule(parameters(context.size), &molecule);
  OutputFile file(path, kInput, context.size);
  file.write(molecule.shells.data(), molecule.shells.size() * sizeof(Shell));
  file.write(molecule.density.data(), molecule.density.size() * sizeof(float));
  file.commit();
}

}  // namespace parboil::rpes
