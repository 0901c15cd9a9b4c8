/* SPDX-License-Identifier: Apache-2.0
 *
 * Heat on a plate: each process has a tile with a border of its neighbours' values, which are
 * exchanged as subarrays: two rows, which are contiguous, and two columns, which are not. */
#include <mpi.h>
#include <stdio.h>

#include "mpi/examples/memory.h"

enum { kEdge = 96, kWidth = kEdge + 2, kSteps = 40 };

typedef struct {
  const double* from;
  double* to;
} Tiles;

static void smooth(void* arguments) {
  const Tiles tiles = *(const Tiles*)arguments;
  for (int y = 1; y <= kEdge; ++y) {
    for (int x = 1; x <= kEdge; ++x) {
      const double* const at = tiles.from + y * kWidth + x;
      tiles.to[y * kWidth + x] = 0.25 * (at[-1] + at[1] + at[-kWidth] + at[kWidth]);
    }
  }
}

static MPI_Datatype part(int rows, int columns, int row, int column) {
  const int sizes[] = {kWidth, kWidth};
  const int subsizes[] = {rows, columns};
  const int starts[] = {row, column};
  MPI_Datatype type;
  MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
  MPI_Type_commit(&type);
  return type;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int size = 0;
  int rank = 0;
  int dims[2] = {0, 0};
  const int open[2] = {0, 0};
  MPI_Comm grid;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Dims_create(size, 2, dims);
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, open, 0, &grid);
  MPI_Comm_rank(grid, &rank);

  /* What goes to a neighbour, and where the same comes from the opposite one. */
  const struct {
    int dimension, step;
    MPI_Datatype sent, received;
  } sides[] = {{0, 1, part(1, kEdge, kEdge, 1), part(1, kEdge, 0, 1)},
               {0, -1, part(1, kEdge, 1, 1), part(1, kEdge, kEdge + 1, 1)},
               {1, 1, part(kEdge, 1, 1, kEdge), part(kEdge, 1, 1, 0)},
               {1, -1, part(kEdge, 1, 1, 1), part(kEdge, 1, 1, kEdge + 1)}};
  const size_t bytes = sizeof(double) * kWidth * kWidth;
  double* from = field_new(bytes);
  double* to = field_new(bytes);
  for (int i = 0; i < kWidth * kWidth; ++i) from[i] = to[i] = (i * 37 + rank * 11) % 101;

  for (int step = 0; step < kSteps; ++step) {
    MPI_Request requests[8];
    for (int i = 0; i < 4; ++i) {
      int source = MPI_PROC_NULL;
      int target = MPI_PROC_NULL;
      MPI_Cart_shift(grid, sides[i].dimension, sides[i].step, &source, &target);
      MPI_Irecv(from, 1, sides[i].received, source, i, grid, &requests[2 * i]);
      MPI_Isend(from, 1, sides[i].sent, target, i, grid, &requests[2 * i + 1]);
    }
    MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
    const Tiles tiles = {from, to};
    field_run(&smooth, &tiles, sizeof tiles);
    double* const next = to;
    to = from;
    from = next;
  }

  double sum = 0;
  double all = 0;
  for (int y = 1; y <= kEdge; ++y) {
    for (int x = 1; x <= kEdge; ++x) sum += from[y * kWidth + x] * (x + 3 * y);
  }
  MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, grid);
  if (rank == 0) printf("halo: %.17g\n", all);
  for (int i = 0; i < 4; ++i) {
    MPI_Datatype types[] = {sides[i].sent, sides[i].received};
    MPI_Type_free(&types[0]);
    MPI_Type_free(&types[1]);
  }
  field_free(from);
  field_free(to);
  MPI_Comm_free(&grid);
  MPI_Finalize();
  return 0;
}
