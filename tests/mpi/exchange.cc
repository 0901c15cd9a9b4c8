// SPDX-License-Identifier: Apache-2.0
//
// Rank 0 sends shared objects, current on the accelerator alone, to rank 1, which sends them back:
// from 8 bytes to 4 MiB. Without libgmac_mpi.so, MPICH ends the job, and Open MPI complains.
//
//   exchange [LIBRARY]
//
// LIBRARY: another MPI, which is loaded before, and not called.
#include <dlfcn.h>
#include <mpi.h>

#include <cstdio>

#include "tests/mpi/shared.h"

int main(int argc, char** argv) {
  using gmac::testing::Memory;
  if (argc > 1 && ::dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::printf("no library: %s\n", ::dlerror());
    return 0;
  }
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int bytes = 8; bytes <= 4 << 20; bytes *= 4) {
    const Memory object(Memory::Kind::kShared, static_cast<std::size_t>(bytes));
    for (int i = 0; i < bytes; ++i) {
      object.data()[i] = rank == 0 ? static_cast<unsigned char>(i * 7 + bytes) : 0;
    }
    object.flip();
    if (rank == 0) {
      MPI_Send(object.data(), bytes, MPI_BYTE, 1, bytes, MPI_COMM_WORLD);
      MPI_Recv(object.data(), bytes, MPI_BYTE, 1, bytes, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
      MPI_Recv(object.data(), bytes, MPI_BYTE, 0, bytes, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      object.flip();
      MPI_Send(object.data(), bytes, MPI_BYTE, 0, bytes, MPI_COMM_WORLD);
    }
    for (int i = 0; i < bytes && rank < 2; ++i) {
      const auto expected = static_cast<unsigned char>(i * 7 + bytes);
      if (object.data()[i] != expected) {
        std::fprintf(stderr, "rank %d: byte %d of %d is wrong\n", rank, i, bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    }
  }
  MPI_Finalize();
  if (rank == 0) std::puts("exchanged");
}
