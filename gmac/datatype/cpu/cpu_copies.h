// SPDX-License-Identifier: Apache-2.0
//
// The CPU engine's inner loops: one for each width of a block that is worth its own, in both
// directions. For cpu_engine.cc alone.
#ifndef GMAC_DATATYPE_CPU_CPU_COPIES_H_
#define GMAC_DATATYPE_CPU_CPU_COPIES_H_

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "gmac/datatype/layout/layout.h"

namespace gmac::datatype {

enum class Direction { kPack, kUnpack };

using CopyFunction = void* (*)(void* to, const void* from, std::size_t bytes);

// The two sides of a copy in one direction.
template <Direction kDirection>
struct Sides {
  static constexpr bool kPacks = kDirection == Direction::kPack;
  using Packed = std::conditional_t<kPacks, std::byte*, const std::byte*>;
  using Plain = std::conditional_t<kPacks, const std::byte*, std::byte*>;
};

// Longer pieces are the copy function's: a call costs less than they do.
inline constexpr std::int64_t kLongestInline = 64;

// Copies kBytes bytes; the compiler's own moves.
template <std::size_t kBytes>
inline void copyFixed(std::byte* to, const std::byte* from) {
  std::memcpy(to, from, kBytes);
}

// Both ends with moves of one width, which overlap in the middle.
template <std::size_t kBytes>
inline void copyEnds(std::byte* to, const std::byte* from, std::int64_t bytes) {
  std::byte head[kBytes];
  std::byte tail[kBytes];
  std::memcpy(head, from, kBytes);
  std::memcpy(tail, from + bytes - kBytes, kBytes);
  std::memcpy(to, head, kBytes);
  std::memcpy(to + bytes - kBytes, tail, kBytes);
}

inline void copyAny(std::byte* to, const std::byte* from, std::int64_t bytes, CopyFunction copy) {
  if (bytes >= 16) {
    if (bytes > kLongestInline) {
      copy(to, from, static_cast<std::size_t>(bytes));
      return;
    }
    for (std::int64_t done = 0; done + 32 < bytes; done += 32) {
      copyFixed<32>(to + done, from + done);
    }
    if (bytes > 32) {
      copyFixed<32>(to + bytes - 32, from + bytes - 32);
    } else {
      copyEnds<16>(to, from, bytes);
    }
  } else if (bytes >= 8) {
    copyEnds<8>(to, from, bytes);
  } else if (bytes >= 4) {
    copyEnds<4>(to, from, bytes);
  } else if (bytes >= 2) {
    copyEnds<2>(to, from, bytes);
  } else if (bytes == 1) {
    *to = *from;
  }
}

// `bytes` bytes each of `rows` x `columns` places, rows `pitch` and columns `stride` bytes apart;
// packed, columns follow each other and rows are `packedPitch` bytes apart.
struct Plane {
  std::int64_t bytes;
  std::int64_t rows;
  std::int64_t pitch;
  std::int64_t packedPitch;
  std::int64_t columns;
  std::int64_t stride;
};

// Places that are further apart are asked for ahead: the processor foresees fewer of them.
inline constexpr std::int64_t kFarStride = 64;
inline constexpr std::int64_t kAhead = 16;
// Long pieces take their time, and with strides of powers of two they share few places of a cache.
// Of the next one, so much is asked for as the processor takes to see that a new piece has begun.
inline constexpr std::int64_t kLongPiece = 512;
// Few places to a page: what costs is finding them.
inline constexpr std::int64_t kPagesApart = 1024;

// One piece; kBytes of them, where they are not 0, instead of `bytes`.
template <Direction kDirection, std::size_t kBytes>
[[gnu::always_inline]] inline void copyPiece(typename Sides<kDirection>::Packed packed,
                                             typename Sides<kDirection>::Plain place,
                                             std::int64_t bytes, CopyFunction copy) {
  if constexpr (kBytes == 0) {
    if constexpr (kDirection == Direction::kPack) {
      copyAny(packed, place, bytes, copy);
    } else {
      copyAny(place, packed, bytes, copy);
    }
  } else if constexpr (kDirection == Direction::kPack) {
    copyFixed<kBytes>(packed, place);
  } else {
    copyFixed<kBytes>(place, packed);
  }
}

// kBytes of 0: a width that is known only when it runs.
template <Direction kDirection, std::size_t kBytes, bool kFar>
inline void copyRow(typename Sides<kDirection>::Packed packed,
                    typename Sides<kDirection>::Plain place, const Plane& plane,
                    CopyFunction copy) {
  const std::int64_t bytes = kBytes != 0 ? static_cast<std::int64_t>(kBytes) : plane.bytes;
  const std::int64_t columns = plane.columns;
  const std::int64_t stride = plane.stride;
  std::int64_t column = 0;
  if constexpr (kDirection == Direction::kUnpack && kBytes != 0 && kBytes <= 16) {
    // Loads together, then stores: a load whose address ends like that of a store that is under way
    // waits for it, and a stride of a power of two makes many such.
    constexpr std::int64_t kGroup = 4;
    for (; std::abs(stride) < kPagesApart && column + kGroup <= columns; column += kGroup) {
      std::byte group[kGroup * kBytes];
      std::memcpy(group, packed, sizeof group);
      for (std::int64_t i = 0; i < kGroup; ++i) {
        copyFixed<kBytes>(place + i * stride, group + i * static_cast<std::int64_t>(kBytes));
      }
      packed += sizeof group;
      place += kGroup * stride;
    }
  }
  for (; column < columns; ++column) {
    if constexpr (kFar) {
      constexpr int kFor = kDirection == Direction::kPack ? 0 : 1;
      if (kBytes == 0 && bytes >= kLongPiece) {
        for (std::int64_t line = 0; line < kLongPiece; line += 64) {
          __builtin_prefetch(place + stride + line, kFor);
        }
      } else {
        __builtin_prefetch(place + kAhead * stride, kFor);
      }
    }
    copyPiece<kDirection, kBytes>(packed, place, bytes, copy);
    packed += bytes;
    place += stride;
  }
}

template <Direction kDirection, std::size_t kBytes>
void copyPlane(typename Sides<kDirection>::Packed packed, typename Sides<kDirection>::Plain plain,
               const Plane& plane, CopyFunction copy) {
  const bool far = plane.stride >= kFarStride || plane.stride <= -kFarStride;
  for (std::int64_t row = 0; row < plane.rows; ++row) {
    if (far) {
      copyRow<kDirection, kBytes, true>(packed, plain, plane, copy);
    } else {
      copyRow<kDirection, kBytes, false>(packed, plain, plane, copy);
    }
    packed += plane.packedPitch;
    plain += plane.pitch;
  }
}

#if defined(__x86_64__)
// Blocks of whole cache lines, a line a move: what is written whole need not be read first.
template <Direction kDirection, std::size_t kBytes>
__attribute__((target("avx512f"))) void copyLines(typename Sides<kDirection>::Packed packed,
                                                  typename Sides<kDirection>::Plain plain,
                                                  const Plane& plane, CopyFunction) {
  constexpr std::size_t kMoves = kBytes / sizeof(__m512i);
  for (std::int64_t row = 0; row < plane.rows; ++row) {
    auto place = plain + row * plane.pitch;
    auto next = packed + row * plane.packedPitch;
    for (std::int64_t column = 0; column < plane.columns; ++column) {
      for (std::size_t line = 0; line < kBytes; line += 64) {
        __builtin_prefetch(place + 8 * plane.stride + line, kDirection == Direction::kPack ? 0 : 1);
      }
      __m512i values[kMoves];
      std::byte* to = nullptr;
      const std::byte* from = nullptr;
      if constexpr (kDirection == Direction::kPack) {
        to = next;
        from = place;
      } else {
        to = place;
        from = next;
      }
      for (std::size_t i = 0; i < kMoves; ++i) {
        values[i] = _mm512_loadu_si512(reinterpret_cast<const __m512i*>(from) + i);
      }
      for (std::size_t i = 0; i < kMoves; ++i) {
        _mm512_storeu_si512(reinterpret_cast<__m512i*>(to) + i, values[i]);
      }
      next += kBytes;
      place += plane.stride;
    }
  }
}

#define GMAC_AVX512 __attribute__((target("avx512f")))
// Every second word of a line or two, by moves that neither read nor write those between: others
// may write these meanwhile, and the last one may be in a page that is not to be touched.
template <std::size_t kBytes>
struct EverySecond;
template <>
struct EverySecond<8> {
  // (g++ 12 warns of the forms without a mask, which begin with a register that is not set.)
  static constexpr __mmask8 kAll = 0xff;
  GMAC_AVX512 static __m512i load(const std::byte* from) {
    return _mm512_maskz_loadu_epi64(0x55, from);
  }
  GMAC_AVX512 static void store(std::byte* to, __m512i words) {
    _mm512_mask_storeu_epi64(to, 0x55, words);
  }
  GMAC_AVX512 static __m512i join(__m512i first, __m512i second) {
    const __m512i order = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutex2var_epi64(first, order, second);
  }
  GMAC_AVX512 static __m512i lowerHalf(__m512i words) {
    return _mm512_maskz_permutexvar_epi64(kAll, _mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0), words);
  }
  GMAC_AVX512 static __m512i upperHalf(__m512i words) {
    return _mm512_maskz_permutexvar_epi64(kAll, _mm512_set_epi64(7, 7, 6, 6, 5, 5, 4, 4), words);
  }
};
template <>
struct EverySecond<4> {
  static constexpr __mmask16 kAll = 0xffff;
  GMAC_AVX512 static __m512i load(const std::byte* from) {
    return _mm512_maskz_loadu_epi32(0x5555, from);
  }
  GMAC_AVX512 static void store(std::byte* to, __m512i words) {
    _mm512_mask_storeu_epi32(to, 0x5555, words);
  }
  GMAC_AVX512 static __m512i join(__m512i first, __m512i second) {
    const __m512i order =
        _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutex2var_epi32(first, order, second);
  }
  GMAC_AVX512 static __m512i lowerHalf(__m512i words) {
    return _mm512_maskz_permutexvar_epi32(
        kAll, _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0), words);
  }
  GMAC_AVX512 static __m512i upperHalf(__m512i words) {
    return _mm512_maskz_permutexvar_epi32(
        kAll, _mm512_set_epi32(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8), words);
  }
};

