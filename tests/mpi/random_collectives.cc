// SPDX-License-Identifier: Apache-2.0
#include "tests/mpi/random_run.h"

namespace gmac::testing {
namespace {

// MPICH 4.0 crashes in MPI_Reduce in place, in plain memory and without gmac.
#ifdef MPICH
constexpr bool kReducesInPlace = false;
#else
constexpr bool kReducesInPlace = true;
#endif
constexpr int kLongestBytes = 4000;

void noteEnd(Run& run, const char* call, int code, const Buffer& sent, const Buffer& received) {
  run.noteResult(call, code);
  sent.noteBytes(run, "sent");
  received.noteBytes(run, "received");
}

void reduction(Run& run) {
  const int count = draw(run.rng, 1, 3000);
  const int which = draw(run.rng, 0, 3);
  const int root = draw(run.rng, 0, run.size - 1);
  const int sentPast = Buffer::drawPast(run.rng);
  const int receivedPast = Buffer::drawPast(run.rng);
  const bool inPlace = draw(run.rng, 0, 2) == 0;
  const MPI_Op op = draw(run.rng, 0, 1) == 0 ? MPI_SUM : MPI_BXOR;
  const Buffer sent(run, MPI_UNSIGNED, count, sentPast);
  const Buffer received(run, MPI_UNSIGNED, count, receivedPast);
  const bool mayBeInPlace = which != 0 || (kReducesInPlace && run.rank == root);
  const void* const from = inPlace && mayBeInPlace ? MPI_IN_PLACE : sent.address();
  int code = MPI_SUCCESS;
  switch (which) {
    case 0:
      code = MPI_Reduce(from, received.address(), count, MPI_UNSIGNED, op, root, run.comm);
      break;
    case 1:
      code = MPI_Allreduce(from, received.address(), count, MPI_UNSIGNED, op, run.comm);
      break;
    case 2:
      code = MPI_Scan(from, received.address(), count, MPI_UNSIGNED, op, run.comm);
      break;
    default:
      code = MPI_Exscan(from, received.address(), count, MPI_UNSIGNED, op, run.comm);
  }
  noteEnd(run, "reduction", code, sent, received);
}

}  // namespace

void collective(Run& run) {
  if (draw(run.rng, 0, 2) == 0) {
    reduction(run);
    return;
  }
  Types types;
  const MPI_Datatype type = types.derived(run.rng, types.base(run.rng), 2);
  const int count =
      std::min(drawCount(run.rng, type), kLongestBytes / std::max(1, sizeOf(type)) / run.size);
  const int which = draw(run.rng, 0, 4);
  const int root = draw(run.rng, 0, run.size - 1);
  const int sentPast = Buffer::drawPast(run.rng);
  const int receivedPast = Buffer::drawPast(run.rng);
  const bool inPlace = draw(run.rng, 0, 2) == 0;
  const bool isRoot = run.rank == root;
  const Buffer sent(run, type, count * run.size, sentPast);
  const Buffer received(run, type, count * run.size, receivedPast);
  void* const out = sent.address();
  void* const in = received.address();
  int code = MPI_SUCCESS;
  switch (which) {
    case 0:
      code = MPI_Bcast(in, count, type, root, run.comm);
      break;
    case 1:
      code = MPI_Gather(inPlace && isRoot ? MPI_IN_PLACE : out, count, type, in, count, type, root,
                        run.comm);
      break;
    case 2:
      code = MPI_Scatter(out, count, type, inPlace && isRoot ? MPI_IN_PLACE : in, count, type, root,
                         run.comm);
      break;
    case 3:
      code = MPI_Allgather(inPlace ? MPI_IN_PLACE : out, count, type, in, count, type, run.comm);
      break;
    default:
      code = MPI_Alltoall(inPlace ? MPI_IN_PLACE : out, count, type, in, count, type, run.comm);
  }
  noteEnd(run, "collective", code, sent, received);
}

}  // namespace gmac::testing
