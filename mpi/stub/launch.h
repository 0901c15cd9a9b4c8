// SPDX-License-Identifier: Apache-2.0
//
// Reports mistakes in how the process was launched, once they are certain.
#ifndef GMAC_MPI_STUB_LAUNCH_H_
#define GMAC_MPI_STUB_LAUNCH_H_

namespace gmac::mpi {

// An MPI function has been called for the first time.
void noteCall();

// MPI has been initialised; `size`: of MPI_COMM_WORLD.
void noteInit(int size);

}  // namespace gmac::mpi

#endif  // GMAC_MPI_STUB_LAUNCH_H_
