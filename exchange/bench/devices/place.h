// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_EXCHANGE_BENCH_DEVICES_PLACE_H_
#define GMAC_EXCHANGE_BENCH_DEVICES_PLACE_H_

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define GMAC_BENCH_ANYWHERE __host__ __device__ __forceinline__
#else
#define GMAC_BENCH_ANYWHERE inline
#endif

namespace gmac::exchange::bench {

// Where the words of a layout lie, as a formula or a table. In words, of which each block has a
// whole number.
struct Place {
  enum class Kind : std::int32_t {
    kLine,      // all in one piece, from `offset` on
    kRows,      // blocks of `blockWords`, over up to three dimensions; the innermost one first
    kTable,     // blocks of `blockWords`, at table[block]
    kPattern,   // a pattern of `blockWords` words, at table[word], `stride[0]` words apart
    kTriangle,  // the lower triangle of a matrix of `blockWords` columns
  };
  static constexpr int kMostDims = 3;

  Kind kind = Kind::kLine;
  std::uint32_t blockWords = 1;
  std::int32_t dims = 0;
  std::uint32_t count[kMostDims] = {1, 1, 1};
  std::int64_t stride[kMostDims] = {0, 0, 0};
  std::int64_t offset = 0;
  const std::uint32_t* table = nullptr;  // where it is read: for kernels, on the device
};

GMAC_BENCH_ANYWHERE std::int64_t rowsAt(const Place& place, std::uint32_t word) {
  std::uint32_t rest = word / place.blockWords;
  std::int64_t at = place.offset + (word - rest * place.blockWords);
  for (int level = 0; level < place.dims; ++level) {
    const std::uint32_t next = rest / place.count[level];
    at += static_cast<std::int64_t>(rest - next * place.count[level]) * place.stride[level];
    rest = next;
  }
  return at;
}

// Column j begins with word j * n - j * (j - 1) / 2.
GMAC_BENCH_ANYWHERE std::int64_t triangleAt(std::int64_t n, std::int64_t word) {
  const double side = 2.0 * static_cast<double>(n) + 1.0;
  auto column = static_cast<std::int64_t>(
      (side - std::sqrt(side * side - 8.0 * static_cast<double>(word))) / 2.0);
  const auto start = [=](std::int64_t j) { return j * n - j * (j - 1) / 2; };
  while (column > 0 && start(column) > word) --column;
  while (start(column + 1) <= word) ++column;
  return column * n + column + (word - start(column));
}

// Where word `word` in packed order lies, in words.
GMAC_BENCH_ANYWHERE std::int64_t placeOf(const Place& place, std::uint32_t word) {
  switch (place.kind) {
    case Place::Kind::kLine:
      return place.offset + word;
    case Place::Kind::kRows:
      return rowsAt(place, word);
    case Place::Kind::kTable: {
      const std::uint32_t block = word / place.blockWords;
      return static_cast<std::int64_t>(place.table[block]) + (word - block * place.blockWords);
    }
    case Place::Kind::kPattern: {
      const std::uint32_t block = word / place.blockWords;
      return block * place.stride[0] + place.table[word - block * place.blockWords];
    }
    case Place::Kind::kTriangle:
      return triangleAt(place.blockWords, word);
  }
  return 0;
}

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_DEVICES_PLACE_H_
