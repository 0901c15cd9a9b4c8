// SPDX-License-Identifier: Apache-2.0
//
// Datatypes that all processes of a communicator make together (adsmTypeCommitOn): what adsm_mpi.h
// asks this library for. The exchange of their digests is MPI's, and is made there.
#include <cstdint>
#include <memory>

#include "mpi/abi/hooks.h"
#include "mpi/abi/types.h"
#include "mpi/tickets.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// The layout of one element; NULL: only MPI knows it.
exchange::SharedLayoutPtr elementOf(MPI_Datatype datatype, std::int64_t* extent) {
  const FoundType found = findType(datatype);
  if (found.type == nullptr) {
    return nullptr;
  }
  *extent = found.type->extent;
  return found.type->layoutOf(1);
}

// 1: `digest` has what tells the type's layout from others, and the same in every process.
int digest(MPI_Datatype datatype, std::uint64_t* digest) {
  std::int64_t extent = 0;
  const exchange::SharedLayoutPtr element = elementOf(datatype, &extent);
  if (element == nullptr) {
    return 0;
  }
  digest[0] = element->hash[0];
  digest[1] = element->hash[1] + static_cast<std::uint64_t>(extent);
  return 1;
}

// All processes have made the type, or are about to free it.
int known(MPI_Datatype datatype, int isKnown) {
  std::int64_t extent = 0;
  const exchange::SharedLayoutPtr element = elementOf(datatype, &extent);
  if (element == nullptr) {
    return 0;
  }
  if (isKnown != 0) {
    tickets::knowType({element, &element->layout}, extent);
  } else {
    tickets::forgetType(element->layout, extent);
  }
  return 1;
}

}  // namespace

std::span<const Hook> typeHooks() {
  static const Hook hooks[] = {
      {"MPIX_Gmac_type_digest",
       {reinterpret_cast<void*>(&Guarded<&digest, "adsmTypeCommitOn">::call),
        reinterpret_cast<void*>(&Guarded<&digest, "adsmTypeCommitOn">::call)}},
      {"MPIX_Gmac_type_known",
       {reinterpret_cast<void*>(&Guarded<&known, "adsmTypeCommitOn">::call),
        reinterpret_cast<void*>(&Guarded<&known, "adsmTypeCommitOn">::call)}},
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
