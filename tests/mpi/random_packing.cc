// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "tests/mpi/random_run.h"

namespace gmac::testing {
namespace {

// Random: whether a side is in the run's memory, else plain.
class Sides {
 public:
  explicit Sides(Rng& rng) : which_(draw(rng, 0, 2)) {}
  Memory::Kind elements(const Run& run) const {
    return which_ == 1 ? Memory::Kind::kPlain : run.kind;
  }
  Memory::Kind packed(const Run& run) const {
    return which_ == 2 ? Memory::Kind::kPlain : run.kind;
  }

 private:
  int which_;
};

// It packs past the end of a range that is too short, and ends the process where the external size
// of a pair is asked for.
#ifdef MPICH
constexpr bool kIsMpich4 = true;
#else
constexpr bool kIsMpich4 = false;
#endif

std::string bytesOf(const Memory& memory) {
  return {reinterpret_cast<const char*>(memory.data()), memory.size()};
}

}  // namespace

// Each rank by itself: two sets of elements after each other into a range, and out again.
void packing(Run& run) {
  Types types;
  const bool external = draw(run.rng, 0, 2) == 0;
  const MPI_Datatype base = types.base(run.rng);
  const MPI_Datatype type = types.derived(run.rng, external && kIsMpich4 ? MPI_INT : base, 3);
  const int count = drawCount(run.rng, type);
  const Sides sides(run.rng);
  const int before = draw(run.rng, 0, 100);
  const int after = draw(run.rng, 0, 100);
  const bool tooShort = draw(run.rng, 0, 9) == 0 && !kIsMpich4;
  const int past = Buffer::drawPast(run.rng);
  const int pastPacked = draw(run.rng, 0, 1);
  const char kForm[] = "external32";
  int bytes = 0;
  MPI_Aint externalBytes = 0;
  MPI_Pack_size(count, type, run.comm, &bytes);
  if (external) {
    MPI_Pack_external_size(kForm, count, type, &externalBytes);
    bytes = static_cast<int>(externalBytes);
  }
  const int size = before + 2 * bytes + (tooShort ? -1 - bytes / 2 : after);
  if (size < before) return;
  const auto kind = std::exchange(run.kind, sides.elements(run));
  const Buffer first(run, type, count, past);
  const Buffer second(run, type, count, past);
  run.kind = kind;
  const Memory packed(sides.packed(run), static_cast<std::size_t>(size) + 1);
  std::memset(packed.data(), 17, packed.size());
  if (pastPacked == 1) packed.flip();
  int position = before;
  MPI_Aint externalPosition = before;
  const auto note = [&](const char* call, int code) {
    run.noteResult(call, code);
    run.note("position " + std::to_string(position) + " " + std::to_string(externalPosition));
  };
  int code = MPI_SUCCESS;
  for (int i = 0; i < 2 && code == MPI_SUCCESS; ++i) {
    code = external ? MPI_Pack_external(kForm, first.address(), count, type, packed.address(), size,
                                        &externalPosition)
                    : MPI_Pack(first.address(), count, type, packed.address(), size, &position,
                               run.comm);
    note("MPI_Pack", code);
  }
  first.noteBytes(run, "elements");
  // MPI does not say what a call that failed leaves behind.
  if (code != MPI_SUCCESS) return;
  if (pastPacked == 1) packed.flip();
  run.note("packed: " + bytesOf(packed));
  if (pastPacked == 1) packed.flip();
  position = before;
  externalPosition = before;
  for (int i = 0; i < 2 && code == MPI_SUCCESS; ++i) {
    const Buffer& to = i == 0 ? second : first;
    code = external
               ? MPI_Unpack_external(kForm, packed.address(), size, &externalPosition, to.address(),
                                     count, type)
               : MPI_Unpack(packed.address(), size, &position, to.address(), count, type, run.comm);
    note("MPI_Unpack", code);
  }
  if (code != MPI_SUCCESS) return;
  if (past == 0) second.flip();
  first.noteBytes(run, "unpacked");
  second.noteBytes(run, "unpacked");
}

}  // namespace gmac::testing
