// SPDX-License-Identifier: Apache-2.0
//
// Random numbers of the input generators: the same on every machine for the same seed, which the
// standard library's distributions do not promise.
#ifndef GMAC_PARBOIL_RANDOM_H_
#define GMAC_PARBOIL_RANDOM_H_

#include <cmath>
#include <cstdint>
#include <random>

namespace parboil {

// A seeded stream of numbers. Not thread-safe.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t bits() { return engine_(); }
  // In [0, 1).
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  // In [low, high).
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // In [0, count); count below 2^32.
  std::uint32_t below(std::uint32_t count) {
    return static_cast<std::uint32_t>(((engine_() >> 32) * count) >> 32);
  }
  // Mean 0, deviation 1 (Box and Muller).
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace parboil

#endif  // GMAC_PARBOIL_RANDOM_H_
