// SPDX-License-Identifier: Apache-2.0
#include "parboil/rpes/rys.h"

#include <cmath>
#include <numbers>

#include "parboil/rpes/boys.h"

namespace parboil::rpes {
namespace {

// The monic polynomials that are orthogonal under the weight whose moments are the Boys function's
// values, as p[k+1](x) = (x - alpha[k]) p[k](x) - beta[k] p[k-1](x).
struct Recurrence {
  double alpha[kMaxRoots];
  double beta[kMaxRoots];

  double value(int degree, double x) const {
    double before = 0;
    double now = 1;
    for (int k = 0; k < degree; ++k) {
      const double next = (x - alpha[k]) * now - beta[k] * before;
      before = now;
      now = next;
    }
    return now;
  }
};

// Chebyshev's algorithm: from 2 * count moments.
Recurrence fromMoments(int count, const double* moments) {
  Recurrence result{};
  double before[2 * kMaxRoots] = {};
  double now[2 * kMaxRoots];
  for (int i = 0; i < 2 * count; ++i) now[i] = moments[i];
  result.alpha[0] = moments[1] / moments[0];
  for (int k = 1; k < count; ++k) {
    double next[2 * kMaxRoots] = {};
    for (int i = k; i < 2 * count - k; ++i)
      next[i] = now[i + 1] - result.alpha[k - 1] * now[i] - result.beta[k - 1] * before[i];
    result.alpha[k] = next[k + 1] / next[k] - now[k] / now[k - 1];
    result.beta[k] = next[k] / now[k - 1];
    for (int i = 0; i < 2 * count; ++i) {
      before[i] = now[i];
      now[i] = next[i];
    }
  }
  return result;
}

}  // namespace

void findRoots(int count, double t, double* roots, double* weights) {
  double moments[2 * kMaxRoots];
  boys(t, 2 * count - 1, moments);
  const Recurrence recurrence = fromMoments(count, moments);
  // The roots of each polynomial lie between those of the one before and the ends.
  double bounds[kMaxRoots + 1] = {0, 1};
  for (int degree = 1; degree <= count; ++degree) {
    for (int r = 0; r < degree; ++r) {
      double low = bounds[r];
      double high = bounds[r + 1];
      const bool rising = recurrence.value(degree, low) < 0;
      for (int step = 0; step < 60; ++step) {
        const double middle = (low + high) / 2;
        ((recurrence.value(degree, middle) < 0) == rising ? low : high) = middle;
      }
      roots[r] = (low + high) / 2;
    }
    for (int r = 0; r < degree && degree < count; ++r) bounds[r + 1] = roots[r];
    if (degree < count) bounds[degree + 1] = 1;
  }
  for (int r = 0; r < count; ++r) {
    // Christoffel numbers.
    double norm = moments[0];
    double sum = 1 / norm;
    for (int k = 1; k < count; ++k) {
      norm *= recurrence.beta[k];
      const double value = recurrence.value(k, roots[r]);
      sum += value * value / norm;
    }
    weights[r] = 1 / sum;
  }
}

void fillTable(float* table) {
  for (int count = 1; count <= kMaxRoots; ++count) {
    double values[2 * kMaxRoots];  // roots, weights
    constexpr double kLarge = 50;
    findRoots(count, kLarge, values, values + count);
    for (int v = 0; v < count; ++v) {
      *table++ = static_cast<float>(values[v] * kLarge);
    }
    for (int v = count; v < 2 * count; ++v)
      *table++ = static_cast<float>(values[v] * std::sqrt(kLarge));
    for (int interval = 0; interval < kIntervals; ++interval) {
      // Chebyshev interpolation, then its polynomials' coefficients.
      double samples[kCoefficients][2 * kMaxRoots];
      for (int node = 0; node < kCoefficients; ++node) {
        const double x = std::cos(std::numbers::pi * (node + 0.5) / kCoefficients);
        const double t = (interval + (x + 1) / 2) / static_cast<double>(kIntervalsPerUnit);
        findRoots(count, t, samples[node], samples[node] + count);
      }
      for (int v = 0; v < 2 * count; ++v) {
        double power[kCoefficients] = {};
        double before[kCoefficients] = {};
        double chebyshev[kCoefficients] = {1};
        for (int degree = 0; degree < kCoefficients; ++degree) {
          double coefficient = 0;
          for (int node = 0; node < kCoefficients; ++node) {
            coefficient += samples[node][v] *
                           std::cos(std::numbers::pi * degree * (node + 0.5) / kCoefficients);
          }
          coefficient *= (degree == 0 ? 1.0 : 2.0) / kCoefficients;
          for (int c = 0; c < kCoefficients; ++c) power[c] += coefficient * chebyshev[c];
          // T[n + 1] = 2 x T[n] - T[n - 1], and T[1] = x.
          double next[kCoefficients];
          for (int c = 0; c < kCoefficients; ++c) {
            const double shifted = c == 0 ? 0 : chebyshev[c - 1];
            next[c] = (degree == 0 ? 1 : 2) * shifted - before[c];
          }
          for (int c = 0; c < kCoefficients; ++c) {
            before[c] = chebyshev[c];
            chebyshev[c] = next[c];
          }
        }
        for (const double c : power) *table++ = static_cast<float>(c);
      }
    }
  }
}

}  // namespace parboil::rpes
