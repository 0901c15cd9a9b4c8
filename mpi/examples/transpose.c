/* SPDX-License-Identifier: Apache-2.0
 *
 * The transpose of a parallel three-dimensional FFT: a cube that is cut along its first dimension
 * becomes one that is cut along its third, by MPI_Alltoallw of subarrays, and back. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "mpi/examples/memory.h"

enum { kEdge = 24 };

typedef struct {
  double* values;
  int count, first;
} Slab;

static void fill(void* arguments) {
  const Slab slab = *(const Slab*)arguments;
  for (int i = 0; i < slab.count; ++i) slab.values[i] = slab.first + i;
}

static void twice(void* arguments) {
  const Slab slab = *(const Slab*)arguments;
  for (int i = 0; i < slab.count; ++i) slab.values[i] *= 2;
}

/* The first layer that process `rank` of `size` has. */
static int first_of(int rank, int size) { return kEdge * rank / size; }

static MPI_Datatype box(const int* sizes, const int* subsizes, const int* starts) {
  MPI_Datatype type;
  MPI_Type_create_subarray(3, sizes, subsizes, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
  MPI_Type_commit(&type);
  return type;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int size = 0;
  int rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int first = first_of(rank, size);
  const int layers = first_of(rank + 1, size) - first;
  const int count = layers * kEdge * kEdge;
  /* One element where a process has no layer. */
  double* const cut_first = field_new(sizeof(double) * (size_t)(count + 1));
  double* const cut_third = field_new(sizeof(double) * (size_t)(count + 1));

  int* const ones = malloc(sizeof(int) * (size_t)size);
  int* const zeros = malloc(sizeof(int) * (size_t)size);
  MPI_Datatype* const rows = malloc(sizeof(MPI_Datatype) * (size_t)size);
  MPI_Datatype* const columns = malloc(sizeof(MPI_Datatype) * (size_t)size);
  for (int other = 0; other < size; ++other) {
    const int start = first_of(other, size);
    const int others = first_of(other + 1, size) - start;
    ones[other] = layers > 0 && others > 0 ? 1 : 0;
    zeros[other] = 0;
    rows[other] = columns[other] = MPI_DOUBLE;
    if (ones[other] == 0) continue;
    rows[other] = box((const int[]){layers, kEdge, kEdge}, (const int[]){layers, kEdge, others},
                      (const int[]){0, 0, start});
    columns[other] = box((const int[]){kEdge, kEdge, layers}, (const int[]){others, kEdge, layers},
                         (const int[]){start, 0, 0});
  }

  Slab slab = {cut_first, count, first * kEdge * kEdge};
  field_run(&fill, &slab, sizeof slab);
  MPI_Alltoallw(cut_first, ones, zeros, rows, cut_third, ones, zeros, columns, MPI_COMM_WORLD);
  int wrong = 0;
  for (int z = 0; z < kEdge; ++z) {
    for (int y = 0; y < kEdge; ++y) {
      for (int x = 0; x < layers; ++x) {
        const double value = cut_third[(z * kEdge + y) * layers + x];
        wrong += value != (z * kEdge + y) * kEdge + first + x;
      }
    }
  }
  slab.values = cut_third;
  field_run(&twice, &slab, sizeof slab);
  MPI_Alltoallw(cut_third, ones, zeros, columns, cut_first, ones, zeros, rows, MPI_COMM_WORLD);
  for (int i = 0; i < count; ++i) wrong += cut_first[i] != 2.0 * (first * kEdge * kEdge + i);

  int all = 0;
  MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("transpose: %d of %d elements are wrong\n", all, kEdge * kEdge * kEdge);
  for (int other = 0; other < size; ++other) {
    if (ones[other] == 0) continue;
    MPI_Type_free(&rows[other]);
    MPI_Type_free(&columns[other]);
  }
  free(ones);
  free(zeros);
  free(rows);
  free(columns);
  field_free(cut_first);
  field_free(cut_third);
  MPI_Finalize();
  return 0;
}
