// SPDX-License-Identifier: Apache-2.0
//
// Programs that use MPI by sessions: without MPI_Init, and before and after it. Their objects are
// sent as ever. Of MPI 4; what other libraries run does nothing.
#include <mpi.h>

#include <cstdio>
#include <cstring>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"

#if MPI_VERSION >= 4
namespace {

using gmac::testing::expect;
using gmac::testing::expectSuccess;
using gmac::testing::Memory;

constexpr int kSide = 100;
constexpr int kBytes = kSide * kSide * static_cast<int>(sizeof(int));

class Session {
 public:
  Session() {
    MPI_Group group;
    expectSuccess(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session_),
                  "MPI_Session_init");
    MPI_Group_from_session_pset(session_, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "tests", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm_);
    MPI_Group_free(&group);
  }
  ~Session() {
    MPI_Comm_free(&comm_);
    expectSuccess(MPI_Session_finalize(&session_), "MPI_Session_finalize");
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  MPI_Comm comm() const { return comm_; }

 private:
  MPI_Session session_ = MPI_SESSION_NULL;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

// Every second column of a matrix of ints: distributed types are packed by MPI alone.
MPI_Datatype makeColumns() {
  int sizes[] = {kSide, kSide};
  int ways[] = {MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_CYCLIC};
  int arguments[] = {MPI_DISTRIBUTE_DFLT_DARG, 1};
  int grid[] = {1, 2};
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_darray(2, 0, 2, sizes, ways, arguments, grid, MPI_ORDER_C, MPI_INT, &type);
  MPI_Type_commit(&type);
  return type;
}

// From each rank to the next.
void exchange(MPI_Comm comm, int value) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const int next = (rank + 1) % size;
  const int last = (rank + size - 1) % size;
  const Memory sent(Memory::Kind::kShared, kBytes);
  const Memory received(Memory::Kind::kShared, kBytes);
  MPI_Datatype columns = makeColumns();
  for (const MPI_Datatype type : {MPI_BYTE, columns}) {
    const int count = type == MPI_BYTE ? kBytes : 1;
    std::memset(sent.data(), (value + rank) ^ gmac::testing::kMask, kBytes);
    std::memset(received.data(), 99 ^ gmac::testing::kMask, kBytes);
    sent.flip();
    received.flip();
    MPI_Request requests[2];
    MPI_Irecv(received.data(), count, type, last, 1, comm, &requests[0]);
    MPI_Isend(sent.data(), count, type, next, 1, comm, &requests[1]);
    expectSuccess(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), "an exchange");
    for (int i = 0; i < kBytes; ++i) {
      const bool isSent = type == MPI_BYTE || i / static_cast<int>(sizeof(int)) % 2 == 0;
      expect(received.data()[i] == (isSent ? value + last : 99), "what was sent has arrived", i);
    }
  }
  expectSuccess(MPI_Allreduce(MPI_IN_PLACE, received.data(), kBytes, MPI_BYTE, MPI_BXOR, comm),
                "MPI_Allreduce");
  MPI_Type_free(&columns);
  MPI_Type_vector(2, 1, 3, MPI_INT, &columns);  // not committed
  int errorClass = MPI_SUCCESS;
  MPI_Error_class(MPI_Send(sent.data(), 1, columns, MPI_PROC_NULL, 1, comm), &errorClass);
  expect(errorClass == MPI_ERR_TYPE, "MPI refuses a type that is not committed");
  MPI_Type_free(&columns);
}

}  // namespace

int main(int argc, char** argv) {
  // (MPICH 4.0 crashes in the next MPI_Session_init after the last session's end.)
  auto* const first = new Session;
  exchange(first->comm(), 10);
  auto* const second = new Session;
  exchange(second->comm(), 40);
  exchange(first->comm(), 50);
  delete first;
  exchange(second->comm(), 60);
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  exchange(MPI_COMM_WORLD, 70);
  exchange(second->comm(), 80);
  MPI_Finalize();
  exchange(second->comm(), 90);
  delete second;
  // (Launchers mix the lines of several ranks.)
  if (rank == 0) std::puts("sessions are right");
}
#else
int main() {}
#endif
