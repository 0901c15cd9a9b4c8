// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_MPI_FAR_ROWS_H_
#define GMAC_MPI_FAR_ROWS_H_

#include <cstdint>

#include "gmac/datatype/layout/layout.h"

namespace gmac::mpi {

// Whether another GPU may load these bytes so slowly over the link that their own packs them first:
// a column of a large matrix, say. After kernels that have used much memory each short row in pages
// of its own takes some 35 ns there, as addresses are looked up one after the other (two H100s,
// 16384 rows of 8 bytes, 64 KiB apart, in a stencil's steps: 570 us by the copy engine, 600 by a
// kernel; packed and sent by the wire 140). Where the addresses are known still, it is 20 us faster
// to load them.
inline bool rowsLieFarApart(const datatype::Layout& layout) {
  constexpr std::int64_t kLeastRows = 3000;  // 100 us
  constexpr std::int64_t kShortRow = 64;     // bytes
  constexpr std::int64_t kFar = 4096;        // bytes from row to row
  const std::int64_t rows = layout.blockCount();
  const datatype::Bounds bounds = layout.bounds();
  return rows >= kLeastRows && layout.meanBlockBytes() < kShortRow &&
         (bounds.last - bounds.first) / (rows - 1) >= kFar;
}

}  // namespace gmac::mpi

#endif  // GMAC_MPI_FAR_ROWS_H_
