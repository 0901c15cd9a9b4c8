// SPDX-License-Identifier: Apache-2.0
//
// Copies whose stores bypass the caches, for amounts that no cache keeps.
//
// A plain store reads the line that it is to overwrite, and pushes another one out: a third of the
// traffic of a long copy is for nothing. memcpy streams only from a size on that its C library
// derives from the machine's whole cache, which on processors of many chiplets is more than any
// core has (glibc 2.36 on an EPYC: more than 64 MiB; exchange/bench).
//
// The size of the whole operation decides, not that of a piece: where all of it fits into the
// cache, its reader finds it there, and streaming would cost him that; where it does not, the first
// pieces are gone before the last are there, however short each is.
#ifndef GMAC_DATATYPE_CPU_STREAMING_COPY_H_
#define GMAC_DATATYPE_CPU_STREAMING_COPY_H_

#include <cstddef>
#include <cstdint>

namespace gmac::datatype {

// Operations of so many bytes are streamed: the third-level cache of one chiplet.
inline constexpr std::int64_t kStreamedOperation = std::int64_t{32} << 20;
// Shorter pieces of them are not: each ends with a fence, which waits for its last lines.
inline constexpr std::size_t kStreamedPiece = std::size_t{16} << 10;

// memcpy by non-temporal stores, for any alignment, fenced: what is stored afterwards is seen
// afterwards by other cores, as with plain stores. `bytes` >= 64. On other processors than x86-64
// byte by byte: see copyOf(). Calls nothing, so nothing interposed. Thread-safe.
void streamBytes(void* to, const void* from, std::size_t bytes);

// memcpy that streams long pieces and leaves others to `kShort`.
template <void* (*kShort)(void*, const void*, std::size_t)>
void* streamingCopy(void* to, const void* from, std::size_t bytes) {
  if (bytes < kStreamedPiece) {
    return kShort(to, from, bytes);
  }
  streamBytes(to, from, bytes);
  return to;
}

// The copy function of an operation of so many bytes in all, for CpuOptions and transfer().
template <void* (*kShort)(void*, const void*, std::size_t)>
auto copyOf([[maybe_unused]] std::int64_t bytes) {
#if defined(__x86_64__)
  return bytes >= kStreamedOperation ? &streamingCopy<kShort> : kShort;
#else
  return kShort;
#endif
}

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_CPU_STREAMING_COPY_H_
