// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_EXCHANGE_BENCH_MPI_LAYOUTS_H_
#define GMAC_EXCHANGE_BENCH_MPI_LAYOUTS_H_

#include <mpi.h>

#include "gmac/datatype/layout/layout.h"

namespace gmac::exchange::bench {

// The layout of one element of a committed type, as gmac translates it: taken apart by MPI's
// envelopes, and flattened. Throws std::runtime_error.
datatype::Layout layoutOf(MPI_Datatype type);

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_MPI_LAYOUTS_H_