// Columns of words with a word between each two, such as one half of an array of pairs; others are
// copyPlane()'s.
template <Direction kDirection, std::size_t kBytes>
GMAC_AVX512 void copyEverySecond(typename Sides<kDirection>::Packed packed,
                                 typename Sides<kDirection>::Plain plain, const Plane& plane,
                                 CopyFunction copy) {
  using Words = EverySecond<kBytes>;
  constexpr std::size_t kLine = sizeof(__m512i);
  constexpr auto kWords = static_cast<std::int64_t>(kLine / kBytes);  // of two lines
  if (plane.stride != 2 * static_cast<std::int64_t>(kBytes)) {
    copyPlane<kDirection, kBytes>(packed, plain, plane, copy);
    return;
  }
  Plane rest = plane;
  for (std::int64_t row = 0; row < plane.rows; ++row) {
    auto place = plain + row * plane.pitch;
    auto next = packed + row * plane.packedPitch;
    for (rest.columns = plane.columns; rest.columns >= kWords; rest.columns -= kWords) {
      if constexpr (kDirection == Direction::kPack) {
        const __m512i words = Words::join(Words::load(place), Words::load(place + kLine));
        _mm512_storeu_si512(next, words);
      } else {
        const __m512i words = _mm512_loadu_si512(next);
        Words::store(place, Words::lowerHalf(words));
        Words::store(place + kLine, Words::upperHalf(words));
      }
      next += kLine;
      place += 2 * kLine;
    }
    copyRow<kDirection, kBytes, false>(next, place, rest, copy);
  }
}
#undef GMAC_AVX512
#endif

