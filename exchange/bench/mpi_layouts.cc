// SPDX-License-Identifier: Apache-2.0
#include "exchange/bench/mpi_layouts.h"

#include <fmt/core.h>

#include <stdexcept>

#include "gmac/api/adsm_mpi.h"
#include "gmac/datatype/types/registry.h"

namespace gmac::exchange::bench {

datatype::Layout layoutOf(MPI_Datatype type) {
  adsmType_t own = nullptr;
  if (adsmTypeFromMpi(type, &own) != adsmSuccess) {
    throw std::runtime_error(fmt::format("a datatype is not translated: {}", lastErrorText()));
  }
  if (const Status status = datatype::commitType(own, "adsmTypeCommit"); !status.ok()) {
    throw std::runtime_error(fmt::format("a datatype is not committed: {}", lastErrorText()));
  }
  const Result<datatype::CommittedPtr> committed = datatype::committed(own);
  if (!committed.ok()) {
    throw std::runtime_error(fmt::format("a datatype has no layout: {}", lastErrorText()));
  }
  datatype::Layout layout = (*committed)->layout;
  (void)datatype::freeType(own, "adsmTypeFree");
  return layout;
}

}  // namespace gmac::exchange::bench
