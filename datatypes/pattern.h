// SPDX-License-Identifier: Apache-2.0
//
// The contents of the memory that is packed, of every kind. The expected result of a pack follows
// from its layout alone, without reading gigabytes back. For .cc and .cu files.
#ifndef GMAC_DATATYPES_PATTERN_H_
#define GMAC_DATATYPES_PATTERN_H_

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define DATATYPES_ANYWHERE __host__ __device__
#else
#define DATATYPES_ANYWHERE
#endif

namespace datatypes {

// The eight bytes at byte 8 * index: a bijection of the index (SplitMix64's), so that no two words
// are equal and a word taken from the wrong place is always seen.
DATATYPES_ANYWHERE constexpr std::uint64_t patternWord(std::uint64_t index) {
  std::uint64_t z = (index + 1) * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

// Writes the pattern's bytes [offset, offset + bytes).
void fillPattern(std::byte* to, std::int64_t offset, std::int64_t bytes);

}  // namespace datatypes

#endif  // GMAC_DATATYPES_PATTERN_H_