// Blocks of a list that are asked for ahead: the processor cannot foresee where they lie.
inline constexpr std::int64_t kListAhead = 8;

// Blocks of a list, all of kBytes bytes; 0: each its own.
template <Direction kDirection, std::size_t kBytes>
void copyList(typename Sides<kDirection>::Packed packed, typename Sides<kDirection>::Plain plain,
              const Block* blocks, std::int64_t count, CopyFunction copy) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t bytes = kBytes != 0 ? static_cast<std::int64_t>(kBytes) : blocks[i].bytes;
    auto place = plain + blocks[i].offset;
    if (i + kListAhead < count) {
      constexpr int kFor = kDirection == Direction::kPack ? 0 : 1;
      __builtin_prefetch(plain + blocks[i + kListAhead].offset, kFor);
      if (kBytes == 0 || kBytes > 64) {
        __builtin_prefetch(plain + blocks[i + kListAhead].offset + 64, kFor);
      }
    }
    copyPiece<kDirection, kBytes>(packed, place, bytes, copy);
    packed += bytes;
  }
}

// The loops for one width.
template <Direction kDirection>
struct Copies {
  using Packed = typename Sides<kDirection>::Packed;
  using Plain = typename Sides<kDirection>::Plain;
  void (*plane)(Packed, Plain, const Plane&, CopyFunction);
  void (*list)(Packed, Plain, const Block*, std::int64_t, CopyFunction);

  // `bytes`: of every block, or 0 where they differ.
  static Copies of(std::int64_t bytes) {
#if defined(__x86_64__)
    // Lists of lines, and machines without such moves, leave them to the copy function.
    if (__builtin_cpu_supports("avx512f")) {
      switch (bytes) {
        case 4:
          return {&copyEverySecond<kDirection, 4>, &copyList<kDirection, 4>};
        case 8:
          return {&copyEverySecond<kDirection, 8>, &copyList<kDirection, 8>};
        case 64:
          return {&copyLines<kDirection, 64>, &copyList<kDirection, 0>};
        case 128:
          return {&copyLines<kDirection, 128>, &copyList<kDirection, 0>};
        case 256:
          return {&copyLines<kDirection, 256>, &copyList<kDirection, 0>};
        default:
          break;
      }
    }
#endif
    switch (bytes) {
#define GMAC_COPIES_OF(width) \
  case width:                 \
    return {&copyPlane<kDirection, width>, &copyList<kDirection, width>}
      GMAC_COPIES_OF(1);
      GMAC_COPIES_OF(2);
      GMAC_COPIES_OF(4);
      GMAC_COPIES_OF(8);
      GMAC_COPIES_OF(12);
      GMAC_COPIES_OF(16);
      GMAC_COPIES_OF(24);
      GMAC_COPIES_OF(32);
      GMAC_COPIES_OF(48);
#undef GMAC_COPIES_OF
      default:
        return {&copyPlane<kDirection, 0>, &copyList<kDirection, 0>};
    }
  }
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_CPU_CPU_COPIES_H_
