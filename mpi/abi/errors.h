// SPDX-License-Identifier: Apache-2.0
//
// Failures of this library as errors of MPI.
#ifndef GMAC_MPI_ABI_ERRORS_H_
#define GMAC_MPI_ABI_ERRORS_H_

#include <string>

#include "mpi/abi/calls.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// An error code, of a class of this library's own, whose text is "gmac: CALL: REASON", after that
// line was written to standard error: the default error handler ends the process and does not show
// it. One code for equal texts.
int errorCode(const char* call, const std::string& reason);

// The same, handed to the error handler of the communicator, file or window; what the call is to
// return.
int refuse(MPI_Comm communicator, const char* call, const std::string& reason);
int refuse(MPI_File file, const char* call, const std::string& reason);
// (To MPICH a window and a communicator are of one type.)
int refuseAtWindow(MPI_Win window, const char* call, const std::string& reason);

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_ERRORS_H_
