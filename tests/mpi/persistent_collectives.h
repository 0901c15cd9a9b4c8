// SPDX-License-Identifier: Apache-2.0
//
// GMAC_PERSISTENT(Bcast) is the function of the MPI that makes a persistent broadcast, and so on
// for every collective that the tests call.
#ifndef GMAC_TESTS_MPI_PERSISTENT_COLLECTIVES_H_
#define GMAC_TESTS_MPI_PERSISTENT_COLLECTIVES_H_

#include <mpi.h>

#if MPI_VERSION >= 4
#define GMAC_PERSISTENT(name) MPI_##name##_init
#else

namespace gmac::testing {

template <typename Blocking>
struct PersistentForm;
template <typename... Arguments>
struct PersistentForm<int(Arguments...)> {
  using Function = int(Arguments..., MPI_Info, MPI_Request*);
};

}  // namespace gmac::testing

// Open MPI 5 has them by MPI 4's names, and Open MPI 4 as extensions, in a header of their own.
#if OMPI_MAJOR_VERSION < 5
#define GMAC_PERSISTENT(name) MPIX_##name##_init
#else
#define GMAC_PERSISTENT(name) MPI_##name##_init
#endif

extern "C" {
#define GMAC_DECLARE(name) \
  ::gmac::testing::PersistentForm<decltype(MPI_##name)>::Function GMAC_PERSISTENT(name);
GMAC_DECLARE(Allgather)
GMAC_DECLARE(Allgatherv)
GMAC_DECLARE(Allreduce)
GMAC_DECLARE(Alltoall)
GMAC_DECLARE(Alltoallv)
GMAC_DECLARE(Alltoallw)
GMAC_DECLARE(Bcast)
GMAC_DECLARE(Exscan)
GMAC_DECLARE(Gather)
GMAC_DECLARE(Gatherv)
GMAC_DECLARE(Neighbor_allgather)
GMAC_DECLARE(Neighbor_allgatherv)
GMAC_DECLARE(Neighbor_alltoall)
GMAC_DECLARE(Neighbor_alltoallv)
GMAC_DECLARE(Neighbor_alltoallw)
GMAC_DECLARE(Reduce)
GMAC_DECLARE(Reduce_scatter)
GMAC_DECLARE(Reduce_scatter_block)
GMAC_DECLARE(Scan)
GMAC_DECLARE(Scatter)
GMAC_DECLARE(Scatterv)
#undef GMAC_DECLARE
}

#endif  // MPI_VERSION

#endif  // GMAC_TESTS_MPI_PERSISTENT_COLLECTIVES_H_
