// SPDX-License-Identifier: Apache-2.0
//
// The digest of a range of an accelerator's memory, word by word; the same on the CPU and on a GPU.
#ifndef GMAC_ACCEL_DIGEST_MIX_H_
#define GMAC_ACCEL_DIGEST_MIX_H_

#include <cstdint>

#ifdef __CUDACC__
#define GMAC_DIGEST_BOTH __host__ __device__
#else
#define GMAC_DIGEST_BOTH
#endif

namespace gmac::accel::digest {

// A sum over the words, so that any number of threads may add to it in any order. Each word is
// mixed with its place first; the mixing of one place is a bijection, so a change of a single word
// always changes `low`, and other changes leave both sums as they were with a probability of
// 2^-128. It is no defence against words that are chosen to deceive it.
struct Sums {
  std::uint64_t low;
  std::uint64_t high;
};

// `place` is the number of the word in the object.
GMAC_DIGEST_BOTH inline void add(Sums& sums, std::uint64_t word, std::uint64_t place) {
  std::uint64_t mixed = word ^ (place * 0x9e3779b97f4a7c15u);
  mixed ^= mixed >> 32;
  mixed *= 0xd6e8feb86659fd93u;
  mixed ^= mixed >> 29;
  mixed *= 0xbf58476d1ce4e5b9u;
  mixed ^= mixed >> 32;
  sums.low += mixed;
  const std::uint64_t turned = (mixed << 23 | mixed >> 41) * 0x94d049bb133111ebu;
  sums.high += turned ^ (turned >> 31);
}

}  // namespace gmac::accel::digest

#endif  // GMAC_ACCEL_DIGEST_MIX_H_
