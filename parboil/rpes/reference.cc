// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "parboil/comparison.h"
#include "parboil/parallel.h"
#include "parboil/rpes/boys.h"
#include "parboil/rpes/rpes.h"

namespace parboil::rpes {
namespace {

// Hermite Gaussians of order t along x, u along y, v along z, with t + u + v <= 4; those of lower
// order come first.
struct Order {
  int t, u, v;
};
constexpr int kOrders = 35;
constexpr int ordersUpTo(int order) { return (order + 1) * (order + 2) * (order + 3) / 6; }

struct OrderTable {
  Order orders[kOrders];
  int index[5][5][5];
  constexpr OrderTable() : orders{}, index{} {
    int next = 0;
    for (int sum = 0; sum <= 4; ++sum) {
      for (int t = sum; t >= 0; --t) {
        for (int u = sum - t; u >= 0; --u) {
          orders[next] = {t, u, sum - t - u};
          index[t][u][sum - t - u] = next++;
        }
      }
    }
  }
};
constexpr OrderTable kTable;

// The Boys function by Taylor series around tabulated values.
class BoysTable {
 public:
  BoysTable() : values_(static_cast<std::size_t>(kPoints) * kColumns) {
    for (int i = 0; i < kPoints; ++i) boys(i / kPerUnit, kColumns - 1, &values_[row(i)]);
  }

  // F_0 to F_last, last <= 4.
  void evaluate(double t, int last, double* values) const {
    const int nearest = (static_cast<int>(t * (2 * kPerUnit)) + 1) / 2;
    if (nearest >= kPoints) {
      values[0] = std::sqrt(std::numbers::pi / t) / 2;
      for (int m = 0; m < last; ++m) values[m + 1] = (2 * m + 1) * values[m] / (2 * t);
      return;
    }
    const double* at = &values_[row(nearest)];
    const double step = nearest / kPerUnit - t;
    for (int m = 0; m <= last; ++m) {
      double sum = at[m + kTerms - 1];
      for (int k = kTerms - 1; k > 0; --k) sum = at[m + k - 1] + sum * step / k;
      values[m] = sum;
    }
  }

