// SPDX-License-Identifier: Apache-2.0
//
// Generators of the layouts that are measured. The application kernels are those of FALCON-X,
// Table 3; matrices are those of the Open MPI paper, section 5: doubles, by columns.
#ifndef GMAC_EXCHANGE_BENCH_LAYOUTS_H_
#define GMAC_EXCHANGE_BENCH_LAYOUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gmac/datatype/layout/layout.h"

namespace gmac::exchange::bench {

inline constexpr std::int64_t kKiB = 1024;
inline constexpr std::int64_t kMiB = 1024 * kKiB;

// Throws std::runtime_error.
datatype::Layout layoutOf(const std::vector<datatype::Dim>& dims,
                          const std::vector<datatype::Block>& blocks);
datatype::Layout contiguous(std::int64_t bytes);
// Blocks that begin `stride` bytes apart.
datatype::Layout vectorOf(std::int64_t blockBytes, std::int64_t stride, std::int64_t bytes);
// Pieces of at least 8 bytes, or 4, anywhere, and as much between them as they have on average: a
// list that no shorter form names, if there are more than two. The same one each time.
datatype::Layout scattered(std::int64_t pieceBytes, std::int64_t bytes);

// MILC's su3_zd: the half of a t-z-y-x lattice that has one parity, a face in z of vectors of
// three complex numbers, before and behind.
datatype::Layout milc(std::int64_t side);
// WRF's y_vec: two rows in y, of all levels, of five fields; x varies fastest, and has a halo.
datatype::Layout wrf(std::int64_t width);
// A face in z of a grid of doubles, without its rim: `rows` rows of `row`.
datatype::Layout nasZ(std::int64_t row, std::int64_t rows);
// A face in x of a grid of n^3, without its rim: single doubles.
datatype::Layout nasX(std::int64_t n);
// SPECFEM3D's cm: points of three floats, anywhere in a mesh; the same ones each time.
datatype::Layout specfem(std::int64_t points);

// "V": n columns of n elements of a matrix with twice as many rows.
datatype::Layout subMatrix(std::int64_t n);
// "T": the lower triangle of a matrix of n columns.
datatype::Layout triangle(std::int64_t n);
// A matrix of n columns, its elements row after row.
datatype::Layout transposed(std::int64_t n);

// "64 B", "12 KiB", "2.0 MiB".
std::string sizeText(std::int64_t bytes);

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_LAYOUTS_H_
