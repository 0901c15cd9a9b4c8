// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "tests/mpi/collective_form.h"

namespace gmac::testing {
namespace {

constexpr int kLongestBytes = 2000;

// A communicator with a topology, and who is next to this process in it.
struct Neighbourhood {
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<int> sources;
  std::vector<int> destinations;
  bool isGraph = false;

  explicit Neighbourhood(Run& run) {
    if (draw(run.rng, 0, 1) == 0) {
      grid(run);
    } else {
      graph(run);
    }
  }
  ~Neighbourhood() { MPI_Comm_free(&comm); }
  Neighbourhood(const Neighbourhood&) = delete;
  Neighbourhood& operator=(const Neighbourhood&) = delete;

 private:
  void grid(Run& run) {
    constexpr int kDimensions = 2;
    std::array<int, kDimensions> sizes = {run.size, 1};
    const std::array<int, kDimensions> periods = {draw(run.rng, 0, 1), draw(run.rng, 0, 1)};
    MPI_Cart_create(run.comm, kDimensions, sizes.data(), periods.data(), 0, &comm);
    for (int i = 0; i < kDimensions; ++i) {
      int before = 0;
      int after = 0;
      MPI_Cart_shift(comm, i, 1, &before, &after);
      sources.insert(sources.end(), {before, after});
    }
    destinations = sources;
  }

  void graph(Run& run) {
    isGraph = true;
    for (int from = 0; from < run.size; ++from) {
      for (int to = 0; to < run.size; ++to) {
        if (draw(run.rng, 0, 2) == 0) continue;
        if (from == run.rank) destinations.push_back(to);
        if (to == run.rank) sources.push_back(from);
      }
    }
    MPI_Dist_graph_create_adjacent(run.comm, static_cast<int>(sources.size()), sources.data(),
                                   MPI_UNWEIGHTED, static_cast<int>(destinations.size()),
                                   destinations.data(), MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
  }
};

}  // namespace

void neighbours(Run& run) {
  Types types;
  const Neighbourhood next(run);
  const MPI_Datatype type = types.derived(run.rng, types.base(run.rng), 2);
  const int most = kLongestBytes / std::max(1, sizeOf(type));
  std::vector<std::vector<int>> between(static_cast<std::size_t>(run.size));  // by both ranks
  for (auto& row : between) {
    for (int i = 0; i < run.size; ++i) row.push_back(draw(run.rng, 0, most));
  }
  // (On a graph, MPICH 4.0's Neighbor_alltoallw gives random bytes in plain memory.)
  const int which = draw(run.rng, 0, kIsMpich && next.isGraph ? 3 : 4);
  const int sentPast = Buffer::drawPast(run.rng);
  const int receivedPast = Buffer::drawPast(run.rng);
  Rng local(run.rng() + static_cast<std::uint64_t>(run.rank));
  CollectiveForm form(run);
  // The sender sends as many to all of its neighbours, or not.
  const auto countOf = [&](int from, int to) {
    if (from == MPI_PROC_NULL || to == MPI_PROC_NULL) return 1;
    return between[static_cast<std::size_t>(from)][which == 1 ? 0 : static_cast<std::size_t>(to)];
  };
  const int count = between[0][0];
  const int own = countOf(run.rank, 0);
  std::vector<int> outCounts;
  std::vector<int> inCounts;
  for (const int rank : next.destinations) {
    outCounts.push_back(which >= 3 ? countOf(run.rank, rank) : std::max(count, own));
  }
  for (const int rank : next.sources) {
    inCounts.push_back(which == 0 || which == 2 ? count : countOf(rank, run.rank));
  }
  outCounts.push_back(std::max(count, own));  // there is a buffer
  const Scattered out(local, outCounts);
  const Scattered in(local, inCounts);
  const Buffer sent(run, type, out.elements, sentPast);
  const Buffer received(run, type, in.elements, receivedPast);
  const void* const from = sent.address();
  void* const to = received.address();
  MPI_Aint lowerBound = 0;
  MPI_Aint extent = 0;
  MPI_Type_get_extent(type, &lowerBound, &extent);
  std::vector<MPI_Aint> outBytes;
  std::vector<MPI_Aint> inBytes;
  for (const int place : out.places) outBytes.push_back(place * extent);
  for (const int place : in.places) inBytes.push_back(place * extent);
  const std::vector<MPI_Datatype> outTypes(out.places.size() + 8, type);
  const std::vector<MPI_Datatype> inTypes(in.places.size() + 8, type);
  int code = MPI_SUCCESS;
  switch (which) {
    case 0:
      code = GMAC_COLLECTIVE(form, Neighbor_allgather, Ineighbor_allgather, from, count, type, to,
                             count, type, next.comm);
      break;
    case 1:
      code = GMAC_COLLECTIVE(form, Neighbor_allgatherv, Ineighbor_allgatherv, from, own, type, to,
                             in.counts.data(), in.places.data(), type, next.comm);
      break;
    case 2:
      code = GMAC_COLLECTIVE(form, Neighbor_alltoall, Ineighbor_alltoall, from, count, type, to,
                             count, type, next.comm);
      break;
    case 3:
      code = GMAC_COLLECTIVE(form, Neighbor_alltoallv, Ineighbor_alltoallv, from, out.counts.data(),
                             out.places.data(), type, to, in.counts.data(), in.places.data(), type,
                             next.comm);
      break;
    default:
      code = GMAC_COLLECTIVE(form, Neighbor_alltoallw, Ineighbor_alltoallw, from, out.counts.data(),
                             outBytes.data(), outTypes.data(), to, in.counts.data(), inBytes.data(),
                             inTypes.data(), next.comm);
  }
  run.noteResult(("neighbours " + std::to_string(which)).c_str(), code);
  sent.noteBytes(run, "sent");
  received.noteBytes(run, "received");
}

}  // namespace gmac::testing
