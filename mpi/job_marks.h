// SPDX-License-Identifier: Apache-2.0
//
// Whether all processes of a job have this library, as its launcher tells them by PMIx: each puts a
// key into what the processes exchange in MPI_Init anyway, so a process without this library need
// do nothing, and all that have it find the same. PMIx counts its users, so the process has it
// before MPI, and MPI has it afterwards. Knows no mpi.h. Not thread-safe: around MPI_Init.
#ifndef GMAC_MPI_JOB_MARKS_H_
#define GMAC_MPI_JOB_MARKS_H_

namespace gmac::mpi::marks {

// Before MPI_Init: marks this process, if it is one of several on several hosts. `mpi`: the file of
// Open MPI, whose PMIx is used.
void set(const char* mpi);
// After it, once: whether all processes of MPI_COMM_WORLD, which are so many, are marked.
bool onAll(int size);

}  // namespace gmac::mpi::marks

#endif  // GMAC_MPI_JOB_MARKS_H_
