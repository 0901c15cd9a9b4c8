// SPDX-License-Identifier: Apache-2.0
//
// A profiler that is linked between this program and MPI sees each call of the program once.
#include <mpi.h>

#include <cstdio>
#include <cstring>

#include "tests/mpi/shared.h"

extern "C" int profilerCalls;

int main(int argc, char** argv) {
  using gmac::testing::Memory;
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  constexpr int kBytes = 20'000;
  const Memory sent(Memory::Kind::kShared, kBytes);
  const Memory received(Memory::Kind::kShared, kBytes);
  std::memset(sent.data(), 7, kBytes);
  sent.flip();
  received.flip();
  MPI_Request requests[3];
  MPI_Recv_init(received.data(), kBytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[0]);
  MPI_Start(&requests[0]);
  MPI_Isend(sent.data(), kBytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[1]);
  MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
  MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
  const bool arrived = std::memcmp(sent.data(), received.data(), kBytes) == 0;
  const int counts[] = {kBytes / 2, kBytes / 2};
  const int places[] = {0, kBytes / 2};
  MPI_Allgatherv(sent.data(), kBytes / 2, MPI_BYTE, received.data(), counts, places, MPI_BYTE,
                 MPI_COMM_WORLD);
  MPI_Ireduce(sent.data(), received.data(), kBytes, MPI_BYTE, MPI_BXOR, 0, MPI_COMM_WORLD,
              &requests[2]);
  MPI_Wait(&requests[2], MPI_STATUS_IGNORE);
  MPI_Request_free(&requests[0]);
  constexpr int kCalls = 8;
  if (!arrived || profilerCalls != kCalls) {
    std::fprintf(stderr, "rank %d: %d calls, and the message %s\n", rank, profilerCalls,
                 arrived ? "has arrived" : "is wrong");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  if (rank == 0) std::puts("every call once");
}
