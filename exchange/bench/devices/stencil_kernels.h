// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_EXCHANGE_BENCH_DEVICES_STENCIL_KERNELS_H_
#define GMAC_EXCHANGE_BENCH_DEVICES_STENCIL_KERNELS_H_

#include <cstdint>

namespace gmac::exchange::bench {

// Part of a grid of doubles, row after row, with a rim of one cell on each side.
struct Grid {
  std::int64_t columns;  // without the rim
  std::int64_t rows;
  std::int64_t pitch() const { return columns + 2; }
  std::int64_t cells() const { return pitch() * (rows + 2); }
};

// Floating-point operations of a step for each cell: nine products, and their sum.
inline constexpr std::int64_t kStencilOperations = 17;

// Asynchronous, on the stream (a cudaStream_t). Throw std::runtime_error with CUDA's words.
//
// Sets every cell, the rim too, by its place in the whole grid, in which this part begins `left`
// columns in.
void fillGrid(const Grid& grid, double* cells, std::int64_t left, void* stream);
// One step of the nine-point stencil, of all cells but the rim.
void stepGrid(const Grid& grid, double* to, const double* from, void* stream);
// A column, 0 and columns + 1 being the rim's, without the rim's rows: to and from dense memory.
void packColumn(const Grid& grid, double* to, const double* cells, std::int64_t column,
                void* stream);
void unpackColumn(const Grid& grid, double* cells, const double* from, std::int64_t column,
                  void* stream);

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_DEVICES_STENCIL_KERNELS_H_
