// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/calls.h"

namespace gmac::mpi::GMAC_MPI_ABI {

#ifdef OPEN_MPI
Globals globals;
#endif
Calls internal::layers[2];
int (*queryCudaSupport)() = nullptr;

namespace {

template <typename Function>
void look(Find find, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(find(name));
}

}  // namespace

void openCalls(Find next, [[maybe_unused]] Find variable) {
#ifdef OPEN_MPI
#define GMAC_MPI_GLOBAL(name) globals.name = variable(#name);
#include "mpi/abi/openmpi_globals.inc"
#undef GMAC_MPI_GLOBAL
#endif
  look(next, "MPIX_Query_cuda_support", &queryCudaSupport);
  Calls& mpi = internal::layers[static_cast<int>(Layer::kMpi)];
  Calls& pmpi = internal::layers[static_cast<int>(Layer::kPmpi)];
#define GMAC_MPI_CALL(name)            \
  look(next, "MPI_" #name, &mpi.name); \
  look(next, "PMPI_" #name, &pmpi.name);
#include "mpi/abi/used_calls.inc"
#undef GMAC_MPI_CALL
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
