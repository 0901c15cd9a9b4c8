// SPDX-License-Identifier: Apache-2.0
#include "tests/mpi/collective_form.h"

namespace gmac::testing {
namespace {

constexpr int kLongestBytes = 4000;

int countFor(Run& run, MPI_Datatype type, int parts) {
  return std::min(drawCount(run.rng, type), kLongestBytes / std::max(1, sizeOf(type)) / parts);
}

void noteEnd(Run& run, const char* call, int code, const Buffer& sent, const Buffer& received) {
  run.noteResult(call, code);
  sent.noteBytes(run, "sent");
  received.noteBytes(run, "received");
}

// As many elements for each.
void uniform(Run& run) {
  Types types;
  const MPI_Datatype type = types.derived(run.rng, types.base(run.rng), 2);
  const int count = countFor(run, type, run.size);
  const int which = draw(run.rng, 0, 4);
  const int root = draw(run.rng, 0, run.size - 1);
  const int sentPast = Buffer::drawPast(run.rng);
  const int receivedPast = Buffer::drawPast(run.rng);
  const bool inPlace = draw(run.rng, 0, 2) == 0;
  const bool isRoot = run.rank == root;
  CollectiveForm form(run);
  const Buffer sent(run, type, count * run.size, sentPast);
  const Buffer received(run, type, count * run.size, receivedPast);
  void* const out = sent.address();
  void* const in = received.address();
  void* const outInPlace = inPlace ? MPI_IN_PLACE : out;
  int code = MPI_SUCCESS;
  switch (which) {
    case 0:
      code = GMAC_COLLECTIVE(form, Bcast, Ibcast, in, count, type, root, run.comm);
      break;
    case 1:
      code = GMAC_COLLECTIVE(form, Gather, Igather, isRoot ? outInPlace : out, count, type, in,
                             count, type, root, run.comm);
      break;
    case 2:
      // (Among more than two processes, MPICH 4.0's persistent one never ends, with any memory.)
      if (kIsMpich && run.size > 2 && form.isPersistent()) form.block();
      code = GMAC_COLLECTIVE(form, Scatter, Iscatter, out, count, type,
                             inPlace && isRoot ? MPI_IN_PLACE : in, count, type, root, run.comm);
      break;
    case 3:
      // (MPICH 4.0's persistent one frees derived types that are in use.)
      if (kIsMpich && form.isPersistent()) form.block();
      code = GMAC_COLLECTIVE(form, Allgather, Iallgather, outInPlace, count, type, in, count, type,
                             run.comm);
      break;
    default:
      code = GMAC_COLLECTIVE(form, Alltoall, Ialltoall, outInPlace, count, type, in, count, type,
                             run.comm);
  }
  noteEnd(run,
          ("uniform " + std::to_string(which) + (inPlace ? " in place" : "") + form.name()).c_str(),
          code, sent, received);
}

// A number of elements for each pair.
std::vector<std::vector<int>> drawCounts(Run& run, MPI_Datatype type) {
  std::vector<std::vector<int>> counts(static_cast<std::size_t>(run.size));
  for (auto& row : counts) {
    for (int i = 0; i < run.size; ++i) row.push_back(countFor(run, type, run.size));
  }
  return counts;
}

std::vector<int> column(const std::vector<std::vector<int>>& counts, int index) {
  std::vector<int> column;
  for (const auto& row : counts) column.push_back(row[static_cast<std::size_t>(index)]);
  return column;
}

int allToAllV(CollectiveForm& form, const void* out, const Scattered& sent, void* in,
              const Scattered& received, MPI_Datatype type, MPI_Comm comm) {
#if MPI_VERSION >= 4
  if (form.isWide()) {
    const std::vector<MPI_Count> sentCounts(sent.counts.begin(), sent.counts.end());
    const std::vector<MPI_Aint> sentPlaces(sent.places.begin(), sent.places.end());
    const std::vector<MPI_Count> counts(received.counts.begin(), received.counts.end());
    const std::vector<MPI_Aint> places(received.places.begin(), received.places.end());
    return MPI_Alltoallv_c(out, sentCounts.data(), sentPlaces.data(), type, in, counts.data(),
                           places.data(), type, comm);
  }
#endif
  return GMAC_COLLECTIVE(form, Alltoallv, Ialltoallv, out, sent.counts.data(), sent.places.data(),
                         type, in, received.counts.data(), received.places.data(), type, comm);
}

// Numbers of elements that differ.
void spread(Run& run) {
  Types types;
  const MPI_Datatype type = types.derived(run.rng, types.base(run.rng), 2);
  auto counts = drawCounts(run, type);
  const int which = draw(run.rng, 0, 3);
  const int root = draw(run.rng, 0, run.size - 1);
  const int sentPast = Buffer::drawPast(run.rng);
  const int receivedPast = Buffer::drawPast(run.rng);
  const bool inPlace = draw(run.rng, 0, 2) == 0;
  Rng local(run.rng() + static_cast<std::uint64_t>(run.rank));
  const bool isRoot = run.rank == root;
  CollectiveForm form(run);
  const auto me = static_cast<std::size_t>(run.rank);
  if (which == 3 && inPlace) {
    // The received elements take the place of as many others.
    for (std::size_t i = 0; i < counts.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) counts[i][j] = counts[j][i];
    }
  }
  // Of all but MPI_Alltoallv the first row is meant, with a block for each process.
  const Scattered out(local, counts[which == 3 ? me : 0]);
  const Scattered in(local, which == 3 ? column(counts, run.rank) : counts[0]);
  const Buffer sent(run, type, out.elements, sentPast);
  const Buffer received(run, type, in.elements, receivedPast);
  const int mine = counts[0][me];
  int code = MPI_SUCCESS;
  switch (which) {
    case 0:
      code = GMAC_COLLECTIVE(form, Gatherv, Igatherv,
                             inPlace && isRoot ? MPI_IN_PLACE : sent.address(), mine, type,
                             received.address(), isRoot ? in.counts.data() : nullptr,
                             isRoot ? in.places.data() : nullptr, type, root, run.comm);
      break;
    case 1:
      code = GMAC_COLLECTIVE(
          form, Scatterv, Iscatterv, sent.address(), isRoot ? out.counts.data() : nullptr,
          isRoot ? out.places.data() : nullptr, type,
          inPlace && isRoot ? MPI_IN_PLACE : received.address(), mine, type, root, run.comm);
      break;
    case 2:
      code = GMAC_COLLECTIVE(form, Allgatherv, Iallgatherv, inPlace ? MPI_IN_PLACE : sent.address(),
                             mine, type, received.address(), in.counts.data(), in.places.data(),
                             type, run.comm);
      break;
    default:
      code = allToAllV(form, inPlace ? MPI_IN_PLACE : sent.address(), out, received.address(), in,
                       type, run.comm);
  }
  noteEnd(run, "spread", code, sent, received);
}

// Blocks of types of their own in a buffer of bytes.
struct TypedBlocks {
  std::vector<int> counts;
  std::vector<int> places;
  std::vector<MPI_Datatype> types;
  int bytes = 0;

