// SPDX-License-Identifier: Apache-2.0
//
// The layouts that are measured. Each is described three times, by people who do not copy from each
// other: as a datatype, as a kernel written for it alone, and as a walk over its pieces, which is
// the reference for the other two.
#ifndef GMAC_DATATYPES_WORKLOAD_H_
#define GMAC_DATATYPES_WORKLOAD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "datatypes/hand.h"
#include "datatypes/strided_copy.h"
#include "datatypes/type.h"

namespace datatypes {

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;
constexpr std::int64_t kGiB = 1024 * kMiB;

using PieceVisitor = std::function<void(std::int64_t offset, std::int64_t bytes)>;

// A value. `pieces` calls its visitor for every contiguous piece in packed order.
struct Workload {
  std::string name;
  std::string size;
  std::int64_t bytes = 0;   // packed
  std::int64_t extent = 0;  // of the source
  std::function<Type()> type;
  std::function<void(const PieceVisitor&)> pieces;
  Hand hand;
  std::vector<StridedCopy>
      copies;  // how CUDA's copies do it; empty: they do not, or only piecewise
};

Workload contiguous(std::int64_t bytes);
// Blocks of `blockBytes`, a multiple of 4, every `stride` bytes.
Workload vector(std::int64_t blockBytes, std::int64_t stride, std::int64_t bytes);
// n columns of n doubles in a matrix whose columns have 2 n: the Open MPI paper's "V".
Workload subMatrix(std::int64_t n);
// The lower triangle of n columns of n doubles, "T"; and with steps of `stair` columns (Figure 5
// there).
Workload triangle(std::int64_t n);
Workload stairTriangle(std::int64_t n, std::int64_t stair);
// triangle(n) but for its last element, which is another one for each `variant`: for type and
// pieces alone.
Workload triangleVariant(std::int64_t n, std::int64_t variant);
// The corner of `side` doubles in each of 4 dimensions of 64^4.
Workload subarray4d(std::int64_t side);
// Blocks of 8 or 128 bytes, one somewhere in every 512 bytes.
Workload indexed(std::int64_t blockBytes, std::int64_t bytes);
// Blocks of 8 and 128 bytes in turn, one of each somewhere in every 512 bytes.
Workload indexedPairs(std::int64_t pairs);
// `count` of struct {double; int[2]; char}.
Workload structs(std::int64_t count);
// An n x n matrix of doubles, column by column.
Workload transposed(std::int64_t n);
// Vectors of 8 blocks of 16 bytes every 32, every 512 bytes.
Workload nestedVector(std::int64_t bytes);
// A face of n^3 doubles, x varying fastest.
enum class Face { kXy, kXz, kYz };
Workload face(Face which, std::int64_t n);

// The expected result of a pack.
std::vector<std::byte> packedPattern(const Workload& workload);
// Of the 64-byte memory bursts that hold what is packed.
std::int64_t burstBytes(const Workload& workload);
std::int64_t pieceCount(const Workload& workload);

// "64 B", "1 KiB", "17.0 MiB".
std::string sizeText(std::int64_t bytes);

}  // namespace datatypes

#endif  // GMAC_DATATYPES_WORKLOAD_H_
