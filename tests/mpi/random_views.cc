// SPDX-License-Identifier: Apache-2.0
//
// A file with random views, and transfers of every form in it. Which bytes come to lie where is
// MPI's to say, and does not depend on the memory: the reference run gives MPI plain memory, which
// MPI_Pack has filled and MPI_Unpack will empty.
#include <functional>
#include <string_view>
#include <utility>

#include "tests/mpi/file_calls.h"
#include "tests/mpi/random_run.h"

namespace gmac::testing {
namespace {

// Of one rank, in a file whose ranks keep apart.
constexpr MPI_Offset kRegion = 1 << 20;
// Of one transfer. (A view has room for several of them in a region, gaps included.)
constexpr int kLongestBytes = 4'000;
// In elements of the view.
constexpr int kLastOffset = 100;

// What its ranks see of a file.
enum class Sight : int { kRegions, kInTurns, kTheSame };

bool hasGap(MPI_Datatype type) {
  MPI_Aint lowerBound = 0;
  MPI_Aint extent = 0;
  MPI_Type_get_extent(type, &lowerBound, &extent);
  return extent != sizeOf(type);
}

struct View {
  Types types;
  Sight sight;
  MPI_Datatype element;
  MPI_Datatype part;  // of the file, as often as there is something to transfer
  MPI_Offset displacement;
  int longest;  // of a transfer, in bytes

  View(const Run& run, Rng& rng) : sight(static_cast<Sight>(draw(rng, 0, 2))) {
    // (MPICH 4.0 ends the process for a view of MPI_DOUBLE_INT, as ADIOI_Flatten knows no
    // predefined type with a gap; it does not return from some transfers with constructors of
    // elements with gaps, such as an indexed type of resized ones, and loses pieces of darrays:
    // also in plain memory, without gmac.)
    do {
      element = types.base(rng);
    } while (kIsMpich4 && hasGap(element));
    part = types.growing(rng, element, kIsMpich4 ? 1 : 2, !kIsMpich4);
    MPI_Aint lowerBound = 0;
    MPI_Aint extent = 0;
    MPI_Type_get_extent(part, &lowerBound, &extent);
    displacement = draw(rng, 0, 50);
    if (sight == Sight::kRegions) displacement += run.rank * kRegion;
    if (sight == Sight::kInTurns) {
      displacement += run.rank * extent;
      part = types.resized(part, extent * run.size);
    }
    longest =
        static_cast<int>(std::min<MPI_Aint>(kLongestBytes, kRegion / 16 * sizeOf(part) / extent));
  }

  void set(const File& file) const {
    if (MPI_File_set_view(file.get(), displacement, element, part, "native", MPI_INFO_NULL) !=
        MPI_SUCCESS) {
      fail("MPI_File_set_view");
    }
  }
};

bool isShared(Call call) { return call == kShared || call == kNonblockingShared; }
bool isOrdered(Call call) { return call == kOrdered || call == kBeginOrdered; }

// Of what a file is too short for, Open MPI 4.1 says in collective calls that it was read, and
// waits for it for ever in nonblocking ones; in the gaps of what it writes past the end is
// anything: also in plain memory, without gmac.
bool mayMeetTheEnd(bool reads, Call call) {
  return reads && (call == kSingle || call == kAt || call == kShared);
}

// A transfer of random form with a view.
struct Transfer {
  bool reads;
  bool isLarge = false;
  Call call;
  Types types;
  MPI_Datatype type;
  int count;
  int past;
  MPI_Offset offset;
  bool seeks;

  Transfer(Rng& rng, const View& view, bool isShort) : reads(draw(rng, 0, 1) == 0 || isShort) {
#if MPI_VERSION >= 4
    isLarge = draw(rng, 0, 2) == 0;
#endif
    do {
      call = static_cast<Call>(draw(rng, 0, kCalls - 1));
    } while (!isAllowed(view) || (isShort && !mayMeetTheEnd(reads, call)));
    type = types.derived(rng, view.element, 2);
    if (sizeOf(type) > view.longest) type = view.element;
    count = draw(rng, 0, view.longest / sizeOf(type));
    past = Buffer::drawPast(rng);
    offset = draw(rng, 0, kLastOffset);
    seeks = draw(rng, 0, 2) == 0;
  }

  int bytes() const { return sizeOf(type) * count; }
  // One rank alone has the common pointer, where nothing else puts ranks in an order.
  bool isOf(const Run& run) const { return !isShared(call) || run.rank == 0; }

  // Of as many elements of `memory` at an address.
  int run(const File& file, void* address, int elements, MPI_Datatype memory,
          MPI_Status* status) const {
#if MPI_VERSION >= 4
    if (isLarge) {
      return (reads ? readLargeBy : writeLargeBy)(call, file.get(), offset, address, elements,
                                                  memory, status);
    }
#endif
    return (reads ? readBy : writeBy)(call, file.get(), offset, address, elements, memory, status);
  }

