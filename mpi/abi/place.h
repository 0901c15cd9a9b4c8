// SPDX-License-Identifier: Apache-2.0
//
// Who sends and receives what in a collective.
#ifndef GMAC_MPI_ABI_PLACE_H_
#define GMAC_MPI_ABI_PLACE_H_

#include "mpi/abi/calls.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// One kind of collective.
struct Pattern {
  enum class Root { kNone, kReceives, kSends };
  Root root = Root::kNone;
  bool sendsToEach = false;       // a block for each process, else one for all of them
  bool receivesFromEach = false;  // a block from each
  bool neighbours = false;        // the processes are those next to this one in the topology
  bool keeps = false;             // some processes receive nothing
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

// One process in one collective. Arguments that it does not use mean nothing.
struct Place {
  int sent = 0;         // blocks in its send buffer; 0: not used
  int received = 0;     // the same of what it receives to
  bool isRoot = false;  // of a collective that has one
  bool keeps = false;   // parts of what it receives to may stay as they were
};
// `root` is not looked at where there is none.
Place placeIn(const Pattern& pattern, MPI_Comm communicator, int root);

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_PLACE_H_
