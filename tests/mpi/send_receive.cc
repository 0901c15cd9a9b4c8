// SPDX-License-Identifier: Apache-2.0
//
// MPI_Isendrecv and MPI_Isendrecv_replace: how their requests end.
#include <mpi.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"

#if MPI_VERSION >= 4
namespace {

using gmac::testing::expect;
using gmac::testing::expectSuccess;
using gmac::testing::kMask;
using gmac::testing::Memory;

int rank = 0;

bool firstAre(const Memory& memory, std::size_t bytes, int value) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if (memory.data()[i] != value) return false;
  }
  return true;
}

// The bytes are current on the accelerator.
void fill(const Memory& memory, int value) {
  std::memset(memory.data(), value ^ kMask, memory.size());
  memory.flip();
}

constexpr int kBytes = 100'000;
constexpr int kFew = 100;

int countOf(const MPI_Status& status, MPI_Datatype type) {
  int count = -1;
  MPI_Get_count(&status, type, &count);
  return count;
}

bool isCancelled(const MPI_Status& status) {
  int cancelled = 0;
  MPI_Test_cancelled(&status, &cancelled);
  return cancelled != 0;
}

// The type may be freed, and the sent object changed, as soon as the call has returned.
void typesAreFreed() {
  const Memory sent(Memory::Kind::kShared, kBytes);
  const Memory received(Memory::Kind::kShared, kBytes);
  fill(sent, 10 + rank);
  fill(received, 1);
  MPI_Datatype column;
  MPI_Type_vector(kBytes / 10, 1, 10, MPI_BYTE, &column);
  MPI_Type_commit(&column);
  MPI_Request request;
  MPI_Isendrecv(sent.data(), 1, column, 1 - rank, 3, received.data(), 1, column, MPI_ANY_SOURCE,
                MPI_ANY_TAG, MPI_COMM_WORLD, &request);
  MPI_Type_free(&column);
  std::memset(sent.data(), 99, sent.size());
  sent.flip();
  int done = 0;
  MPI_Status status = {};
  while (done == 0) MPI_Request_get_status(request, &done, &status);
  expect(countOf(status, MPI_BYTE) == kBytes / 10, "MPI_Request_get_status counts");
  for (std::size_t i = 0; i < received.size(); ++i) {
    expect(received.data()[i] == (i % 10 == 0 ? 11 - rank : 1), "the column arrives");
  }
  received.flip();
  status = {};
  MPI_Wait(&request, &status);
  expect(status.MPI_SOURCE == 1 - rank && status.MPI_TAG == 3, "who has sent it");
  expect(countOf(status, MPI_BYTE) == kBytes / 10, "and how much");
  expect(received.data()[0] == ((11 - rank) ^ kMask), "what was delivered stays as it is");
}

void toItself() {
  const Memory object(Memory::Kind::kShared, 2 * std::size_t{kBytes});
  fill(object, 5);
  MPI_Request requests[2];
  MPI_Status statuses[2] = {};
  MPI_Isendrecv(object.data(), kBytes, MPI_BYTE, 0, 1, object.data() + kBytes, kBytes, MPI_BYTE, 0,
                1, MPI_COMM_SELF, &requests[0]);
  const Memory other(Memory::Kind::kShared, kBytes);
  fill(other, 6);
  MPI_Isendrecv_replace(other.data(), kBytes, MPI_BYTE, 0, 2, 0, 2, MPI_COMM_SELF, &requests[1]);
  MPI_Waitall(2, requests, statuses);
  expect(firstAre(object, object.size(), 5) && firstAre(other, kBytes, 6), "it sends to itself");
  expect(countOf(statuses[1], MPI_BYTE) == kBytes, "and says how much");
}

