// SPDX-License-Identifier: Apache-2.0
//
// kPersistentBroadcast is the MPI's function that makes a persistent broadcast.
#ifndef GMAC_TESTS_MPI_PERSISTENT_COLLECTIVES_H_
#define GMAC_TESTS_MPI_PERSISTENT_COLLECTIVES_H_

#include <mpi.h>

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
// In a header of its own.
extern "C" int MPIX_Bcast_init(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm,
                               MPI_Info info, MPI_Request* request);
#endif

namespace gmac::testing {

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
constexpr auto kPersistentBroadcast = &MPIX_Bcast_init;
#else
constexpr auto kPersistentBroadcast = &MPI_Bcast_init;
#endif

}  // namespace gmac::testing

#endif  // GMAC_TESTS_MPI_PERSISTENT_COLLECTIVES_H_
