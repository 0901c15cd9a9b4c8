// SPDX-License-Identifier: Apache-2.0
//
// Rys quadrature: a two-electron integral over Gaussians is an integral over t in [0, 1] of
// exp(-T t^2) times a polynomial in t^2, which n = L / 2 + 1 roots and weights integrate exactly
// (L: sum of the angular momenta). At a root the integral is a product of three of one dimension,
// which follow from recurrences (Rys, Dupuis and King, 1983).
//
// Roots and weights are functions of T alone. The CPU finds them in double from the moments of the
// weight function and tabulates polynomials for them; what the kernels share is the evaluation.
#ifndef GMAC_PARBOIL_RPES_RYS_H_
#define GMAC_PARBOIL_RPES_RYS_H_

#include <cmath>
#include <cstddef>

#include "parboil/rpes/rpes.h"

#ifdef __CUDACC__
#define RPES_HOST_DEVICE __host__ __device__
#else
#define RPES_HOST_DEVICE
#endif

namespace parboil::rpes {

inline constexpr int kMaxRoots = 3;
// The table: for each number of roots n = 1, 2, 3 first 2n values, T * root and sqrt(T) * weight at
// large T; then for each interval of T and each of n roots and n weights a polynomial in the
// position inside the interval, from -1 to 1, lowest coefficient first.
inline constexpr int kIntervals = 80;
inline constexpr float kIntervalsPerUnit = 2;
inline constexpr float kTableEnd = kIntervals / kIntervalsPerUnit;
inline constexpr int kCoefficients = 7;

RPES_HOST_DEVICE constexpr int tableOffset(int roots) {
  int offset = 0;
  for (int n = 1; n < roots; ++n) offset += 2 * n * (1 + kIntervals * kCoefficients);
  return offset;
}
inline constexpr std::size_t kTableLength = tableOffset(kMaxRoots + 1);

// Roots (as t^2) and weights in double, for 1 to kMaxRoots of them and t below 60.
void findRoots(int count, double t, double* roots, double* weights);
void fillTable(float* table);

// Roots and weights from the table.
template <int N>
RPES_HOST_DEVICE inline void lookUpRoots(const float* table, float t, float* roots,
                                         float* weights) {
  const float* entry = table + tableOffset(N);
  if (t >= kTableEnd) {
    const float inverse = 1 / t;
    const float inverseRoot = sqrtf(inverse);
    for (int r = 0; r < N; ++r) {
      roots[r] = entry[r] * inverse;
      weights[r] = entry[N + r] * inverseRoot;
    }
    return;
  }
  const float position = t * kIntervalsPerUnit;
  const int interval = static_cast<int>(position);
  const float x = 2 * (position - static_cast<float>(interval)) - 1;
  entry += 2 * N + interval * (2 * N * kCoefficients);
  for (int r = 0; r < 2 * N; ++r, entry += kCoefficients) {
    float value = entry[kCoefficients - 1];
    for (int c = kCoefficients - 2; c >= 0; --c) value = value * x + entry[c];
    (r < N ? roots[r] : weights[r - N]) = value;
  }
}

// Adds to coulomb[] the contribution of ket's density to each component of bra. LA to LD are the
// angular momenta of the four shells.
template <int LA, int LB, int LC, int LD>
RPES_HOST_DEVICE inline void addQuartet(const Pair& bra, const Pair& ket,
                                        const Primitive* primitives, const float* table,
                                        float* coulomb) {
  constexpr int kRoots = (LA + LB + LC + LD) / 2 + 1;
  constexpr int kBra = LA + LB;
  constexpr int kKet = LC + LD;
  constexpr float kTwoPiToFiveHalves = 34.986836655249725f;  // 2 pi^(5/2)

  for (std::uint32_t i = bra.first; i < bra.first + bra.count; ++i) {
    const Primitive b = primitives[i];
    for (std::uint32_t j = ket.first; j < ket.first + ket.count; ++j) {
      const Primitive k = primitives[j];
      const float p = b.exponent;
      const float q = k.exponent;
      const float inverse = 1 / (p + q);
      float between[3];
      float square = 0;
      for (int d = 0; d < 3; ++d) {
        between[d] = b.centre[d] - k.centre[d];
        square += between[d] * between[d];
      }
      const float factor = kTwoPiToFiveHalves * b.factor * k.factor * sqrtf(inverse) / (p * q);
      float roots[kRoots];
      float weights[kRoots];
      lookUpRoots<kRoots>(table, p * q * inverse * square, roots, weights);

#ifdef __CUDA_ARCH__
#pragma unroll
#endif
      for (int r = 0; r < kRoots; ++r) {
        const float u = roots[r] * inverse;
        const float mixed = 0.5f * u;
        const float ofBra = 0.5f / p * (1 - q * u);
        const float ofKet = 0.5f / q * (1 - p * u);
        // integral[d][a][b][c][d'] along dimension d.
        float integral[3][LA + 1][LB + 1][LC + 1][LD + 1];
        for (int d = 0; d < 3; ++d) {
          // With all of bra's momentum on its first shell and of ket's on its first.
          const float c = b.fromFirst[d] - q * u * between[d];
          const float e = k.fromFirst[d] + p * u * between[d];
          float g[kBra + 1][kKet + 1];
          g[0][0] = d == 0 ? weights[r] * factor : 1;
          if constexpr (kBra >= 1) g[1][0] = c * g[0][0];
          if constexpr (kBra >= 2) g[2][0] = c * g[1][0] + ofBra * g[0][0];
          if constexpr (kKet >= 1) {
            g[0][1] = e * g[0][0];
            for (int n = 1; n <= kBra; ++n)
              g[n][1] = e * g[n][0] + static_cast<float>(n) * mixed * g[n - 1][0];
          }
          if constexpr (kKet >= 2) {
            g[0][2] = e * g[0][1] + ofKet * g[0][0];
            for (int n = 1; n <= kBra; ++n) {
              g[n][2] = e * g[n][1] + ofKet * g[n][0] + static_cast<float>(n) * mixed * g[n - 1][1];
            }
          }
          // Shift momentum to the second shells.
          for (int na = 0; na <= LA; ++na) {
            for (int nb = 0; nb <= LB; ++nb) {
              for (int nc = 0; nc <= LC; ++nc) {
                for (int nd = 0; nd <= LD; ++nd) {
                  float value = g[na + nb][nc + nd];
                  if (nd == 1) value += ket.offset[d] * g[na + nb][nc];
                  if (nb == 1) {
                    float lower = g[na][nc + nd];
                    if (nd == 1) lower += ket.offset[d] * g[na][nc];
                    value += bra.offset[d] * lower;
                  }
                  integral[d][na][nb][nc][nd] = value;
                }
              }
            }
          }
        }
        for (int a = 0; a < 2 * LA + 1; ++a) {
          for (int b2 = 0; b2 < 2 * LB + 1; ++b2) {
            float sum = 0;
            for (int c = 0; c < 2 * LC + 1; ++c) {
              for (int d2 = 0; d2 < 2 * LD + 1; ++d2) {
                float product = ket.density[c * (2 * LD + 1) + d2];
                for (int d = 0; d < 3; ++d) {
                  product *= integral[d][LA == 1 && a == d][LB == 1 && b2 == d][LC == 1 && c == d]
                                     [LD == 1 && d2 == d];
                }
                sum += product;
              }
            }
            coulomb[a * (2 * LB + 1) + b2] += sum;
          }
        }
      }
    }
  }
}

}  // namespace parboil::rpes

#endif  // GMAC_PARBOIL_RPES_RYS_H_