// The send or the receive is with MPI_PROC_NULL.
void withNobody() {
  const Memory object(Memory::Kind::kShared, kBytes);
  fill(object, 20 + rank);
  MPI_Request request;
  MPI_Status status = {};
  const int right = rank == 0 ? 1 : MPI_PROC_NULL;
  const int left = rank == 0 ? MPI_PROC_NULL : 0;
  MPI_Isendrecv_replace(object.data(), kBytes, MPI_BYTE, right, 4, left, 4, MPI_COMM_WORLD,
                        &request);
  MPI_Wait(&request, &status);
  expect(request == MPI_REQUEST_NULL, "the request is freed");
  expect(firstAre(object, kBytes, 20), "rank 0 receives nothing, rank 1 its message");
  expect(status.MPI_SOURCE == left, "from whom");
  expect(countOf(status, MPI_BYTE) == (rank == 0 ? 0 : kBytes), "how much");
  expect(status.MPI_TAG == (rank == 0 ? MPI_ANY_TAG : 4), "with which tag");
  // Nobody at all.
  MPI_Isendrecv(object.data(), kBytes, MPI_BYTE, MPI_PROC_NULL, 4, object.data(), kBytes, MPI_BYTE,
                MPI_PROC_NULL, 4, MPI_COMM_WORLD, &request);
  int index = -1;
  MPI_Waitany(1, &request, &index, &status);
  expect(index == 0 && status.MPI_SOURCE == MPI_PROC_NULL, "nothing from nobody");
}

int handled = 0;
int handledCode = MPI_SUCCESS;
void handle(MPI_Comm*, int* code, ...) {
  ++handled;
  handledCode = *code;
}

int classOf(int code) {
  int errorClass = MPI_SUCCESS;
  MPI_Error_class(code, &errorClass);
  return errorClass;
}

// The handler is called once, and what was sent arrives.
void truncated() {
  MPI_Comm comm;
  MPI_Errhandler handler;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_create_errhandler(&handle, &handler);
  MPI_Comm_set_errhandler(comm, handler);
  // (MPICH 4.0 calls this one's when it completes a request.)
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  const Memory sent(Memory::Kind::kShared, kBytes);
  const Memory received(Memory::Kind::kShared, kBytes);
  fill(sent, 30 + rank);
  fill(received, 2);
  for (const bool several : {false, true}) {
    const int room = rank == 0 ? kBytes / 2 : kBytes;
    MPI_Request request;
    MPI_Isendrecv(sent.data(), kBytes, MPI_BYTE, 1 - rank, 5, received.data(), room, MPI_BYTE,
                  1 - rank, 5, comm, &request);
    MPI_Status status = {};
    handled = 0;
    const int code = several ? MPI_Waitall(1, &request, &status) : MPI_Wait(&request, &status);
    if (rank == 0) {
      expect(handled == 1 && handledCode == code, "the handler is called once");
      expect(classOf(several ? status.MPI_ERROR : code) == MPI_ERR_TRUNCATE, "it is too long");
      expect(!several || code == MPI_ERR_IN_STATUS, "the status says so");
    } else {
      expectSuccess(code, "the other side has it all");
      expect(firstAre(received, kBytes, 30), "the other side has it all");
    }
    expect(request == MPI_REQUEST_NULL, "the request is freed");
  }
  // Nothing begins when an argument is wrong, whichever side it is of.
  MPI_Request request = MPI_REQUEST_NULL;
  handled = 0;
  int code = MPI_Isendrecv(sent.data(), kFew, MPI_BYTE, 1 - rank, -7, received.data(), kFew,
                           MPI_BYTE, 1 - rank, 6, comm, &request);
  expect(classOf(code) == MPI_ERR_TAG && handled == 1, "a wrong tag is refused");
  code = MPI_Isendrecv(sent.data(), kFew, MPI_BYTE, 1 - rank, 6, received.data(), kFew, MPI_BYTE, 2,
                       6, comm, &request);
  expect(classOf(code) == MPI_ERR_RANK && handled == 2, "a wrong rank is refused");
  code = MPI_Isendrecv(sent.data(), kFew, MPI_BYTE, 1 - rank, 6, received.data(), -1, MPI_BYTE,
                       MPI_PROC_NULL, 6, comm, &request);
  expect(classOf(code) == MPI_ERR_COUNT && handled == 3, "a wrong count is refused");
  MPI_Barrier(comm);
  int waiting = 1;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &waiting, MPI_STATUS_IGNORE);
  expect(waiting == 0, "nothing was sent");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Errhandler_free(&handler);
  MPI_Comm_free(&comm);
}

