// SPDX-License-Identifier: Apache-2.0
//
// A kernel in a library that a Python program loads.
#include <cstddef>
#include <cstdint>

#include "gmac/api/adsm.h"

// Doubles args[1] words at args[0].
extern "C" ADSM_API void doubleWords(const adsmThreadBlock_t*, void** args) {
  auto* const words = *static_cast<std::uint32_t**>(args[0]);
  const auto count = *static_cast<std::size_t*>(args[1]);
  for (std::size_t i = 0; i < count; ++i) words[i] *= 2;
}
