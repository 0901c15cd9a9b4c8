// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_EXCHANGE_BENCH_MPI_TYPES_H_
#define GMAC_EXCHANGE_BENCH_MPI_TYPES_H_

#include <mpi.h>

#include <string>

#include "gmac/datatype/layout/layout.h"

namespace gmac::exchange::bench {

// A committed type of the layout, as a program would build it: vectors of vectors around a block,
// or around a list of blocks. The caller frees it.
MPI_Datatype typeOf(const datatype::Layout& layout);

// "Open MPI" or "MPICH".
std::string nameOfMpi();

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_MPI_TYPES_H_
