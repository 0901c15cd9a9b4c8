// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/place.h"

#include <algorithm>
#include <vector>

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// A grid that is open somewhere has neighbours that do not exist.
bool isOpen(MPI_Comm communicator, int dimensions) {
  std::vector<int> sizes(static_cast<std::size_t>(dimensions));
  std::vector<int> periods(sizes.size());
  std::vector<int> coordinates(sizes.size());
  (void)real().Cart_get(communicator, dimensions, sizes.data(), periods.data(), coordinates.data());
  return std::find(periods.begin(), periods.end(), 0) != periods.end();
}

// Without a topology there are no neighbours, and MPI refuses the call.
Place amongNeighbours(MPI_Comm communicator) {
  Place place;
  int topology = MPI_UNDEFINED;
  (void)real().Topo_test(communicator, &topology);
  if (topology == MPI_CART) {
    int dimensions = 0;
    (void)real().Cartdim_get(communicator, &dimensions);
    place.sent = place.received = 2 * dimensions;
    place.keeps = isOpen(communicator, dimensions);
  } else if (topology == MPI_GRAPH) {
    int rank = 0;
    (void)real().Comm_rank(communicator, &rank);
    (void)real().Graph_neighbors_count(communicator, rank, &place.sent);
    place.received = place.sent;
  } else if (topology == MPI_DIST_GRAPH) {
    int weighted = 0;
    (void)real().Dist_graph_neighbors_count(communicator, &place.received, &place.sent, &weighted);
  }
  return place;
}

}  // namespace

Place placeIn(const Pattern& pattern, MPI_Comm communicator, int root) {
  if (pattern.neighbours) {
    Place place = amongNeighbours(communicator);
    place.sent = pattern.sendsToEach ? place.sent : std::min(place.sent, 1);
    return place;
  }
  int inter = 0;
  int size = 0;
  int rank = MPI_PROC_NULL;
  (void)real().Comm_test_inter(communicator, &inter);
  (void)(inter != 0 ? real().Comm_remote_size : real().Comm_size)(communicator, &size);
  (void)real().Comm_rank(communicator, &rank);
  Place place;
  place.sent = pattern.sendsToEach ? size : 1;
  place.received = pattern.receivesFromEach ? size : 1;
  place.keeps = pattern.keeps;
  place.own = inter == 0 && pattern.sendsToEach && pattern.receivesFromEach ? rank : -1;
  if (pattern.root == Pattern::Root::kNone) {
    return place;
  }
  place.isRoot = inter != 0 ? root == MPI_ROOT : root == rank;
  const bool isOther = inter == 0 || (root != MPI_ROOT && root != MPI_PROC_NULL);
  const bool rootReceives = pattern.root == Pattern::Root::kReceives;
  place.sent = (rootReceives ? isOther : place.isRoot) ? place.sent : 0;
  place.received = (rootReceives ? place.isRoot : isOther) ? place.received : 0;
  return place;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
