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
// Copied in step, a line of each in turn: a processor reads ahead in each page by itself, and more
// of them keep more of the memory busy (64 MiB on a Xeon: 5.9 ms; one after the other 7.4, with
// prefetches 10.4).
constexpr std::size_t kPage = 4096;
constexpr std::size_t kPagesInStep = 4;

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

// Past the caches. `to` is aligned to a line.
inline void stream(std::byte* to, const Line& line) {
  for (std::size_t i = 0; i < kMoves; ++i) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, line.values[i]);
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
  for (; done + kPagesInStep * kPage <= bytes; done += kPagesInStep * kPage) {
    for (std::size_t line = done; line < done + kPage; line += kLine) {
      for (std::size_t at = line; at < line + kPagesInStep * kPage; at += kPage) {
        stream(out + at, load(in + at));
      }
    }
  }
  for (; done + kLine <= bytes; done += kLine) {
    stream(out + done, load(in + done));
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
