// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/hooks.h"

#include <string>

#include "mpi/stub/abi.h"

namespace gmac::mpi {
namespace GMAC_MPI_ABI {
namespace {

// Without the P of PMPI_x.
void* findHook(std::string_view wanted, bool pmpi) {
  for (const auto hooks : {pointToPointHooks(), nonblockingHooks(), sendReceiveHooks(),
                           completionHooks(), probeHooks(), collectiveHooks(), packingHooks(),
                           fileHooks(), oneSidedHooks(), synchronisationHooks(), windowHooks(),
                           bufferHooks(), partitionedHooks(), typeHooks(), setupHooks()}) {
    for (const Hook& hook : hooks) {
      if (hook.name == wanted) {
        return hook.functions[pmpi ? 1 : 0];
      }
    }
  }
  return nullptr;
}

void* findHook(std::string_view name) {
  const bool pmpi = name.starts_with('P') || name.starts_with('p');
  const std::string_view wanted = name.substr(pmpi ? 1 : 0);
  void* hook = findHook(wanted, pmpi);
#ifdef OPEN_MPI
  // An extension that has become part of MPI since.
  constexpr std::string_view kExtension = "MPIX_";
  if (hook == nullptr && wanted.starts_with(kExtension)) {
    hook = findHook("MPI_" + std::string(wanted.substr(kExtension.size())), pmpi);
  }
#endif
  return hook;
}

}  // namespace
}  // namespace GMAC_MPI_ABI

#ifdef OPEN_MPI
const Abi kOpenMpi{&GMAC_MPI_ABI::openCalls, &GMAC_MPI_ABI::findHook};
#else
const Abi kMpich{&GMAC_MPI_ABI::openCalls, &GMAC_MPI_ABI::findHook};
#endif

}  // namespace gmac::mpi
