// SPDX-License-Identifier: Apache-2.0
//
// Whether the MPI here has windows over plain memory: prints `windows`, or `refused: ` and MPI's
// own text. (Open MPI has none where none of its components serves the machine.) Run without gmac:
// then what it says is MPI's alone.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "tests/mpi/expect.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  alignas(16) int value = rank;  // (MPICH 4.0 rounds the address of a window)
  int got = -1;
  MPI_Win window = MPI_WIN_NULL;
  int code = MPI_Win_create(&value, sizeof value, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  if (code == MPI_SUCCESS) {
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    code = MPI_Win_fence(0, window);
    if (code == MPI_SUCCESS) {
      code = MPI_Get(&got, 1, MPI_INT, (rank + 1) % ranks, 0, 1, MPI_INT, window);
      const int fence = MPI_Win_fence(0, window);
      code = code != MPI_SUCCESS ? code : fence;
    }
    gmac::testing::expect(code != MPI_SUCCESS || got == (rank + 1) % ranks,
                          "plain memory is fetched from its window");
    MPI_Win_free(&window);
  }
  std::string text = code == MPI_SUCCESS ? "windows" : "refused: " + gmac::testing::errorText(code);
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (rank == 0) std::puts(text.c_str());
  MPI_Finalize();
}
