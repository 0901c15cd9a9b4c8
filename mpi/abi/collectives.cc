// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/exchange.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/reduction.h"

namespace gmac::mpi::GMAC_MPI_ABI {

std::span<const Hook> collectiveHooks() {
  static const Hook hooks[] = {
#define GMAC_MPI_COLLECTIVE(name, iname, function, pattern)                          \
  GMAC_MPI_HOOKS(name, function, pattern), GMAC_MPI_HOOKS(iname, function, pattern), \
      GMAC_MPI_HOOKS(name##_init, function, pattern),
#include "mpi/abi/collective_calls.inc"
#undef GMAC_MPI_COLLECTIVE
      GMAC_MPI_HOOKS(Reduce_local, reduceLocal),
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
