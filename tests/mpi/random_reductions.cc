// SPDX-License-Identifier: Apache-2.0
#include "tests/mpi/collective_form.h"

namespace gmac::testing {
namespace {

// MPICH 4.0 crashes in MPI_Reduce in place, in plain memory and without gmac.
#ifdef MPICH
constexpr bool kReducesInPlace = false;
#else
constexpr bool kReducesInPlace = true;
#endif

// The application's operation, of kPairs: two unsigneds with one between them.
void addPairs(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* const from = static_cast<const unsigned*>(in);
  auto* const to = static_cast<unsigned*>(inout);
  for (int i = 0; i < *count; ++i) {
    to[3 * i] += from[3 * i];
    to[3 * i + 2] ^= from[3 * i + 2];
  }
}

// A type and an operation for it.
struct Operation {
  MPI_Datatype type = MPI_UNSIGNED;
  MPI_Op op = MPI_SUM;
  bool made = false;

  explicit Operation(Rng& rng) {
    switch (draw(rng, 0, 4)) {
      case 0:
        op = MPI_BXOR;
        break;
      case 1:
        type = MPI_2INT;
        op = MPI_MAXLOC;
        break;
      case 2:
        made = true;
        MPI_Type_vector(2, 1, 2, MPI_UNSIGNED, &type);
        MPI_Type_commit(&type);
        MPI_Op_create(&addPairs, 1, &op);
        break;
      default:
        break;
    }
  }
  ~Operation() {
    if (!made) return;
    MPI_Type_free(&type);
    MPI_Op_free(&op);
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
};

}  // namespace

void reduction(Run& run) {
  const Operation operation(run.rng);
  const MPI_Datatype type = operation.type;
  const MPI_Op op = operation.op;
  const int which = draw(run.rng, 0, 6);
  const int root = draw(run.rng, 0, run.size - 1);
  const int sentPast = Buffer::drawPast(run.rng);
  const int receivedPast = Buffer::drawPast(run.rng);
  const bool inPlace = draw(run.rng, 0, 2) == 0;
  CollectiveForm form(run);
  std::vector<int> counts;
  int all = 0;
  for (int i = 0; i < run.size; ++i) {
    counts.push_back(draw(run.rng, which == 4 ? 0 : 1, 1000));
    all += counts.back();
  }
  const int part = counts[0];
  const Buffer sent(run, type, std::max(all, part * run.size), sentPast);
  const Buffer received(run, type, std::max(all, part * run.size), receivedPast);
  const bool mayBeInPlace = which != 0 || (kReducesInPlace && run.rank == root);
  const void* const from = inPlace && mayBeInPlace ? MPI_IN_PLACE : sent.address();
  void* const to = received.address();
  int code = MPI_SUCCESS;
  switch (which) {
    case 0:
      code = GMAC_COLLECTIVE(form, Reduce, Ireduce, from, to, all, type, op, root, run.comm);
      break;
    case 1:
      code = GMAC_COLLECTIVE(form, Allreduce, Iallreduce, from, to, all, type, op, run.comm);
      break;
    case 2:
      code = GMAC_COLLECTIVE(form, Scan, Iscan, from, to, all, type, op, run.comm);
      break;
    case 3:
      code = GMAC_COLLECTIVE(form, Exscan, Iexscan, from, to, all, type, op, run.comm);
      break;
    case 4:
      code = GMAC_COLLECTIVE(form, Reduce_scatter, Ireduce_scatter, from, to, counts.data(), type,
                             op, run.comm);
      break;
    case 5:
      code = GMAC_COLLECTIVE(form, Reduce_scatter_block, Ireduce_scatter_block, from, to, part,
                             type, op, run.comm);
      break;
    default:
      code = MPI_Reduce_local(sent.address(), to, all, type, op);
  }
  run.noteResult(("reduction " + std::to_string(which)).c_str(), code);
  sent.noteBytes(run, "sent");
  received.noteBytes(run, "received");
}

}  // namespace gmac::testing