  void add(int gap, int count, MPI_Datatype type) {
    const Span span = spanOf(type, count);
    bytes += gap;
    counts.push_back(count);
    places.push_back(bytes - static_cast<int>(span.first));
    types.push_back(type);
    bytes += static_cast<int>(span.last - span.first + 15) / 16 * 16;
  }
};

int allToAllW(CollectiveForm& form, const void* out, const TypedBlocks& sent, void* in,
              const TypedBlocks& received, MPI_Comm comm) {
#if MPI_VERSION >= 4
  if (form.isWide()) {
    const std::vector<MPI_Count> sentCounts(sent.counts.begin(), sent.counts.end());
    const std::vector<MPI_Aint> sentPlaces(sent.places.begin(), sent.places.end());
    const std::vector<MPI_Count> counts(received.counts.begin(), received.counts.end());
    const std::vector<MPI_Aint> places(received.places.begin(), received.places.end());
    return MPI_Alltoallw_c(out, sentCounts.data(), sentPlaces.data(), sent.types.data(), in,
                           counts.data(), places.data(), received.types.data(), comm);
  }
#endif
  return GMAC_COLLECTIVE(form, Alltoallw, Ialltoallw, out, sent.counts.data(), sent.places.data(),
                         sent.types.data(), in, received.counts.data(), received.places.data(),
                         received.types.data(), comm);
}

void typed(Run& run) {
  Types types;
  TypedBlocks out;
  TypedBlocks in;
  const bool inPlace = draw(run.rng, 0, 3) == 0;
  for (int from = 0; from < run.size; ++from) {
    for (int to = 0; to < run.size; ++to) {
      const MPI_Datatype base = types.base(run.rng);
      const MPI_Datatype type = types.derived(run.rng, base, 2);
      const int count = countFor(run, type, run.size);
      const int elements = sizeOf(type) * count / std::max(1, sizeOf(base));
      const MPI_Datatype other = types.spread(elements, base);
      const bool same = draw(run.rng, 0, 1) == 0;
      const int gap = 16 * draw(run.rng, 0, 2);
      if (from == run.rank) out.add(gap, count, type);
      if (to == run.rank) {
        if (same) {
          in.add(gap, count, type);
        } else {
          in.add(gap, 1, other);
        }
      }
    }
  }
  if (inPlace) {
    const MPI_Datatype type = types.derived(run.rng, types.base(run.rng), 2);
    const int count = countFor(run, type, run.size);
    in = TypedBlocks();
    for (int i = 0; i < run.size; ++i) in.add(16, count, type);
  }
  const int sentPast = Buffer::drawPast(run.rng);
  const int receivedPast = Buffer::drawPast(run.rng);
  CollectiveForm form(run);
  const Buffer sent(run, MPI_BYTE, out.bytes, sentPast);
  const Buffer received(run, MPI_BYTE, in.bytes, receivedPast);
  const int code = allToAllW(form, inPlace ? MPI_IN_PLACE : sent.address(), out, received.address(),
                             in, run.comm);
  noteEnd(run, (std::string("typed") + (inPlace ? " in place" : "") + form.name()).c_str(), code,
          sent, received);
}

}  // namespace

void collective(Run& run) {
  switch (draw(run.rng, 0, 2)) {
    case 0:
      uniform(run);
      break;
    case 1:
      spread(run);
      break;
    default:
      typed(run);
  }
}

}  // namespace gmac::testing
