// SPDX-License-Identifier: Apache-2.0
//
// A pattern of bytes that depend on their index, and kernels of the host that write and copy it.
#ifndef GMAC_TESTS_INTERPOSE_LIBC_HOST_KERNELS_H_
#define GMAC_TESTS_INTERPOSE_LIBC_HOST_KERNELS_H_

#include <cstddef>
#include <cstring>
#include <vector>

#include "gmac/api/adsm.hpp"

namespace gmac::testing {

using Bytes = std::vector<unsigned char>;

inline unsigned char patternAt(std::size_t index, unsigned seed) {
  return static_cast<unsigned char>(index * 131 + (index >> 8) * 7 + (index >> 20) * 29 + seed);
}

inline Bytes patternOf(std::size_t bytes, unsigned seed) {
  Bytes pattern(bytes);
  for (std::size_t i = 0; i < bytes; ++i) pattern[i] = patternAt(i, seed);
  return pattern;
}

template <typename T>
T argument(void** args, int index) {
  return *static_cast<T*>(args[index]);
}

// (unsigned char* to, size_t bytes, unsigned seed)
inline void fillOnHost(const adsmThreadBlock_t*, void** args) {
  auto* const to = argument<unsigned char*>(args, 0);
  const auto bytes = argument<std::size_t>(args, 1);
  const auto seed = argument<unsigned>(args, 2);
  for (std::size_t i = 0; i < bytes; ++i) to[i] = patternAt(i, seed);
}

// (unsigned char* to, const unsigned char* from, size_t bytes)
inline void copyOnHost(const adsmThreadBlock_t*, void** args) {
  std::memcpy(argument<unsigned char*>(args, 0), argument<const unsigned char*>(args, 1),
              argument<std::size_t>(args, 2));
}

inline adsm::Implementations hostOnly(const char* name, adsmHostKernel_t function) {
  adsm::Implementations of;
  of.name = name;
  of.host = function;
  return of;
}

inline const adsm::Grid kOneThread(1, 1);

}  // namespace gmac::testing

#endif  // GMAC_TESTS_INTERPOSE_LIBC_HOST_KERNELS_H_
