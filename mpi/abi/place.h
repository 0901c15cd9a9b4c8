// SPDX-License-Identifier: Apache-2.0
//
// Which blocks a process sends and receives in a collective.
#ifndef GMAC_MPI_ABI_PLACE_H_
#define GMAC_MPI_ABI_PLACE_H_

#include "mpi/abi/calls.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// One kind of collective.
struct Pattern {
  enum class Root { kNone, kReceives, kSends };
  Root root = Root::kNone;
  bool sendsToEach = false;       // one block for each process; else one for all of them
  bool receivesFromEach = false;  // one block from each process; else one in all
  bool neighbours = false;        // the processes are the neighbours in the topology
  bool keeps = false;  // some processes receive nothing, so their buffers keep their bytes
};
inline constexpr Pattern kGather{Pattern::Root::kReceives, false, true};
inline constexpr Pattern kScatter{Pattern::Root::kSends, true, false};
inline constexpr Pattern kAllgather{Pattern::Root::kNone, false, true};
inline constexpr Pattern kAlltoall{Pattern::Root::kNone, true, true};
inline constexpr Pattern kNeighborAllgather{Pattern::Root::kNone, false, true, true};
inline constexpr Pattern kNeighborAlltoall{Pattern::Root::kNone, true, true, true};
inline constexpr Pattern kToRoot{Pattern::Root::kReceives, false, false};
inline constexpr Pattern kFromRoot{Pattern::Root::kSends, false, false};
inline constexpr Pattern kEverywhere{};
inline constexpr Pattern kExscan{Pattern::Root::kNone, false, false, false, true};

// The part of one process in one collective.
struct Place {
  int sent = 0;         // blocks in its send buffer; 0: the buffer is not used
  int received = 0;     // blocks in its receive buffer; 0: the buffer is not used
  bool isRoot = false;  // the root, where the collective has one
  bool keeps = false;   // parts of its receive buffer may keep their bytes
  int own = -1;         // its own block, in both buffers; -1: it sends itself none of its own
};
// Ignores `root` where the pattern has none.
Place placeIn(const Pattern& pattern, MPI_Comm communicator, int root);

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_PLACE_H_