 private:
  // Common pointers are for ranks that see the same; and such ranks write by nothing else, as they
  // would write the same bytes at the same time.
  bool isAllowed(const View& view) const {
    const bool isCommon = isShared(call) || isOrdered(call);
    return view.sight == Sight::kTheSame ? isCommon || reads : !isCommon;
  }
};

std::string pack(Run& run, const Transfer& transfer, const Buffer& buffer) {
  std::string packed(static_cast<std::size_t>(transfer.bytes()), 0);
  int position = 0;
  MPI_Pack(buffer.address(), transfer.count, transfer.type, packed.data(), transfer.bytes(),
           &position, run.comm);
  return packed;
}

int bytesOf(const MPI_Status& status) {
  MPI_Count bytes = 0;
  MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
  return static_cast<int>(bytes);
}

// What a file is too short for stays as it is.
int transferPacked(Run& run, const Transfer& transfer, const File& file, const Buffer& buffer,
                   MPI_Status* status) {
  std::string packed = pack(run, transfer, buffer);
  std::string wire = packed;
  const int code = transfer.run(file, wire.data(), transfer.bytes(), MPI_BYTE, status);
  if (code != MPI_SUCCESS || !transfer.reads) return code;
  packed.replace(0, static_cast<std::size_t>(bytesOf(*status)), wire, 0,
                 static_cast<std::size_t>(bytesOf(*status)));
  int position = 0;
  return MPI_Unpack(packed.data(), transfer.bytes(), &position, buffer.address(), transfer.count,
                    transfer.type, run.comm);
}

// (Common pointers are not compared: Open MPI 4.1 says now this and now that of one program, in
// plain memory, without gmac.)
void notePosition(Run& run, const File& file, const std::string& name) {
  MPI_Offset position = 0;
  MPI_Offset place = 0;
  MPI_File_get_position(file.get(), &position);
  MPI_File_get_byte_offset(file.get(), position, &place);
  run.note(name + ": at " + std::to_string(position) + ", " + std::to_string(place));
}

void noteFile(Run& run, const File& file) {
  MPI_Offset size = 0;
  MPI_File_get_size(file.get(), &size);
  std::string bytes(static_cast<std::size_t>(size), 0);
  MPI_File_set_view(file.get(), 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
  MPI_Status status = {};
  const int code = MPI_File_read_at(file.get(), 0, bytes.data(), static_cast<int>(bytes.size()),
                                    MPI_BYTE, &status);
  run.noteResult("the file", code);
  run.note("of " + std::to_string(size) +
           " bytes: " + std::to_string(std::hash<std::string_view>()(bytes)));
}

}  // namespace

void fileViews(Run& run) {
  std::string begins(static_cast<std::size_t>(draw(run.rng, 1, 30'000)), 0);
  for (char& byte : begins) byte = static_cast<char>(run.rng());
  const File file(run, begins);
  // Else there is all that anything may read. (MPICH 4.0 says of what a file is too short for that
  // it was read: also in plain memory, without gmac.)
  const bool isShort = draw(run.rng, 0, 2) == 0 && !kIsMpich4;
  if (!isShort) MPI_File_set_size(file.get(), kRegion * (run.size + 1));
  MPI_File_set_atomicity(file.get(), draw(run.rng, 0, 3) == 0 ? 1 : 0);
  for (int views = draw(run.rng, 1, 3); views > 0; --views) {
    const View view(run, run.rng);
    view.set(file);
    for (int transfers = draw(run.rng, 1, 4); transfers > 0; --transfers) {
      const Transfer transfer(run.rng, view, isShort);
      const bool isPlain = draw(run.rng, 0, 3) == run.rank;
      const std::string name = (transfer.reads ? "read " : "write ") +
                               std::to_string(transfer.call) + (transfer.isLarge ? "_c" : "") +
                               (isShort ? ", short file" : "") + ", sight " +
                               std::to_string(static_cast<int>(view.sight));
      if (transfer.seeks) {
        MPI_File_seek(file.get(), transfer.offset, MPI_SEEK_SET);
        if (view.sight == Sight::kTheSame) {
          MPI_File_seek_shared(file.get(), transfer.offset, MPI_SEEK_SET);
        }
      }
      if (transfer.isOf(run)) {
        const Memory::Kind kind =
            std::exchange(run.kind, isPlain ? Memory::Kind::kPlain : run.kind);
        const Buffer buffer(run, transfer.type, transfer.count, transfer.past);
        run.kind = kind;
        MPI_Status status = {};
        // (Of plain memory that is not in one piece, MPICH 4.0 and Open MPI 4.1 mix up bytes now
        // and then, without gmac, too.)
        const int code =
            run.isReference || isPlain
                ? transferPacked(run, transfer, file, buffer, &status)
                : transfer.run(file, buffer.address(), transfer.count, transfer.type, &status);
        run.noteResult(name.c_str(), code);
        run.note(name + ": bytes " + std::to_string(bytesOf(status)));
        buffer.flip();
        buffer.noteBytes(run, name.c_str());
      }
      file.turn(false);
      notePosition(run, file, name);
    }
  }
  noteFile(run, file);
}

}  // namespace gmac::testing
