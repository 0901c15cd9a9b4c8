// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <array>
#include <utility>

#include "tests/mpi/random_run.h"

namespace gmac::testing {
namespace {

constexpr int kLongestBytes = 50'000;
// Of one rank, in a file without a view.
constexpr MPI_Offset kRegion = 1 << 20;

#ifdef MPICH
constexpr bool kIsMpich4 = true;
#else
constexpr bool kIsMpich4 = false;
#endif

class File {
 public:
  explicit File(Run& run) : run_(run) {
    std::array<char, 64> name = {"/tmp/gmac_mpi_file_XXXXXX"};
    if (run.rank == 0) {
      const int made = mkstemp(name.data());
      if (made < 0) fail("mkstemp");
      close(made);
    }
    MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, run.comm);
    if (MPI_File_open(run.comm, name.data(),
                      MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                      &file_) != MPI_SUCCESS) {
      fail("MPI_File_open");
    }
  }
  ~File() { MPI_File_close(&file_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  MPI_File get() const { return file_; }

  // Lets all read what all have written; by the common pointer, from the beginning.
  void turn(bool rewinds) const {
    MPI_File_sync(file_);
    MPI_Barrier(run_.comm);
    MPI_File_sync(file_);
    if (rewinds) MPI_File_seek_shared(file_, 0, MPI_SEEK_SET);
  }

 private:
  Run& run_;
  MPI_File file_ = MPI_FILE_NULL;
};

enum Call : int {
  kSingle,
  kAt,
  kAll,
  kAtAll,
  kOrdered,
  kShared,  // by rank 0 alone
  kBeginAll,
  kBeginAtAll,
  kBeginOrdered,
  kNonblocking,
  kNonblockingAt,
  kNonblockingAll,
  kNonblockingAtAll,
  kNonblockingShared,
  kCalls
};

// One call and what completes it. `direction` is read or write.
#define GMAC_FILE_CALL(direction)                                                              \
  int direction##By(Call call, MPI_File file, MPI_Offset offset, void* buffer, int count,      \
                    MPI_Datatype type, MPI_Status* status) {                                   \
    MPI_Request request = MPI_REQUEST_NULL;                                                    \
    int code = MPI_SUCCESS;                                                                    \
    const auto then = [&](int (*end)(MPI_File, decltype(buffer), MPI_Status*)) {               \
      return code != MPI_SUCCESS ? code : end(file, buffer, status);                           \
    };                                                                                         \
    const auto wait = [&] { return code != MPI_SUCCESS ? code : MPI_Wait(&request, status); }; \
    switch (call) {                                                                            \
      case kSingle:                                                                            \
        return MPI_File_##direction(file, buffer, count, type, status);                        \
      case kAt:                                                                                \
        return MPI_File_##direction##_at(file, offset, buffer, count, type, status);           \
      case kAll:                                                                               \
        return MPI_File_##direction##_all(file, buffer, count, type, status);                  \
      case kAtAll:                                                                             \
        return MPI_File_##direction##_at_all(file, offset, buffer, count, type, status);       \
      case kOrdered:                                                                           \
        return MPI_File_##direction##_ordered(file, buffer, count, type, status);              \
      case kShared:                                                                            \
        return MPI_File_##direction##_shared(file, buffer, count, type, status);               \
      case kBeginAll:                                                                          \
        code = MPI_File_##direction##_all_begin(file, buffer, count, type);                    \
        return then([](MPI_File f, void* b, MPI_Status* s) {                                   \
          return MPI_File_##direction##_all_end(f, b, s);                                      \
        });                                                                                    \
      case kBeginAtAll:                                                                        \
        code = MPI_File_##direction##_at_all_begin(file, offset, buffer, count, type);         \
        return then([](MPI_File f, void* b, MPI_Status* s) {                                   \
          return MPI_File_##direction##_at_all_end(f, b, s);                                   \
        });                                                                                    \
      case kBeginOrdered:                                                                      \
        code = MPI_File_##direction##_ordered_begin(file, buffer, count, type);                \
        return then([](MPI_File f, void* b, MPI_Status* s) {                                   \
          return MPI_File_##direction##_ordered_end(f, b, s);                                  \
        });                                                                                    \
      case kNonblocking:                                                                       \
        code = MPI_File_i##direction(file, buffer, count, type, &request);                     \
        return wait();                                                                         \
      case kNonblockingAt:                                                                     \
        code = MPI_File_i##direction##_at(file, offset, buffer, count, type, &request);        \
        return wait();                                                                         \
      case kNonblockingAll:                                                                    \
        code = MPI_File_i##direction##_all(file, buffer, count, type, &request);               \
        return wait();                                                                         \
      case kNonblockingAtAll:                                                                  \
        code = MPI_File_i##direction##_at_all(file, offset, buffer, count, type, &request);    \
        return wait();                                                                         \
      default:                                                                                 \
        code = MPI_File_i##direction##_shared(file, buffer, count, type, &request);            \
        return wait();                                                                         \
    }                                                                                          \
  }
GMAC_FILE_CALL(read)
GMAC_FILE_CALL(write)
#undef GMAC_FILE_CALL

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