 private:
  static constexpr double kPerUnit = 16;
  static constexpr int kPoints = 640;  // beyond T = 40 exp(-T) is nothing
  static constexpr int kTerms = 7;
  static constexpr int kColumns = 4 + kTerms;
  static std::size_t row(int i) { return static_cast<std::size_t>(i) * kColumns; }
  std::vector<double> values_;
};

// A product of two primitives in Hermite Gaussians.
struct Product {
  double centre[3];
  double exponent;
  double size;              // largest factor of any Hermite Gaussian, to leave out small ones
  double expansion[9][10];  // of each component
  double density[10];       // of the pair's functions, with the sign of the second electron's
};

// Along one dimension: E_0, E_1, E_2 of x_a^na x_b^nb.
void expand(int na, int nb, double fromA, double fromB, double exponent, double* e) {
  const double half = 0.5 / exponent;
  e[0] = 1;
  e[1] = e[2] = 0;
  if (na + nb == 1) {
    e[0] = na == 1 ? fromA : fromB;
    e[1] = half;
  } else if (na + nb == 2) {
    e[0] = fromA * fromB + half;
    e[1] = (fromA + fromB) * half;
    e[2] = half * half;
  }
}

std::vector<Product> expandPair(const Molecule& molecule, const Molecule::ShellPair& pair) {
  const std::size_t functions = functionCount(molecule.shells);
  const Shell& a = molecule.shells[pair.a];
  const Shell& b = molecule.shells[pair.b];
  const auto angularA = static_cast<int>(a.angular);
  const auto angularB = static_cast<int>(b.angular);
  std::vector<Product> products;
  for (std::uint32_t i = 0; i < a.primitives; ++i) {
    for (std::uint32_t j = 0; j < b.primitives; ++j) {
      const double x = a.exponent[i];
      const double y = b.exponent[j];
      Product product{};
      product.exponent = x + y;
      double square = 0;
      for (int d = 0; d < 3; ++d) {
        product.centre[d] = (x * a.centre[d] + y * b.centre[d]) / (x + y);
        square += std::pow(static_cast<double>(a.centre[d]) - b.centre[d], 2);
      }
      const double factor = static_cast<double>(a.coefficient[i]) * b.coefficient[j] *
                            std::exp(-x * y / (x + y) * square);
      for (int ca = 0; ca < 2 * angularA + 1; ++ca) {
        for (int cb = 0; cb < 2 * angularB + 1; ++cb) {
          const int component = ca * (2 * angularB + 1) + cb;
          double e[3][3];
          for (int d = 0; d < 3; ++d) {
            expand(angularA == 1 && ca == d, angularB == 1 && cb == d,
                   product.centre[d] - a.centre[d], product.centre[d] - b.centre[d],
                   product.exponent, e[d]);
          }
          const std::size_t rowA = molecule.firstFunction[pair.a] + static_cast<std::size_t>(ca);
          const std::size_t rowB = molecule.firstFunction[pair.b] + static_cast<std::size_t>(cb);
          const double density = (pair.a == pair.b ? 1 : 2) *
                                 static_cast<double>(molecule.density[rowA * functions + rowB]);
          for (int h = 0; h < ordersUpTo(angularA + angularB); ++h) {
            const Order order = kTable.orders[h];
            const double value = factor * e[0][order.t] * e[1][order.u] * e[2][order.v];
            product.expansion[component][h] = value;
            product.density[h] +=
                (order.t + order.u + order.v) % 2 == 0 ? density * value : -density * value;
            product.size = std::max(product.size, std::abs(value));
          }
        }
      }
      products.push_back(product);
    }
  }
  return products;
}

// potential[h] += the sum over the Hermite Gaussians of `ket` of their density times the integral
// with the Hermite Gaussian h of `bra`.
template <int kBra, int kKet>
void addPotential(const BoysTable& boysTable, const Product& bra, const Product& ket,
                  double* potential) {
  constexpr int kOrder = kBra + kKet;
  const double p = bra.exponent;
  const double q = ket.exponent;
  const double reduced = p * q / (p + q);
  double x[3];
  for (int d = 0; d < 3; ++d) x[d] = bra.centre[d] - ket.centre[d];
  double moments[kOrder + 1];
  boysTable.evaluate(reduced * (x[0] * x[0] + x[1] * x[1] + x[2] * x[2]), kOrder, moments);
  // r[h] holds R^n_tuv, from the largest n down to 0.
  double r[ordersUpTo(kOrder)];
  double scale = 2 * std::pow(std::numbers::pi, 2.5) / (p * q * std::sqrt(p + q));
  for (double& moment : moments) {
    moment *= scale;
    scale *= -2 * reduced;
  }
  r[0] = moments[kOrder];
  for (int n = kOrder - 1; n >= 0; --n) {
    // Highest orders first: each needs lower ones of the n before.
    for (int h = ordersUpTo(kOrder - n) - 1; h > 0; --h) {
      Order lower = kTable.orders[h];
      int d = 0;
      int* along = &lower.t;
      if (lower.t == 0) {
        d = lower.u > 0 ? 1 : 2;
        along = d == 1 ? &lower.u : &lower.v;
      }
      --*along;
      double value = x[d] * r[kTable.index[lower.t][lower.u][lower.v]];
      if (const int times = *along; times > 0) {
        --*along;
        value += times * r[kTable.index[lower.t][lower.u][lower.v]];
      }
      r[h] = value;
    }
    r[0] = moments[n];
  }
  for (int g = 0; g < ordersUpTo(kBra); ++g) {
    const Order first = kTable.orders[g];
    double sum = 0;
    for (int h = 0; h < ordersUpTo(kKet); ++h) {
      const Order second = kTable.orders[h];
      sum += ket.density[h] *
             r[kTable.index[first.t + second.t][first.u + second.u][first.v + second.v]];
    }
    potential[g] += sum;
  }
}

using AddPotential = void (*)(const BoysTable&, const Product&, const Product&, double*);
constexpr AddPotential kAddPotential[kClasses][kClasses] = {
    {&addPotential<0, 0>, &addPotential<0, 1>, &addPotential<0, 2>},
    {&addPotential<1, 0>, &addPotential<1, 1>, &addPotential<1, 2>},
    {&addPotential<2, 0>, &addPotential<2, 1>, &addPotential<2, 2>}};

}  // namespace

std::vector<double> reference(const Molecule& molecule) {
  // Products of primitives that are this small change J by less than a hundredth of its tolerance.
  constexpr double kNegligible = 1e-14;
  const BoysTable boysTable;
  std::vector<Product> kets[kClasses];
  for (const Molecule::ShellPair& pair : molecule.pairs) {
    for (const Product& product : expandPair(molecule, pair)) {
      if (product.size > kNegligible) kets[pair.pairClass].push_back(product);
    }
  }
  std::vector<double> coulomb(molecule.coulombLength);
  parallelFor(molecule.pairs.size(), [&](std::size_t n) {
    const Molecule::ShellPair& pair = molecule.pairs[n];
    const int order = static_cast<int>(pair.pairClass);
    for (const Product& bra : expandPair(molecule, pair)) {
      if (bra.size <= kNegligible) continue;
      double potential[10] = {};
      for (unsigned c = 0; c < kClasses; ++c) {
        const AddPotential add = kAddPotential[pair.pairClass][c];
        for (const Product& ket : kets[c]) add(boysTable, bra, ket, potential);
      }
      for (unsigned c = 0; c < componentsOf(pair.pairClass); ++c) {
        for (int h = 0; h < ordersUpTo(order); ++h)
          coulomb[pair.first + c] += bra.expansion[c][h] * potential[h];
      }
    }
  });
  return coulomb;
}

// Tolerance: 2e-6 of the largest element. A float rounds to 6e-8, an integral takes some twenty
// operations with cancellation between them, and elements are sums of terms of either sign.
Check compare(const std::vector<double>& got, const std::vector<double>& want) {
  double largest = 0;
  for (const double value : want) largest = std::max(largest, std::abs(value));
  Comparison values(2e-6 * largest, 0);
  for (std::size_t i = 0; i < want.size(); ++i) values.add(got[i], want[i]);
  return values.result();
}

Check check(const Context& context) {
  const Molecule molecule = readMolecule(context);
  std::vector<double> want(molecule.coulombLength);
  const auto path = dataPath(context, "rpes", "ref");
  if (isCurrent(path, kReference, context.size)) {
    InputFile(path, kReference, context.size).read(want.data(), want.size() * sizeof(double));
  } else {
    want = reference(molecule);
    OutputFile file(path, kReference, context.size);
    file.write(want.data(), want.size() * sizeof(double));
    file.commit();
  }
  std::vector<double> got(want.size());
  InputFile output(dataPath(context, "rpes", "out"), kOutput, context.size);
  output.read(got.data(), got.size() * sizeof(double));
  return compare(got, want);
}

}  // namespace parboil::rpes
