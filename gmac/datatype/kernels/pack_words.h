// SPDX-License-Identifier: Apache-2.0
//
// The words that pack kernels move, and how they are loaded and stored. For the CPU's compiler and
// for nvcc.
#ifndef GMAC_DATATYPE_KERNELS_PACK_WORDS_H_
#define GMAC_DATATYPE_KERNELS_PACK_WORDS_H_

#include <cstdint>
#include <cstring>

#include "gmac/datatype/kernels/pack_params.h"

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

// Cache hints: none, the bytes are used once, or (loads) the first level does not keep them.
enum class Hint { kNone, kOnce, kNoFirstLevel };

#ifdef __CUDA_ARCH__
// Accesses to global memory, which includes pinned CPU memory. They are volatile so that the
// compiler keeps their order: loads before stores.
#define GMAC_LOAD_WORD(modifiers, W, letter, type)                                      \
  [](std::uint64_t at) {                                                                \
    type v;                                                                             \
    asm volatile("ld.global" modifiers ".u" #W " %0, [%1];" : "=" letter(v) : "l"(at)); \
    return v;                                                                           \
  }
#define GMAC_LOAD(modifiers)                                                                     \
  if constexpr (W == 16) {                                                                       \
    Word16 v;                                                                                    \
    asm volatile("ld.global" modifiers ".v2.u64 {%0, %1}, [%2];"                                 \
                 : "=l"(v.low), "=l"(v.high)                                                     \
                 : "l"(address));                                                                \
    return v;                                                                                    \
  } else if constexpr (W == 8) {                                                                 \
    return GMAC_LOAD_WORD(modifiers, 64, "l", std::uint64_t)(address);                           \
  } else if constexpr (W == 4) {                                                                 \
    return GMAC_LOAD_WORD(modifiers, 32, "r", std::uint32_t)(address);                           \
  } else if constexpr (W == 2) {                                                                 \
    return GMAC_LOAD_WORD(modifiers, 16, "h", std::uint16_t)(address);                           \
  } else {                                                                                       \
    return static_cast<std::uint8_t>(GMAC_LOAD_WORD(modifiers, 8, "r", std::uint32_t)(address)); \
  }
#define GMAC_STORE(modifiers)                                                                \
  if constexpr (W == 16) {                                                                   \
    asm volatile("st.global" modifiers ".v2.u64 [%0], {%1, %2};" ::"l"(address), "l"(v.low), \
                 "l"(v.high));                                                               \
  } else if constexpr (W == 8) {                                                             \
    asm volatile("st.global" modifiers ".u64 [%0], %1;" ::"l"(address), "l"(v));             \
  } else if constexpr (W == 4) {                                                             \
    asm volatile("st.global" modifiers ".u32 [%0], %1;" ::"l"(address), "r"(v));             \
  } else if constexpr (W == 2) {                                                             \
    asm volatile("st.global" modifiers ".u16 [%0], %1;" ::"l"(address), "h"(v));             \
  } else {                                                                                   \
    asm volatile("st.global" modifiers ".u8 [%0], %1;" ::"l"(address),                       \
                 "r"(static_cast<std::uint32_t>(v)));                                        \
  }
#endif

#ifndef __CUDA_ARCH__
// A GPU ends a kernel that accesses a misaligned word; so does the `host` accelerator.
template <int W>
void requireAligned(std::uint64_t address) {
  if (address % W != 0) __builtin_trap();
}
#endif

template <int W, Hint kHint>
GMAC_HOST_DEVICE Word<W> load(std::uint64_t address) {
#ifdef __CUDA_ARCH__
  if constexpr (kHint == Hint::kOnce) {
    GMAC_LOAD(".cs")
  } else if constexpr (kHint == Hint::kNoFirstLevel) {
    GMAC_LOAD(".L1::no_allocate")
  } else {
    GMAC_LOAD("")
  }
#else
  requireAligned<W>(address);
  // The program's bytes have types of their own: memcpy avoids aliasing them.
  Word<W> v;
  std::memcpy(&v, reinterpret_cast<const void*>(address), sizeof v);
  return v;
#endif
}

template <int W, Hint kHint>
GMAC_HOST_DEVICE void store(std::uint64_t address, Word<W> v) {
#ifdef __CUDA_ARCH__
  if constexpr (kHint == Hint::kOnce) {
    GMAC_STORE(".cs")
  } else {
    GMAC_STORE("")
  }
#else
  requireAligned<W>(address);
  std::memcpy(reinterpret_cast<void*>(address), &v, sizeof v);
#endif
}

// Entry `index` of a table that is not written while kernels read it.
template <typename Entry>
GMAC_HOST_DEVICE Entry tableEntry(std::uint64_t table, std::uint64_t index) {
#ifdef __CUDA_ARCH__
  return __ldg(reinterpret_cast<const Entry*>(table) + index);
#else
  return reinterpret_cast<const Entry*>(table)[index];
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

// The same for up to 16 bytes; the rest of the result is 0.
template <Hint kHint>
GMAC_HOST_DEVICE Word16 loadUpTo16(std::uint64_t address, std::uint32_t bytes, std::uint64_t first,
                                   std::uint64_t last) {
  const std::uint64_t aligned = address & ~std::uint64_t{7};
  const auto skip = static_cast<std::uint32_t>(address & 7);
  if (aligned >= first && aligned + 24 <= last) {
    const std::uint64_t v0 = load<8, kHint>(aligned);
    const std::uint64_t v1 = skip + bytes > 8 ? load<8, kHint>(aligned + 8) : 0;
    const std::uint64_t v2 = skip + bytes > 16 ? load<8, kHint>(aligned + 16) : 0;
    Word16 v{v0, v1};
    if (skip != 0) {
      v.low = v0 >> (8 * skip) | v1 << (64 - 8 * skip);
      v.high = v1 >> (8 * skip) | v2 << (64 - 8 * skip);
    }
    if (bytes <= 8) {
      v.low &= ~std::uint64_t{0} >> (64 - 8 * bytes);
      v.high = 0;
    } else {
      v.high &= ~std::uint64_t{0} >> (128 - 8 * bytes);
    }
    return v;
  }
  return {loadBytes<kHint>(address, bytes < 8 ? bytes : 8, first, last),
          bytes > 8 ? loadBytes<kHint>(address + 8, bytes - 8, first, last) : 0};
}

// Writes the low `bytes` (1 to 8) bytes of `v`, and nothing else, to an address of any alignment.
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

#endif  // GMAC_DATATYPE_KERNELS_PACK_WORDS_H_
