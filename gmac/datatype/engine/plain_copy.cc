// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/plain_copy.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gmac::datatype {
namespace {

#if defined(__x86_64__)

// From so many bytes on, `rep movsb` is faster.
constexpr std::size_t kLongestVectors = 1024;

void* copyRepeated(void* to, const void* from, std::size_t bytes) {
  void* end = to;
  asm volatile("rep movsb" : "+D"(end), "+S"(from), "+c"(bytes) : : "memory");
  return to;
}

// Four vectors in flight. The barriers keep the compiler from turning the loop into a call of
// memcpy.
#define GMAC_COPY_VECTORS(Vector, load, store)                                                    \
  constexpr std::size_t kVector = sizeof(Vector);                                                 \
  if (bytes < kVector || bytes > kLongestVectors) {                                               \
    return copyRepeated(to, from, bytes);                                                         \
  }                                                                                               \
  auto* const out = static_cast<std::byte*>(to);                                                  \
  const auto* const in = static_cast<const std::byte*>(from);                                     \
  std::size_t done = 0;                                                                           \
  for (; done + 4 * kVector <= bytes; done += 4 * kVector) {                                      \
    Vector values[4];                                                                             \
    for (std::size_t i = 0; i < 4; ++i) {                                                         \
      values[i] = load(reinterpret_cast<const Vector*>(in + done + i * kVector));                 \
    }                                                                                             \
    for (std::size_t i = 0; i < 4; ++i) {                                                         \
      store(reinterpret_cast<Vector*>(out + done + i * kVector), values[i]);                      \
    }                                                                                             \
    asm volatile("" : : : "memory");                                                              \
  }                                                                                               \
  for (; done + kVector < bytes; done += kVector) {                                               \
    store(reinterpret_cast<Vector*>(out + done),                                                  \
          load(reinterpret_cast<const Vector*>(in + done)));                                      \
    asm volatile("" : : : "memory");                                                              \
  }                                                                                               \
  const std::size_t last = bytes - kVector; /* overlaps what is copied already */                 \
  store(reinterpret_cast<Vector*>(out + last), load(reinterpret_cast<const Vector*>(in + last))); \
  return to

__attribute__((target("avx512f"))) void* copy512(void* to, const void* from, std::size_t bytes) {
  GMAC_COPY_VECTORS(__m512i, _mm512_loadu_si512, _mm512_storeu_si512);
}
__attribute__((target("avx2"))) void* copy256(void* to, const void* from, std::size_t bytes) {
  GMAC_COPY_VECTORS(__m256i, _mm256_loadu_si256, _mm256_storeu_si256);
}
void* copy128(void* to, const void* from, std::size_t bytes) {
  GMAC_COPY_VECTORS(__m128i, _mm_loadu_si128, _mm_storeu_si128);
}
#undef GMAC_COPY_VECTORS

using Copy = void* (*)(void*, const void*, std::size_t);
// Also correct before the constructor below has run: other constructors may copy.
constinit Copy best = &copy128;
__attribute__((constructor)) void chooseBest() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) {
    best = &copy512;
  } else if (__builtin_cpu_supports("avx2")) {
    best = &copy256;
  }
}

#endif

}  // namespace

void* plainCopy(void* to, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
  return best(to, from, bytes);
#else
  volatile char* out = static_cast<volatile char*>(to);
  for (const char* in = static_cast<const char*>(from), *last = in + bytes; in < last; ++in) {
    *out++ = *in;
  }
  return to;
#endif
}

}  // namespace gmac::datatype
