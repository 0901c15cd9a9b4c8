// SPDX-License-Identifier: Apache-2.0
//
// Seeds and lengths of random tests. The environment may set both: GMAC_TEST_SEED repeats a run,
// GMAC_TEST_STEPS makes it longer.
#ifndef GMAC_TESTS_SUPPORT_SEED_H_
#define GMAC_TESTS_SUPPORT_SEED_H_

#include <chrono>
#include <cstdint>
#include <cstdlib>

namespace gmac::testing {

inline std::uint64_t numberFrom(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr && *text != '\0' ? std::strtoull(text, nullptr, 10) : otherwise;
}

inline std::uint64_t seedOr(std::uint64_t otherwise) {
  return numberFrom("GMAC_TEST_SEED", otherwise);
}

// By the clock, unless the environment says one.
inline std::uint64_t newSeed() {
  return seedOr(
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) %
      1000000007);
}

inline long stepsOr(long otherwise) {
  return static_cast<long>(numberFrom("GMAC_TEST_STEPS", static_cast<std::uint64_t>(otherwise)));
}

}  // namespace gmac::testing

#endif  // GMAC_TESTS_SUPPORT_SEED_H_
