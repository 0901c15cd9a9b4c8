// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <numeric>

#include "tests/mpi/random_run.h"

namespace gmac::testing {

#if MPI_VERSION >= 4
namespace {

constexpr int kLongestBytes = 6000;

// One message of every rank, to a rank at a distance, in several rounds.
struct Partitions {
  int partitions;
  int count;  // of a partition
  MPI_Datatype type;
  std::unique_ptr<Buffer> sent;
  std::unique_ptr<Buffer> received;
  std::vector<MPI_Request> requests;  // the receive, the send

  Partitions(Run& run, Types& types, int number) : requests(2) {
    const int tag = static_cast<int>(run.steps.size()) * 1000 + number;
    const int distance = draw(run.rng, 0, run.size - 1);
    partitions = draw(run.rng, 1, 6);
    type = types.derived(run.rng, types.base(run.rng), 3);
    count = std::min(drawCount(run.rng, type), kLongestBytes / std::max(1, sizeOf(type)));
    const int sentPast = Buffer::drawPast(run.rng);
    const int receivedPast = Buffer::drawPast(run.rng);
    sent = std::make_unique<Buffer>(run, type, count * partitions, sentPast);
    received = std::make_unique<Buffer>(run, type, count * partitions, receivedPast);
    run.noteResult("MPI_Precv_init", MPI_Precv_init(received->address(), partitions, count, type,
                                                    (run.rank + run.size - distance) % run.size,
                                                    tag, run.comm, MPI_INFO_NULL, &requests[0]));
    run.noteResult("MPI_Psend_init", MPI_Psend_init(sent->address(), partitions, count, type,
                                                    (run.rank + distance) % run.size, tag, run.comm,
                                                    MPI_INFO_NULL, &requests[1]));
  }

  // In any order, by any of the calls.
  void makeReady(Rng& rng) const {
    std::vector<int> order(static_cast<std::size_t>(partitions));
    std::iota(order.begin(), order.end(), 0);
    switch (draw(rng, 0, 2)) {
      case 0:
        std::shuffle(order.begin(), order.end(), rng);
        for (const int partition : order) MPI_Pready(partition, requests[1]);
        break;
      case 1: {
        const int middle = draw(rng, 0, partitions - 1);
        MPI_Pready_range(middle, partitions - 1, requests[1]);
        if (middle > 0) MPI_Pready_range(0, middle - 1, requests[1]);
        break;
      }
      default:
        std::shuffle(order.begin(), order.end(), rng);
        MPI_Pready_list(partitions, order.data(), requests[1]);
    }
  }
  void awaitPartition(int partition) const {
    int there = 0;
    while (there == 0) MPI_Parrived(requests[0], partition, &there);
  }
};

}  // namespace

void partitionedMessages(Run& run) {
  Types types;
  std::vector<Partitions> all;
  const int count = draw(run.rng, 1, 3);
  for (int i = 0; i < count; ++i) all.emplace_back(run, types, i);
  for (int round = draw(run.rng, 0, 3); round > 0; --round) {
    const int past = Buffer::drawPast(run.rng);
    const bool together = draw(run.rng, 0, 1) == 0;
    for (Partitions& one : all) {
      one.sent->undergo(past);
      if (together) MPI_Startall(2, one.requests.data());
      for (int i = 0; i < 2 && !together; ++i)
        MPI_Start(&one.requests[static_cast<std::size_t>(i)]);
    }
    for (const Partitions& one : all) one.makeReady(run.rng);
    for (Partitions& one : all) {
      for (int i = draw(run.rng, 0, 2); i > 0; --i) {
        one.awaitPartition(draw(run.rng, 0, one.partitions - 1));
      }
      std::vector<MPI_Status> statuses(2);
      completeAll(draw(run.rng, 0, 7), one.requests, statuses);
      one.received->noteBytes(run, "received");
      one.sent->noteBytes(run, "sent");
    }
  }
  for (Partitions& one : all) {
    for (MPI_Request& request : one.requests) {
      run.noteResult("MPI_Request_free", MPI_Request_free(&request));
    }
  }
}
#endif

}  // namespace gmac::testing
