// SPDX-License-Identifier: Apache-2.0
//
// Requests that are not simply waited for, and calls that take no shared object.
#include <mpi.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/mpi/expect.h"
#include "tests/mpi/persistent_collectives.h"
#include "tests/mpi/shared.h"
#include "tests/mpi/temporary_file.h"

namespace {

using gmac::testing::expect;
using gmac::testing::Memory;

int rank = 0;

bool allBytesAre(const Memory& memory, int value) {
  for (const unsigned char byte : memory.bytes()) {
    if (byte != value) return false;
  }
  return true;
}

constexpr int kBytes = 100'000;

// Freed at once, and delivered all the same. The object may be changed meanwhile: it was packed.
void freedRequest() {
  const Memory object(Memory::Kind::kShared, kBytes);
  std::memset(object.data(), 7, kBytes);
  object.flip();
  if (rank == 0) {
    MPI_Request request;
    MPI_Isend(object.data(), kBytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    expect(request == MPI_REQUEST_NULL, "a freed request is MPI_REQUEST_NULL");
    std::memset(object.data(), 9, kBytes);
    MPI_Barrier(MPI_COMM_WORLD);
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Recv(object.data(), kBytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(allBytesAre(object, 7 ^ gmac::testing::kMask), "the freed request's payload arrives");
  }
}

void cancelledReceive() {
  const Memory object(Memory::Kind::kShared, kBytes);
  std::memset(object.data(), 5, kBytes);
  object.flip();
  MPI_Request request;
  MPI_Status status = {};
  int cancelled = 0;
  MPI_Irecv(object.data(), kBytes, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD, &request);
  MPI_Cancel(&request);
  MPI_Wait(&request, &status);
  MPI_Test_cancelled(&status, &cancelled);
  expect(cancelled != 0, "the receive is cancelled");
  expect(allBytesAre(object, 5 ^ gmac::testing::kMask), "a cancelled receive writes nothing");
}

// Freed between its start and its end: MPI does both, and the object may be gone.
void freedPersistentRequests() {
  MPI_Request request;
  if (rank == 0) {
    const Memory object(Memory::Kind::kShared, kBytes);
    std::memset(object.data(), 7, kBytes);
    MPI_Send_init(object.data(), kBytes, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request);
    object.flip();
    MPI_Start(&request);
    MPI_Request_free(&request);
    expect(request == MPI_REQUEST_NULL, "a freed request is MPI_REQUEST_NULL");
    std::memset(object.data(), 9, kBytes);
  }
  const Memory object(Memory::Kind::kShared, kBytes);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) {
    std::memset(object.data(), 1, kBytes);
    object.flip();
    MPI_Recv_init(object.data(), kBytes, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &request);
    MPI_Status status = {};
    int cancelled = 1;
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    expect(cancelled == 0, "an inactive request is complete, and not cancelled");
    expect(allBytesAre(object, 1 ^ gmac::testing::kMask), "and receives nothing");
    object.flip();
    MPI_Start(&request);
    MPI_Wait(&request, &status);
    expect(allBytesAre(object, 7 ^ gmac::testing::kMask), "the freed request's payload arrives");
    // Nobody sends a second one.
    MPI_Start(&request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    expect(cancelled != 0, "the receive is cancelled");
    object.flip();
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    expect(done != 0 && allBytesAre(object, 7), "a completed receive is not unpacked again");
    MPI_Request_free(&request);
    expect(request == MPI_REQUEST_NULL, "an inactive request is freed");
  }
}

// Once delivered, the object is the application's again.
void persistentCollective() {
  const Memory object(Memory::Kind::kShared, kBytes);
  MPI_Request request;
  std::memset(object.data(), rank, kBytes);
  GMAC_PERSISTENT(Bcast)
  (object.data(), kBytes, MPI_BYTE, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  for (int i = 2; i < 5; ++i) {
    if (rank == 1) std::memset(object.data(), i, kBytes);
    object.flip();
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(allBytesAre(object, i ^ gmac::testing::kMask), "the root's bytes arrive each time");
    std::memset(object.data(), 9, kBytes);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(allBytesAre(object, 9), "waiting for an inactive request delivers nothing");
  }
  MPI_Request_free(&request);
}

// Pairs have gaps, which stay as they are.
void pairs() {
  constexpr int kPairs = 1000;
  struct Pair {
    double value;
    int place;
    int gap;
  };
  const Memory object(Memory::Kind::kShared, kPairs * sizeof(Pair));
  auto* const all = reinterpret_cast<Pair*>(object.data());
  for (int i = 0; i < kPairs; ++i) all[i] = {i % 2 == rank ? 5.0 : 3.0, rank, 77};
  MPI_Request request;
  MPI_Iallreduce(MPI_IN_PLACE, all, kPairs, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (int i = 0; i < kPairs; ++i) {
    expect(all[i].value == 5.0 && all[i].place == i % 2 && all[i].gap == 77, "the place of 5");
  }
}

// The flag of MPI_Request_get_status means that the bytes are there; the request stays.
void askedRequest() {
  const Memory object(Memory::Kind::kShared, kBytes);
  std::memset(object.data(), rank, kBytes);
  object.flip();
  if (rank == 0) {
    MPI_Send(object.data(), kBytes, MPI_BYTE, 1, 3, MPI_COMM_WORLD);
    return;
  }
  MPI_Request request;
  MPI_Status status = {};
  int done = 0;
  MPI_Irecv(object.data(), kBytes, MPI_BYTE, 0, 3, MPI_COMM_WORLD, &request);
  while (done == 0) MPI_Request_get_status(request, &done, &status);
  expect(allBytesAre(object, gmac::testing::kMask), "the flag means that the bytes are there");
  object.flip();
  MPI_Wait(&request, &status);
  expect(allBytesAre(object, 0), "a later wait delivers nothing a second time");
}

// Types that only MPI can pack are forgotten when they are freed. (MPICH 4.0 cuts buffered messages
// short while some 500 types live.)
void manyTypes() {
  constexpr int kElements = 45;
  const Memory object(Memory::Kind::kShared, kElements);
  for (int i = 0; i < 800; ++i) {
    int size = kElements;
    int distribution = MPI_DISTRIBUTE_BLOCK;
    int argument = MPI_DISTRIBUTE_DFLT_DARG;
    int grid = 1;
    MPI_Datatype type;
    MPI_Type_create_darray(1, 0, 1, &size, &distribution, &argument, &grid, MPI_ORDER_C, MPI_BYTE,
                           &type);
    MPI_Type_commit(&type);
    std::memset(object.data(), rank == 0 ? i : 0, kElements);
    if (rank == 0) {
      std::array<char, 1000 + MPI_BSEND_OVERHEAD> attached{};
      void* detached = nullptr;
      int bytes = 0;
      MPI_Buffer_attach(attached.data(), static_cast<int>(attached.size()));
      MPI_Bsend(object.data(), 1, type, 1, 4, MPI_COMM_WORLD);
      MPI_Buffer_detach(&detached, &bytes);
    } else {
      MPI_Status status = {};
      int count = 0;
      MPI_Recv(object.data(), 1, type, 0, 4, MPI_COMM_WORLD, &status);
      MPI_Get_count(&status, MPI_BYTE, &count);
      expect(count == kElements && allBytesAre(object, i % 256), "every message is whole");
    }
    MPI_Type_free(&type);
  }
}

// Rows of a matrix: each rank's own to the file, and from there by every collective way.
void collectiveReads() {
  constexpr int kRows = 500;
  constexpr int kRow = 30;
  const std::string name = gmac::testing::temporaryFileOf(MPI_COMM_WORLD);
  MPI_File file;
  MPI_Datatype rows;
  MPI_Type_vector(kRows, kRow, 2 * kRow, MPI_BYTE, &rows);
  MPI_Type_commit(&rows);
  const Memory sent(Memory::Kind::kShared, std::size_t{2} * kRows * kRow);
  for (std::size_t i = 0; i < sent.size(); ++i) sent.data()[i] = static_cast<unsigned char>(i * 3);
  sent.flip();
  MPI_File_open(MPI_COMM_WORLD, name.c_str(), MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                MPI_INFO_NULL, &file);
  const MPI_Offset own = MPI_Offset{rank} * kRows * kRow;
  MPI_Status status = {};
  MPI_File_write_at_all(file, own, sent.address(), 1, rows, &status);
  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int way = 0; way < 6; ++way) {
    const Memory received(Memory::Kind::kShared, sent.size());
    std::memset(received.data(), 9, received.size());
    received.flip();
    MPI_Request request = MPI_REQUEST_NULL;
    void* const to = received.address();
    MPI_File_seek(file, own, MPI_SEEK_SET);
    switch (way) {
      case 0:
        MPI_File_read_all(file, to, 1, rows, &status);
        break;
      case 1:
        MPI_File_read_at_all(file, own, to, 1, rows, &status);
        break;
      case 2:
        MPI_File_read_all_begin(file, to, 1, rows);
        MPI_File_read_all_end(file, to, &status);
        break;
      case 3:
        MPI_File_read_at_all_begin(file, own, to, 1, rows);
        MPI_File_read_at_all_end(file, to, &status);
        break;
      case 4:
        MPI_File_iread_all(file, to, 1, rows, &request);
        break;
      default:
        MPI_File_iread_at_all(file, own, to, 1, rows, &request);
    }
    if (way > 3) MPI_Wait(&request, &status);
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    expect(bytes == kRows * kRow, "the status counts what was read");
    bool right = true;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const bool inRow = i / kRow % 2 == 0;
      right = right && received.data()[i] == (inRow ? sent.data()[i] : 9 ^ gmac::testing::kMask);
    }
    expect(right, "rows come back from the file, and gaps stay");
  }
  // Of a file that is too short, what there is.
  const Memory past(Memory::Kind::kShared, kBytes);
  std::memset(past.data(), 9, kBytes);
  past.flip();
  MPI_Offset end = 0;
  MPI_File_get_size(file, &end);
  MPI_File_read_at(file, end - 100, past.address(), kBytes, MPI_BYTE, &status);
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  expect(bytes == 100, "a read ends where the file does");
  expect(past.data()[99] != (9 ^ gmac::testing::kMask) || past.data()[98] != past.data()[99],
         "the last bytes are there");
  expect(past.data()[100] == (9 ^ gmac::testing::kMask), "and nothing after them is changed");
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Type_free(&rows);
  MPI_File_close(&file);
}

// Reads past the end of a file. MPIs say of some that they have read all; what plain memory keeps
// then, an object keeps, too, and gets nothing there that other transfers have left in private
// memory. (Elsewhere MPICH 4.0 writes what its own buffer has.)
void shortReads() {
  constexpr int kInFile = 1000;
  constexpr unsigned char kKept = 0x55;
  constexpr unsigned char kAlsoKept = 0xaa;  // what MPICH writes may happen to be the other one
  constexpr unsigned char kOther = 0x5e;
  const std::string name = gmac::testing::temporaryFileOf(MPI_COMM_WORLD, std::string(kInFile, 7));
  const std::string others = gmac::testing::temporaryFile();
  MPI_File file;
  MPI_File other;
  MPI_File_open(MPI_COMM_WORLD, name.c_str(), MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                MPI_INFO_NULL, &file);
  MPI_File_open(MPI_COMM_SELF, others.c_str(), MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                MPI_INFO_NULL, &other);
  MPI_Datatype pieces;
  MPI_Type_vector(100, 10, 20, MPI_BYTE, &pieces);
  MPI_Type_commit(&pieces);
  const auto read = [&](int way, void* to) {
    switch (way) {
      case 0:
        return MPI_File_read_all(file, to, kBytes, MPI_BYTE, MPI_STATUS_IGNORE);
      case 1:
        return MPI_File_read_at_all(file, 100, to, kBytes, MPI_BYTE, MPI_STATUS_IGNORE);
      case 2:
        (void)MPI_File_read_all_begin(file, to, kBytes, MPI_BYTE);
        return MPI_File_read_all_end(file, to, MPI_STATUS_IGNORE);
      case 3:
        (void)MPI_File_read_at_all_begin(file, 100, to, kBytes, MPI_BYTE);
        return MPI_File_read_at_all_end(file, to, MPI_STATUS_IGNORE);
      case 4:
        return MPI_File_read(file, to, kBytes, MPI_BYTE, MPI_STATUS_IGNORE);
      case 5:
        return MPI_File_read_at(file, 100, to, kBytes, MPI_BYTE, MPI_STATUS_IGNORE);
      default:
        return MPI_File_read_ordered(file, to, kBytes, MPI_BYTE, MPI_STATUS_IGNORE);
    }
  };
  for (const MPI_Datatype part : {MPI_BYTE, pieces}) {
    for (int way = 0; way < 7; ++way) {
#ifdef OPEN_MPI
      if (way == 2 || way == 3) continue;  // 4.1 waits for ever for what a file has not got
#endif
      std::vector<unsigned char> plain(kBytes, kKept);
      std::vector<unsigned char> again(kBytes, kAlsoKept);
      const Memory received(Memory::Kind::kShared, kBytes);
      const Memory written(Memory::Kind::kShared, kBytes);
      std::memset(received.data(), kKept ^ gmac::testing::kMask, kBytes);
      std::memset(written.data(), kOther, kBytes);
      for (void* const to : {static_cast<void*>(plain.data()), static_cast<void*>(again.data()),
                             static_cast<void*>(received.address())}) {
        MPI_File_set_view(file, 0, MPI_BYTE, part, "native", MPI_INFO_NULL);
        if (to == received.address()) {
          received.flip();
          MPI_File_write_at(other, 0, written.address(), kBytes, MPI_BYTE, MPI_STATUS_IGNORE);
        }
        expect(read(way, to) == MPI_SUCCESS, "a short read is no error");
      }
      for (std::size_t i = 0; i < kBytes; ++i) {
        const bool kept = plain[i] == kKept && again[i] == kAlsoKept;
        expect(!kept || received.data()[i] == kKept, "what a file has not got stays");
      }
    }
  }
  MPI_Type_free(&pieces);
  MPI_File_close(&other);
  MPI_File_close(&file);
}

// With a file whose integers are of another order, where the MPI has such files.
void convertedFile() {
  constexpr int kElements = 1000;
  const std::string name = gmac::testing::temporaryFile();
  MPI_File file;
  MPI_Datatype column;
  MPI_Type_vector(kElements, 1, 2, MPI_INT, &column);
  MPI_Type_commit(&column);
  MPI_File_open(MPI_COMM_SELF, name.c_str(), MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                MPI_INFO_NULL, &file);
  const Memory sent(Memory::Kind::kShared, sizeof(int) * 2 * kElements);
  auto* const values = reinterpret_cast<std::uint32_t*>(sent.data());
  for (std::uint32_t i = 0; i < 2 * kElements; ++i) values[i] = 0x01020300 + i;
  if (MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL) == MPI_SUCCESS) {
    const Memory received(Memory::Kind::kShared, sent.size());
    std::memset(received.data(), 9, received.size());
    received.flip();
    sent.flip();
    MPI_File_write_at(file, 0, sent.address(), 1, column, MPI_STATUS_IGNORE);
    MPI_File_read_at(file, 0, received.address(), 1, column, MPI_STATUS_IGNORE);
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    std::array<std::uint32_t, kElements> raw{};
    MPI_File_read_at(file, 0, raw.data(), kElements, MPI_INT, MPI_STATUS_IGNORE);
    const auto* const got = reinterpret_cast<const std::uint32_t*>(received.data());
    constexpr std::uint32_t kUntouched = 0x01010101 * (9 ^ gmac::testing::kMask);
    for (std::size_t i = 0; i < kElements; ++i) {
      expect(raw[i] == __builtin_bswap32(values[2 * i]), "the file has the other order");
      expect(got[2 * i] == values[2 * i] && got[2 * i + 1] == kUntouched, "memory has its own");
    }
  }
  MPI_Type_free(&column);
  MPI_File_close(&file);
}

// A call that is not served says so by its name, and leaves the object alone.
template <typename Call>
void refused(const char* name, Call call) {
  const Memory object(Memory::Kind::kShared, kBytes);
  const Memory plain(Memory::Kind::kPlain, kBytes);
  std::memset(object.data(), 3, kBytes);
  object.flip();
  const int code = call(object.data(), plain.data());
  expect(gmac::testing::says(code, name), name);
  expect(allBytesAre(object, 3 ^ gmac::testing::kMask), "and the object is as it was");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  freedRequest();
  cancelledReceive();
  freedPersistentRequests();
  persistentCollective();
  pairs();
  askedRequest();
  manyTypes();
  collectiveReads();
  shortReads();
  convertedFile();
  refused("MPI_Win_attach", [](void* object, void*) {
    MPI_Win window;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    // An object in the middle of plain memory is one, too.
    const int code = MPI_Win_attach(window, static_cast<char*>(object) - 1, kBytes);
    MPI_Win_free(&window);
    return code;
  });
  MPI_Finalize();
  if (rank == 0) std::puts("requests are right");
}
