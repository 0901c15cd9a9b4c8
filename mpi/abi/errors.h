// SPDX-License-Identifier: Apache-2.0
//
// Failures of this library as errors of MPI.
#ifndef GMAC_MPI_ABI_ERRORS_H_
#define GMAC_MPI_ABI_ERRORS_H_

#include <string>

#include "mpi/abi/calls.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// Writes "gmac: CALL: REASON" to standard error, since the default error handler ends the process
// without showing it, and returns an MPI error code with that text. The code belongs to an error
// class of this library; equal texts have one code.
int errorCode(const char* call, const std::string& reason);

// The same, and calls the error handler of the communicator, file or window with that code. Returns
// what the call returns to the application.
int refuse(MPI_Comm communicator, const char* call, const std::string& reason);
int refuse(MPI_File file, const char* call, const std::string& reason);
// (It has another name because MPICH has one type for windows and communicators.)
int refuseAtWindow(MPI_Win window, const char* call, const std::string& reason);

// An allocation of this library's own has failed in that call: the code of that error; and the same
// for calls of which nothing else is known, at the error handler of MPI_COMM_WORLD.
int noMemory(const char* call) noexcept;
int refuseForMemory(const char* call) noexcept;

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_ERRORS_H_
