// SPDX-License-Identifier: Apache-2.0
//
// A profiler as the standard describes it: a library between the program and MPI that counts the
// calls of some functions.
#include <mpi.h>

#pragma GCC visibility push(default)
extern "C" {

int profilerCalls = 0;

int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int destination, int tag,
              MPI_Comm comm, MPI_Request* request) {
  ++profilerCalls;
  return PMPI_Isend(buffer, count, type, destination, tag, comm, request);
}

int MPI_Recv_init(void* buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                  MPI_Request* request) {
  ++profilerCalls;
  return PMPI_Recv_init(buffer, count, type, source, tag, comm, request);
}

int MPI_Start(MPI_Request* request) {
  ++profilerCalls;
  return PMPI_Start(request);
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  ++profilerCalls;
  return PMPI_Wait(request, status);
}

int MPI_Allgatherv(const void* sent, int sentCount, MPI_Datatype sentType, void* received,
                   const int* counts, const int* places, MPI_Datatype type, MPI_Comm comm) {
  ++profilerCalls;
  return PMPI_Allgatherv(sent, sentCount, sentType, received, counts, places, type, comm);
}

int MPI_Ireduce(const void* sent, void* received, int count, MPI_Datatype type, MPI_Op op, int root,
                MPI_Comm comm, MPI_Request* request) {
  ++profilerCalls;
  return PMPI_Ireduce(sent, received, count, type, op, root, comm, request);
}

}  // extern "C"
#pragma GCC visibility pop
