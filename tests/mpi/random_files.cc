// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "tests/mpi/file_calls.h"
#include "tests/mpi/random_run.h"

namespace gmac::testing {
namespace {

constexpr int kLongestBytes = 50'000;
// Of one rank, in a file without a view.
constexpr MPI_Offset kRegion = 1 << 20;

// Which calls find what which calls have written.
enum class Pointer { kOwn, kOrdered, kShared };
Pointer pointerOf(Call call) {
  switch (call) {
    case kOrdered:
    case kBeginOrdered:
      return Pointer::kOrdered;
    case kShared:
    case kNonblockingShared:
      return Pointer::kShared;
    default:
      return Pointer::kOwn;
  }
}

// (In memory of any kind, collective reads of MPICH 4.0 end the process now and then.)
Call independent(Call call) {
  switch (call) {
    case kAll:
    case kBeginAll:
    case kNonblockingAll:
      return kSingle;
    case kAtAll:
    case kBeginAtAll:
    case kNonblockingAtAll:
      return kAt;
    default:
      return call;
  }
}

// A transfer of random form. What it does in plain memory is not MPI's to say (its own has many
// faults: bytes of gaps, reads that never end), but what packing and unpacking say.
struct Transfer {
  Call writes;
  Call reads;
  bool striped;  // each rank sees its part of each stripe of the file
  Types types;
  MPI_Datatype written;
  MPI_Datatype read;
  int count;
  int readCount;
  int past;

  explicit Transfer(Rng& rng) {
    writes = static_cast<Call>(draw(rng, 0, kCalls - 1));
    striped = draw(rng, 0, 2) == 0;
    while (striped && pointerOf(writes) != Pointer::kOwn) {
      writes = static_cast<Call>(draw(rng, 0, kCalls - 1));
    }
    do {
      reads = static_cast<Call>(draw(rng, 0, kCalls - 1));
    } while (pointerOf(reads) != pointerOf(writes));
    if (kIsMpich4) reads = independent(reads);
    const MPI_Datatype base = types.base(rng);
    written = types.derived(rng, base, 2);
    read = draw(rng, 0, 1) == 0 ? written : types.derived(rng, base, 2);
    count = std::min(drawCount(rng, written), kLongestBytes / std::max(1, sizeOf(written)));
    readCount = sizeOf(written) * count / std::max(1, sizeOf(read));
    past = Buffer::drawPast(rng);
  }

  int bytes() const { return sizeOf(written) * count; }
  int readBytes() const { return sizeOf(read) * readCount; }
  Pointer pointer() const { return pointerOf(writes); }
  // Of whom a rank reads.
  int sourceOf(const Run& run) const { return striped ? run.rank : (run.rank + 1) % run.size; }
  bool takesPart(const Run& run) const { return pointer() != Pointer::kShared || run.rank == 0; }
};

// The bytes that a rank writes.
std::string payloadOf(Run& run, const Transfer& transfer, int rank) {
  const int own = std::exchange(run.rank, rank);
  const Buffer buffer(run, transfer.written, transfer.count, transfer.past);
  run.rank = own;
  std::string payload(static_cast<std::size_t>(transfer.bytes()), 0);
  int position = 0;
  MPI_Pack(buffer.address(), transfer.count, transfer.written, payload.data(), transfer.bytes(),
           &position, run.comm);
  return payload;
}

// The rank reads into private memory.
int readModel(Run& run, const Transfer& transfer, const Buffer& buffer) {
  std::string file;
  int at = 0;
  switch (transfer.pointer()) {
    case Pointer::kOwn:
      file = payloadOf(run, transfer, transfer.sourceOf(run));
      break;
    case Pointer::kOrdered:
      for (int i = 0; i < run.size; ++i) file += payloadOf(run, transfer, i);
      at = run.rank * transfer.readBytes();
      break;
    case Pointer::kShared:
      file = payloadOf(run, transfer, 0);
  }
  return MPI_Unpack(file.data(), static_cast<int>(file.size()), &at, buffer.address(),
                    transfer.readCount, transfer.read, run.comm);
}

void stripe(const File& file, const Run& run) {
  constexpr int kPart = 64;
  MPI_Datatype part;
  MPI_Datatype view;
  MPI_Type_contiguous(kPart, MPI_BYTE, &part);
  MPI_Type_create_resized(part, 0, MPI_Aint{kPart} * run.size, &view);
  MPI_Type_commit(&view);
  if (MPI_File_set_view(file.get(), MPI_Offset{kPart} * run.rank, MPI_BYTE, view, "native",
                        MPI_INFO_NULL) != MPI_SUCCESS) {
    fail("MPI_File_set_view");
  }
  MPI_Type_free(&view);
  MPI_Type_free(&part);
}

}  // namespace

// Something is written by each rank, and read by another one as another type.
void fileTransfer(Run& run) {
  const Transfer transfer(run.rng);
  const int readPast = Buffer::drawPast(run.rng);
  const bool flips = draw(run.rng, 0, 1) == 0;
  const std::string name = "file calls " + std::to_string(transfer.writes) + ", " +
                           std::to_string(transfer.reads) + (transfer.striped ? ", striped" : "");
  const auto noteEnd = [&](const char* call, int code, MPI_Count bytes) {
    run.noteResult((name + call).c_str(), code);
    run.note("bytes " + std::to_string(static_cast<long long>(bytes)));
  };
  const auto noteStatus = [&](const char* call, int code, const MPI_Status& status) {
    MPI_Count bytes = 0;
    MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
    noteEnd(call, code, bytes);
  };
  const Buffer sent(run, transfer.written, transfer.count, transfer.past);
  const Buffer received(run, transfer.read, transfer.readCount, readPast);
  if (!transfer.takesPart(run)) {
    if (run.kind != Memory::Kind::kPlain) {
      const File file(run);
      file.turn(true);
    }
    return;
  }
  if (run.kind == Memory::Kind::kPlain) {
    noteEnd(": write", MPI_SUCCESS, transfer.bytes());
    noteEnd(": read", readModel(run, transfer, received), transfer.readBytes());
  } else {
    const File file(run);
    if (transfer.striped) stripe(file, run);
    const auto offsetOf = [&](int rank) {
      return transfer.striped ? MPI_Offset{0} : rank * kRegion;
    };
    MPI_Status status = {};
    MPI_File_seek(file.get(), offsetOf(run.rank), MPI_SEEK_SET);
    int code = writeBy(transfer.writes, file.get(), offsetOf(run.rank), sent.address(),
                       transfer.count, transfer.written, &status);
    noteStatus(": write", code, status);
    file.turn(transfer.pointer() != Pointer::kOwn);
    const MPI_Offset from = offsetOf(transfer.sourceOf(run));
    MPI_File_seek(file.get(), from, MPI_SEEK_SET);
    status = {};
    code = readBy(transfer.reads, file.get(), from, received.address(), transfer.readCount,
                  transfer.read, &status);
    noteStatus(": read", code, status);
  }
  if (flips) sent.flip();
  sent.noteBytes(run, "written");
  if (flips) received.flip();
  received.noteBytes(run, "read");
}

}  // namespace gmac::testing
