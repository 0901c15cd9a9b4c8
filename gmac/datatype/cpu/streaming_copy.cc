// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/cpu/streaming_copy.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace gmac::datatype {

#if defined(__x86_64__)
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kMoves = kLine / sizeof(__m128i);
// Asked for ahead, past the caches: the source is not needed again either.
constexpr std::size_t kLinesAhead = 8;

struct Line {
  __m128i values[kMoves];
};

inline Line load(const std::byte* from) {
  Line line;
  for (std::size_t i = 0; i < kMoves; ++i) {
    line.values[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
  }
  return line;
}

inline void store(std::byte* to, const Line& line) {
  for (std::size_t i = 0; i < kMoves; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to) + i, line.values[i]);
  }
}

}  // namespace

void streamBytes(void* to, const void* from, std::size_t bytes) {
  auto* const out = static_cast<std::byte*>(to);
  const auto* const in = static_cast<const std::byte*>(from);
  // The ends by plain stores, which overlap the whole lines between them with the same bytes.
  const Line last = load(in + bytes - kLine);
  store(out, load(in));
  std::size_t done = kLine - reinterpret_cast<std::uintptr_t>(out) % kLine;
  for (; done + kLine <= bytes; done += kLine) {
    // (A prefetch past the end faults nowhere.)
    _mm_prefetch(reinterpret_cast<const char*>(in + done + kLinesAhead * kLine), _MM_HINT_NTA);
    const Line line = load(in + done);
    for (std::size_t i = 0; i < kMoves; ++i) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(out + done) + i, line.values[i]);
    }
  }
  store(out + bytes - kLine, last);
  _mm_sfence();
}
#else
void streamBytes(void* to, const void* from, std::size_t bytes) {
  auto* out = static_cast<volatile std::byte*>(to);
  for (const auto* in = static_cast<const std::byte*>(from), *end = in + bytes; in < end; ++in) {
    *out++ = *in;
  }
}
#endif

}  // namespace gmac::datatype