// The receive is cancelled; what is sent arrives.
void cancelled() {
  const Memory object(Memory::Kind::kShared, kFew);
  const Memory other(Memory::Kind::kShared, kFew);
  fill(object, 40 + rank);
  fill(other, 3);
  MPI_Request request;
  MPI_Status status = {};
  MPI_Isendrecv(object.data(), kFew, MPI_BYTE, 1 - rank, 7, other.data(), kFew, MPI_BYTE, 1 - rank,
                8, MPI_COMM_WORLD, &request);
  MPI_Cancel(&request);
  MPI_Wait(&request, &status);
  expect(isCancelled(status), "the receive is cancelled");
  expect(firstAre(other, kFew, 3), "a cancelled receive writes nothing");
  MPI_Recv(other.data(), kFew, MPI_BYTE, 1 - rank, 7, MPI_COMM_WORLD, &status);
  expect(firstAre(other, kFew, 41 - rank), "what was sent arrives");
}

// Freed at once, and delivered all the same.
void freed() {
  const Memory object(Memory::Kind::kShared, kBytes);
  fill(object, 50 + rank);
  MPI_Request request;
  MPI_Isendrecv_replace(object.data(), kBytes, MPI_BYTE, 1 - rank, 9, 1 - rank, 9, MPI_COMM_WORLD,
                        &request);
  MPI_Request_free(&request);
  expect(request == MPI_REQUEST_NULL, "a freed request is MPI_REQUEST_NULL");
  // Looked after by later calls that take objects.
  const Memory other(Memory::Kind::kShared, kFew);
  while (!firstAre(object, kBytes, 51 - rank)) {
    MPI_Isendrecv_replace(other.data(), kFew, MPI_BYTE, rank, 10, rank, 10, MPI_COMM_WORLD,
                          &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

// The request is not complete before what is sent of plain memory may be written again.
void sentLate() {
  constexpr int kLong = 4'000'000;
  const Memory few(Memory::Kind::kShared, kFew);
  const Memory plain(Memory::Kind::kPlain, kLong);
  std::memset(plain.data(), rank == 0 ? 70 : 0, plain.size());
  if (rank == 0) {
    MPI_Request request;
    MPI_Isendrecv(plain.data(), kLong, MPI_BYTE, 1, 13, few.data(), kFew, MPI_BYTE, 1, 13,
                  MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    std::memset(plain.data(), 1, plain.size());
  } else {
    MPI_Send(few.data(), kFew, MPI_BYTE, 0, 13, MPI_COMM_WORLD);
    usleep(200'000);
    MPI_Recv(plain.data(), kLong, MPI_BYTE, 0, 13, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(firstAre(plain, kLong, 70), "what was sent arrives as it was");
  }
}

// One that is complete does not wait for another request of the same call.
void others() {
  const Memory object(Memory::Kind::kShared, kBytes);
  const Memory other(Memory::Kind::kShared, kBytes);
  fill(object, 60 + rank);
  MPI_Request requests[2];
  MPI_Irecv(other.data(), kBytes, MPI_BYTE, 1 - rank, 12, MPI_COMM_WORLD, &requests[0]);
  MPI_Isendrecv_replace(object.data(), kBytes, MPI_BYTE, 1 - rank, 11, 1 - rank, 11, MPI_COMM_WORLD,
                        &requests[1]);
  int index = -1;
  MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
  expect(index == 1, "the one that is complete");
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Send(object.data(), kBytes, MPI_BYTE, 1 - rank, 12, MPI_COMM_WORLD);
  MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
  expect(index == 0 && firstAre(other, kBytes, 60 + rank), "and then the other");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  typesAreFreed();
  toItself();
  withNobody();
  truncated();
  cancelled();
  freed();
  sentLate();
  others();
  MPI_Finalize();
  if (rank == 0) std::puts("sends and receives are right");
}
#else
int main() { std::puts("an MPI of version 3"); }
#endif
