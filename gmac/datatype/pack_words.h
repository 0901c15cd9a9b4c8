// SPDX-License-Identifier: Apache-2.0
//
// The words that pack kernels move, and how they are loaded and stored. For the CPU's compiler and
// for nvcc.
#ifndef GMAC_DATATYPE_PACK_WORDS_H_
#define GMAC_DATATYPE_PACK_WORDS_H_

#include <cstdint>
#include <cstring>

#include "gmac/datatype/pack_params.h"

namespace gmac::datatype {

struct alignas(16) Word16 {
  std::uint64_t low;
  std::uint64_t high;
};

template <int W>
struct WordOf;
template <>
struct WordOf<1> {
  using Type = std::uint8_t;
};
template <>
struct WordOf<2> {
  using Type = std::uint16_t;
};
template <>
struct WordOf<4> {
  using Type = std::uint32_t;
};
template <>
struct WordOf<8> {
  using Type = std::uint64_t;
};
template <>
struct WordOf<16> {
  using Type = Word16;
};
template <int W>
using Word = typename WordOf<W>::Type;

// What the caches are told: nothing, that the bytes are used once, or (loads) that the first level
// need not keep them.
enum class Hint { kNone, kOnce, kNoFirstLevel };

template <int W, Hint kHint>
GMAC_HOST_DEVICE Word<W> load(std::uint64_t address) {
#ifdef __CUDA_ARCH__
  if constexpr (W == 16) {
    ulonglong2 v;
    if constexpr (kHint == Hint::kOnce) {
      v = __ldcs(reinterpret_cast<const ulonglong2*>(address));
    } else if constexpr (kHint == Hint::kNoFirstLevel) {
      asm volatile("ld.global.L1::no_allocate.v2.u64 {%0, %1}, [%2];"
                   : "=l"(v.x), "=l"(v.y)
                   : "l"(__cvta_generic_to_global(reinterpret_cast<const void*>(address))));
    } else {
      v = *reinterpret_cast<const ulonglong2*>(address);
    }
    return {v.x, v.y};
  } else if constexpr (kHint == Hint::kOnce) {
    return __ldcs(reinterpret_cast<const Word<W>*>(address));
  } else if constexpr (kHint == Hint::kNoFirstLevel) {
    const auto global = __cvta_generic_to_global(reinterpret_cast<const void*>(address));
    if constexpr (W == 8) {
      std::uint64_t v;
      asm volatile("ld.global.L1::no_allocate.u64 %0, [%1];" : "=l"(v) : "l"(global));
      return v;
    } else {
      std::uint32_t v;
      if constexpr (W == 4) {
        asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(global));
      } else if constexpr (W == 2) {
        asm volatile("ld.global.L1::no_allocate.u16 %0, [%1];" : "=r"(v) : "l"(global));
      } else {
        asm volatile("ld.global.L1::no_allocate.u8 %0, [%1];" : "=r"(v) : "l"(global));
      }
      return static_cast<Word<W>>(v);
    }
  } else {
    return *reinterpret_cast<const Word<W>*>(address);
  }
#else
  // A program's bytes have types of their own: they are copied, not looked at as words.
  Word<W> v;
  std::memcpy(&v, reinterpret_cast<const void*>(address), sizeof v);
  return v;
#endif
}

template <int W, Hint kHint>
GMAC_HOST_DEVICE void store(std::uint64_t address, Word<W> v) {
#ifdef __CUDA_ARCH__
  if constexpr (W == 16) {
    const ulonglong2 both = {v.low, v.high};
    if constexpr (kHint == Hint::kOnce) {
      __stcs(reinterpret_cast<ulonglong2*>(address), both);
    } else {
      *reinterpret_cast<ulonglong2*>(address) = both;
    }
  } else if constexpr (kHint == Hint::kOnce) {
    __stcs(reinterpret_cast<Word<W>*>(address), v);
  } else {
    *reinterpret_cast<Word<W>*>(address) = v;
  }
#else
  std::memcpy(reinterpret_cast<void*>(address), &v, sizeof v);
#endif
}

// The `bytes` (1 to 8) bytes at an address of any alignment, in the low end of the result. Reads
// whole aligned words where they lie in [first, last).
template <Hint kHint>
GMAC_HOST_DEVICE std::uint64_t loadBytes(std::uint64_t address, std::uint32_t bytes,
                                         std::uint64_t first, std::uint64_t last) {
  const std::uint64_t aligned = address & ~std::uint64_t{7};
  const auto skip = static_cast<std::uint32_t>(address & 7);
  const bool two = skip + bytes > 8;
  if (aligned >= first && aligned + (two ? 16 : 8) <= last) {
    std::uint64_t v = load<8, kHint>(aligned) >> (8 * skip);
    if (two) v |= load<8, kHint>(aligned + 8) << (64 - 8 * skip);
    return bytes == 8 ? v : v & ((std::uint64_t{1} << (8 * bytes)) - 1);
  }
  std::uint64_t v = 0;
  for (std::uint32_t i = 0; i < bytes; ++i) {
    v |= static_cast<std::uint64_t>(load<1, kHint>(address + i)) << (8 * i);
  }
  return v;
}

// Writes the low `bytes` (1 to 8) bytes of `v`, and no other, to an address of any alignment.
template <Hint kHint>
GMAC_HOST_DEVICE void storeBytes(std::uint64_t address, std::uint32_t bytes, std::uint64_t v) {
  if (bytes == 8 && (address & 7) == 0) {
    store<8, kHint>(address, v);
    return;
  }
  while (bytes != 0) {
    if ((address & 1) != 0 || bytes == 1) {
      store<1, kHint>(address, static_cast<std::uint8_t>(v));
      v >>= 8;
      address += 1;
      bytes -= 1;
    } else if ((address & 2) != 0 || bytes < 4) {
      store<2, kHint>(address, static_cast<std::uint16_t>(v));
      v >>= 16;
      address += 2;
      bytes -= 2;
    } else {
      store<4, kHint>(address, static_cast<std::uint32_t>(v));
      v >>= 32;
      address += 4;
      bytes -= 4;
    }
  }
}

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_PACK_WORDS_H_
