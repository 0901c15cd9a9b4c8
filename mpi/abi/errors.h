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

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_ERRORS_H_
