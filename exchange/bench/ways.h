// SPDX-License-Identifier: Apache-2.0
//
// How a message goes from one process to another.
#ifndef GMAC_EXCHANGE_BENCH_WAYS_H_
#define GMAC_EXCHANGE_BENCH_WAYS_H_

#include <cstddef>

namespace gmac::exchange::bench {

// The ways of exchange/ send their descriptions by MPI.
enum class Way {
  kContiguous,  // MPI_Send and MPI_Recv of as many bytes in one piece
  kMpi,         // MPI_Send and MPI_Recv of the datatypes
  kByHand,      // packed by the sender and unpacked by the receiver; MPI sends contiguous bytes
  kChosen,      // the exchange chooses
  kPlain,       // the same, as if the sender's memory were no file's
  kMapped,      // Path
  kRead,
  kRing,
  kNaive,  // mapped, but LayoutExchange
  kPipelined,
};
inline constexpr std::size_t kWays = 10;
const char* wayName(Way way);

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_WAYS_H_
